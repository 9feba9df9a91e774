//! What the nodes of a quorum are asked, and how their answers are read. A request is made once and sent to every node.

use std::sync::Arc;
use std::time::Duration;

use once_cell::sync::Lazy;
use redis::{Cmd, Value, cmd};

use super::causes::stale;
use super::note::note;
use super::tokens::{VoteClaim, stored};
use crate::base::key::LockKey;
use crate::base::refusal::Refusal;
use crate::base::token::Token;
use crate::store::redis::{
    Arg, Name, Script, garbled, millis, name, queue, renewed, script, text, waiters, word,
};
use crate::store::{Attempt, Mode, Renewal, StoreError};

pub(super) static ACQUIRE: Lazy<Script> = script!(
    "quorum acquire",
    "quorum/acquire_free.lua",
    "prelude.lua",
    "quorum/vote.lua",
    "quorum/counter.lua",
    "quorum/offer.lua",
    "quorum/acquire.lua"
);
pub(super) static RELEASE: Lazy<Script> = script!(
    "quorum release",
    "quorum/release_free.lua",
    "prelude.lua",
    "quorum/vote.lua",
    "quorum/offer.lua",
    "quorum/release.lua"
);
static UNDO: Lazy<Script> = script!(
    "quorum undo",
    "prelude.lua",
    "quorum/vote.lua",
    "quorum/undo.lua"
);
static FORCE_RELEASE: Lazy<Script> = script!(
    "quorum force_release",
    "prelude.lua",
    "quorum/vote.lua",
    "quorum/offer.lua",
    "quorum/force_release.lua"
);
static EXTEND: Lazy<Script> = script!(
    "quorum extend",
    "quorum/extend.lua",
    "prelude.lua",
    "extend.lua"
);
static HEAL: Lazy<Script> = script!("quorum heal", "quorum/vote.lua", "quorum/heal.lua");
static RAISE: Lazy<Script> = script!("quorum raise", "quorum/raise.lua");
static INSPECT: Lazy<Script> = script!(
    "quorum inspect",
    "quorum/inspect.lua",
    "prelude.lua",
    "queued.lua",
    "inspect.lua"
);

/// A request to any number of nodes.
pub(super) struct Ballot {
    pub(super) script: &'static Script,
    pub(super) command: Cmd,
}

impl Ballot {
    pub(super) fn new(script: &'static Script, keys: &[Name<'_>], args: &[Arg<'_>]) -> Arc<Self> {
        let command = script.by_hash(keys, args);
        Arc::new(Self { script, command })
    }

    /// A request for the votes for a lock, which the nodes keep for `kept`, by a client that receives messages or polls. Waiters
    /// are queued in the order of their tickets.
    pub(super) fn acquire(
        attempt: Attempt<'_>,
        claim: &VoteClaim,
        kept: Duration,
        pushes: bool,
    ) -> Arc<Self> {
        let ticket = claim.ticket;
        let mode = match attempt.mode {
            Mode::Try => "try",
            Mode::Wait => "wait",
        };
        let hears = if pushes { "push" } else { "poll" };
        let waiter = format!("{mode} {} {hears} {ticket}", attempt.alive_for.as_millis());
        let vote = stored(attempt.token, claim.edition.number);
        let args = [
            Arg::Text(&vote),
            Arg::Millis(kept),
            Arg::Text(&waiter),
            Arg::Number(attempt.reserve + 1),
        ];
        let given = if attempt.reserve == 0 { 3 } else { 4 };
        let keys = beside(attempt.key);
        Self::new(&ACQUIRE, &keys, &args[..given])
    }

    /// Takes back everything a token has, with votes up to this edition.
    pub(super) fn release(key: &LockKey, token: &Token, edition: u64) -> Arc<Self> {
        let vote = stored(token, edition);
        Self::new(&RELEASE, &beside(key), &[Arg::Text(&vote)])
    }

    /// Takes back votes up to this edition.
    pub(super) fn undo(key: &LockKey, token: &Token, edition: u64) -> Arc<Self> {
        let vote = stored(token, edition);
        Self::new(&UNDO, &[key.lock().into()], &[Arg::Text(&vote)])
    }

    /// Takes back what this request for a vote may have left.
    pub(super) fn undone(&self) -> Arc<Self> {
        let (lock, vote) = self.asked_for();
        Self::new(&UNDO, &[lock], &[vote])
    }

    /// Asks for the same vote for a lock that is won.
    pub(super) fn completed(&self, kept: Duration) -> Arc<Self> {
        let (lock, vote) = self.asked_for();
        Self::new(&HEAL, &[lock], &[vote, Arg::Millis(kept)])
    }

    /// The lock and the vote of a request for a vote.
    fn asked_for(&self) -> (Name<'_>, Arg<'_>) {
        let words = self.command.args_iter().filter_map(|word| match word {
            redis::Arg::Simple(word) => Some(word),
            _ => None,
        });
        // Behind the name and the hash: the number of keys, the lock, other keys, the vote.
        let words: Vec<&[u8]> = words.skip(2).collect();
        let text = |word: usize| str::from_utf8(words[word]).unwrap_or_default();
        let keys: usize = text(0).parse().unwrap_or(1);
        (text(1).into(), Arg::Bytes(words[1 + keys]))
    }

    pub(super) fn is_release(&self) -> bool {
        std::ptr::eq(self.script, &raw const *RELEASE)
    }

