//! One master of a quorum: its own link, and the scripts of its votes.
//!
//! A request is made once and sent to every node. Its future borrows nothing, so it can end in the background after the other
//! nodes have decided.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use once_cell::sync::Lazy;
use redis::{Cmd, Value, cmd};
use tokio::time::timeout;

use super::error::{classify, garbled, no_reply};
use super::link::Link;
use super::list;
use super::script::{self, Script, script};
use super::source::Source;
use super::target::Target;
use super::vetting::{Run, Statement, Vetted};
use super::wire::{Arg, CHANNELS, renewed};
use crate::LockError;
use crate::config::Config;
use crate::error::Cause;
use crate::key::{LockKey, Name, Names};
use crate::rt::Handle;
use crate::store::{Attempt, EventSink, Mode, Renewal, StoreError};
use crate::time::Moment;
use crate::token::{ClientId, Token};

/// Key of the note of a node (see `vet.lua`).
const NOTE: Name<'static> = Name::fixed("lock-core:quorum");

static ACQUIRE: Lazy<Script> = script!(
    "quorum acquire",
    "quorum/acquire_free.lua",
    "prelude.lua",
    "quorum/counter.lua",
    "quorum/offer.lua",
    "quorum/acquire.lua"
);
static RELEASE: Lazy<Script> = script!(
    "quorum release",
    "quorum/release_free.lua",
    "prelude.lua",
    "quorum/offer.lua",
    "quorum/release.lua"
);
static FORCE_RELEASE: Lazy<Script> = script!(
    "quorum force_release",
    "prelude.lua",
    "quorum/offer.lua",
    "quorum/force_release.lua"
);
static EXTEND: Lazy<Script> = script!(
    "quorum extend",
    "quorum/extend.lua",
    "prelude.lua",
    "extend.lua"
);
static HEAL: Lazy<Script> = script!("quorum heal", "quorum/heal.lua");
static RAISE: Lazy<Script> = script!("quorum raise", "quorum/raise.lua");
static INSPECT: Lazy<Script> = script!(
    "quorum inspect",
    "quorum/inspect.lua",
    "prelude.lua",
    "inspect.lua"
);
static VET: Lazy<Script> = script!("quorum vet", "quorum/vet.lua");

/// A request to any number of nodes.
pub(crate) struct Ballot {
    script: &'static Script,
    command: Cmd,
}

impl Ballot {
    fn new(script: &'static Script, keys: &[Name<'_>], args: &[Arg<'_>]) -> Arc<Self> {
        let command = script.by_hash(keys, args);
        Arc::new(Self { script, command })
    }

    /// A request for the votes for a lock, which the nodes keep for `kept`, by a client that receives messages or polls. Waiters
    /// are queued in the order of their tickets. `None` for a kind without a quorum.
    pub(crate) fn acquire(
        attempt: Attempt<'_>,
        kept: Duration,
        pushes: bool,
        ticket: u64,
    ) -> Option<Arc<Self>> {
        let (queue, waiters) = names(attempt.key)?;
        let mode = match attempt.mode {
            Mode::Try => "try",
            Mode::Wait => "wait",
        };
        let hears = if pushes { "push" } else { "poll" };
        let waiter = format!("{mode} {} {hears} {ticket}", attempt.alive_for.as_millis());
        let args = [
            Arg::Text(attempt.token.as_str()),
            Arg::Millis(kept),
            Arg::Text(&waiter),
            Arg::Number(attempt.reserve + 1),
        ];
        let given = if attempt.reserve == 0 { 3 } else { 4 };
        let keys = [attempt.key.lock().into(), queue, waiters];
        Some(Self::new(&ACQUIRE, &keys, &args[..given]))
    }

