//! The reentrant kind: Redisson's `RLock` on the wire, with the scripts of `scripts/reentrant`.

use std::sync::Arc;

use once_cell::sync::Lazy;
use redis::{Cmd, Value};

use crate::base::key::{LockKey, Prefix};
use crate::base::kind::Kind;
use crate::base::token::{Bearer, CLIENT_LEN, Token};
use crate::store::redis::error::garbled;
use crate::store::redis::reply::{self, Parsed, millis, number, text, word};
use crate::store::redis::route::RedisStore;
use crate::store::redis::script::{Script, script};
use crate::store::redis::server::call::Purpose;
use crate::store::redis::server::list;
use crate::store::redis::wire::{Arg, Guard, Name};
use crate::store::{
    Answer, Attempt, GuardedCall, OrRefused, Released, Renewal, Snapshot, SnapshotState,
};

static ACQUIRE: Lazy<Script> = script!(
    "reentrant acquire",
    "prelude.lua",
    "mint.lua",
    "reentrant/rlock.lua",
    "reentrant/acquire.lua"
);
static RELEASE: Lazy<Script> = script!(
    "reentrant release",
    "prelude.lua",
    "reentrant/rlock.lua",
    "reentrant/release.lua"
);
static EXTEND: Lazy<Script> = script!(
    "reentrant extend",
    "prelude.lua",
    "reentrant/rlock.lua",
    "reentrant/extend.lua"
);
static INSPECT: Lazy<Script> = script!(
    "reentrant inspect",
    "prelude.lua",
    "reentrant/rlock.lua",
    "reentrant/inspect.lua"
);
static FORCE_RELEASE: Lazy<Script> = script!(
    "reentrant force_release",
    "prelude.lua",
    "reentrant/rlock.lua",
    "reentrant/force_release.lua"
);

/// The commands that announce a release. The second one only in a cluster, where Redisson hears nothing else.
const PUBLISH: Arg<'static> = Arg::Text("PUBLISH");
const PUBLISH_IN_SLOT: Arg<'static> = Arg::Text("SPUBLISH");

/// A guarded script runs only if all of these are in the hash.
const HELD: &str = "{redis.pcall('HEXISTS', KEYS[1], 'lock-core:tenure'), 1}, \
     {redis.pcall('HEXISTS', table.remove(KEYS, 1), table.remove(ARGV, 1)), 1}, \
     {redis.pcall('HEXISTS', table.remove(KEYS, 1), table.remove(ARGV, 1)), 1}";

/// Prefix of the hashes of the acquisitions that are counted in a lock.
const HOLDS: &str = "lock-core:holds:";

/// The hash of the acquisitions that are counted in the lock.
fn holds(key: &LockKey) -> Name<'_> {
    Name::beside(key, HOLDS, key.tagged())
}

/// The channel that announces every full release. Redisson's rule: a name with a tag stands as it is, any other becomes the tag.
fn announced_on(key: &LockKey) -> Name<'_> {
    Name::beside(key, "redisson_lock__channel:", key.with_tag())
}

/// An acquisition without an owner is its own owner: its token has the same form, and is unique.
fn or_token<'a>(owner: Option<&'a str>, token: &'a Token) -> Arg<'a> {
    Arg::Text(owner.unwrap_or_else(|| token.as_str()))
}

// The calls of an acquisition are boxed: those of an exclusive lock are in the same future, and small.
pub(crate) async fn acquire(store: &RedisStore, attempt: Attempt<'_>) -> Parsed<Answer> {
    let key = attempt.key;
    let value = Box::pin(async {
        let keys = [key.lock().into(), holds(key), store.fence(key)];
        let args = [
            or_token(attempt.claim.owner(), attempt.token),
            Arg::Text(attempt.token.as_str()),
            Arg::Millis(attempt.ttl),
            Arg::Number(attempt.reserve),
        ];
        store.run_for(Purpose::Grant, &ACQUIRE, &keys, &args).await
    });
    reply::acquired(value.await?, attempt.reserve)
}

pub(crate) async fn release(
    store: &RedisStore,
    key: &Arc<LockKey>,
    token: &Token,
    owner: Option<&str>,
    _is_alone: bool,
) -> Parsed<Released> {
    let value = Box::pin(async {
        let keys = [key.lock().into(), holds(key), announced_on(key)];
        let (owner, token) = (or_token(owner, token), Arg::Text(token.as_str()));
        let args = [owner, token, PUBLISH, PUBLISH_IN_SLOT];
        let args = &args[..if store.is_cluster() { 4 } else { 3 }];
        store.run(&RELEASE, &keys, args).await
    });
    released(&value.await?)
}

