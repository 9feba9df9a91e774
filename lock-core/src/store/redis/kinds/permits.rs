//! The kinds that several may hold, a semaphore and a read-write lock: a hash of members, and a queue of waiters beside it.

use std::sync::Arc;

use once_cell::sync::Lazy;
use redis::{Cmd, Value};

use crate::base::key::{LockKey, Prefix};
use crate::base::kind::{Kind, Reweigh};
use crate::base::refusal::Refusal;
use crate::base::token::{Bearer, Token};
use crate::store::redis::error::garbled;
use crate::store::redis::reply::{self, Parsed, lossy, millis, number, text, word};
use crate::store::redis::route::RedisStore;
use crate::store::redis::script::{Script, script};
use crate::store::redis::server::call::Purpose;
use crate::store::redis::server::list;
use crate::store::redis::wire::{Arg, Guard, Name, renewed};
use crate::store::{
    Answer, Attempt, GuardedCall, HolderSnapshot, OrRefused, Released, Renewal, Reweighed,
    Snapshot, SnapshotState,
};

static ACQUIRE: Lazy<Script> = script!(
    "permits acquire",
    "permits/state.lua",
    "prelude.lua",
    "mint.lua",
    "permits/acquire_free.lua",
    "enqueue.lua",
    "permits/permits.lua",
    "permits/acquire.lua"
);
static RELEASE: Lazy<Script> = script!(
    "permits release",
    "permits/state.lua",
    "permits/release_free.lua",
    "prelude.lua",
    "mint.lua",
    "permits/permits.lua",
    "permits/release.lua"
);
static EXTEND: Lazy<Script> = script!(
    "permits extend",
    "prelude.lua",
    "permits/state.lua",
    "permits/extend.lua"
);
static INSPECT: Lazy<Script> = script!(
    "permits inspect",
    "prelude.lua",
    "queued.lua",
    "permits/state.lua",
    "permits/inspect.lua"
);
static FORCE_RELEASE: Lazy<Script> = script!(
    "permits force_release",
    "prelude.lua",
    "mint.lua",
    "permits/state.lua",
    "permits/permits.lua",
    "permits/force_release.lua"
);
static REWEIGH: Lazy<Script> = script!(
    "permits reweigh",
    "prelude.lua",
    "mint.lua",
    "permits/state.lua",
    "permits/permits.lua",
    "permits/reweigh.lua"
);
static RESIZE: Lazy<Script> = script!(
    "permits resize",
    "prelude.lua",
    "mint.lua",
    "permits/state.lua",
    "permits/permits.lua",
    "permits/resize.lua"
);

/// A guarded script runs only if the hash has this member with this number or a later one, and its deadline has not passed.
const HELD: &str = "{(function() \
     local known, t = redis.pcall('HMGET', table.remove(KEYS, 1), table.remove(ARGV, 1)), redis.call('TIME'); \
     local least = tonumber(table.remove(ARGV, 1)); \
     if known.err then return known end; \
     local ends, number = string.match(known[1] or '', '^(%d+) %d+ (%d+)'); \
     local lasts = ends and tonumber(ends) > t[1] * 1000 + math.floor(t[2] / 1000); \
     return lasts and tonumber(number) >= least and 1 or 0 end)(), 1}";

fn keys<'a>(store: &RedisStore, key: &'a LockKey) -> [Name<'a>; 4] {
    let (queue, waiters) = match key.kind() {
        Kind::ReadWrite => ("lock-core:rw:queue:", "lock-core:rw:waiters:"),
        Kind::Semaphore => ("lock-core:semaphore:queue:", "lock-core:semaphore:waiters:"),
        Kind::Exclusive | Kind::Election | Kind::Reentrant => unreachable!("no permits"),
    };
    let beside = |name| Name::beside(key, name, key.tagged());
    [
        key.lock().into(),
        beside(queue),
        store.fence(key),
        beside(waiters),
    ]
}

fn kind(key: &LockKey) -> Arg<'static> {
    Arg::Text(key.traits().name)
}

