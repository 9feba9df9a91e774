//! Races of the line that only a real connection shows.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lock_core::{LockError, LockManager, LossReason, Owner};
use lock_tests::{Proxy, TestServer, eventually};

/// A limit against hanging, not a measure.
const PATIENCE: Duration = Duration::from_secs(30);

/// Polls a future once, by a task whose turn is over: it starts, and its first message is not sent yet.
fn start<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    let mut cx = Context::from_waker(Waker::noop());
    let (sender, mut ready) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..1000 {
        sender.send(()).unwrap();
    }
    while ready.poll_recv(&mut cx).is_ready() {}
    future.poll(&mut cx)
}

#[tokio::test]
async fn a_waiter_that_leaves_before_the_lock_is_passed_on_leaves_nothing() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let lock = locks.lock("a").ttl(PATIENCE * 20);
    let guard = lock.acquire().await.unwrap();
    let mut waiting = Box::pin(lock.acquire());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    let mut release = Box::pin(guard.release());
    assert!(start(release.as_mut()).is_pending());
    drop(waiting);
    // Long enough for the clean-up to overtake the release, which stands still.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    release.await.unwrap();
    eventually("the lock is free", PATIENCE, async || {
        !server.exists("lock:a").await
    })
    .await;
}

#[tokio::test]
async fn a_waiter_whose_subscription_came_to_nothing_goes_on_asking() {
    let server = TestServer::start().await;
    let holder = LockManager::connect(&server.url()).await.unwrap();
    let guard = holder
        .reentrant_lock("a")
        .owner(&Owner::new())
        .acquire()
        .await
        .unwrap();
    let proxy = Proxy::start(&server);
    let locks = LockManager::connect(&proxy.url()).await.unwrap();
    let held_back = proxy.hold_next_request_matching(|request| {
        request.name() == "SUBSCRIBE" && request.has("redisson_lock__channel:{a}")
    });
    let lock = locks
        .reentrant_lock("a")
        .owner(&Owner::new())
        .ttl(Duration::from_millis(600));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    held_back.wait().await;
    // Until the subscription is given up, which takes longer than the line waits before it asks again.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    held_back.deliver();
    guard.release().await.unwrap();
    let taken = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(taken.expect("it waits for ever").unwrap().is_ok());
}

/// Gives the lock to somebody else without a word, as an operator or another client can.
async fn take_away(server: &TestServer, key: &str, other: &str) {
    let mut connection = server.connection().await;
    let () = redis::pipe()
        .atomic()
        .del(key)
        .hset(key, other, 1)
        .pexpire(key, 60_000)
        .query_async(&mut connection)
        .await
        .unwrap();
}

#[tokio::test]
async fn an_owner_that_finds_another_in_its_place_has_lost_and_asks_seldom() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = LockManager::connect(&proxy.url()).await.unwrap();
    let lock = locks.reentrant_lock("a").owner(&Owner::new());
    let outer = lock.clone().ttl(PATIENCE * 20).acquire().await.unwrap();
    take_away(&server, "a", "somebody:1").await;
    let before = proxy.requests().len();
    let inner = lock.acquire_within(Duration::from_millis(500)).await;
    assert!(
        matches!(inner, Err(LockError::TimedOut { .. })),
        "{inner:?}"
    );
    let asked = proxy.requests().len() - before;
    assert!(asked < 50, "{asked} requests");
    let lost = tokio::time::timeout(PATIENCE, outer.lost()).await;
    assert_eq!(lost, Ok(LossReason::Gone));
}

#[tokio::test]
async fn an_owner_that_takes_the_lock_anew_shares_nothing_with_its_old_tenure() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let ttl = Duration::from_millis(900);
    let lock = locks.reentrant_lock("a").owner(&Owner::new()).ttl(ttl);
    let before = lock.acquire().await.unwrap();
    // The server has lost its data, and with it the tenure.
    server.flushall().await;
    let after = lock.acquire().await.unwrap();
    assert!(after.fencing_token() > before.fencing_token());
    assert!(!before.is_held(), "its fencing token is of the past");
    assert_eq!(after.hold_count(), 1);
    // Long enough for a renewal in the name of either.
    tokio::time::sleep(ttl * 2).await;
    assert!(after.is_held());
    after.release().await.unwrap();
}
