//! The future of an acquire owns what it needs: it outlives its handle, and can be spawned.

use std::time::Duration;

use lock_core::{LockManager, Owner};
use lock_tests::LIMIT;

#[tokio::test]
async fn a_future_outlives_its_handle_and_can_be_spawned() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let waiting = locks.lock("a").ttl(Duration::from_secs(5)).acquire();
    let guard = waiting.await.unwrap();
    let (within, tried) = (
        tokio::spawn(locks.lock("a").acquire_within(LIMIT)),
        tokio::spawn(locks.lock("a").try_acquire()),
    );
    assert!(tried.await.unwrap().unwrap().is_none());
    guard.release().await.unwrap();
    assert!(within.await.unwrap().unwrap().is_held());

    let me = Owner::new();
    let inner = tokio::spawn(locks.reentrant_lock("r").owner(&me).acquire());
    let outer = tokio::spawn(locks.reentrant_lock("r").owner(&me).try_acquire());
    let within = tokio::spawn(locks.reentrant_lock("r").owner(&me).acquire_within(LIMIT));
    assert!(inner.await.unwrap().unwrap().is_held());
    assert!(outer.await.unwrap().unwrap().is_some());
    assert!(within.await.unwrap().unwrap().is_held());

    let acquire = tokio::spawn(locks.segmented_lock("s", 2).acquire());
    let within = tokio::spawn(locks.segmented_lock("s", 2).acquire_within(LIMIT));
    let tried = tokio::spawn(locks.segmented_lock("s", 2).try_acquire());
    let _one = acquire.await.unwrap().unwrap();
    let _ = within.await.unwrap().unwrap();
    let _ = tried.await.unwrap().unwrap();

    let campaign = tokio::spawn(locks.election("e").campaign("me"));
    assert!(campaign.await.unwrap().unwrap().is_held());

    let acquire = tokio::spawn(locks.all(["x", "y"]).acquire());
    let _both = acquire.await.unwrap().unwrap();
    let within = tokio::spawn(locks.all(["v", "w"]).acquire_within(LIMIT));
    let tried = tokio::spawn(locks.all(["x", "z"]).try_acquire());
    assert!(within.await.unwrap().unwrap().is_held());
    assert!(tried.await.unwrap().unwrap().is_none());
}
