//! P3 and P5: letting go.

use lock_core::{LockError, LossReason};
use std::time::Duration;

use super::rig::{Rig, SHORT, free, queued};

pub(crate) async fn release_frees_the_lock_at_once(rig: &Rig) {
    let (first, second) = (rig.lock("a").await, rig.lock("a").await);
    for _ in 0..5 {
        first.acquire().await.unwrap().release().await.unwrap();
        assert!(!first.inspect().await.unwrap().is_held());
        let guard = second.try_acquire().await.unwrap().expect("free");
        guard.release().await.unwrap();
    }
}

pub(crate) async fn release_returns_with_the_lock_handed_over(rig: &Rig) {
    let (first, second) = (rig.lock("a").await, rig.lock("a").await);
    let guard = first.acquire().await.unwrap();
    let next = queued(&second, 1).await;
    guard.release().await.unwrap();
    let info = first.inspect().await.unwrap();
    assert!(info.is_held(), "never free in between");
    assert_eq!(info.waiters(), 0);
    assert!(first.try_acquire().await.unwrap().is_none());
    next.await.unwrap().release().await.unwrap();
}

pub(crate) async fn drop_releases_in_the_background(rig: &Rig) {
    let (first, second) = (rig.lock("a").await, rig.lock("a").await);
    drop(first.acquire().await.unwrap());
    free(&second).await;
    assert!(second.try_acquire().await.unwrap().is_some());
}

/// Proves P3.
pub(crate) async fn late_release_says_lost_and_leaves_the_new_holder(rig: &Rig) {
    let first = rig.lock("a").await.ttl(Duration::from_secs(1)).renew(false);
    let late = first.acquire().await.unwrap();
    let dropped_late = rig
        .lock("b")
        .await
        .ttl(Duration::from_secs(1))
        .renew(false)
        .acquire()
        .await
        .unwrap();
    let (a, b) = (rig.lock("a").await, rig.lock("b").await);
    let new_a = a.acquire().await.unwrap();
    let new_b = b.acquire().await.unwrap();

    let answer = late.release().await;
    assert!(
        matches!(&answer, Err(LockError::Lost { key, reason: LossReason::Expired }) if key == "a"),
        "{answer:?}"
    );
    drop(dropped_late);

    for (lock, guard) in [(a, new_a), (b, new_b)] {
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(guard.is_held());
        // The server agrees that it is still theirs.
        guard.release().await.unwrap();
    }
}

pub(crate) async fn a_guard_outlives_its_manager(rig: &Rig) {
    let locks = rig.manager().await;
    let ttl = SHORT;
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    drop(locks);
    // Still renewed, still releasable.
    assert!(
        tokio::time::timeout(ttl * 3 / 2, guard.lost())
            .await
            .is_err()
    );
    let other = rig.lock("a").await;
    assert!(other.try_acquire().await.unwrap().is_none());
    drop(guard);
    free(&other).await;
}
