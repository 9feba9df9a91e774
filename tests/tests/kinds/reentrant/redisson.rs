//! What Redisson's own tests show of its locks, shown of ours: the same facts, in tests of our own.
//!
//! | `RedissonLockTest` | here |
//! |---|---|
//! | `testSubscriptionsPerConnection` | [`two_thousand_tasks_over_many_locks_leave_no_subscription`] |
//! | `testSinglePubSub` | [`one_connection_serves_every_contended_lock`] |
//! | `testLockIsNotRenewedAfterInterruptedTryLock` | [`a_lock_is_not_renewed_after_a_cancelled_acquire`] |
//! | `testRedisFailed` | [`a_server_that_failed_is_an_error_and_no_lock`] |
//! | `testRemainTimeToLive`, `testRemainTimeToLive2` | [`remaining_is_the_ttl_of_a_free_a_held_and_a_nested_lock`] |
//! | `testTryLockWait` | [`a_wait_ends_in_time_and_with_a_reason`] |
//! | `testLockUninterruptibly` | none: a wait ends when its future is dropped, and there is no other interrupt |
//! | `testForceUnlock` | [`a_forced_release_lets_the_next_one_in`] |
//! | `testExpire` | [`a_fixed_lease_ends_and_lets_the_next_one_in`] |
//! | `testAutoExpire` | [`the_lock_of_a_runtime_that_has_ended_expires`] |
//! | `testInCluster`, `testLockFailoverInCluster` | none here: the program `cluster` |
//! | `testGetHoldCount` | [`the_hold_count_goes_up_and_down`] |
//! | `testIsHeldByCurrentThread`, `…OtherThread` | [`a_lock_tells_its_owner_from_others`] |
//! | `testIsLocked`, `testIsLockedOtherThread` | [`is_locked_is_the_same_for_the_owner_and_for_others`] |
//! | `testUnlockFail` | [`only_the_owner_can_release`] |
//! | `testLockUnlock` | [`lock_and_unlock_can_be_repeated`] |
//! | `testReentrancy` | [`an_owner_enters_again_and_others_only_after_its_last_release`] |
//! | `testConcurrencyTryLockUnLock` | [`a_lock_that_is_tried_again_and_again_is_renewed_while_held`] |
//! | `testConcurrency_SingleInstance` | [`tasks_of_one_manager_take_turns`] |
//! | `testConcurrency_MultiInstance`, `testConcurrencyLoop_MultiInstance` | [`managers_take_turns`] |
//! | `testLockListener` | [`a_holder_is_told_of_its_loss`]: there are no listeners, the guard tells |
//!
//! | `RedissonLockExpirationRenewalTest` | here |
//! |---|---|
//! | `testLockAfterTimeout` | `redisson_more::after_a_restart_the_old_hold_is_lost_and_a_new_one_is_renewed` |
//! | `testReadLockAfterTimeout`, `testWriteLockAfterTimeout` | none: there is no read-write lock |
//! | `testLockReentrantRenew` | `redisson_more::a_nested_lock_is_renewed_until_its_last_release` |
//!
//! | `NonReentrantLockTest`, of the exclusive [`Lock`](lock_core::Lock) | here |
//! |---|---|
//! | `testContendingThreadBlocksAndAcquiresOnRelease` | `redisson_more::a_contender_waits_for_an_exclusive_lock_until_its_release` |
//! | `testSameThreadReacquireThrows` | `redisson_more::an_exclusive_lock_is_never_taken_twice`: as busy, since it has no owner to blame |
//! | `testCrossInstanceSameThreadReentryThrows` | `redisson_more::an_exclusive_lock_is_never_taken_twice` |

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock_core::{LockError, LockManager, LossReason, Owner};
use lock_tests::{LIMIT, Proxy, TestServer, eventually};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::reentrant::apart::{Apart, ApartLock};
use crate::reentrant::support::{
    LONG, Section, hash, in_time, is_extend, is_subscribe, listeners, manager, manager_at, ms,
    until_clean, until_listening,
};

/// A server, a manager on it, and a lock of an owner.
pub(crate) async fn one_lock() -> (TestServer, LockManager, ApartLock) {
    let server = TestServer::start().await;
    let locks = manager(&server).await;
    let lock = locks.lock_apart("lock").owner(&Owner::new());
    (server, locks, lock)
}