pub(crate) async fn extend(store: &RedisStore, renewals: &[Renewal<'_>]) -> Parsed<Vec<bool>> {
    let mut keys = Vec::with_capacity(renewals.len() * 2);
    let mut args = Vec::with_capacity(renewals.len() * 3);
    for renewal in renewals {
        keys.extend([renewal.key.lock().into(), holds(renewal.key)]);
        args.extend([
            or_token(renewal.claim.owner(), renewal.token),
            Arg::Text(renewal.token.as_str()),
            Arg::Millis(renewal.ttl),
        ]);
    }
    let value = store.run_renewal(renewals, &EXTEND, &keys, &args).await?;
    reply::extended(value, renewals.len())
}

pub(crate) async fn inspect(store: &RedisStore, key: &LockKey) -> Parsed<Snapshot> {
    let keys = [key.lock().into(), holds(key)];
    inspected(&store.run(&INSPECT, &keys, &[]).await?)
}

pub(crate) async fn force_release(store: &RedisStore, key: &LockKey) -> OrRefused<bool> {
    let keys = [key.lock().into(), holds(key), announced_on(key)];
    let args = &[PUBLISH, PUBLISH_IN_SLOT][..if store.is_cluster() { 2 } else { 1 }];
    reply::forced(store.run(&FORCE_RELEASE, &keys, args).await?)
}

/// A page of the holds of locks, from this cursor on: among the hashes of a server they tell which ones are locks of ours. A lock that
/// only Redisson uses has none.
pub(in crate::store::redis) fn page(prefix: Prefix<'_>, cursor: u64) -> Cmd {
    list::page(&[prefix.namespace, HOLDS].concat(), "hash", cursor)
}

/// The lock whose holds have this name. Its key is shown whole, since such locks have no prefix or one of their own.
pub(in crate::store::redis) fn listed(
    kind: Kind,
    prefix: Prefix<'_>,
    name: &str,
) -> Option<LockKey> {
    let tagged = name.strip_prefix(prefix.namespace)?.strip_prefix(HOLDS)?;
    let whole = Prefix {
        prefix: "",
        ..prefix
    };
    LockKey::beside(whole, tagged, kind)
}

#[expect(clippy::unnecessary_wraps, reason = "the same for each kind")]
pub(in crate::store::redis) fn channel(key: &LockKey) -> Option<Name<'_>> {
    Some(announced_on(key))
}

pub(in crate::store::redis) fn guard<'a>(call: &GuardedCall<'a>) -> Guard<'a> {
    let GuardedCall {
        key, token, claim, ..
    } = *call;
    Guard {
        check: HELD,
        keys: vec![key.lock().into(), holds(key)],
        args: vec![or_token(claim.owner(), token), Arg::Text(token.as_str())],
    }
}

fn released(value: &Value) -> Parsed<Released> {
    match value {
        Value::Int(-1) => Ok(Released::NotHeld),
        Value::Array(parts) => match parts[..] {
            [Value::Int(heard)] if heard >= 0 => Ok(Released::Announced {
                heard: heard as u64,
            }),
            _ => Err(garbled()),
        },
        Value::Int(holds) if *holds > 0 => Ok(Released::StillHeld {
            holds: *holds as u64,
        }),
        _ => Err(garbled()),
    }
}

fn inspected(value: &Value) -> Parsed<Snapshot> {
    let Value::Array(parts) = value else {
        return Err(garbled());
    };
    let mut last = 0;
    let state = match (text(parts.first()), &parts[..]) {
        (Some("free"), [_]) => SnapshotState::Free,
        (Some("held"), [_, pttl, Value::BulkString(owner), holds, name, fence]) => {
            // The owner of another client may be any bytes.
            let owner = String::from_utf8_lossy(owner).into_owned();
            last = number(fence).unwrap_or(0);
            SnapshotState::Held {
                remaining: millis(pttl)?,
                client: owner.chars().take(CLIENT_LEN).collect(),
                holder: Bearer::began_with(last, reply::name(name)),
                holds: at_least_one(holds)?,
                owner: Some(owner),
            }
        }
        (Some("foreign"), [_, kind]) => SnapshotState::Foreign { kind: word(kind)? },
        _ => return Err(garbled()),
    };
    // Waiters only subscribe: there is no queue to count.
    Ok(Snapshot {
        state,
        waiting: 0,
        queue: Vec::new(),
        fence: last,
        nodes: Vec::new(),
    })
}

fn at_least_one(holds: &Value) -> Parsed<u64> {
    number(holds)?
        .checked_sub(1)
        .map_or_else(|| Err(garbled()), |n| Ok(n + 1))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn the_channel_follows_redissons_rule() {
        for (prefix, key, channel) in [
            ("", "a", "redisson_lock__channel:{a}"),
            ("", "a{x}b", "redisson_lock__channel:a{x}b"),
            ("", "{a}", "redisson_lock__channel:{a}"),
            ("p:", "a b", "redisson_lock__channel:{p:a b}"),
        ] {
            let key = LockKey::reentrant(prefix, key).unwrap();
            assert_eq!(announced_on(&key).to_string(), channel);
        }
    }

    #[test]
    fn every_answer_is_understood() {
        assert_eq!(released(&Value::Int(-1)).unwrap(), Released::NotHeld);
        let free = Released::Announced { heard: 2 };
        let answer = Value::Array(vec![Value::Int(2)]);
        assert_eq!(released(&answer).unwrap(), free);
        let still = Released::StillHeld { holds: 3 };
        assert_eq!(released(&Value::Int(3)).unwrap(), still);
        let held = Value::Array(vec![
            bulk("held"),
            Value::Int(1500),
            bulk("me"),
            Value::Int(4),
            bulk("orders-7"),
            bulk("1800000000000000"),
        ]);
        let state = SnapshotState::Held {
            remaining: Duration::from_millis(1500),
            client: "me".to_owned(),
            holder: Bearer {
                name: Some("orders-7".into()),
                since: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)),
            },
            holds: 4,
            owner: Some("me".to_owned()),
        };
        assert_eq!(inspected(&held).unwrap().state, state);
    }

    #[test]
    fn garbage_is_an_error_and_never_a_grant() {
        let garbage = [
            Value::Nil,
            Value::Okay,
            Value::Int(9),
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(9)]),
            Value::Array(vec![
                bulk("held"),
                Value::Int(9),
                bulk("me"),
                Value::Int(0),
                bulk(""),
                bulk("0"),
            ]),
            bulk("1"),
        ];
        for value in garbage {
            assert!(inspected(&value).is_err(), "{value:?}");
        }
        assert!(released(&Value::Int(-2)).is_err());
        assert!(released(&Value::Int(0)).is_err());
        assert!(released(&Value::Array(vec![])).is_err());
        assert!(released(&Value::Array(vec![Value::Int(-1)])).is_err());
        assert!(released(&Value::Nil).is_err());
    }
}
