//! `with`: the lock is released on every path.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockError, LossReason};
use tokio::sync::oneshot;

use super::rig::{Rig, free};

pub(crate) async fn with_returns_the_value_and_releases(rig: &Rig) {
    let (lock, other) = (rig.lock("a").await, rig.lock("a").await);
    let fence = lock
        .with(async |guard| {
            assert!(guard.is_held());
            assert!(other.try_acquire().await.unwrap().is_none());
            guard.fencing_token().get()
        })
        .await
        .unwrap();
    assert!(fence > 0);
    // It waited for the release: the lock is free now.
    assert!(other.try_acquire().await.unwrap().is_some());
    // An error of the body is a value like any other.
    let failed: Result<u8, &str> = lock.with(async |_| Err("no")).await.unwrap();
    assert_eq!(failed, Err("no"));
    assert!(other.try_acquire().await.unwrap().is_some());
}

pub(crate) async fn with_releases_when_the_body_panics(rig: &Rig) {
    let (lock, other) = (rig.lock("a").await, rig.lock("a").await);
    let task = tokio::spawn(async move {
        lock.with(async |_| panic!("on purpose")).await.unwrap();
    });
    assert!(task.await.unwrap_err().is_panic());
    free(&other).await;
}

pub(crate) async fn with_releases_when_it_is_cancelled(rig: &Rig) {
    let (lock, other) = (rig.lock("a").await, rig.lock("a").await);
    let (inside, reached) = oneshot::channel();
    let task = tokio::spawn(async move {
        lock.with(async move |_| {
            inside.send(()).unwrap();
            pending::<()>().await;
        })
        .await
    });
    reached.await.unwrap();
    assert!(other.inspect().await.unwrap().is_held());
    task.abort();
    free(&other).await;
}

pub(crate) async fn with_cancels_the_body_of_a_lost_lock(rig: &Rig) {
    let lock = rig.lock("a").await.max_hold(Duration::from_millis(100));
    let alive = Arc::new(());
    let dropped = Arc::downgrade(&alive);
    let outcome = lock
        .with(async move |_| {
            pending::<()>().await;
            drop(alive);
        })
        .await;
    match outcome {
        Err(LockError::Lost { key, reason }) => {
            assert_eq!((&*key, reason), ("a", LossReason::MaxHold));
        }
        other => panic!("{other:?}"),
    }
    assert!(dropped.upgrade().is_none(), "the body is gone");
    free(&lock).await;
}
