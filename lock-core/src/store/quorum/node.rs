//! A node of a quorum: what it is asked, and whether the log says that it votes.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join;
use once_cell::sync::Lazy;
use redis::{Cmd, RedisResult, Value, cmd};
use tokio::time::Instant;

use super::ballot::{ACQUIRE, Ballot, RELEASE, by_text};
use super::causes::Failure;
use super::leftovers::Leftovers;
use super::note::{Run, Statement, Vetted, counter_of, note};
use super::rtt::RttEstimator;
use super::session::{Admitted, Sessions};
use crate::base::sync::lock;
use crate::store::StoreError;
use crate::store::redis::{
    Arg, Connection, Script, Server, classify, scanned, script, unless_lost,
};

static VET: Lazy<Script> = script!("quorum vet", "quorum/vet.lua");

/// A node of the quorum.
pub(super) struct Member {
    pub(super) index: usize,
    /// Its name in the notes of the quorum.
    pub(super) label: String,
    pub(super) address: Arc<str>,
    pub(super) server: Arc<Server>,
    /// In front of every name there.
    pub(super) namespace: Arc<str>,
    pub(super) rtt: RttEstimator,
    pub(super) presence: Presence,
    pub(super) sessions: Sessions,
    pub(super) leftovers: Mutex<Leftovers>,
}

impl Member {
    pub(super) fn new(
        index: usize,
        label: String,
        server: Arc<Server>,
        namespace: &Arc<str>,
    ) -> Self {
        Self {
            index,
            label,
            address: server.address(),
            server,
            namespace: Arc::clone(namespace),
            rtt: RttEstimator::default(),
            presence: Presence::default(),
            sessions: Sessions::default(),
            leftovers: Mutex::default(),
        }
    }

    pub(super) fn failed(&self, error: StoreError) -> Failure {
        Failure {
            node: self.index,
            address: Arc::clone(&self.address),
            error,
        }
    }

    /// Sends a request without a time limit: the caller sets one. If there is a connection, the first poll of the future puts
    /// the request on its way. If the server does not have the script, its text goes out only if the request is still `wanted`. A
    /// request for votes belongs to the connection that was vetted, and names the key of the node's counter.
    pub(super) async fn send(
        &self,
        ballot: &Ballot,
        admitted: Option<&Admitted>,
        wanted: impl Fn() -> bool,
    ) -> Result<Value, StoreError> {
        let Ballot { script, command } = ballot;
        let mut command = Cow::Borrowed(command);
        if let Some(Admitted { counter, .. }) = admitted {
            command.to_mut().arg(&**counter);
        }
        let answer = self.put(&command, admitted).await;
        let again = async || self.put(&by_text(script, &command), admitted).await;
        let answer = unless_lost(answer, || wanted().then(again)).await;
        answer.map_err(classify)
    }

    async fn put(&self, command: &Cmd, admitted: Option<&Admitted>) -> RedisResult<Value> {
        match admitted {
            Some(Admitted { connection, .. }) => {
                self.server.request_on(connection, command, false).await
            }
            None => self.server.request(command).await,
        }
    }

    async fn ask(&self, connection: &Connection, command: &Cmd) -> Result<Value, StoreError> {
        let answer = self.server.request_on(connection, command, false).await;
        answer.map_err(classify)
    }

    /// A request was not answered within the command deadline.
    pub(super) fn went_silent(&self) {
        self.server.went_silent(self.server.limit());
    }

    /// Loads the scripts whose order matters, in one go. If the server does not allow that, each text goes out with its first
    /// call.
    pub(super) async fn load(&self, connection: &Connection) -> Result<(), StoreError> {
        let load = async |script: &Script| {
            let mut load = cmd("SCRIPT");
            load.arg("LOAD").arg(&*script.source);
            self.ask(connection, &load).await
        };
        let (acquire, release) = join(load(&ACQUIRE), load(&RELEASE)).await;
        for loaded in [acquire, release] {
            match loaded {
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

    /// The run of the server behind a connection.
    pub(super) async fn run(&self, connection: &Connection) -> Result<Run, StoreError> {
        Run::read(self.ask(connection, &Run::info()).await?)
    }

    /// The key of its counter of fencing tokens, in this boot.
    pub(super) fn counter_of(&self, boot: &str) -> String {
        counter_of(note(&self.namespace), boot)
    }

    /// Asks the server behind a connection whether it votes.
    pub(super) async fn vet(
        &self,
        connection: &Connection,
        statement: Statement<'_>,
    ) -> Result<Vetted, StoreError> {
        let args = statement.args();
        let args = args.each_ref().map(|arg| Arg::Text(arg));
        // By its text: a new server does not know it, and that would cost another round trip.
        let vet = VET.by_text(&[note(&self.namespace)], &args);
        Vetted::read(&self.ask(connection, &vet).await?)
    }
}

/// A node that votes again within this time is not worth a line.
const SHORT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Since when the node has not voted, and whether the log says so.
    absent: Mutex<Option<(Instant, bool)>>,
    /// Whether there is something in `absent`: each vote asks for it.
    is_absent: AtomicBool,
}

impl Presence {
    /// The node has voted. Returns how long it had not, if the log says that it had stopped.
    pub(super) fn voted(&self) -> Option<Duration> {
        if !self.is_absent.load(Ordering::Relaxed) {
            return None;
        }
        let mut absent = lock(&self.absent);
        self.is_absent.store(false, Ordering::Relaxed);
        let (since, _) = absent.take().filter(|(_, is_said)| *is_said)?;
        Some(since.elapsed())
    }

    /// The node gave no vote. Returns whether a warning is due.
    pub(super) fn gave_none(&self) -> bool {
        let mut absent = lock(&self.absent);
        self.is_absent.store(true, Ordering::Relaxed);
        let (since, is_said) = absent.get_or_insert_with(|| (Instant::now(), false));
        let is_due = !*is_said && since.elapsed() >= SHORT;
        *is_said |= is_due;
        is_due
    }

    /// Whether the log says that the node has stopped.
    pub(super) fn is_said_to_be_absent(&self) -> bool {
        self.is_absent.load(Ordering::Relaxed)
            && lock(&self.absent).is_some_and(|(_, is_said)| is_said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_stops_is_said_once_and_so_is_its_return() {
        let presence = Presence::default();
        assert!(presence.voted().is_none() && !presence.gave_none());
        assert!(presence.voted().is_none(), "too short for a line");
        assert!(!presence.gave_none());
        tokio::time::advance(SHORT).await;
        assert!(presence.gave_none() && presence.is_said_to_be_absent());
        assert!(!presence.gave_none(), "once");
        assert_eq!(presence.voted(), Some(SHORT));
        assert!(presence.voted().is_none() && !presence.is_said_to_be_absent());
    }
}
