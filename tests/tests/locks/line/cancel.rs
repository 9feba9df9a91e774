//! Callers that leave the line.

use std::pin::pin;

use futures_util::FutureExt;
use lock_tests::{LIMIT, Proxy, TestServer, eventually};

use crate::line::support::{KEY, LONG, NAME, direct, granted, in_line, is_acquire, patient};
use crate::line::support::{script_calls, until_clean, warm_server};

/// Waits until everything that the manager had to say before this call has been said.
async fn flush(server: &TestServer, locks: &lock_core::LockManager) {
    let marker = locks.lock("marker").ttl(LONG).acquire().await.unwrap();
    drop(marker);
    eventually("the marker is released", LIMIT, async || {
        !server.exists("lock:marker").await
    })
    .await;
}

/// What [`flush`] itself sends.
const FLUSH: u64 = 2;

#[tokio::test]
async fn a_waiter_cancelled_in_the_middle_of_the_line_sends_nothing() {
    let server = warm_server().await;
    let (locks, holder) = (direct(&server).await, direct(&server).await);
    for local in [true, false] {
        let lock = locks.lock(NAME).ttl(LONG);
        // Behind a guard of the same manager nobody in line has asked the server; else the first has.
        let held = if local { &locks } else { &holder };
        let held = held.lock(NAME).ttl(LONG).acquire().await.unwrap();
        let first = in_line(&lock).await;
        let middle = in_line(&lock).await;
        let last = in_line(&lock).await;
        flush(&server, &locks).await;
        server.reset_stats().await;
        middle.abort();
        assert!(middle.await.unwrap_err().is_cancelled());
        flush(&server, &locks).await;
        assert_eq!(script_calls(&server).await, FLUSH);

        held.release().await.unwrap();
        let first = granted(first).await;
        assert!(!last.is_finished());
        first.release().await.unwrap();
        granted(last).await.release().await.unwrap();
        until_clean(&server).await;
    }
}

/// The place on the server belongs to the line: who is next in it takes it over.
#[tokio::test]
async fn the_first_in_line_leaves_and_the_next_has_its_place() {
    let server = warm_server().await;
    let locks = direct(&server).await;
    let (holder, rival) = (direct(&server).await, direct(&server).await);
    let held = holder.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let lock = locks.lock(NAME).ttl(LONG);
    let first = in_line(&lock).await;
    let next = in_line(&lock).await;
    let behind = in_line(&rival.lock(NAME).ttl(LONG)).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    held.release().await.unwrap();
    let next = granted(next).await;
    assert!(!behind.is_finished(), "it came to the queue later");
    next.release().await.unwrap();
    granted(behind).await.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn the_first_in_line_is_cancelled_while_its_request_is_under_way() {
    for free in [true, false] {
        let server = warm_server().await;
        let holder = direct(&server).await.lock(NAME).ttl(LONG);
        // Also: the server knows the script.
        let held = holder.acquire().await.unwrap();
        let held = if free {
            held.release().await.unwrap();
            None
        } else {
            Some(held)
        };
        let proxy = Proxy::start(&server);
        let locks = patient()
            // The clean-up waits for so long for requests that are still under way.
            .command_deadline(std::time::Duration::from_secs(2))
            .connect(&proxy.url())
            .await
            .unwrap();
        let lock = locks.lock(NAME).ttl(LONG);
        let request = proxy.hold_next_request_matching(is_acquire);
        let first = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await }
        });
        request.wait().await;
        let mut next = pin!(lock.acquire());
        assert!(next.as_mut().now_or_never().is_none(), "in line");
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(next.as_mut().now_or_never().is_none(), "it asks itself");
        request.deliver();
        if let Some(held) = held {
            held.release().await.unwrap();
        }
        let guard = crate::line::support::in_time("the lock", next)
            .await
            .unwrap();
        assert!(guard.is_held() && server.exists(KEY).await);
        guard.release().await.unwrap();
        assert_eq!(locks.shutdown(LIMIT).await, 0);
        until_clean(&server).await;
    }
}

#[tokio::test]
async fn a_guard_handed_to_a_waiter_that_leaves_goes_on_to_the_next() {
    let server = warm_server().await;
    let lock = direct(&server).await.lock(NAME).ttl(LONG);
    let held = lock.acquire().await.unwrap();
    let second = in_line(&lock).await;
    let mut leaver = Box::pin(lock.acquire());
    assert!(leaver.as_mut().now_or_never().is_none());
    let last = in_line(&lock).await;
    held.release().await.unwrap();
    let second = granted(second).await;
    server.reset_stats().await;
    second.release().await.unwrap();
    // It has the lock now, and does not know it yet.
    assert!(!last.is_finished());
    drop(leaver);
    let last = granted(last).await;
    assert_eq!(script_calls(&server).await, 0);
    last.release().await.unwrap();
    until_clean(&server).await;
}
