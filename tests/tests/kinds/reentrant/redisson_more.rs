//! What Redisson's tests of renewal and of the lock that is not reentrant show, shown of ours. The table is in `redisson`.

use lock_core::{LockError, Owner};
use lock_tests::{LIMIT, TestServer, eventually};
use tokio::time::timeout;

use crate::reentrant::apart::Apart;
use crate::reentrant::redisson::one_lock;
use crate::reentrant::support::{in_time, manager, manager_at, ms, until_clean};

#[tokio::test]
async fn after_a_restart_the_old_hold_is_lost_and_a_new_one_is_renewed() {
    let server = TestServer::start().await;
    let locks = manager_at(&server.url(), ms(500)).await;
    let ttl = ms(1500);
    let lock = locks.lock_apart("lock").owner(&Owner::new()).ttl(ttl);
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    server.restart().await;
    for guard in [&outer, &inner] {
        in_time("the loss", guard.lost()).await;
    }
    for guard in [inner, outer] {
        let released = in_time("the release", guard.release()).await;
        assert!(
            matches!(released, Err(LockError::Lost { .. })),
            "{released:?}"
        );
    }
    let again = in_time("the lock", lock.acquire()).await.unwrap();
    assert_eq!(again.hold_count(), 1, "what was lost does not count");
    let lost = timeout(ttl * 2, again.lost()).await;
    assert!(lost.is_err(), "{lost:?}: it is renewed");
    again.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_nested_lock_is_renewed_until_its_last_release() {
    let (server, _locks, lock) = one_lock().await;
    let ttl = ms(1500);
    let lock = lock.ttl(ttl);
    let first = lock.acquire().await.unwrap();
    let second = lock.acquire().await.unwrap();
    first.release().await.unwrap();
    let lost = timeout(ttl * 2, second.lost()).await;
    assert!(lost.is_err(), "{lost:?}: it is renewed");
    assert_eq!(second.hold_count(), 1);
    second.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_contender_waits_for_an_exclusive_lock_until_its_release() {
    let server = TestServer::start().await;
    let locks = [manager(&server).await, manager(&server).await];
    for other in &locks {
        let guard = locks[0].lock("lock").acquire().await.unwrap();
        let lock = other.lock("lock");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        eventually("it waits", LIMIT, async || {
            let info = locks[0].lock("lock").inspect().await.unwrap();
            info.waiters() == 1
        })
        .await;
        assert!(!waiting.is_finished());
        guard.release().await.unwrap();
        let next = in_time("the lock", waiting).await.unwrap().unwrap();
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn an_exclusive_lock_is_never_taken_twice() {
    let server = TestServer::start().await;
    let locks = [manager(&server).await, manager(&server).await];
    let guard = locks[0].lock("lock").acquire().await.unwrap();
    Owner::new()
        .scope(async {
            for locks in &locks {
                assert!(locks.lock("lock").try_acquire().await.unwrap().is_none());
                let waited = locks.lock("lock").acquire_within(ms(500)).await;
                assert!(matches!(waited, Err(LockError::TimedOut { .. })));
            }
        })
        .await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}
