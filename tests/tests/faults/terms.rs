//! P2: a lease is believed for the ttl that the server applied last, whatever other asks of its token said.

use lock_core::{LockError, LockGuard};
use lock_tests::{LIMIT, Proxy, TestServer, eventually};
use std::time::Duration;
use tokio::task::JoinHandle;

use crate::support::{KEY, LONG, NAME, behind, command, direct, in_time, is_acquire, ms};
use crate::support::{script_calls, until_queued, until_waiting, warm_server};

const SHORT: Duration = ms(900);

fn acquiring(lock: &lock_core::Lock) -> JoinHandle<LockGuard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// The guard must not outlive the key: it believes at most what the server has.
async fn assert_believes_no_more_than_the_server(server: &TestServer, guard: &LockGuard) {
    let believed = guard.remaining();
    let there = server.pttl(KEY).await.max(0);
    // The server was asked later, so it may have a little less.
    assert!(
        believed <= ms(there.cast_unsigned() + 200),
        "{believed:?} believed, {there} ms there"
    );
}

#[tokio::test]
async fn a_token_that_asks_again_after_the_expiry_has_the_ttl_of_that_ask() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let _: () = command(&server, &format!("SET {KEY} foreign PX 120000")).await;
    let first = acquiring(&locks.lock(NAME).ttl(SHORT));
    until_queued(&server, 1).await;
    let second = acquiring(&locks.lock(NAME).ttl(LONG));
    until_waiting(&locks.lock(NAME), 2).await;
    // What is asked from here on reaches the server when the holder's lease is over, and at the head of the queue.
    let late = proxy.hold_next_request_matching(|request| {
        is_acquire(request) && request.has(&LONG.as_millis().to_string())
    });
    first.abort();
    proxy.reset();
    late.wait().await;
    let _: i64 = command(&server, &format!("DEL {KEY}")).await;
    late.deliver();
    let guard = in_time("the lock", second).await.unwrap();
    assert_believes_no_more_than_the_server(&server, &guard).await;
}

/// Proves P2.
#[tokio::test]
async fn a_refresh_that_comes_late_does_not_shorten_the_lease_granted_meanwhile() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let held = direct(&server).await.lock(NAME).acquire().await.unwrap();
    let first = acquiring(&locks.lock(NAME).ttl(SHORT));
    until_queued(&server, 1).await;
    let second = acquiring(&locks.lock(NAME).ttl(LONG));
    // The refresh for the first, a third of its ttl later. Its connection breaks, so what is asked next overtakes it.
    let refresh = proxy.hold_next_request_matching(is_acquire);
    refresh.wait().await;
    first.abort();
    let asked = proxy
        .on_request(|request| is_acquire(request) && request.has(&LONG.as_millis().to_string()));
    proxy.reset();
    in_time("the second asks", asked).await;
    held.release().await.unwrap();
    let guard = in_time("the lock", second).await.unwrap();
    let before = script_calls(&server).await;
    refresh.deliver();
    eventually("the late refresh is carried out", LIMIT, async || {
        script_calls(&server).await > before
    })
    .await;
    assert_believes_no_more_than_the_server(&server, &guard).await;
}

/// Somebody behind `proxy` who has heard that it is queued, and whose time is over in a second.
async fn queued_for_a_second(
    server: &TestServer,
    proxy: &Proxy,
) -> JoinHandle<Result<LockGuard, LockError>> {
    let locks = behind(proxy, LIMIT).await;
    let held = direct(server).await.lock(NAME).ttl(LONG).acquire().await;
    std::mem::forget(held.unwrap());
    let lock = locks.lock(NAME).ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire_within(ms(1000)).await });
    until_queued(server, 1).await;
    // Replies come in the order of requests, so by now it has heard that it is queued.
    assert!(locks.lock("another").try_acquire().await.unwrap().is_some());
    waiting
}

async fn assert_timed_out(waiting: JoinHandle<Result<LockGuard, LockError>>) {
    let waited = in_time("the end of its wait", waiting).await.unwrap();
    let error = waited.unwrap_err();
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
}

/// Proves P11.
#[tokio::test]
async fn a_wait_that_ends_while_it_asks_again_has_timed_out() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let waiting = queued_for_a_second(&server, &proxy).await;
    // It asks again on a new connection, and its time is over before the answer.
    let asking = proxy.hold_next_request_matching(is_acquire);
    proxy.reset();
    asking.wait().await;
    assert_timed_out(waiting).await;
    asking.deliver();
}

#[tokio::test]
async fn a_wait_that_ends_while_it_connects_again_has_timed_out() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let waiting = queued_for_a_second(&server, &proxy).await;
    // Whoever connects now is accepted, and never heard.
    proxy.cut_to_server(true);
    proxy.reset();
    assert_timed_out(waiting).await;
}