    /// Takes back everything a token has. With `offer`, the lock was held, and its votes are offered to the waiters.
    pub(crate) fn release(key: &LockKey, token: &Token, offer: bool) -> Option<Arc<Self>> {
        let (queue, waiters) = names(key)?;
        let args = [Arg::Text(token.as_str()), Arg::Text("undo")];
        let given = if offer { 1 } else { 2 };
        let keys = [key.lock().into(), queue, waiters];
        Some(Self::new(&RELEASE, &keys, &args[..given]))
    }

    /// Takes the votes from any holder, or only from this client.
    pub(crate) fn force_release(key: &LockKey, client: Option<&str>) -> Option<Arc<Self>> {
        let (queue, waiters) = names(key)?;
        let args = [Arg::Text(CHANNELS), Arg::Text(client.unwrap_or_default())];
        let keys = [key.lock().into(), queue, waiters];
        Some(Self::new(&FORCE_RELEASE, &keys, &args))
    }

    /// A renewal of votes, for the ttls that the renewals say.
    pub(crate) fn extend(renewals: &[Renewal<'_>]) -> Arc<Self> {
        let (keys, args) = renewed(renewals);
        Self::new(&EXTEND, &keys, &args)
    }

    pub(crate) fn heal(renewal: Renewal<'_>) -> Arc<Self> {
        let args = [Arg::Text(renewal.token.as_str()), Arg::Millis(renewal.ttl)];
        Self::new(&HEAL, &[renewal.key.lock().into()], &args)
    }

    /// Raises the counter of each node that has voted for this token.
    pub(crate) fn raise(key: &LockKey, token: &Token, least: u64) -> Arc<Self> {
        let args = [Arg::Text(token.as_str()), Arg::Number(least)];
        Self::new(&RAISE, &[key.lock().into()], &args)
    }

    pub(crate) fn inspect(key: &LockKey) -> Option<Arc<Self>> {
        let (queue, _) = names(key)?;
        let keys = [key.lock().into(), queue];
        Some(Self::new(&INSPECT, &keys, &[]))
    }
}

fn names(key: &LockKey) -> Option<(Name<'_>, Name<'_>)> {
    match key.names() {
        Names::Exclusive { queue, waiters } => Some((queue, waiters)),
        Names::Reentrant { .. } => None,
    }
}

/// Reads an answer of yes (1) or no (0).
pub(crate) fn yes(value: &Value) -> Result<bool, StoreError> {
    match value {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        _ => Err(garbled()),
    }
}

/// The connection to one master of a quorum.
pub(crate) struct Master {
    link: Arc<Link>,
    limit: Duration,
}

impl Master {
    /// Sends nothing before [`ready`](Self::ready).
    pub(crate) fn open(url: &str, config: &Config) -> Result<Self, LockError> {
        let limit = config.command_deadline;
        Ok(Self {
            link: Link::open(Source::fixed(Target::parse(url, config)?), limit),
            limit,
        })
    }

    /// Host and port, without the password.
    pub(crate) fn address(&self) -> Arc<str> {
        self.link.address()
    }

    pub(crate) fn attach(&self, client: &ClientId, sink: EventSink, runtime: Handle) {
        self.link.attach(client, sink, runtime);
    }

    pub(crate) fn pushes(&self) -> bool {
        self.link.pushes()
    }

    /// Makes the connection if there is none.
    pub(crate) async fn ready(&self) -> Result<u64, StoreError> {
        match timeout(self.limit, self.link.connection()).await {
            Ok(Ok(_)) => self
                .generation()
                .ok_or_else(|| StoreError::NotNow(Cause::new(Arc::new(ConnectionBroke)))),
            Ok(Err(error)) => Err(classify(error)),
            Err(_) => Err(StoreError::NotNow(no_reply(self.limit))),
        }
    }

    /// The generation of the connection in use, if any. It only grows.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.link.generation()
    }