async fn try_once(lock: &ApartLock) -> bool {
    lock.try_acquire().await.unwrap().is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_tasks_over_many_locks_leave_no_subscription() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let managers = [
        manager_at(&proxy.url(), LIMIT).await,
        manager_at(&proxy.url(), LIMIT).await,
    ];
    let connections = proxy.connections();
    let held = manager(&server).await.lock_apart("lock:0");
    let held = held.acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..2000 {
        let lock = managers[task % 2].lock_apart(format!("lock:{}", task % 50));
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        });
    }
    proxy.on_count(1, is_subscribe).await;
    held.release().await.unwrap();
    in_time("all tasks", tasks.join_all()).await;
    assert_eq!(proxy.connections(), connections, "no more connections");
    until_clean(&server).await;
}

#[tokio::test]
async fn one_connection_serves_every_contended_lock() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), LIMIT).await;
    let connections = proxy.connections();
    let other = manager(&server).await;
    let names: Vec<String> = (0..300).map(|n| format!("lock:{n}")).collect();
    let mut held = Vec::new();
    for name in &names {
        held.push(other.lock_apart(name).acquire().await.unwrap());
    }
    let mut waiting = JoinSet::new();
    for name in &names {
        let lock = locks.lock_apart(name);
        waiting.spawn(async move { lock.acquire().await.unwrap().release().await });
    }
    proxy.on_count(names.len(), is_subscribe).await;
    for guard in held {
        guard.release().await.unwrap();
    }
    for released in in_time("all locks", waiting.join_all()).await {
        released.unwrap();
    }
    assert_eq!(proxy.connections(), connections);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_lock_is_not_renewed_after_a_cancelled_acquire() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), LIMIT).await;
    let holder = manager(&server).await.lock_apart("lock");
    let lock = locks.lock_apart("lock").ttl(ms(300));
    for owner in [None, Some(Owner::new())] {
        let lock = owner.map_or_else(|| lock.clone(), |owner| lock.clone().owner(&owner));
        for _ in 0..10 {
            let held = holder.acquire().await.unwrap();
            let waiting = tokio::spawn(lock_and_hold(lock.clone()));
            until_listening(&server, "lock", 1).await;
            // Together: the grant and the interruption meet.
            let (released, ()) = tokio::join!(held.release(), async { waiting.abort() });
            released.unwrap();
            let _ = waiting.await;
            until_clean(&server).await;
        }
    }
    // Several ticks of a watchdog.
    let renewals = proxy.count(is_extend);
    sleep(ms(900)).await;
    assert_eq!(proxy.count(is_extend), renewals);
    until_clean(&server).await;
}

