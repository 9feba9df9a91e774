//! The exclusive kind: a string for the lock, and a queue of waiters beside it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use once_cell::sync::Lazy;
use redis::Cmd;

use crate::base::key::{LockKey, Prefix};
use crate::base::kind::Kind;
use crate::base::token::Token;
use crate::store::redis::error::with_patterns;
use crate::store::redis::reply::{self, Parsed};
use crate::store::redis::route::{RedisStore, Route};
use crate::store::redis::script::{Script, script};
use crate::store::redis::server::batch::Want;
use crate::store::redis::server::call::{Brief, Purpose};
use crate::store::redis::server::list;
use crate::store::redis::wire::{Arg, Guard, Name, queue, renewed, waiters};
use crate::store::{
    Answer, Attempt, GuardedCall, OrRefused, Passed, Released, Renewal, Snapshot, StoreError,
    Together,
};

static ACQUIRE: Lazy<Script> = script!(
    "acquire",
    "acquire_brief.lua",
    "mint.lua",
    "acquire_free.lua",
    "prelude.lua",
    "grant.lua",
    "enqueue.lua",
    "acquire.lua"
);
static ACQUIRE_ALL: Lazy<Script> = script!(
    "acquire_all",
    "prelude.lua",
    "mint.lua",
    "grant.lua",
    "acquire_all.lua"
);
static RELEASE: Lazy<Script> = script!(
    "release",
    "release_brief.lua",
    "prelude.lua",
    "mint.lua",
    "grant.lua",
    "release.lua"
);
static PASS: Lazy<Script> = script!(
    "pass",
    "prelude.lua",
    "mint.lua",
    "grant.lua",
    "enqueue.lua",
    "pass.lua"
);
static EXTEND: Lazy<Script> = script!("extend", "prelude.lua", "extend.lua");
static INSPECT: Lazy<Script> = script!("inspect", "prelude.lua", "queued.lua", "inspect.lua");
static FORCE_RELEASE: Lazy<Script> = script!(
    "force_release",
    "prelude.lua",
    "mint.lua",
    "grant.lua",
    "force_release.lua"
);

/// A guarded script runs only if the lock has this value.
const HELD: &str = "{redis.pcall('GET', table.remove(KEYS, 1)), table.remove(ARGV, 1)}";

// A separate script call is large, so it is boxed. A request in a batch needs no such call.
pub(crate) async fn acquire(store: &RedisStore, attempt: Attempt<'_>) -> Parsed<Answer> {
    // Reserved tokens are for waiters. A request with waiters behind it does not meet a free lock without a queue,
    // as a batch does.
    if attempt.reserve == 0
        && let Some(call) = batched(
            store,
            Want::Acquire,
            attempt.key,
            attempt.token,
            attempt.ttl,
        )
    {
        let fence = call.await?;
        if fence > 0 {
            return Ok(Answer::Granted { fence, reserve: 0 });
        }
    }
    Box::pin(acquire_alone(store, attempt)).await
}

async fn acquire_alone(store: &RedisStore, attempt: Attempt<'_>) -> Parsed<Answer> {
    let (keys, args) = (keys(store, attempt.key), args(store, attempt));
    let brief = Brief {
        keys: 4,
        args: 3,
        counts_on: true,
    };
    // Reserved tokens are minted by the clock: only that limits how far the counter is ahead of it.
    let brief = (attempt.reserve == 0).then_some(brief);
    let call = store.run_first(brief, Purpose::Grant, &ACQUIRE, &keys, &args);
    reply::acquired(call.await?, attempt.reserve)
}

