//! Defects that Redisson has or had, shown to be absent.

use std::time::Instant;

use lock_core::{LockError, LockGuard, LossReason, Owner};
use lock_tests::{LIMIT, Proxy, TestServer};
use tokio::time::{sleep, timeout};

use crate::reentrant::apart::{Apart, ApartLock};
use crate::reentrant::support::{
    LONG, PATIENT, in_time, is_extend, manager, manager_at, ms, until_clean, until_listening,
};

/// A timer that every idle lock left behind would renew the next one again and again: 423 calls a tick were seen.
#[tokio::test]
async fn one_renewal_a_tick_after_600_locks_and_unlocks() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let ttl = ms(1500);
    let locks = manager_at(&proxy.url(), LIMIT).await;
    let lock = locks.lock_apart("order").owner(&Owner::new()).ttl(ttl);
    for cycle in 0..600 {
        let guard = lock.acquire().await.unwrap();
        let nested = (cycle % 3 == 0).then_some(lock.acquire().await.unwrap());
        sleep(ms(cycle % 3)).await;
        drop(nested);
        guard.release().await.unwrap();
    }
    let mut nested = Vec::new();
    for _ in 0..8 {
        nested.push(lock.acquire().await.unwrap());
    }
    let (since, before) = (Instant::now(), proxy.requests().len());
    // Five renewals after those that may have been on their way.
    let seen = proxy.count(is_extend);
    proxy.on_count(seen + 5, is_extend).await;
    let calls = proxy.requests().split_off(before);
    let renewals: Vec<_> = calls.iter().filter(|call| is_extend(call)).collect();
    // One is due after a third of the ttl, or a little before; a slow machine makes it fewer.
    let ticks = since.elapsed().as_millis() / (ttl / 4).as_millis() + 1;
    assert!(
        renewals.len() as u128 <= ticks,
        "{} renewals in {ticks} ticks",
        renewals.len()
    );
    for renewal in renewals {
        assert_eq!(renewal.arg(2), "2", "eight holds are one lease");
    }
    assert!(nested.iter().all(|guard| guard.is_held()));
    drop(nested);
    until_clean(&server).await;
}

#[tokio::test]
async fn nothing_is_renewed_after_a_hundred_cancelled_acquires() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), PATIENT).await;
    for round in 0..100u64 {
        let lock = locks.lock_apart("order").ttl(ms(600));
        let lock = if round % 2 == 0 {
            lock.owner(&Owner::new())
        } else {
            lock
        };
        let acquiring = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            guard.lost().await
        });
        sleep(std::time::Duration::from_micros(round * 30)).await;
        acquiring.abort();
        let _ = acquiring.await;
    }
    until_clean(&server).await;
    let renewals = proxy.count(is_extend);
    // Three ticks.
    sleep(ms(600)).await;
    assert_eq!(proxy.count(is_extend), renewals);
    assert_eq!(locks.shutdown(LIMIT).await, 0);
}

#[tokio::test]
async fn a_sick_connection_delays_no_renewal_elsewhere() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let ttl = ms(1500);
    let sick = manager_at(&proxy.url(), ms(500)).await;
    let sound = manager(&server).await;
    let hopeless = sick.lock_apart("sick").ttl(ttl).acquire().await;
    let hopeless = hopeless.unwrap();
    let mut fine = Vec::new();
    for n in 0..20 {
        let lock = sound.lock_apart(format!("sound:{n}")).ttl(ttl);
        fine.push(lock.acquire().await.unwrap());
    }
    proxy.cut_to_server(true);
    let reason = in_time("the loss", hopeless.lost()).await;
    assert_eq!(reason, LossReason::Expired);
    assert!(fine.iter().all(|guard| guard.is_held()));
    let lost = timeout(ttl, fine[0].lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(fine.iter().all(|guard| guard.is_held()));
}

#[tokio::test]
async fn a_holder_hears_of_its_loss_and_its_body_is_cancelled() {
    let server = TestServer::start().await;
    let lock = manager(&server).await.lock_apart("order").ttl(ms(900));
    let other = lock.clone();
    let outcome = in_time(
        "the body",
        Box::pin(lock.with(async |_| {
            lock.with(async |_| {
                server.flushall().await;
                std::future::pending::<()>().await;
            })
            .await
        })),
    )
    .await;
    // Both bodies are of one owner and lose together: the outer one ends by its own loss or by the inner one's error.
    match outcome {
        Err(LockError::Lost { .. }) | Ok(Err(LockError::Lost { .. })) => {}
        other => panic!("{other:?}"),
    }
    assert!(other.try_acquire().await.unwrap().is_some());
}

