//! Locks that are lost while others are waited for, and after that.

use std::time::Duration;

use lock_core::{LockError, LossReason};
use lock_tests::{LIMIT, eventually, in_time};

use super::rig::{KEYS, everywhere, for_one_script, held, seen, waiters};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_during_the_wait_begins_it_again() {
    for_one_script(&async |rig: &super::rig::Rig| {
        if matches!(rig, super::rig::Rig::Connection(_)) {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_is_for_all_beginnings_together() {
    let locks = lock_core::LockManager::connect("memory://").await.unwrap();
    let _last = locks.lock("b").acquire().await.unwrap();
    let short = locks.all(["a", "b"]).max_hold(Duration::from_millis(20));
    let limit = Duration::from_millis(150);
    let begun = std::time::Instant::now();
    match short.acquire_within(limit).await {
        Err(LockError::TimedOut { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() >= limit);
    held(&locks, "a", false).await;
}

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
