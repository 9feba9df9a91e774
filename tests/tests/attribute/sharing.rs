//! `mode`, `permits` and `max`.

use std::time::Duration;

use lock_core::{LockError, LockGuard, LockManager, distributed_lock};

async fn manager() -> LockManager {
    LockManager::connect("memory://").await.unwrap()
}

#[distributed_lock(key = "a", mode = "read", client = locks, wait = "0s")]
async fn read(locks: &LockManager) -> Result<Option<u64>, LockError> {
    Ok(LockGuard::current().map(|held| held.fencing_token().get()))
}

#[distributed_lock(key = "a", mode = "write", client = locks, wait = "0s")]
async fn write(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn readers_run_beside_each_other_and_not_beside_a_writer() {
    let locks = manager().await;
    let held = locks.rw_lock("a").read().await.unwrap();
    let token = held.fencing_token().get();
    assert_eq!(read(&locks).await.unwrap(), Some(token), "one phase");
    assert!(write(&locks).await.unwrap_err().is_contention());
    held.release().await.unwrap();
    write(&locks).await.unwrap();
    let _held = locks.rw_lock("a").write().await.unwrap();
    assert!(read(&locks).await.unwrap_err().is_contention());
}

#[distributed_lock(key = "a", mode = "read", client = locks)]
async fn reads_again(locks: &LockManager) -> Result<(), LockError> {
    locks.rw_lock("a").read().await.map(drop)
}

#[tokio::test]
async fn a_read_under_the_own_read_is_a_deadlock() {
    let locks = manager().await;
    let refused = reads_again(&locks).await;
    assert!(
        matches!(refused, Err(LockError::Deadlock { .. })),
        "{refused:?}"
    );
}

#[distributed_lock(key = "s", max = 3, client = locks, wait = "0s")]
async fn one(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "s", permits = few, max = few + 1, client = locks, wait = "0s")]
async fn several(locks: &LockManager, few: u32) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn permits_and_max_are_literals_or_expressions() {
    let locks = manager().await;
    let held = locks.semaphore("s", 3).permits(2).acquire().await.unwrap();
    one(&locks).await.unwrap();
    assert!(several(&locks, 2).await.unwrap_err().is_contention());
    assert!(matches!(
        several(&locks, 4).await,
        Err(LockError::OtherMax {
            max: 5,
            in_use: 3,
            ..
        })
    ));
    held.release().await.unwrap();
    several(&locks, 2).await.unwrap();
}

#[distributed_lock(keys = ["x", "y"], mode = "write", client = locks, wait = "0s")]
async fn both(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn several_keys_are_written_together() {
    let locks = manager().await;
    let held = locks.rw_lock("y").read().await.unwrap();
    assert!(both(&locks).await.unwrap_err().is_contention());
    held.release().await.unwrap();
    let limit = Duration::from_secs(5);
    tokio::time::timeout(limit, both(&locks))
        .await
        .unwrap()
        .unwrap();
}
