//! What Redisson's own tests show of its locks, and the tests that show it of ours. After `contract` comes a case of the program of
//! this name, which runs on reentrant locks too, and in the last table on exclusive ones. The other tests are beside this one.
//!
//! | `RedissonLockTest` | here |
//! |---|---|
//! | `testSubscriptionsPerConnection` | [`one_connection_serves_every_contended_lock`], `soak` |
//! | `testSinglePubSub` | [`one_connection_serves_every_contended_lock`] |
//! | `testLockIsNotRenewedAfterInterruptedTryLock` | `defects::nothing_is_renewed_after_a_hundred_cancelled_acquires`, `wakeups::a_waiter_that_gives_up_when_the_lock_is_let_go_leaves_it_to_the_next` |
//! | `testRedisFailed` | [`a_server_that_failed_is_an_error_and_no_lock`] |
//! | `testRemainTimeToLive`, `testRemainTimeToLive2` | `states::the_longest_hold_makes_the_lease_and_no_other_shortens_it` |
//! | `testTryLockWait` | `contract queue::a_wait_that_ends_says_timed_out_and_leaves_the_queue`, `wire::what_redisson_holds_is_held_for_us` |
//! | `testLockUninterruptibly` | none: a wait ends when its future is dropped, and there is no other interrupt |
//! | `testForceUnlock` | `states::force_release_takes_all_holds` |
//! | `testExpire` | `contract lease::is_held_remaining_and_lost_follow_the_deadline`, `contract lease::lost_resolves_before_another_is_granted` |
//! | `testAutoExpire` | `contract lease::a_dead_holder_costs_one_ttl` |
//! | `testInCluster` | `contract`, on a cluster |
//! | `testLockFailoverInCluster` | `topologies cluster::failover`, of exclusive locks |
//! | `testGetHoldCount` | `owners::eight_nested_functions_count_up_to_8_and_back_to_0` |
//! | `testIsHeldByCurrentThread`, `…OtherThread`, `testIsLocked`, `testIsLockedOtherThread` | `states::inspect_shows_each_state` |
//! | `testUnlockFail` | `contract release::late_release_says_lost_and_leaves_the_new_holder` |
//! | `testLockUnlock` | `contract release::release_frees_the_lock_at_once`, `contract fencing` |
//! | `testReentrancy` | `owners::a_waiter_gets_it_when_the_last_hold_goes` |
//! | `testConcurrencyTryLockUnLock` | `contract lease::the_watchdog_keeps_a_guard_beyond_three_ttls`, `soak` |
//! | `testConcurrency_SingleInstance` | `contract exclusion::sixty_four_tasks_all_get_it` |
//! | `testConcurrency_MultiInstance`, `testConcurrencyLoop_MultiInstance` | `contract exclusion::tasks_of_two_managers_never_overlap` |
//! | `testLockListener` | `contract server::a_key_deleted_by_hand_is_lost_at_the_next_renewal`: there are no listeners, the guard tells |
//!
//! | `RedissonLockExpirationRenewalTest` | here |
//! |---|---|
//! | `testLockAfterTimeout` | [`after_a_restart_the_old_hold_is_lost_and_a_new_one_is_renewed`] |
//! | `testReadLockAfterTimeout`, `testWriteLockAfterTimeout` | `permits::faults::a_server_that_loses_its_data_ends_the_holds_and_serves_the_waiters`, in the folder of the permits |
//! | `testLockReentrantRenew` | `defects::mixed_leases_are_renewed_exactly_while_one_of_them_wants_it` |
//!
//! | `NonReentrantLockTest`, of the exclusive [`Lock`](lock_core::Lock) | here |
//! |---|---|
//! | `testContendingThreadBlocksAndAcquiresOnRelease` | `contract release::release_returns_with_the_lock_handed_over` |
//! | `testSameThreadReacquireThrows`, `testCrossInstanceSameThreadReentryThrows` | `contract queue::try_acquire_of_a_held_lock_is_none`: as busy, since it has no owner to blame |

use lock_core::{LockError, LossReason, Owner};
use lock_tests::{LIMIT, Proxy, TestServer};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::reentrant::apart::Apart;
use crate::reentrant::support::{in_time, is_subscribe, manager, manager_at, ms, until_clean};

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
    // A task that has no guard is told too.
    let view = guard.view();
    let told = tokio::spawn(async move { view.lost().await });
    assert_eq!(
        in_time("the loss", told).await.unwrap(),
        LossReason::Expired
    );
    assert!(matches!(
        in_time("the release", guard.release()).await,
        Err(LockError::Lost { .. } | LockError::Unavailable { .. })
    ));
}

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
