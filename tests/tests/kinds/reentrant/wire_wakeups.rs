//! Redisson and we wake each other, and nobody relies on a lock that another has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::{FutureExt, StreamExt};
use lock_core::Owner;
use lock_tests::{LIMIT, TestServer};
use tokio::time::timeout;

use crate::reentrant::apart::Apart;
use crate::reentrant::redisson_client::{Redisson, Unlocked};
use crate::reentrant::support::{
    LONG, Section, in_time, is_acquire, manager, ms, neighbours, until_clean, until_parked,
    woken_by_a_message,
};

#[tokio::test]
async fn an_unlock_of_redisson_wakes_our_waiter() {
    let (server, java, proxy, locks) = neighbours().await;
    for name in ["order", "{order}", "java:order"] {
        let lock = locks.lock_apart(name);
        woken_by_a_message(name, async || {
            assert_eq!(java.try_lock(name, LONG).await, None);
            let asked = proxy.count(is_acquire);
            let waiter = lock.clone();
            let waiting = tokio::spawn(async move { waiter.acquire().await });
            until_parked(&proxy, asked, &lock).await;
            let since = Instant::now();
            assert_eq!(java.unlock(name, LONG).await, Unlocked::Free);
            let guard = in_time("the lock", waiting).await.unwrap().unwrap();
            guard.release().await.unwrap();
            since
        })
        .await;
    }
    until_clean(&server).await;
}

#[tokio::test]
async fn a_force_unlock_of_redisson_wakes_our_waiter() {
    let (_server, java, proxy, locks) = neighbours().await;
    let lock = locks.lock_apart("order");
    woken_by_a_message("the lock", async || {
        assert_eq!(java.try_lock("order", LONG).await, None);
        let asked = proxy.count(is_acquire);
        let waiter = lock.clone();
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        until_parked(&proxy, asked, &lock).await;
        let since = Instant::now();
        assert!(java.force_unlock("order").await);
        let guard = in_time("the lock", waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
        since
    })
    .await;
}

#[tokio::test]
async fn our_release_wakes_a_waiter_of_redisson() {
    let server = TestServer::start().await;
    let locks = manager(&server).await;
    for name in ["order", "{order}"] {
        let java = Arc::new(Redisson::new(&server).await);
        for force in [false, true] {
            let lock = locks.lock_apart(name);
            let guard = lock.acquire().await.unwrap();
            let waiter = Arc::clone(&java);
            let waiting = tokio::spawn(async move { waiter.lock(name, LONG).await });
            in_time("the waiter", java.parked.notified()).await;
            if force {
                assert!(lock.force_release().await.unwrap());
            } else {
                guard.release().await.unwrap();
            }
            // Its own timer would end after the ttl, which is longer than the limit.
            let woken = in_time("the wake-up", waiting).await.unwrap();
            assert!(woken, "it did not just ask at the right time");
            assert_eq!(java.unlock(name, LONG).await, Unlocked::Free);
        }
    }
    until_clean(&server).await;
}

#[tokio::test]
async fn a_subscriber_of_the_channel_gets_one_0_for_each_full_release() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let locks = manager(&server).await;
    for name in ["order", "{order}:7", "a{x}b"] {
        let lock = locks.lock_apart(name).owner(&Owner::new());
        let mut pubsub = java.subscribe(name).await;
        let mut messages = pubsub.on_message();
        let outer = lock.acquire().await.unwrap();
        let inner = lock.acquire().await.unwrap();
        inner.release().await.unwrap();
        outer.release().await.unwrap();
        let message = in_time("the message", messages.next()).await.unwrap();
        assert_eq!(message.get_payload_bytes(), b"0");
        // Messages come in order: what came of the partial release would be here before the next one.
        drop(lock.acquire().await.unwrap());
        let message = in_time("the message", messages.next()).await.unwrap();
        assert_eq!(message.get_payload_bytes(), b"0");
        let _: u64 = crate::reentrant::support::command(
            &server,
            &format!(
                "PUBLISH {} end",
                crate::reentrant::redisson_client::channel(name)
            ),
        )
        .await;
        let message = in_time("the message", messages.next()).await.unwrap();
        assert_eq!(message.get_payload_bytes(), b"end", "nothing more was said");
        assert!(messages.next().now_or_never().is_none());
    }
}

#[tokio::test]
async fn a_lease_that_runs_out_lets_both_sides_in() {
    let server = TestServer::start().await;
    let java = Arc::new(Redisson::new(&server).await);
    let dead = Redisson::new(&server).await;
    let lock = manager(&server).await.lock_apart("order");
    assert_eq!(dead.try_lock("order", ms(400)).await, None);
    let guard = in_time("the lock", lock.acquire()).await.unwrap();
    guard.release().await.unwrap();

    let guard = lock.ttl(ms(400)).renew(false).acquire().await.unwrap();
    // Our clean-up may come first, and says so.
    in_time("the lock", java.lock("order", LONG)).await;
    assert!(!guard.is_held());
    in_time("the loss", guard.lost()).await;
    drop(guard);
    assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
    until_clean(&server).await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_threads_and_our_tasks_never_overlap_and_all_get_their_share() {
    const ENOUGH: usize = 25;
    let server = TestServer::start().await;
    let section = Section::default();
    // Two of theirs, two managers of ours with two tasks each.
    let entered: Arc<[AtomicUsize; 6]> = Arc::default();
    let all_had_enough = |entered: &[AtomicUsize; 6]| {
        entered
            .iter()
            .all(|count| count.load(Ordering::SeqCst) >= ENOUGH)
    };
    let mut parties = tokio::task::JoinSet::new();
    for party in 0..2 {
        let java = Redisson::new(&server).await;
        let (section, entered) = (section.clone(), Arc::clone(&entered));
        parties.spawn(async move {
            while !all_had_enough(&entered) {
                java.lock("order", LONG).await;
                section.work(ms(1)).await;
                entered[party].fetch_add(1, Ordering::SeqCst);
                assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
                tokio::task::yield_now().await;
            }
        });
    }
    let ours = [manager(&server).await, manager(&server).await];
    for party in 2..6 {
        let locks = ours[party % 2].clone();
        let (section, entered) = (section.clone(), Arc::clone(&entered));
        parties.spawn(async move {
            let me = Owner::new();
            let mut lock = locks.lock_apart("order");
            if party > 3 {
                lock = lock.owner(&me);
            }
            while !all_had_enough(&entered) {
                let guard = lock.acquire().await.unwrap();
                section.work(ms(1)).await;
                assert!(guard.is_held());
                entered[party].fetch_add(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    let ended = timeout(LIMIT * 2, async {
        while let Some(outcome) = parties.join_next().await {
            outcome.unwrap();
        }
    })
    .await;
    assert!(ended.is_ok(), "somebody starves: {entered:?}");
    section.assert_exclusive();
    until_clean(&server).await;
}