/// Locks of one server, and of one slot in a cluster.
pub(in crate::store) async fn acquire_all(
    store: &RedisStore,
    attempts: &[Attempt<'_>],
) -> Parsed<Together> {
    let Some(first) = attempts.first() else {
        return Ok(Together::Granted(Vec::new()));
    };
    let names = attempts.iter().map(|attempt| attempt.key.lock().into());
    let mut keys: Vec<Name<'_>> = names.collect();
    keys.extend(attempts.iter().map(|attempt| queue(attempt.key)));
    keys.extend(attempts.iter().map(|attempt| waiters(attempt.key)));
    keys.push(store.fence(first.key));
    let mut args = vec![Arg::Text(store.channel(first.key))];
    let tokens = attempts.iter().map(|attempt| attempt.token.as_bytes());
    args.extend(tokens.map(Arg::Bytes));
    args.extend(attempts.iter().map(|attempt| Arg::Millis(attempt.ttl)));
    let value = store
        .run_for(Purpose::Grant, &ACQUIRE_ALL, &keys, &args)
        .await?;
    reply::acquired_all(value, attempts.len())
}

pub(in crate::store) async fn pass(
    store: &RedisStore,
    attempt: Attempt<'_>,
    from: &Token,
) -> Parsed<Passed> {
    let keys = keys(store, attempt.key);
    let [token, ttl, waits, reserve] = args(store, attempt);
    let from = Arg::Bytes(from.as_bytes());
    let args = [token, ttl, waits, reserve, from];
    let value = store.run_for(Purpose::Grant, &PASS, &keys, &args).await?;
    reply::passed(value, attempt.reserve)
}

pub(crate) async fn release(
    store: &RedisStore,
    key: &Arc<LockKey>,
    token: &Token,
    _owner: Option<&str>,
    is_alone: bool,
) -> Parsed<Released> {
    let batcher = &store.batcher;
    if let Route::One(server) = &store.route
        && batcher.is_unsettled(token)
    {
        // A clean-up goes behind the request that it cleans up after. Boxed because it is rare.
        let settled = Box::pin(batcher.settled(token));
        let _ = server.engine().timers().timeout(store.limit, settled).await;
    }
    if let Some(call) = batched(store, Want::Release, key, token, Duration::ZERO)
        && call.await? > 0
    {
        return Ok(Released::Free);
    }
    Box::pin(release_alone(store, key, token, is_alone)).await
}

async fn release_alone(
    store: &RedisStore,
    key: &LockKey,
    token: &Token,
    is_alone: bool,
) -> Parsed<Released> {
    let (keys, args) = (keys(store, key), [Arg::Bytes(token.as_bytes())]);
    // Without messages no holder knows of a waiter.
    let brief = (is_alone && store.is_told(key)).then_some(Brief {
        keys: 2,
        args: 1,
        counts_on: false,
    });
    let call = store.run_first(brief, Purpose::Other, &RELEASE, &keys, &args);
    reply::released(&call.await?)
}

pub(crate) async fn extend(store: &RedisStore, renewals: &[Renewal<'_>]) -> Parsed<Vec<bool>> {
    let (keys, args) = renewed(renewals);
    let value = store.run_renewal(renewals, &EXTEND, &keys, &args).await?;
    reply::extended(value, renewals.len())
}

pub(crate) async fn inspect(store: &RedisStore, key: &LockKey) -> Parsed<Snapshot> {
    let [lock, queue, fence, waiters] = keys(store, key);
    let keys = [lock, queue, waiters, fence];
    let value = store.run(&INSPECT, &keys, &[]).await?;
    reply::inspected(value)
}

pub(crate) async fn force_release(store: &RedisStore, key: &LockKey) -> OrRefused<bool> {
    let value = store.run(&FORCE_RELEASE, &keys(store, key), &[]).await?;
    reply::forced(value)
}

/// A page of the strings with the prefix, from this cursor on.
pub(in crate::store) fn page(prefix: Prefix<'_>, cursor: u64) -> Cmd {
    list::page(&prefix.whole(), "string", cursor)
}

/// The lock with this name on such a page.
pub(in crate::store) fn listed(kind: Kind, prefix: Prefix<'_>, name: &str) -> Option<LockKey> {
    LockKey::named(prefix, name, kind)
}

/// No channel announces releases: the first of the queue is told.
pub(in crate::store::redis) fn channel(_: &LockKey) -> Option<Name<'_>> {
    None
}

pub(in crate::store::redis) fn guard<'a>(call: &GuardedCall<'a>) -> Guard<'a> {
    Guard {
        check: HELD,
        keys: vec![call.key.lock().into()],
        args: vec![Arg::Text(call.token.as_str())],
    }
}

pub(super) fn keys<'a>(store: &RedisStore, key: &'a LockKey) -> [Name<'a>; 4] {
    let lock = key.lock().into();
    [lock, queue(key), store.fence(key), waiters(key)]
}

/// The arguments of an attempt.
pub(super) fn args<'a>(store: &'a RedisStore, attempt: Attempt<'a>) -> [Arg<'a>; 4] {
    [
        Arg::Bytes(attempt.token.as_bytes()),
        Arg::Millis(attempt.ttl),
        store.waits(attempt),
        Arg::Number(attempt.reserve),
    ]
}

/// Sends a request in a batch with the others of this moment: see [`batch`](crate::store::redis::batch). `None` for a caller that
/// is alone on the connection, and in a cluster, where a call may have the keys of one slot only.
///
/// Boxed, so that the future of a caller that is alone stays small.
fn batched<'a>(
    store: &'a RedisStore,
    want: Want,
    key: &'a Arc<LockKey>,
    token: &'a Token,
    ttl: Duration,
) -> Option<BoxFuture<'a, Result<u64, StoreError>>> {
    let Route::One(server) = &store.route else {
        return None;
    };
    if !server.is_busy() {
        return None;
    }
    let ask = store
        .batcher
        .ask(server, store.limit, want, key, token, ttl);
    Some(Box::pin(async move {
        let keys = [key.lock().into(), queue(key)];
        let answer = ask.await;
        answer.map_err(|error| with_patterns(error.at(&server.address()), &keys, &store.prefix))
    }))
}
