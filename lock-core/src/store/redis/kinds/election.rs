//! What is announced of the leader of an election, whose lock is an exclusive one: a record beside the lock, and a message.

use once_cell::sync::Lazy;
use redis::Value;

use crate::base::key::{Announced, LockKey};
use crate::base::snapshot::LeaderSnapshot;
use crate::base::token::Token;
use crate::store::redis::error::garbled;
use crate::store::redis::reply::{Parsed, lossy, millis, number, text, word};
use crate::store::redis::script::{Script, script};
use crate::store::redis::servers::RedisStore;
use crate::store::redis::wire::{Arg, Name, announced};

pub(in crate::store) static ANNOUNCE: Lazy<Script> =
    script!("election announce", "prelude.lua", "election/announce.lua");
pub(in crate::store) static LEADER: Lazy<Script> =
    script!("election leader", "prelude.lua", "election/leader.lua");

pub(in crate::store) fn keys(key: &LockKey) -> [Name<'_>; 2] {
    [key.lock().into(), announced(key, Announced::Leader)]
}

/// The arguments of [`ANNOUNCE`]: the holder with its term and its value, or the one that has resigned.
pub(in crate::store) fn args<'a>(token: &'a Token, leads: Option<(u64, &'a str)>) -> Vec<Arg<'a>> {
    let mut args = vec![Arg::Bytes(token.as_bytes())];
    args.extend(
        leads
            .into_iter()
            .flat_map(|(term, value)| [Arg::Number(term), Arg::Text(value)]),
    );
    args
}

pub(in crate::store) async fn announce(
    store: &RedisStore,
    key: &LockKey,
    token: &Token,
    leads: Option<(u64, &str)>,
) -> Parsed<()> {
    let args = args(token, leads);
    store.run(&ANNOUNCE, &keys(key), &args).await.map(|_| ())
}

pub(in crate::store) async fn leader(store: &RedisStore, key: &LockKey) -> Parsed<LeaderSnapshot> {
    read(&store.run(&LEADER, &keys(key), &[]).await?)
}

/// The reply to [`LEADER`].
pub(in crate::store) fn read(value: &Value) -> Parsed<LeaderSnapshot> {
    let Value::Array(parts) = value else {
        return Err(garbled());
    };
    match (text(parts.first()), &parts[..]) {
        (_, []) => Ok(LeaderSnapshot::Free),
        (None, [left]) => Ok(LeaderSnapshot::Unknown {
            remaining: millis(left)?,
        }),
        (None, [left, term, value]) => Ok(LeaderSnapshot::Leads {
            term: number(term)?,
            value: lossy(value)?,
            remaining: millis(left)?,
        }),
        (Some("foreign"), [_, kind]) => Ok(LeaderSnapshot::Foreign { kind: word(kind)? }),
        _ => Err(garbled()),
    }
}
