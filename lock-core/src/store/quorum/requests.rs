//! What a node of a quorum is asked.
//!
//! The future of a request borrows nothing, so it can end in the background after the other nodes have decided.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::join;
use once_cell::sync::Lazy;
use redis::{Cmd, Value, cmd};

use super::ballot::{ACQUIRE, Ballot, RELEASE, by_text};
use super::members::Member;
use super::vetting::{Run, Statement, Vetted, counter_of, note};
use crate::base::error::Cause;
use crate::store::StoreError;
use crate::store::redis::{Arg, Script, classify, scanned, script, unless_lost};

static VET: Lazy<Script> = script!("quorum vet", "quorum/vet.lua");

impl Member {
    /// Makes the connection if there is none.
    pub(super) async fn ready(&self) -> Result<u64, StoreError> {
        self.server.ready().await?;
        let broke = || StoreError::NotNow(Cause::of(Arc::new(ConnectionBroke)));
        self.server.generation().ok_or_else(broke)
    }

    /// Sends a request without a time limit: the caller sets one. If there is a connection, the first poll of the future puts
    /// the request on its way, behind all earlier ones. If the server does not have the script, its text goes out only if the
    /// request is still `wanted`. A request for votes names the key of the node's counter.
    pub(super) async fn send(
        &self,
        ballot: &Ballot,
        counter: Option<&str>,
        wanted: impl Fn() -> bool,
    ) -> Result<Value, StoreError> {
        let Ballot { script, command } = ballot;
        let mut command = Cow::Borrowed(command);
        if let Some(counter) = counter {
            command.to_mut().arg(counter);
        }
        let answer = self.server.request(&*command).await;
        let again = || wanted().then(|| self.server.request(by_text(script, &command)));
        let answer = unless_lost(answer, again).await;
        answer.map_err(classify)
    }

    /// A request was not answered within the command deadline.
    pub(super) fn went_silent(&self) {
        self.server.went_silent(self.server.limit());
    }

    /// Loads the scripts whose order matters, in one go. If the server does not allow that, each text goes out with its first
    /// call.
    pub(super) async fn load(&self) -> Result<(), StoreError> {
        let load = |script: &Script| {
            let mut load = cmd("SCRIPT");
            load.arg("LOAD").arg(&*script.source);
            self.server.request(load)
        };
        let (acquire, release) = join(load(&ACQUIRE), load(&RELEASE)).await;
        for loaded in [acquire, release] {
            match loaded.map_err(classify) {
                Ok(_) | Err(StoreError::Misconfigured(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The names of a page, and the next cursor, 0 after the last page.
    pub(super) async fn scan(&self, page: Cmd) -> Result<(Vec<String>, u64), StoreError> {
        scanned(self.server.ask(page).await?)
    }

    /// The current run of the server.
    pub(super) async fn run(&self) -> Result<Run, StoreError> {
        Run::read(self.server.request(Run::info()).await.map_err(classify)?)
    }

    /// The current run of the server to which the address leads now: on a connection of its own, since an old one may lead to
    /// another server.
    pub(super) async fn run_at_address(&self) -> Result<Run, StoreError> {
        let info = self.server.request_anew(&Run::info()).await;
        Run::read(info.map_err(classify)?)
    }

    /// The key of its counter of fencing tokens, in this boot.
    pub(super) fn counter_of(&self, boot: &str) -> String {
        counter_of(note(&self.namespace), boot)
    }

    /// Asks the node whether it votes.
    pub(super) async fn vet(&self, statement: Statement<'_>) -> Result<Vetted, StoreError> {
        let args = statement.args();
        let args = args.each_ref().map(|arg| Arg::Text(arg));
        // By its text: a new server does not know it, and that would cost another round trip.
        let answer = self
            .server
            .request(VET.by_text(&[note(&self.namespace)], &args))
            .await;
        Vetted::read(&answer.map_err(classify)?)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the connection broke as soon as it was made")]
struct ConnectionBroke;