async fn lock_and_hold(lock: ApartLock) {
    let _guard = lock.acquire().await.unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_server_that_failed_is_an_error_and_no_lock() {
    let server = TestServer::start().await;
    let locks = manager_at(&server.url(), ms(300)).await;
    let lock = locks.lock_apart("lock").owner(&Owner::new());
    let guard = lock.clone().ttl(ms(600)).acquire().await.unwrap();
    server.kill();
    let tried = in_time("the try", lock.try_acquire()).await;
    assert!(
        matches!(tried, Err(LockError::Unavailable { .. })),
        "{tried:?}"
    );
    let waited = in_time("the wait", lock.acquire_within(ms(200))).await;
    assert!(
        matches!(waited, Err(LockError::Unavailable { .. })),
        "{waited:?}"
    );
    in_time("the loss", guard.lost()).await;
    assert!(matches!(
        in_time("the release", guard.release()).await,
        Err(LockError::Lost { .. } | LockError::Unavailable { .. })
    ));
}

#[tokio::test]
async fn remaining_is_the_ttl_of_a_free_a_held_and_a_nested_lock() {
    let (server, _locks, lock) = one_lock().await;
    assert_eq!(lock.inspect().await.unwrap().remaining(), None);
    let outer = lock.clone().ttl(LONG).renew(false).acquire().await.unwrap();
    let left = lock.inspect().await.unwrap().remaining().unwrap();
    assert!(left <= LONG && left > LONG / 2, "{left:?}");
    // A longer one prolongs the lease of both.
    let inner = lock.clone().ttl(LONG * 3).renew(false).acquire().await;
    let left = lock.inspect().await.unwrap().remaining().unwrap();
    assert!(left <= LONG * 3 && left > LONG * 2, "{left:?}");
    inner.unwrap().release().await.unwrap();
    let left = lock.inspect().await.unwrap().remaining().unwrap();
    assert!(left > LONG * 2, "{left:?}: it never gets shorter");
    outer.release().await.unwrap();
    assert_eq!(lock.inspect().await.unwrap().remaining(), None);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_wait_ends_in_time_and_with_a_reason() {
    let (server, locks, lock) = one_lock().await;
    let _guard = lock.acquire().await.unwrap();
    let limit = ms(500);
    let started = std::time::Instant::now();
    match in_time("the wait", locks.lock_apart("lock").acquire_within(limit)).await {
        Err(LockError::TimedOut { waited, .. }) => {
            assert!(waited >= limit && waited <= started.elapsed(), "{waited:?}");
        }
        other => panic!("{other:?}"),
    }
    eventually("nobody waits any more", LIMIT, async || {
        listeners(&server, "lock").await == 0
    })
    .await;
}

#[tokio::test]
async fn a_forced_release_lets_the_next_one_in() {
    let (server, locks, lock) = one_lock().await;
    let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    let next = locks.lock_apart("lock");
    assert!(next.force_release().await.unwrap());
    assert!(!next.inspect().await.unwrap().is_held());
    for guard in [outer, inner] {
        let reason = in_time("the loss", guard.lost()).await;
        assert_eq!(reason, LossReason::ForceReleased);
        assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
    }
    next.acquire().await.unwrap().release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_fixed_lease_ends_and_lets_the_next_one_in() {
    let (server, locks, lock) = one_lock().await;
    let guard = lock.ttl(ms(500)).renew(false).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let next = locks.lock_apart("lock");
        async move { next.acquire().await }
    });
    let reason = in_time("the end of the lease", guard.lost()).await;
    assert_eq!(reason, LossReason::Expired);
    let next = in_time("the next one", waiting).await.unwrap().unwrap();
    assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
    assert!(next.is_held());
    next.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn the_lock_of_a_runtime_that_has_ended_expires() {
    let server = TestServer::start().await;
    let url = server.url();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let lock = manager_at(&url, LIMIT).await.lock_apart("lock");
            std::mem::forget(lock.ttl(ms(900)).acquire().await.unwrap());
        });
    });
    thread.join().unwrap();
    assert!(server.exists("lock").await, "nobody has released it");
    let next = manager(&server).await.lock_apart("lock");
    let guard = in_time("the next one", next.acquire()).await.unwrap();
    assert!(guard.is_held());
}

