//! Waiters that poll and have crashed (P7).

use std::time::{Duration, Instant};

use lock_core::LockManager;
use lock_tests::{Proxy, TestServer};

use crate::support::{KEY, LONG, NAME, direct, in_time, ms, until_clean, until_queued};

const CRASHED: usize = 4;

/// A manager that the server cannot push to.
async fn polling(url: &str) -> LockManager {
    let client = redis::Client::open(url).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    LockManager::from_connection(connection).unwrap()
}

/// How long the lock takes to reach the waiter of `live` behind some that have crashed.
async fn past_crashed(server: &TestServer, live: &LockManager) -> Duration {
    let held = direct(server).await.lock(NAME).ttl(LONG).acquire().await;
    let held = held.unwrap();
    let mut crashed = Vec::new();
    for n in 1..=CRASHED {
        let proxy = Proxy::start(server);
        let lock = polling(&proxy.url()).await.lock(NAME).ttl(LONG);
        let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
        crashed.push((proxy, waiting));
        until_queued(server, n).await;
    }
    let lock = live.lock(NAME).ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_queued(server, CRASHED + 1).await;
    for (proxy, _) in &crashed {
        proxy.cut_to_server(true);
    }
    let since = Instant::now();
    held.release().await.unwrap();
    let next = in_time("the lock", waiting).await.unwrap().unwrap();
    let took = since.elapsed();
    assert!(server.pttl(KEY).await > 60_000, "it has all of its ttl");
    next.release().await.unwrap();
    for (_, waiting) in crashed {
        waiting.abort();
    }
    took
}

/// The best of some rounds: a slow machine lengthens them.
async fn costs_less_than_a_second(server: &TestServer, live: &LockManager) {
    let mut took = Vec::new();
    for _ in 0..3 {
        took.push(past_crashed(server, live).await);
        if took.last() < Some(&ms(1000)) {
            return;
        }
    }
    panic!("{CRASHED} crashed waiters cost {took:?}");
}

/// Proves P7.
#[tokio::test]
async fn crashed_waiters_that_poll_cost_another_one_less_than_a_second() {
    let server = TestServer::start().await;
    let live = polling(&server.url()).await;
    costs_less_than_a_second(&server, &live).await;
}

/// Proves P7.
#[tokio::test]
async fn crashed_waiters_that_poll_cost_one_with_messages_less_than_a_second() {
    let server = TestServer::start().await;
    let live = direct(&server).await;
    costs_less_than_a_second(&server, &live).await;
    assert_eq!(live.shutdown(ms(5000)).await, 0);
    // What the crashed ones have left ends by itself.
    until_clean(&server).await;
}