// Boxed calls: those of an exclusive lock are in the same future, and small.
pub(crate) async fn acquire(store: &RedisStore, attempt: Attempt<'_>) -> Parsed<Answer> {
    let value = Box::pin(async {
        let share = attempt.claim.share;
        let args = [
            Arg::Bytes(attempt.token.as_bytes()),
            Arg::Millis(attempt.ttl),
            kind(attempt.key),
            Arg::Number(share.max.into()),
            Arg::Number(share.weight.into()),
            store.waits(attempt),
        ];
        let keys = keys(store, attempt.key);
        store.run_for(Purpose::Grant, &ACQUIRE, &keys, &args).await
    });
    acquired(value.await?)
}

pub(crate) async fn release(
    store: &RedisStore,
    key: &Arc<LockKey>,
    token: &Token,
    _owner: Option<&str>,
    _is_alone: bool,
) -> Parsed<Released> {
    let args = [Arg::Bytes(token.as_bytes())];
    let value = Box::pin(async { store.run(&RELEASE, &keys(store, key), &args).await });
    reply::released(&value.await?)
}

pub(crate) async fn extend(store: &RedisStore, renewals: &[Renewal<'_>]) -> Parsed<Vec<bool>> {
    let (keys, mut args) = renewed(renewals);
    let numbers = renewals.iter().map(|it| Arg::Number(it.fence));
    args.splice(keys.len()..keys.len(), numbers);
    let value = store.run_renewal(renewals, &EXTEND, &keys, &args).await?;
    reply::extended(value, renewals.len())
}

pub(crate) async fn inspect(store: &RedisStore, key: &LockKey) -> Parsed<Snapshot> {
    let [lock, queue, _, waiters] = keys(store, key);
    let value = store
        .run(&INSPECT, &[lock, queue, waiters], &[kind(key)])
        .await?;
    inspected(&value)
}

pub(crate) async fn force_release(store: &RedisStore, key: &LockKey) -> OrRefused<bool> {
    let (keys, args) = (keys(store, key), [kind(key)]);
    reply::forced(store.run(&FORCE_RELEASE, &keys, &args).await?)
}

/// Makes a reader a writer, or a writer a reader.
pub(in crate::store) async fn reweigh(
    store: &RedisStore,
    key: &LockKey,
    token: &Token,
    from: u64,
    to: Reweigh,
) -> Parsed<Reweighed> {
    let args = [
        Arg::Bytes(token.as_bytes()),
        Arg::Number(from),
        Arg::Text(match to {
            Reweigh::ToReader => "down",
            Reweigh::ToWriter => "up",
        }),
    ];
    // An upgrade is a grant: that of a master which was replaced does not count.
    let keys = keys(store, key);
    let answer = store.run_for(Purpose::Grant, &REWEIGH, &keys, &args);
    match answer.await? {
        Value::Int(fence @ 1..) => Ok(Reweighed::Done {
            fence: fence as u64,
        }),
        Value::Int(0) => Ok(Reweighed::NotHeld),
        Value::Int(-1) => Ok(Reweighed::NotAlone),
        _ => Err(garbled()),
    }
}

/// Changes the number of permits of a semaphore.
pub(in crate::store) async fn resize(
    store: &RedisStore,
    key: &LockKey,
    from: u32,
    to: u32,
) -> OrRefused<bool> {
    let args = [kind(key), Arg::Number(to.into()), Arg::Number(from.into())];
    match store.run(&RESIZE, &keys(store, key), &args).await? {
        Value::Int(1) => Ok(Ok(true)),
        Value::Int(0) => Ok(Ok(false)),
        Value::Array(parts) => match (text(parts.first()), &parts[..]) {
            (Some("max"), [_, max]) => Ok(Err(Refusal::OtherMax(permits(max)?))),
            (Some("foreign"), [_, kind]) => Ok(Err(Refusal::Foreign(word(kind)?))),
            _ => Err(garbled()),
        },
        _ => Err(garbled()),
    }
}

/// A page of the hashes with the prefix, from this cursor on. Both kinds are such hashes: a lock of the other one is read as foreign.
pub(in crate::store::redis) fn page(prefix: Prefix<'_>, cursor: u64) -> Cmd {
    list::page(&prefix.whole(), "hash", cursor)
}

/// The lock of this kind with this name on such a page.
pub(in crate::store::redis) fn listed(
    kind: Kind,
    prefix: Prefix<'_>,
    name: &str,
) -> Option<LockKey> {
    LockKey::named(prefix, name, kind)
}

/// No channel announces releases: the waiters that are granted permits are told.
pub(in crate::store::redis) fn channel(_: &LockKey) -> Option<Name<'_>> {
    None
}