    /// Sends a request without a time limit: the caller sets one. If there is a connection, the first poll of the future puts
    /// the request on its way, behind all earlier ones. If the server does not have the script, its text goes out only if the
    /// request is still `wanted`. A request for votes names the key of the node's counter.
    pub(crate) async fn send_while(
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
        let answer = self.link.request(&*command).await;
        let again = || wanted().then(|| self.link.request(by_text(script, &command)));
        let answer = script::unless_lost(answer, again).await;
        answer.map_err(classify)
    }

    /// A request was not answered within the command deadline.
    pub(crate) fn went_silent(&self) {
        self.link.went_silent(self.limit);
    }

    /// Loads the scripts whose order matters, in one go. If the server does not allow that, each text goes out with its first
    /// call.
    pub(crate) async fn load(&self) -> Result<(), StoreError> {
        let load = |script: &Script| {
            let mut load = cmd("SCRIPT");
            load.arg("LOAD").arg(&*script.source);
            self.link.request(load)
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

    /// A page of the names that begin with the prefix, and the next cursor, 0 after the last page.
    pub(crate) async fn scan(
        &self,
        prefix: &str,
        cursor: u64,
    ) -> Result<(Vec<String>, u64), StoreError> {
        let answer = timeout(self.limit, self.link.request(list::page(prefix, cursor))).await;
        let answer = answer.map_err(|_| StoreError::NotNow(no_reply(self.limit)))?;
        list::scanned(answer.map_err(classify)?)
    }

    /// The current run of the server.
    pub(crate) async fn run(&self) -> Result<Run, StoreError> {
        Run::read(self.link.request(Run::info()).await.map_err(classify)?)
    }

    /// The current run of the server to which the address leads now: on a connection of its own, since an old one may lead to
    /// another server.
    pub(crate) async fn run_at_address(&self) -> Result<Run, StoreError> {
        let info = self.link.request_anew(&Run::info()).await;
        Run::read(info.map_err(classify)?)
    }

    /// The address leads to another server: the next request makes a new connection.
    pub(crate) fn leave(&self, generation: u64) {
        self.link.discard(generation);
    }

    /// The time before the connection of this generation was made, if it is still in use.
    pub(crate) fn dialled(&self, generation: u64) -> Option<Moment> {
        let live = self.link.current();
        live.filter(|live| live.generation == generation)
            .map(|live| live.dialled)
    }

    /// Asks the node whether it votes.
    pub(crate) async fn vet(&self, statement: Statement<'_>) -> Result<Vetted, StoreError> {
        let args = statement.args();
        let args = args.each_ref().map(|arg| Arg::Text(arg));
        // By its text: a new server does not know it, and that would cost another round trip.
        let answer = self.link.request(VET.by_text(&[NOTE], &args)).await;
        Vetted::read(&answer.map_err(classify)?)
    }
}

/// The same call with the text of the script in place of its hash.
fn by_text(script: &Script, by_hash: &Cmd) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(&*script.source);
    for word in by_hash.args_iter().skip(2) {
        if let redis::Arg::Simple(word) = word {
            command.arg(word);
        }
    }
    command
}

#[derive(Debug, thiserror::Error)]
#[error("the connection broke as soon as it was made")]
struct ConnectionBroke;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_by_text_has_the_same_keys_and_arguments() {
        let (script, args) = (&*RAISE, [Arg::Text("one"), Arg::Number(7)]);
        let by_hash = script.by_hash(&[NOTE], &args);
        let words = |command: &Cmd| -> Vec<Vec<u8>> {
            let words = command.args_iter().filter_map(|word| match word {
                redis::Arg::Simple(word) => Some(word.to_vec()),
                _ => None,
            });
            words.collect()
        };
        let (hash, text) = (words(&by_hash), words(&by_text(script, &by_hash)));
        assert_eq!((&*hash[0], &*text[0]), (&b"EVALSHA"[..], &b"EVAL"[..]));
        assert!(text[1].starts_with(b"-- Raises"));
        assert_eq!(hash[2..], text[2..]);
    }
}