/// Whether the lease of this guard is renewed: it ends by itself otherwise.
async fn is_renewed(guard: &LockGuard, ttl: std::time::Duration) -> bool {
    match timeout(ttl * 2, guard.lost()).await {
        Ok(reason) => {
            assert_eq!(reason, LossReason::Expired);
            false
        }
        Err(_) => true,
    }
}

/// `lock(); lock(10 s); unlock();` must not end the renewal, nor a fixed lease begin one.
#[tokio::test]
async fn mixed_leases_are_renewed_exactly_while_one_of_them_wants_it() {
    let server = TestServer::start().await;
    let locks = manager(&server).await;
    let ttl = ms(1200);
    let case = async |number: usize, outer_renews: bool, outer_first: bool| {
        let lock: ApartLock = locks
            .lock_apart(format!("order:{number}"))
            .owner(&Owner::new())
            .ttl(ttl);
        let outer = lock.clone().renew(outer_renews).acquire().await.unwrap();
        let inner = lock.clone().renew(!outer_renews).acquire().await.unwrap();
        let (first, last) = if outer_first {
            (outer, inner)
        } else {
            (inner, outer)
        };
        let last_renews = outer_renews != outer_first;
        first.release().await.unwrap();
        assert_eq!(
            is_renewed(&last, ttl).await,
            last_renews,
            "outer renews: {outer_renews}, released first: {outer_first}"
        );
        // And again: the owner comes back with one more hold that is renewed.
        if last_renews {
            let nested = lock.clone().renew(false).acquire().await.unwrap();
            nested.release().await.unwrap();
            assert!(is_renewed(&last, ttl).await);
        }
        assert_eq!(last.release().await.is_ok(), last_renews);
    };
    tokio::join!(
        case(0, true, true),
        case(1, true, false),
        case(2, false, true),
        case(3, false, false),
    );
    until_clean(&server).await;
}

#[tokio::test]
async fn a_fixed_lease_is_never_renewed() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), LIMIT).await;
    let lock = locks.lock_apart("order").owner(&Owner::new());
    let lock = lock.ttl(ms(600)).renew(false);
    let guards = [lock.acquire().await.unwrap(), lock.acquire().await.unwrap()];
    for guard in &guards {
        assert_eq!(in_time("the end", guard.lost()).await, LossReason::Expired);
    }
    assert_eq!(proxy.count(is_extend), 0);
}

/// Redisson's wait covers its patience only: retries and reconnects came on top.
#[tokio::test]
async fn a_wait_with_a_limit_ends_though_the_server_hangs() {
    let server = TestServer::start().await;
    let holder = manager(&server).await;
    let _held = holder.lock_apart("order").acquire().await.unwrap();
    let locks = manager_at(&server.url(), LIMIT * 4).await;
    let lock = locks.lock_apart("order").ttl(LONG);
    for before in [true, false] {
        let waiter = lock.clone();
        let waiting = tokio::spawn(async move { waiter.acquire_within(ms(1500)).await });
        if before {
            until_listening(&server, "order", 1).await;
        }
        server.stop();
        let outcome = in_time("the wait", waiting).await.unwrap();
        server.cont();
        assert!(outcome.is_err(), "{outcome:?}");
    }
}

#[tokio::test]
async fn what_an_owner_had_lost_when_it_entered_anew_is_cleaned_up_at_once() {
    let server = TestServer::start().await;
    let locks = manager(&server).await;
    let us = Owner::new();
    let lock = locks.lock_apart("order").owner(&us).ttl(LONG);
    let before = lock.acquire().await.unwrap();
    server.flushall().await;
    let anew = lock.acquire().await.unwrap();
    assert_eq!(in_time("the loss", before.lost()).await, LossReason::Gone);
    drop(before);
    anew.release().await.unwrap();
    let left = in_time("the shutdown", locks.shutdown(LONG)).await;
    assert_eq!(left, 0);
    until_clean(&server).await;
}