#[tokio::test]
async fn the_hold_count_goes_up_and_down() {
    let (server, _locks, lock) = one_lock().await;
    let first = lock.acquire().await.unwrap();
    assert_eq!(first.hold_count(), 1);
    let second = lock.acquire().await.unwrap();
    assert_eq!((first.hold_count(), second.hold_count()), (2, 2));
    assert_eq!(lock.inspect().await.unwrap().holds(), 2);
    // In any order.
    first.release().await.unwrap();
    assert_eq!(second.hold_count(), 1);
    assert_eq!(lock.inspect().await.unwrap().holds(), 1);
    second.release().await.unwrap();
    assert_eq!(lock.inspect().await.unwrap().holds(), 0);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_lock_tells_its_owner_from_others() {
    let (server, locks, lock) = one_lock().await;
    let other = locks.lock_apart("lock").owner(&Owner::new());
    let elsewhere = manager(&server).await.lock_apart("lock");
    let guard = lock.acquire().await.unwrap();
    let owner = lock.inspect().await.unwrap().owner().map(str::to_owned);
    // Whoever asks is told the same, and only one of them gets in.
    for asked in [&other, &elsewhere] {
        assert_eq!(asked.inspect().await.unwrap().owner(), owner.as_deref());
        assert!(!try_once(asked).await);
    }
    let same = Owner::parse(&owner.unwrap()).unwrap();
    assert!(try_once(&elsewhere.owner(&same)).await, "it travelled");
    guard.release().await.unwrap();
    eventually("it is free", LIMIT, async || {
        other.inspect().await.unwrap().owner().is_none()
    })
    .await;
}

#[tokio::test]
async fn is_locked_is_the_same_for_the_owner_and_for_others() {
    let (server, _locks, lock) = one_lock().await;
    let elsewhere = manager(&server).await.lock_apart("lock");
    for _ in 0..3 {
        for asked in [&lock, &elsewhere] {
            assert!(!asked.inspect().await.unwrap().is_held());
        }
        let guard = lock.acquire().await.unwrap();
        for asked in [&lock, &elsewhere] {
            assert!(asked.inspect().await.unwrap().is_held());
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn only_the_owner_can_release() {
    let (server, locks, lock) = one_lock().await;
    let guard = lock.ttl(ms(300)).renew(false).acquire().await.unwrap();
    in_time("the end of the lease", guard.lost()).await;
    let next = locks.lock_apart("lock").owner(&Owner::new());
    let theirs = in_time("the next one", next.acquire()).await.unwrap();
    let released = guard.release().await;
    assert!(
        matches!(&released, Err(LockError::Lost { key, .. }) if key == "lock"),
        "{released:?}"
    );
    assert!(theirs.is_held());
    assert_eq!(hash(&server, "lock").await.len(), 1);
    theirs.release().await.unwrap();
}

#[tokio::test]
async fn lock_and_unlock_can_be_repeated() {
    let (server, _locks, lock) = one_lock().await;
    let mut last = 0;
    for _ in 0..5 {
        let guard = lock.acquire().await.unwrap();
        let token = guard.fencing_token().get();
        assert!(token > last);
        last = token;
        guard.release().await.unwrap();
        assert!(!server.exists("lock").await);
    }
}

#[tokio::test]
async fn an_owner_enters_again_and_others_only_after_its_last_release() {
    let (_server, locks, lock) = one_lock().await;
    let other = locks.lock_apart("lock").owner(&Owner::new());
    let outer = lock.acquire().await.unwrap();
    let inner = lock.try_acquire().await.unwrap().expect("once more");
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    assert!(!try_once(&other).await);
    outer.release().await.unwrap();
    assert!(!try_once(&other).await);
    assert!(inner.is_held());
    inner.release().await.unwrap();
    assert!(try_once(&other).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_tried_again_and_again_is_renewed_while_held() {
    let server = TestServer::start().await;
    let ttl = ms(1500);
    let section = Section::default();
    let held = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let lock = manager(&server).await.lock_apart("lock").ttl(ttl);
        let (section, held) = (section.clone(), Arc::clone(&held));
        tasks.spawn(async move {
            while held.load(Ordering::SeqCst) < 3 {
                if let Some(guard) = lock.try_acquire().await.unwrap() {
                    // Longer than the ttl, so only a renewal keeps it.
                    section.work(ttl + ttl / 3).await;
                    assert!(guard.is_held());
                    held.fetch_add(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
                sleep(ms(3)).await;
            }
        });
    }
    in_time("three of them", tasks.join_all()).await;
    section.assert_exclusive();
    until_clean(&server).await;
}

/// `tasks` tasks on each of these managers, each of which takes the lock several times and nests it.
async fn turns(server: &TestServer, managers: &[LockManager], tasks: usize) {
    let section = Section::default();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        for locks in managers {
            let mut lock = locks.lock_apart("lock");
            if task % 2 == 0 {
                lock = lock.owner(&Owner::new());
            }
            let section = section.clone();
            running.spawn(async move {
                for _ in 0..3 {
                    lock.with(async |_| {
                        section.work(ms(1)).await;
                        lock.with(async |inner| assert!(inner.is_held())).await
                    })
                    .await
                    .unwrap()
                    .unwrap();
                }
            });
        }
    }
    in_time("all turns", running.join_all()).await;
    section.assert_exclusive();
    until_clean(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_manager_take_turns() {
    let server = TestServer::start().await;
    turns(&server, &[manager(&server).await], 64).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_take_turns() {
    let server = TestServer::start().await;
    let mut managers = Vec::new();
    for _ in 0..8 {
        managers.push(manager(&server).await);
    }
    turns(&server, &managers, 4).await;
}

#[tokio::test]
async fn a_holder_is_told_of_its_loss() {
    let (server, _locks, lock) = one_lock().await;
    let guard = lock.ttl(ms(900)).acquire().await.unwrap();
    let told = tokio::spawn({
        let view = guard.view();
        async move { view.lost().await }
    });
    server.flushall().await;
    let reason = in_time("the loss", told).await.unwrap();
    assert!(matches!(reason, LossReason::Gone | LossReason::Expired));
    assert!(!guard.is_held());
}
