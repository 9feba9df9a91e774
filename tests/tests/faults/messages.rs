//! Messages that are lost, and what waiting costs (P9).

use std::time::Instant;

use lock_tests::{LIMIT, Proxy, eventually};

use crate::support::{KEY, NAME, in_time, is_acquire, ms, until_clean, until_queued, warm_server};
use crate::support::{behind, command, direct, queue_len, until_waiting};

#[tokio::test]
async fn a_line_whose_messages_are_all_lost_moves_on() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let holder = direct(&server).await;
    let ttl = ms(30_000);
    let guard = holder.lock(NAME).ttl(ttl).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let lock = behind(&proxy, LIMIT).await.lock(NAME).ttl(ttl);
        waiters.push(tokio::spawn(async move {
            lock.acquire().await.unwrap().release().await.unwrap();
        }));
        until_queued(&server, waiters.len()).await;
    }
    proxy.drop_pushes(true);
    let start = Instant::now();
    guard.release().await.unwrap();
    for waiter in waiters {
        in_time("a waiter", waiter).await.unwrap();
    }
    let took = start.elapsed();
    assert!(took < ttl / 2 * 3, "by the ttl, not by asking: {took:?}");
    until_clean(&server).await;
}

/// Proves P9.
#[tokio::test]
async fn many_waiters_of_one_manager_ask_once_an_interval_like_a_single_one() {
    const WAITERS: usize = 32;
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let holder = direct(&server).await;
    let guard = holder.lock(NAME).ttl(ms(30_000)).acquire().await.unwrap();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let lock = locks.lock(NAME).ttl(ms(30_000));
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    until_waiting(&locks.lock(NAME), WAITERS as u64).await;
    // Their manager counts them before the server knows.
    until_queued(&server, 1).await;
    let clients = format!("HLEN lock-core:waiters:{{{KEY}}}");
    assert_eq!(queue_len(&server).await, 1, "they have one place");
    let known: usize = command(&server, &clients).await;
    assert_eq!(known, 2, "one token and its client");
    let asked_before = proxy.count(is_acquire);
    assert!(asked_before <= 2, "{asked_before} requests for one place");
    let (start, before) = (Instant::now(), proxy.requests().len());
    // A rate can only be measured over a time.
    tokio::time::sleep(ms(7000)).await;
    let asked = proxy.requests().len() - before;
    let intervals = start.elapsed().as_secs() as usize / 3 + 1;
    assert!(
        asked <= intervals,
        "{asked} requests in {intervals} intervals"
    );
    // They are kept alive by it all the same.
    eventually("a refresh", LIMIT, async || proxy.requests().len() > before).await;
    assert_eq!(
        proxy.count(is_acquire),
        asked_before + proxy.requests().len() - before
    );
    assert_eq!(queue_len(&server).await, 1, "and still have it");
    guard.release().await.unwrap();
    for waiter in waiters {
        in_time("a waiter", waiter).await.unwrap().unwrap();
    }
    until_clean(&server).await;
}
