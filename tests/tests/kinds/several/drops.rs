//! Futures that are dropped.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use lock_tests::kit::{leftovers, until_clean, warm_server};
use lock_tests::{Proxy, in_time};

use super::rig::{KEYS, held, waiters};
use crate::rig::builder;

/// Polls a future at most so often, and drops it. Returns whether it came to its end.
async fn polled<T>(times: usize, future: impl Future<Output = T>) -> bool {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        let polled = future.as_mut().poll(context).map(|_| true);
        if polled.is_pending() && left == 0 {
            return Poll::Ready(false);
        }
        polled
    })
    .await
}

/// Proves P4.
#[tokio::test]
async fn a_call_that_is_dropped_at_any_await_leaves_nothing() {
    let server = warm_server().await;
    let (locks, other) = (
        builder().connect(&server.url()).await.unwrap(),
        builder().connect(&server.url()).await.unwrap(),
    );
    for contended in [false, true] {
        let busy = contended.then(|| other.lock("{t}c"));
        for times in 1..12 {
            let last = match &busy {
                Some(last) => Some(last.acquire().await.unwrap()),
                None => None,
            };
            let call = async {
                let release = async {
                    if let Some(last) = last {
                        waiters(&other, "{t}c", 1).await;
                        last.release().await.unwrap();
                    }
                };
                let acquiring = polled(times, locks.all(KEYS).acquire());
                if contended {
                    tokio::select! {
                        over = acquiring => over,
                        () = async { release.await; std::future::pending().await } => unreachable!(),
                    }
                } else {
                    acquiring.await
                }
            };
            let is_over = Box::pin(in_time("the call", call)).await;
            until_clean(&server).await;
            if is_over {
                break;
            }
            assert!(times < 11, "it never ends");
        }
    }
}

/// Proves P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_lands_after_its_caller_has_left_is_undone() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = builder().connect(&proxy.url()).await.unwrap();
    let held = proxy.hold_next_request_matching(|request| request.script() == Some("acquire_all"));
    let calling = tokio::spawn(locks.all(KEYS).acquire());
    held.wait().await;
    calling.abort();
    assert!(calling.await.is_err());
    held.deliver();
    until_clean(&server).await;
}

/// Proves P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_leaves_gives_back_what_it_has() {
    let server = warm_server().await;
    let (locks, other) = (
        builder().connect(&server.url()).await.unwrap(),
        builder().connect(&server.url()).await.unwrap(),
    );
    let last = other.lock("{t}c").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.all(KEYS).acquire());
    waiters(&other, "{t}c", 1).await;
    waiting.abort();
    held(&other, "b", false).await;
    held(&other, "{t}a", false).await;
    waiters(&other, "{t}c", 0).await;
    last.release().await.unwrap();
    assert!(leftovers(&server).await.is_empty());
}
