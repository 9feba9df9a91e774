//! An election: the exclusive lock of its leader, and a record beside it that names the leader, written by the scripts that grant and
//! renew the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::sync::Lazy;
use redis::Value;

use super::exclusive;
pub(in crate::store::redis) use super::exclusive::{channel, guard, inspect, listed, page};
use crate::base::election::{LEADER, LeaderSnapshot};
use crate::base::key::LockKey;
use crate::base::refusal::Refusal;
use crate::base::token::Token;
use crate::store::redis::error::garbled;
use crate::store::redis::reply::{self, Parsed, lossy, millis, number, text, word};
use crate::store::redis::route::RedisStore;
use crate::store::redis::script::{Script, script};
use crate::store::redis::server::call::Purpose;
use crate::store::redis::wire::{Arg, Name, announced, lease};
use crate::store::{Answer, Attempt, OrRefused, Released, Renewal};

static ACQUIRE: Lazy<Script> = script!(
    "election acquire",
    "acquire_brief.lua",
    "mint.lua",
    "prelude.lua",
    "election/lead.lua",
    "acquire_free.lua",
    "grant.lua",
    "enqueue.lua",
    "acquire.lua"
);
static RELEASE: Lazy<Script> = script!(
    "election release",
    "release_brief.lua",
    "prelude.lua",
    "election/lead.lua",
    "mint.lua",
    "grant.lua",
    "release.lua"
);
static FORCE_RELEASE: Lazy<Script> = script!(
    "election force_release",
    "prelude.lua",
    "election/lead.lua",
    "mint.lua",
    "grant.lua",
    "force_release.lua"
);
static EXTEND: Lazy<Script> = script!(
    "election extend",
    "prelude.lua",
    "election/lead.lua",
    "election/extend.lua"
);
pub(in crate::store) static READ: Lazy<Script> =
    script!("election leader", "prelude.lua", "election/leader.lua");

/// The record of the leader, which is also the channel of those who observe it.
fn record(key: &LockKey) -> Name<'_> {
    announced(key, LEADER)
}

fn keys<'a>(store: &RedisStore, key: &'a LockKey) -> [Name<'a>; 5] {
    let [lock, queue, fence, waiters] = exclusive::keys(store, key);
    [lock, queue, fence, waiters, record(key)]
}

/// The lock and the record of its leader.
pub(in crate::store) fn lock_and_record(key: &LockKey) -> [Name<'_>; 2] {
    [key.lock().into(), record(key)]
}

// Boxed calls: those of an exclusive lock are in the same future, and small.
pub(crate) async fn acquire(store: &RedisStore, attempt: Attempt<'_>) -> Parsed<Answer> {
    let value = Box::pin(async {
        let [token, ttl, waits, reserve] = exclusive::args(store, attempt);
        let value = Arg::Text(attempt.claim.value().unwrap_or_default());
        let args = [token, ttl, waits, reserve, value];
        let keys = keys(store, attempt.key);
        store.run_for(Purpose::Grant, &ACQUIRE, &keys, &args).await
    });
    reply::acquired(value.await?, attempt.reserve)
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
    let keys: Vec<_> = renewals
        .iter()
        .flat_map(|it| lock_and_record(it.key))
        .collect();
    let args = renewals.iter().flat_map(|it| {
        let term = it.claim.value().map_or(0, |_| it.fence);
        [
            Arg::Bytes(it.token.as_bytes()),
            lease(it),
            Arg::Number(term),
            Arg::Text(it.claim.value().unwrap_or_default()),
        ]
    });
    let args: Vec<_> = args.collect();
    let value = store.run_renewal(renewals, &EXTEND, &keys, &args).await?;
    let Value::Array(parts) = &value else {
        return Err(garbled());
    };
    let answers = renewals.iter().zip(parts);
    let held = answers.map(|(renewal, part)| match part {
        Value::Int(held @ 0..=1) => Ok(*held == 1),
        refused => word(refused).map(|why| {
            unseen(renewal.key, &why);
            true
        }),
    });
    let held: Vec<bool> = held.collect::<Result<_, _>>()?;
    (held.len() == renewals.len())
        .then_some(held)
        .ok_or_else(garbled)
}

pub(crate) async fn force_release(store: &RedisStore, key: &LockKey) -> OrRefused<bool> {
    reply::forced(store.run(&FORCE_RELEASE, &keys(store, key), &[]).await?)
}

/// A leader holds its lock, and the server has refused its record.
fn unseen(key: &LockKey, error: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let key = key.name();
    if TOLD.swap(true, Ordering::Relaxed) {
        tracing::debug!(key, %error, "observers do not see this leader");
    } else {
        tracing::warn!(key, %error, "observers do not see this leader");
    }
}

pub(in crate::store) async fn leader(
    store: &RedisStore,
    key: &LockKey,
) -> OrRefused<LeaderSnapshot> {
    read(&store.run(&READ, &lock_and_record(key), &[]).await?)
}

/// The reply to [`READ`].
pub(in crate::store) fn read(value: &Value) -> OrRefused<LeaderSnapshot> {
    let Value::Array(parts) = value else {
        return Err(garbled());
    };
    match (text(parts.first()), &parts[..]) {
        (_, []) => Ok(Ok(LeaderSnapshot::Free)),
        (None, [left]) => Ok(Ok(LeaderSnapshot::Unknown {
            remaining: millis(left)?,
        })),
        (None, [left, term, value]) => Ok(Ok(LeaderSnapshot::Leads {
            term: number(term)?,
            value: lossy(value)?,
            remaining: millis(left)?,
        })),
        (Some("foreign"), [_, kind]) => Ok(Err(Refusal::Foreign(word(kind)?))),
        _ => Err(garbled()),
    }
}
