//! Locks that are lost while others are waited for, and after that.

use std::pin::pin;
use std::time::Duration;

use lock_core::{LockError, LossReason};
use lock_tests::kit::warm_server;
use lock_tests::{LIMIT, Proxy, eventually, in_time};

use super::rig::{KEYS, everywhere, for_one_script, held, seen, waiters};
use crate::rig::builder;

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_during_the_wait_begins_it_again() {
    for_one_script(&async |rig: &crate::rig::Rig| {
        if matches!(rig, crate::rig::Rig::Connection(_)) {
            // It learns of the loss with its next renewal only.
            return;
        }
        let (other, locks) = (rig.manager().await, rig.manager().await);
        let last = other.lock("{t}c").acquire().await.unwrap();
        let waiting = tokio::spawn(locks.all(KEYS).acquire_within(LIMIT));
        waiters(&other, "{t}c", 1).await;
        let first = seen(&other, "b").await.fence();
        assert!(other.lock("b").force_release().await.unwrap());
        eventually("the first lock is taken again", LIMIT, async || {
            let info = seen(&other, "b").await;
            info.is_held() && info.fence() > first
        })
        .await;
        waiters(&other, "{t}c", 1).await;
        last.release().await.unwrap();
        let guard = in_time("all of them", waiting).await.unwrap().unwrap();
        assert!(guard.is_held() && guard.keys().eq(KEYS));
    })
    .await;
}

/// Proves P11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_is_for_all_beginnings_together() {
    let locks = lock_core::LockManager::connect("memory://").await.unwrap();
    let _last = locks.lock("b").acquire().await.unwrap();
    let short = locks.all(["a", "b"]).max_hold(Duration::from_millis(20));
    let limit = Duration::from_millis(150);
    let begun = std::time::Instant::now();
    match short.acquire_within(limit).await {
        // It waits for the second one, or until the first one, which it has lost, is free again.
        Err(LockError::TimedOut { .. } | LockError::Lost { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() >= limit);
    held(&locks, "a", false).await;
}

/// Proves P1.
#[tokio::test]
async fn a_loss_afterwards_is_a_loss_of_the_guard_and_the_rest_is_kept() {
    everywhere(async |rig| {
        let other = rig.manager().await;
        // A quorum and a connection of the user tell of it with a renewal.
        let all = rig.all().await.ttl(Duration::from_millis(900));
        let guard = all.acquire().await.unwrap();
        assert!(other.lock("b").force_release().await.unwrap());
        let reason = in_time("the loss", guard.lost()).await;
        assert!(
            matches!(reason, LossReason::ForceReleased | LossReason::Gone),
            "{reason:?}"
        );
        assert!(!guard.is_held());
        assert_eq!(guard.remaining(), Duration::ZERO);
        for kept in ["{t}a", "{t}c"] {
            assert!(other.lock(kept).try_acquire().await.unwrap().is_none());
        }
        match guard.release().await {
            Err(LockError::Lost { key, .. }) => assert_eq!(key, "b"),
            other => panic!("{other:?}"),
        }
        for key in KEYS {
            held(&other, key, false).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_loss_cancels_the_body_of_a_scope() {
    let locks = lock_core::LockManager::connect("memory://").await.unwrap();
    let all = locks.all(["a", "b"]);
    let lost = all.with(async |_| {
        locks.lock("b").force_release().await.unwrap();
        std::future::pending::<()>().await;
    });
    match in_time("the loss", lost).await {
        Err(LockError::Lost { key, .. }) => assert_eq!(key, "b"),
        other => panic!("{other:?}"),
    }
    assert!(all.try_acquire().await.unwrap().is_some());
}

/// Proves P14.
#[tokio::test]
async fn a_call_that_is_not_polled_keeps_what_it_has_for_one_ttl() {
    for_one_script(&async |rig: &crate::rig::Rig| {
        let (other, locks) = (rig.manager().await, rig.manager().await);
        let _last = other.lock("{t}c").acquire().await.unwrap();
        let ttl = Duration::from_secs(1);
        let mut waiting = pin!(locks.all(KEYS).ttl(ttl).acquire());
        let early = tokio::select! {
            early = &mut waiting => Some(early),
            () = waiters(&other, "{t}c", 1) => None,
        };
        assert!(early.is_none(), "{early:?}");
        let first = other.lock("b").acquire_within(LIMIT).await;
        first.unwrap().release().await.unwrap();
    })
    .await;
}

/// Proves P14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_runs_keeps_what_it_has_for_longer_than_its_ttl() {
    for_one_script(&async |rig: &crate::rig::Rig| {
        let (other, locks) = (rig.manager().await, rig.manager().await);
        let last = other.lock("{t}c").acquire().await.unwrap();
        let ttl = Duration::from_millis(600);
        let waiting = tokio::spawn(locks.all(KEYS).ttl(ttl).acquire());
        waiters(&other, "{t}c", 1).await;
        let first = seen(&other, "b").await.held_since();
        tokio::time::sleep(ttl * 2).await;
        let info = seen(&other, "b").await;
        assert!(info.is_held() && info.held_since() == first, "{info:?}");
        last.release().await.unwrap();
        let guard = in_time("all of them", waiting).await.unwrap().unwrap();
        assert!(guard.is_held());
    })
    .await;
}

/// More keys than one request takes, and less time than two requests. Proves P1.
#[tokio::test]
async fn a_call_whose_leases_are_too_short_for_it_ends_as_lost() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = builder().connect(&proxy.url()).await.unwrap();
    proxy.delay(Duration::from_millis(30));
    let all = |from: u32| {
        let keys: Vec<_> = (from..from + 65).map(|key| key.to_string()).collect();
        locks.all(&keys).max_hold(Duration::from_millis(20))
    };
    let tried = in_time("one pass", all(100).try_acquire()).await;
    assert!(matches!(tried, Err(LockError::Lost { .. })), "{tried:?}");
    let limit = Duration::from_millis(200);
    let waited = in_time("the limit", all(200).acquire_within(limit)).await;
    assert!(matches!(waited, Err(LockError::Lost { .. })), "{waited:?}");
}