pub(in crate::store::redis) fn guard<'a>(call: &GuardedCall<'a>) -> Guard<'a> {
    Guard {
        check: HELD,
        keys: vec![call.key.lock().into()],
        args: vec![Arg::Text(call.token.as_str()), Arg::Number(call.fence)],
    }
}

fn acquired(value: Value) -> Parsed<Answer> {
    if let Value::Array(parts) = &value
        && let [word, max] = &parts[..]
    {
        match text(Some(word)) {
            Some("max") => return Ok(Answer::Refused(Refusal::OtherMax(permits(max)?))),
            Some("too many") => return Ok(Answer::Refused(Refusal::TooMany(permits(max)?))),
            _ => {}
        }
    }
    reply::acquired(value, 0)
}

fn permits(value: &Value) -> Parsed<u32> {
    u32::try_from(number(value)?).map_err(|_| garbled())
}

fn inspected(value: &Value) -> Parsed<Snapshot> {
    let Value::Array(parts) = value else {
        return Err(garbled());
    };
    let [state, waiting, Value::Array(queue), fence, rest @ ..] = &parts[..] else {
        return Err(garbled());
    };
    let state = match (text(Some(state)), rest) {
        (Some("free"), []) => SnapshotState::Free,
        (Some("held"), [used, max, Value::Array(members)]) => SnapshotState::Shared {
            used: permits(used)?,
            max: permits(max)?,
            members: members.chunks(4).map(member).collect::<Result<_, _>>()?,
        },
        (Some("foreign"), [kind]) => SnapshotState::Foreign { kind: word(kind)? },
        _ => return Err(garbled()),
    };
    let bearer = |token| lossy(token).map(|token| Bearer::parse(&token));
    Ok(Snapshot {
        state,
        waiting: number(waiting)?,
        queue: queue.iter().map(bearer).collect::<Result<_, _>>()?,
        fence: number(fence)?,
        nodes: Vec::new(),
    })
}

fn member(parts: &[Value]) -> Parsed<HolderSnapshot> {
    let [client, token, weight, left] = parts else {
        return Err(garbled());
    };
    Ok(HolderSnapshot {
        client: lossy(client)?,
        holder: Bearer::parse(&lossy(token)?),
        weight: permits(weight)?,
        remaining: millis(left)?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn the_number_of_permits_in_use_is_told() {
        let refused = |word, what| {
            let Ok(Answer::Refused(refusal)) = acquired(Value::Array(vec![bulk(word), what]))
            else {
                panic!("{word}")
            };
            refusal
        };
        assert_eq!(refused("max", Value::Int(4)), Refusal::OtherMax(4));
        assert_eq!(refused("too many", Value::Int(4)), Refusal::TooMany(4));
        let foreign = refused("foreign", bulk("read-write"));
        assert_eq!(foreign, Refusal::Foreign("read-write".to_owned()));
    }

    #[test]
    fn garbage_is_an_error() {
        let held = |members| {
            let empty = Value::Array(Vec::new());
            let (used, max) = (Value::Int(1), Value::Int(4));
            let free = [bulk("held"), Value::Int(0), empty, bulk("0")];
            let parts = free.into_iter().chain([used, max, Value::Array(members)]);
            inspected(&Value::Array(parts.collect()))
        };
        let whole = vec![bulk("c"), bulk("7:orders"), Value::Int(1), Value::Int(500)];
        let Ok(Snapshot {
            state: SnapshotState::Shared { members, .. },
            ..
        }) = held(whole.clone())
        else {
            panic!("shared expected")
        };
        assert_eq!(members[0].holder.name.as_deref(), Some("orders"));
        assert_eq!(members[0].remaining, Duration::from_millis(500));
        assert!(held(whole[..3].to_vec()).is_err());
        for value in [Value::Nil, Value::Int(0), bulk("1"), Value::Array(vec![])] {
            assert!(acquired(value.clone()).is_err() && inspected(&value).is_err());
        }
    }
}
