//! `LockGuard::current()` inside annotated functions.

use std::time::Duration;

use lock_core::{LockError, LockGuard, LockManager, LossReason, distributed_lock};

use crate::memory;

/// A function that knows nothing of the attribute.
fn current_key() -> Option<String> {
    LockGuard::current().map(|view| view.key().to_owned())
}

#[tokio::test]
async fn the_body_and_what_it_calls_see_the_hold() {
    #[distributed_lock(key = "current:{id}", client = locks, guard = held)]
    async fn work(locks: &LockManager, id: u32) -> Result<(), LockError> {
        let view = LockGuard::current().expect("a hold");
        assert_eq!(view.fencing_token(), held.fencing_token());
        assert!(view.is_held());
        tokio::task::yield_now().await;
        assert_eq!(current_key().as_deref(), Some("current:1"));
        Ok(())
    }
    assert!(current_key().is_none());
    work(&memory().await, 1).await.unwrap();
    assert!(current_key().is_none(), "nothing is held after the call");
}

#[tokio::test]
async fn nested_functions_see_the_innermost_hold() {
    #[distributed_lock(key = "current:outer", client = locks)]
    async fn outer(locks: &LockManager) -> Result<(), LockError> {
        assert_eq!(current_key().as_deref(), Some("current:outer"));
        inner(locks).await?;
        assert_eq!(current_key().as_deref(), Some("current:outer"));
        Ok(())
    }
    #[distributed_lock(key = "current:inner", on_lost = continue, client = locks)]
    async fn inner(locks: &LockManager) -> Result<(), LockError> {
        tokio::task::yield_now().await;
        assert_eq!(current_key().as_deref(), Some("current:inner"));
        Ok(())
    }
    outer(&memory().await).await.unwrap();
}

#[tokio::test]
async fn a_spawned_task_sees_none() {
    #[distributed_lock(key = "current:spawn", client = locks)]
    async fn work(locks: &LockManager) -> Result<(), LockError> {
        assert!(
            tokio::spawn(async { current_key() })
                .await
                .unwrap()
                .is_none()
        );
        assert!(current_key().is_some());
        Ok(())
    }
    work(&memory().await).await.unwrap();
}

#[tokio::test]
async fn functions_that_run_side_by_side_see_their_own_hold() {
    #[distributed_lock(key = "current:{id}", client = locks)]
    async fn work(locks: &LockManager, id: u32) -> Result<(), LockError> {
        for _ in 0..5 {
            assert_eq!(current_key(), Some(format!("current:{id}")));
            tokio::task::yield_now().await;
        }
        Ok(())
    }
    let locks = memory().await;
    let (one, other) = tokio::join!(work(&locks, 1), work(&locks, 2));
    one.unwrap();
    other.unwrap();
}

#[tokio::test]
async fn it_tells_of_the_loss_and_outlives_the_hold() {
    #[distributed_lock(key = "current:lost", max_hold = "30ms", on_lost = continue, client = locks)]
    async fn work(locks: &LockManager) -> Result<LossReason, LockError> {
        Ok(LockGuard::current().expect("a hold").lost().await)
    }
    #[distributed_lock(key = "current:kept", client = locks)]
    async fn kept(locks: &LockManager) -> Result<lock_core::LockView, LockError> {
        Ok(LockGuard::current().expect("a hold"))
    }
    let locks = memory().await;
    assert_eq!(work(&locks).await.unwrap(), LossReason::MaxHold);
    let view = kept(&locks).await.unwrap();
    assert!(!view.is_held());
    assert_eq!(view.remaining(), Duration::ZERO);
}