    /// Takes the votes from any holder, or only from this client.
    pub(super) fn force_release(key: &LockKey, client: Option<&str>) -> Arc<Self> {
        let args = [Arg::Text(client.unwrap_or_default())];
        Self::new(&FORCE_RELEASE, &beside(key), &args)
    }

    /// A renewal of these votes, for the ttls that the renewals say.
    pub(super) fn extend<'a>(renewals: &[Renewal<'a>], votes: &'a [String]) -> Arc<Self> {
        let (keys, mut args) = renewed(renewals);
        for (arg, vote) in args.iter_mut().zip(votes) {
            *arg = Arg::Text(vote);
        }
        Self::new(&EXTEND, &keys, &args)
    }

    pub(super) fn heal(renewal: Renewal<'_>, edition: u64) -> Arc<Self> {
        let vote = stored(renewal.token, edition);
        let args = [Arg::Text(&vote), Arg::Millis(renewal.ttl)];
        Self::new(&HEAL, &[renewal.key.lock().into()], &args)
    }

    /// Raises the counter of each node that has voted for this edition of a token.
    pub(super) fn raise(key: &LockKey, token: &Token, edition: u64, least: u64) -> Arc<Self> {
        let vote = stored(token, edition);
        let args = [Arg::Text(&vote), Arg::Number(least)];
        Self::new(&RAISE, &[key.lock().into()], &args)
    }

    pub(super) fn inspect(key: &LockKey) -> Arc<Self> {
        let [lock, queue, waiters] = beside(key);
        let keys = [lock, queue, waiters, note(key.namespace())];
        Self::new(&INSPECT, &keys, &[])
    }
}

fn beside(key: &LockKey) -> [Name<'_>; 3] {
    [key.lock().into(), queue(key), waiters(key)]
}

/// Reads an answer of yes (1) or no (0).
pub(super) fn yes(value: &Value) -> Result<bool, StoreError> {
    match value {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        _ => Err(garbled()),
    }
}

/// The answer of one node to [`Ballot::acquire`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Vote {
    /// The first of its fencing tokens, and the clock of the node, ms.
    Granted {
        minted: u64,
        clock: i64,
    },
    Busy {
        left: Duration,
        client: String,
        /// The name of this client, if it has one.
        name: Option<Box<str>>,
        /// Whether it is a client of another kind.
        is_foreign: bool,
    },
    Refused(Refusal),
}

/// What a node that was asked for a vote has done, as far as the votes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cast {
    /// It has voted, also again.
    Given,
    Refused,
}

impl Cast {
    pub(super) fn read(value: &Value) -> Self {
        match value {
            Value::Int(0) => Self::Refused,
            Value::Array(parts) if !matches!(parts.first(), Some(Value::Int(_))) => Self::Refused,
            _ => Self::Given,
        }
    }
}

/// Whether the node has no counter of the name that the client knows: it has lost data, and has to be vetted.
pub(super) fn is_unknown(value: &Value) -> bool {
    matches!(value, Value::Array(parts) if parts.len() == 1 && text(parts.first()) == Some("unknown"))
}

impl Vote {
    pub(super) fn read(value: &Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(parts) => match (text(parts.first()), &parts[..]) {
                (None, [Value::Int(minted @ 1..), Value::Int(clock)]) => Ok(Self::Granted {
                    minted: *minted as u64,
                    clock: *clock,
                }),
                (Some("busy"), [_, left, client, node_name]) => Ok(Self::Busy {
                    name: name(node_name),
                    // Each client of this library has a name.
                    is_foreign: text(Some(node_name)) == Some(""),
                    left: millis(left)?,
                    // The token of another client may be any bytes, cut anywhere.
                    client: match client {
                        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                        _ => return Err(garbled()),
                    },
                }),
                (Some("stale"), [_]) => Err(stale()),
                (Some("foreign"), [_, kind]) => Ok(Self::Refused(Refusal::Foreign(word(kind)?))),
                _ => Err(garbled()),
            },
            _ => Err(garbled()),
        }
    }
}

/// The same call with the text of the script in place of its hash.
pub(super) fn by_text(script: &Script, by_hash: &Cmd) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(&*script.source);
    for word in by_hash.args_iter().skip(2) {
        if let redis::Arg::Simple(word) = word {
            command.arg(word);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_by_text_has_the_same_keys_and_arguments() {
        let (script, args) = (&*RAISE, [Arg::Text("one"), Arg::Number(7)]);
        let by_hash = script.by_hash(&["a".into()], &args);
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

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn every_vote_is_understood_and_garbage_is_none() {
        let read = Vote::read;
        let granted = Value::Array(vec![Value::Int(9), Value::Int(7)]);
        let (minted, clock) = (9, 7);
        assert_eq!(read(&granted).unwrap(), Vote::Granted { minted, clock });
        let busy = Value::Array(vec![bulk("busy"), Value::Int(40), bulk("0a"), bulk("n")]);
        let left = Duration::from_millis(40);
        let client = "0a".to_owned();
        assert_eq!(
            read(&busy).unwrap(),
            Vote::Busy {
                left,
                client,
                name: Some("n".into()),
                is_foreign: false,
            }
        );
        let zero = Value::Array(vec![Value::Int(0), Value::Int(7)]);
        for garbage in [
            Value::Nil,
            Value::Int(9),
            zero,
            Value::Array(vec![bulk("busy")]),
        ] {
            assert!(read(&garbage).is_err(), "{garbage:?}");
        }
    }
}
