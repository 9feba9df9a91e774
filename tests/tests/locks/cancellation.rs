//! `LockGuard::cancellation`: a token that is cancelled when the lock is held no longer, whoever or whatever ended the hold.

use std::time::Duration;

use lock_core::{LockError, LockGuard, LockManager, distributed_lock};
use lock_tests::{TestServer, in_time};

#[tokio::test]
async fn each_end_of_a_hold_cancels_it() {
    let server = TestServer::start().await;
    let builder = LockManager::builder().command_deadline(Duration::from_millis(200));
    let locks = builder.connect(&server.url()).await.unwrap();
    let lock = locks.lock("a");

    let guard = lock.acquire().await.unwrap();
    let token = guard.cancellation();
    assert!(!token.is_cancelled());
    lock.force_release().await.unwrap();
    in_time("force-released", token.cancelled()).await;
    drop(guard);

    let guard = lock.acquire().await.unwrap();
    let token = guard.cancellation();
    guard.release().await.unwrap();
    assert!(token.is_cancelled(), "released");

    let guard = lock.acquire().await.unwrap();
    let token = guard.cancellation();
    drop(guard);
    assert!(token.is_cancelled(), "dropped");

    let most = lock.clone().max_hold(Duration::from_millis(50));
    let guard = most.acquire().await.unwrap();
    // Nobody looks at the guard.
    in_time("max_hold", guard.cancellation().cancelled()).await;
    assert!(!guard.is_held());
    drop(guard);

    let short = lock.clone().ttl(Duration::from_millis(500));
    let guard = short.acquire().await.unwrap();
    let token = guard.cancellation();
    server.stop();
    in_time("the end of the lease", token.cancelled()).await;
    assert!(!guard.is_held());
    server.cont();
    drop(guard);

    let guard = lock.acquire().await.unwrap();
    let token = guard.cancellation();
    locks.shutdown(Duration::from_millis(200)).await;
    assert!(token.is_cancelled(), "shut down");
    assert!(guard.cancellation().is_cancelled(), "made after the end");
}

#[tokio::test]
async fn who_cancels_a_token_stops_the_own_work_only() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    let (one, other) = (guard.cancellation(), guard.cancellation());
    one.cancel();
    assert!(guard.is_held() && !other.is_cancelled());
    assert!(!guard.cancellation().is_cancelled());
}

#[tokio::test]
async fn a_task_of_an_annotated_function_ends_with_it() {
    #[distributed_lock(key = "a", client = locks)]
    async fn work(locks: &LockManager) -> Result<tokio::task::JoinHandle<Option<()>>, LockError> {
        let here = LockGuard::current().expect("it runs under a lock");
        let part = std::future::pending::<()>();
        Ok(tokio::spawn(
            here.cancellation().run_until_cancelled_owned(part),
        ))
    }
    let locks = LockManager::connect("memory://").await.unwrap();
    let part = work(&locks).await.unwrap();
    assert_eq!(in_time("the end of the part", part).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_made_while_the_hold_ends_is_cancelled() {
    let locks = LockManager::connect("memory://").await.unwrap();
    for _ in 0..5_000 {
        let guard = locks.lock("a").acquire().await.unwrap();
        let view = guard.view();
        let token = tokio::spawn(async move { view.cancellation() });
        drop(guard);
        assert!(token.await.unwrap().is_cancelled());
    }
}
