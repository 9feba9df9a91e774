//! No wake-up is lost: not between a try and the subscription, and not with a waiter that gives up when it is woken.

use std::time::{Duration, Instant};

use lock_core::{LockManager, Owner};
use lock_tests::{LIMIT, Proxy, TestServer};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::reentrant::apart::{Apart, ApartLock};
use crate::reentrant::redisson_client::{Redisson, Unlocked};
use crate::reentrant::support::{
    LONG, PATIENT, REFRESH, in_time, is_acquire, is_subscribe, manager, manager_at, ms, neighbours,
    until_clean, until_listening, until_parked, until_waiting, warm_server, woken_by_a_message,
};

#[tokio::test]
async fn a_release_between_the_first_try_and_the_subscription_is_found() {
    let (server, java, proxy, locks) = neighbours().await;
    let lock = locks.lock_apart("order");
    woken_by_a_message("the lock", async || {
        assert_eq!(java.try_lock("order", LONG).await, None);
        let subscribing = proxy.hold_next_request_matching(is_subscribe);
        let waiter = lock.clone();
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        subscribing.wait().await;
        // Nobody listens: this message reaches no one.
        assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
        let since = Instant::now();
        subscribing.deliver();
        let guard = in_time("the lock", waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
        until_clean(&server).await;
        since
    })
    .await;
}

#[tokio::test]
async fn a_waiter_that_is_cancelled_while_it_asks_passes_the_wake_up_on() {
    let (server, java, proxy, locks) = neighbours().await;
    for owners in [false, true] {
        woken_by_a_message("the lock", async || {
            let lock = || order(&locks, owners);
            let (first, second, seen) = (lock(), lock(), lock());
            assert_eq!(java.try_lock("order", LONG).await, None);
            let asked = proxy.count(is_acquire);
            let first = tokio::spawn(async move { first.acquire().await.map(drop) });
            // An owner may be in already, so it tries before it stands in line.
            until_parked(&proxy, asked + usize::from(owners), &seen).await;
            let second = tokio::spawn(async move { second.acquire().await });
            until_waiting(&seen, 2).await;
            let asking = proxy.hold_next_request_matching(is_acquire);
            assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
            asking.wait().await;
            first.abort();
            let _ = first.await;
            let since = Instant::now();
            asking.deliver();
            let guard = in_time("the lock", second).await.unwrap().unwrap();
            guard.release().await.unwrap();
            until_clean(&server).await;
            since
        })
        .await;
    }
}

#[tokio::test]
async fn a_waiter_whose_time_ends_while_it_subscribes_leaves_a_listener_behind() {
    let (server, java, proxy, locks) = neighbours().await;
    let lock = locks.lock_apart("order");
    woken_by_a_message("the lock", async || {
        assert_eq!(java.try_lock("order", LONG).await, None);
        let asked = proxy.count(is_acquire);
        let subscribing = proxy.hold_next_request_matching(is_subscribe);
        let first = lock.clone();
        let first = tokio::spawn(async move { first.acquire_within(ms(300)).await.map(drop) });
        subscribing.wait().await;
        let second = lock.clone();
        let second = tokio::spawn(async move { second.acquire().await });
        assert!(in_time("its end", first).await.unwrap().is_err());
        subscribing.deliver();
        until_parked(&proxy, asked, &lock).await;
        until_listening(&server, "order", 1).await;
        let since = Instant::now();
        assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
        let guard = in_time("the lock", second).await.unwrap().unwrap();
        guard.release().await.unwrap();
        until_clean(&server).await;
        since
    })
    .await;
}

/// A handle of the lock, for an owner of its own where there are owners.
fn order(locks: &LockManager, owners: bool) -> ApartLock {
    let lock = locks.lock_apart("order");
    if owners {
        lock.owner(&Owner::new())
    } else {
        lock
    }
}

/// Two waiters, the first of which leaves at about the moment at which the lock is let go.
async fn leaving_meets_release(rounds: u64, owners: bool) {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let locks = manager_at(&server.url(), PATIENT).await;
    let mut late = Vec::new();
    for round in 0..rounds {
        let lock = || order(&locks, owners);
        let (first, second) = (lock(), lock());
        assert_eq!(java.try_lock("order", LONG).await, None);
        let patience = Duration::from_micros(if round % 2 == 0 {
            LIMIT.as_micros() as u64
        } else {
            4_000 + fastrand::u64(..2_000)
        });
        let first = tokio::spawn(async move { first.acquire_within(patience).await.map(drop) });
        sleep(ms(1)).await;
        let second = tokio::spawn(async move { second.acquire().await });
        let until_leaving = Duration::from_micros(fastrand::u64(..2_000));
        let since = if round % 2 == 0 {
            until_listening(&server, "order", 1).await;
            let leaving = tokio::spawn(async move {
                sleep(until_leaving).await;
                first.abort();
                let _ = first.await;
            });
            sleep(Duration::from_micros(fastrand::u64(..2_000))).await;
            assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
            leaving.await.unwrap();
            Instant::now()
        } else {
            sleep(Duration::from_micros(2_000 + fastrand::u64(..4_000))).await;
            assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
            let _ = first.await;
            Instant::now()
        };
        let guard = in_time("the lock", second).await.unwrap().unwrap();
        if since.elapsed() > REFRESH / 2 {
            late.push((round, since.elapsed()));
        }
        guard.release().await.unwrap();
    }
    // A wake-up that is lost costs a refresh interval; a machine that stands still for so long is rare.
    assert!(late.len() < 2, "{late:?}");
    until_clean(&server).await;
    assert_eq!(locks.shutdown(LIMIT).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_gives_up_when_the_lock_is_let_go_leaves_it_to_the_next() {
    leaving_meets_release(200, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_gives_up_when_the_lock_is_let_go_leaves_it_to_the_next() {
    leaving_meets_release(200, true).await;
}

#[tokio::test]
async fn the_longest_key_is_woken_too() {
    let (_server, java, proxy, locks) = neighbours().await;
    let key = "k".repeat(1024);
    let lock = locks.lock_apart(&key);
    woken_by_a_message("the lock", async || {
        assert_eq!(java.try_lock(&key, LONG).await, None);
        let asked = proxy.count(is_acquire);
        let waiter = lock.clone();
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        until_parked(&proxy, asked, &lock).await;
        let since = Instant::now();
        assert_eq!(java.unlock(&key, LONG).await, Unlocked::Free);
        let guard = in_time("the lock", waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
        since
    })
    .await;
}

/// Proves P8.
#[tokio::test]
async fn a_first_waiter_that_asks_and_subscribes_slowly_is_not_overtaken() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let held = manager(&server).await.lock_apart("order");
    let held = held.acquire().await.unwrap();
    let locks = manager_at(&proxy.url(), ms(2_000)).await;
    // A request takes most of the deadline. Two of them take longer than one may, with the pause after a failure.
    proxy.delay(ms(800));
    let (gets, mut order) = mpsc::unbounded_channel();
    for waiter in 0..3 {
        let (lock, gets) = (locks.lock_apart("order"), gets.clone());
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            gets.send(waiter).unwrap();
            guard.release().await.unwrap();
        });
    }
    // Each owner tries. Then the line asks, and once more after its subscription.
    proxy.on_count(3 + 2, is_acquire).await;
    proxy.delay(Duration::ZERO);
    held.release().await.unwrap();
    for waiter in 0..3 {
        assert_eq!(in_time("the lock", order.recv()).await, Some(waiter));
    }
    until_clean(&server).await;
}
