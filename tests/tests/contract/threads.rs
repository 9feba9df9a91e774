//! Guards, locks and managers go wherever a program takes them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use lock_core::{Lock, LockError, LockGuard, LockInfo, LockManager, LockManagerBuilder};
use lock_tests::LIMIT;
use tokio::sync::mpsc;

use super::rig::{Rig, free, in_a_runtime_of_its_own};

fn is_send<T: Send>(_: &T) {}
fn goes_anywhere<T: Send + Sync + 'static>() {}

/// Checked by the compiler: this does not have to run.
#[allow(dead_code, reason = "its types are the test")]
fn everything_is_send(
    lock: &Lock,
    locks: &LockManager,
    guard: LockGuard,
    builder: LockManagerBuilder,
) {
    goes_anywhere::<LockGuard>();
    goes_anywhere::<Lock>();
    goes_anywhere::<LockManager>();
    goes_anywhere::<LockManagerBuilder>();
    goes_anywhere::<LockError>();
    goes_anywhere::<LockInfo>();
    is_send(&lock.acquire());
    is_send(&lock.acquire_within(LIMIT));
    is_send(&lock.try_acquire());
    is_send(&lock.inspect());
    is_send(&lock.force_release());
    is_send(&lock.with(async |guard| guard.fencing_token()));
    is_send(&locks.shutdown(LIMIT));
    is_send(&LockManager::connect("memory://"));
    is_send(&builder.connect("memory://"));
    is_send(&guard.lost());
    is_send(&guard.release());
}

/// Proves P5.
pub(crate) async fn a_guard_dropped_on_a_plain_thread_releases(rig: &Rig) {
    let lock = rig.lock("a").await;
    let guard = lock.acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    free(&lock).await;
}

/// Proves P5.
pub(crate) async fn a_guard_dropped_after_its_runtime_is_gone_within_the_ttl(rig: &Rig) {
    let ttl = Duration::from_secs(1);
    let guard =
        in_a_runtime_of_its_own(async { rig.lock("a").await.ttl(ttl).acquire().await.unwrap() });
    drop(guard);
    free(&rig.lock("a").await).await;
}

/// Proves P5.
pub(crate) async fn a_guard_dropped_while_unwinding_releases(rig: &Rig) {
    let lock = rig.lock("a").await;
    let guard = lock.acquire().await.unwrap();
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("on purpose");
    }));
    assert!(unwound.is_err());
    free(&lock).await;
}

pub(crate) async fn a_guard_moves_between_tasks(rig: &Rig) {
    let (lock, other) = (rig.lock("a").await, rig.lock("a").await);
    let (pass, mut passed) = mpsc::unbounded_channel();
    let acquiring = tokio::spawn(async move {
        pass.send(lock.acquire().await.unwrap()).unwrap();
    });
    acquiring.await.unwrap();
    // The task that took it has ended, and it is held.
    let guard = passed.recv().await.unwrap();
    assert!(guard.is_held());
    assert!(other.try_acquire().await.unwrap().is_none());
    tokio::spawn(async move { guard.release().await.unwrap() })
        .await
        .unwrap();
    assert!(other.try_acquire().await.unwrap().is_some());
}

pub(crate) async fn a_spawned_scope_runs(rig: &Rig) {
    let lock = rig.lock("a").await;
    let value = String::from("moved in");
    let task = tokio::spawn(async move {
        lock.with(async move |guard| {
            tokio::task::yield_now().await;
            assert!(guard.is_held());
            value.len()
        })
        .await
        .unwrap()
    });
    assert_eq!(task.await.unwrap(), 8);
    free(&rig.lock("a").await).await;
}
