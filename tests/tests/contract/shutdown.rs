//! The end of a manager.

use std::time::Duration;

use lock_core::{LockError, LossReason};
use lock_tests::{LIMIT, eventually};

use super::rig::{LONG, Rig, free, queued, waiters};

pub(crate) async fn shutdown_refuses_new_acquisitions(rig: &Rig) {
    let locks = rig.manager().await;
    let lock = locks.lock("a");
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    let refusals = [
        lock.acquire().await.map(drop),
        lock.acquire_within(LIMIT).await.map(drop),
        lock.try_acquire().await.map(drop),
        lock.with(async |_| ()).await,
        locks.clone().lock("b").acquire().await.map(drop),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Err(LockError::ShutDown)), "{refusal:?}");
    }
    let forced = lock.force_release().await;
    assert!(matches!(forced, Err(LockError::ShutDown)), "{forced:?}");
    // A look is still allowed, and another manager is none the worse.
    assert!(!lock.inspect().await.unwrap().is_held());
    assert!(rig.lock("a").await.try_acquire().await.unwrap().is_some());
    assert_eq!(locks.shutdown(LIMIT).await, 0, "a second time does no harm");
}

pub(crate) async fn shutdown_drains_what_drops_have_queued(rig: &Rig) {
    let (locks, other) = (rig.manager().await, rig.manager().await);
    let keys: Vec<String> = (0..100).map(|n| format!("drained:{n}")).collect();
    let mut held = Vec::new();
    for key in &keys {
        held.push(locks.lock(key).acquire().await.unwrap());
    }
    drop(held);
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    for key in &keys {
        assert!(!other.lock(key).inspect().await.unwrap().is_held(), "{key}");
    }
}

pub(crate) async fn shutdown_takes_what_is_still_held(rig: &Rig) {
    let (locks, other) = (rig.manager().await, rig.lock("a").await);
    let guard = locks.lock("a").acquire().await.unwrap();
    // At the end it has a quarter of a second to take the lock back, which a busy machine may not give it.
    let left = locks.shutdown(Duration::from_secs(2)).await;
    assert!(left <= 1, "{left}");
    assert_eq!(guard.lost().await, LossReason::ShutDown);
    assert!(!guard.is_held());
    if left == 0 {
        assert!(
            other.try_acquire().await.unwrap().is_some(),
            "free when it returned"
        );
    }
    free(&other).await;
    let late = guard.release().await;
    assert!(
        matches!(
            late,
            Err(LockError::Lost {
                reason: LossReason::ShutDown,
                ..
            })
        ),
        "{late:?}"
    );
}

pub(crate) async fn shutdown_leaves_a_lock_that_is_to_be_kept(rig: &Rig) {
    let locks = rig.manager().await;
    // Shorter than the ttl, so that it shows whether the lock was left for that time.
    let least = LONG / 2;
    let keys = ["dropped", "held"];
    let [dropped, held] = keys.map(|key| locks.lock(key).at_least(least));
    drop(dropped.acquire().await.unwrap());
    let guard = held.acquire().await.unwrap();
    locks.shutdown(Duration::from_secs(2)).await;
    assert_eq!(guard.lost().await, LossReason::ShutDown);
    for key in keys {
        let other = rig.lock(key).await;
        eventually("it is left for its time", LIMIT, async || {
            let info = other.inspect().await.unwrap();
            assert!(info.is_held(), "{key} was given back early");
            info.remaining().is_some_and(|left| left <= least)
        })
        .await;
    }
}

pub(crate) async fn shutdown_waits_for_a_guard_that_is_released_in_time(rig: &Rig) {
    let locks = rig.manager().await;
    let lock = locks.lock("a");
    let guard = lock.acquire().await.unwrap();
    let shutting_down = tokio::spawn(async move { locks.shutdown(LIMIT).await });
    // It has begun once new acquisitions are refused.
    eventually("acquiring is refused", LIMIT, async || {
        matches!(lock.try_acquire().await, Err(LockError::ShutDown))
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(shutting_down.await.unwrap(), 0);
}

pub(crate) async fn waiters_of_a_shut_down_manager_are_skipped(rig: &Rig) {
    let holder = rig.lock("a").await;
    let guard = holder.acquire().await.unwrap();
    let leaving = rig.manager().await;
    let refused = tokio::spawn({
        let lock = leaving.lock("a");
        async move { lock.acquire().await.map(drop) }
    });
    waiters(&holder, 1).await;
    let next = queued(&rig.lock("a").await, 2).await;
    assert_eq!(leaving.shutdown(LIMIT).await, 0);
    let refused = refused.await.unwrap();
    assert!(matches!(refused, Err(LockError::ShutDown)), "{refused:?}");
    assert_eq!(holder.waiters().await, 1);
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    free(&holder).await;
}
