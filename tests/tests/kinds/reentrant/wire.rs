//! Redisson and we share locks: exclusion, force, ttl, counts, watchdogs, seen from the other side of the wire.

use std::collections::BTreeMap;

use lock_core::{LockError, LossReason, Owner};
use lock_tests::{LIMIT, Proxy, TestServer, eventually};

use crate::reentrant::apart::Apart;
use crate::reentrant::redisson_client::{Redisson, Unlocked};
use crate::reentrant::support::{
    LONG, hash, in_time, is_extend, manager, manager_at, ms, until_clean,
};

/// Names as they are written here and there: a prefix and a key, and both together.
const NAMES: [&str; 4] = ["order:7", "{order}:7", "a{x}b", "java:{order}"];

#[tokio::test]
async fn what_redisson_holds_is_held_for_us() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let locks = manager(&server).await;
    for name in NAMES {
        let lock = locks.lock_apart(name);
        assert_eq!(java.try_lock(name, LONG).await, None, "{name}");
        assert!(lock.inspect().await.unwrap().is_held(), "{name}");
        assert!(lock.try_acquire().await.unwrap().is_none(), "{name}");
        let waited = lock.acquire_within(ms(500)).await;
        assert!(
            matches!(&waited, Err(LockError::TimedOut { key, .. }) if key == name),
            "{name}: {waited:?}"
        );
        assert_eq!(java.hold_count(name).await, 1, "{name}: left as it was");
        assert_eq!(java.unlock(name, LONG).await, Unlocked::Free, "{name}");
        let guard = lock.try_acquire().await.unwrap().expect(name);
        guard.release().await.unwrap();
    }
    until_clean(&server).await;
}

#[tokio::test]
async fn what_we_hold_is_held_for_redisson() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let locks = manager(&server).await;
    for name in NAMES {
        let lock = locks.lock_apart(name);
        let guard = lock.acquire().await.unwrap();
        let pttl = java.try_lock(name, LONG).await.expect(name);
        assert!(pttl > 0 && pttl <= LONG.as_millis() as i64, "{pttl}");
        assert!(java.is_locked(name).await, "{name}");
        assert_eq!(java.unlock(name, LONG).await, Unlocked::NotOwner, "{name}");
        assert_eq!(java.hold_count(name).await, 0, "{name}");
        guard.release().await.unwrap();
        assert_eq!(java.try_lock(name, LONG).await, None, "{name}");
        assert_eq!(java.unlock(name, LONG).await, Unlocked::Free, "{name}");
    }
    until_clean(&server).await;
}

#[tokio::test]
async fn the_key_is_a_hash_of_the_owner_and_its_count_and_nothing_else() {
    let server = TestServer::start().await;
    let locks = manager(&server).await;
    let me = Owner::new();
    let lock = locks.lock_apart("order").owner(&me);
    let mut guards = Vec::new();
    for count in 1..=4 {
        guards.push(lock.acquire().await.unwrap());
        let expected = BTreeMap::from([(me.to_string(), count)]);
        assert_eq!(hash(&server, "order").await, expected);
    }
    for count in (1..=3).rev() {
        guards.pop().unwrap().release().await.unwrap();
        let expected = BTreeMap::from([(me.to_string(), count)]);
        assert_eq!(hash(&server, "order").await, expected);
    }
    drop(guards);
    until_clean(&server).await;
}

#[tokio::test]
async fn both_sides_read_the_same_count_and_ttl() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let lock = manager(&server).await.lock_apart("order");
    for count in 1..=3 {
        assert_eq!(java.try_lock("order", LONG).await, None);
        let info = lock.inspect().await.unwrap();
        assert_eq!(info.holds(), count);
        assert_eq!(info.owner(), Some(&*java.owner));
        assert_eq!(java.hold_count("order").await, count);
    }
    let before = java.remain_time_to_live("order").await;
    let seen = lock
        .inspect()
        .await
        .unwrap()
        .remaining()
        .unwrap()
        .as_millis() as i64;
    let after = java.remain_time_to_live("order").await;
    assert!(after <= seen && seen <= before, "{after} {seen} {before}");
    for left in [Unlocked::StillHeld, Unlocked::StillHeld, Unlocked::Free] {
        assert_eq!(java.unlock("order", LONG).await, left);
    }
    assert!(!lock.inspect().await.unwrap().is_held());
    assert_eq!(lock.inspect().await.unwrap().remaining(), None);
}

#[tokio::test]
async fn a_force_unlock_of_redisson_is_a_loss_that_the_next_renewal_finds() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let locks = manager(&server).await;
    let me = Owner::new();
    let lock = locks.lock_apart("order").owner(&me).ttl(ms(1500));
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    assert!(java.force_unlock("order").await);
    assert!(!java.force_unlock("order").await);
    assert_eq!(java.try_lock("order", LONG).await, None);
    for guard in [&outer, &inner] {
        let reason = in_time("the loss", guard.lost()).await;
        assert!(
            matches!(reason, LossReason::Gone | LossReason::Expired),
            "{reason:?}"
        );
        assert!(!guard.is_held());
    }
    for guard in [inner, outer] {
        let released = guard.release().await;
        assert!(
            matches!(released, Err(LockError::Lost { .. })),
            "{released:?}"
        );
    }
    assert_eq!(java.hold_count("order").await, 1, "its hold is left alone");
    assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
    until_clean(&server).await;
}

#[tokio::test]
async fn redisson_finds_a_force_release_of_ours_at_its_next_renewal_and_unlock() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let lock = manager(&server).await.lock_apart("order");
    assert_eq!(java.try_lock("order", ms(900)).await, None);
    let mut watchdog = java.watchdog("order", ms(900)).await;
    assert!(lock.force_release().await.unwrap());
    assert!(!lock.force_release().await.unwrap());
    watchdog.gave_up().await;
    let guard = lock.try_acquire().await.unwrap().expect("it is free");
    assert_eq!(java.unlock("order", LONG).await, Unlocked::NotOwner);
    assert!(!java.renew("order", LONG).await);
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_watchdog_of_redisson_leaves_our_lease_alone() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let lock = manager(&server).await.lock_apart("order");
    let guard = lock.ttl(LONG).acquire().await.unwrap();
    let before = server.pttl("order").await;
    for lease in [ms(100), LONG * 10] {
        assert!(!java.renew("order", lease).await);
    }
    let after = server.pttl("order").await;
    assert!(
        after <= before && after > before - LIMIT.as_millis() as i64,
        "{before} {after}"
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn our_watchdog_leaves_the_lease_of_redisson_alone() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), LIMIT).await;
    let lock = locks.lock_apart("order").ttl(ms(4500));
    let guard = lock.acquire().await.unwrap();
    // The next renewal finds that Redisson holds the lock.
    let renewal = proxy.hold_next_request_matching(is_extend);
    renewal.wait().await;
    assert!(java.force_unlock("order").await);
    assert_eq!(java.try_lock("order", LONG).await, None);
    server.reset_stats().await;
    renewal.deliver();
    in_time("the loss", guard.lost()).await;
    drop(guard);
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    let stats = server.commandstats().await;
    assert!(stats.contains_key("evalsha"), "it did ask: {stats:?}");
    assert_eq!(stats.get("pexpire"), None, "it changed no ttl");
    assert_eq!(java.hold_count("order").await, 1);
}

#[tokio::test]
async fn both_watchdogs_keep_their_own_locks_on_one_server() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let locks = manager(&server).await;
    let ttl = ms(2000);
    assert_eq!(java.try_lock("theirs", ttl).await, None);
    let watchdog = java.watchdog("theirs", ttl).await;
    let guard = locks.lock_apart("ours").ttl(ttl).acquire().await;
    let guard = guard.unwrap();
    // Far beyond the ttl of both.
    let lost = tokio::time::timeout(ttl * 2, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(java.try_lock("ours", LONG).await.is_some());
    let theirs = locks.lock_apart("theirs").try_acquire().await.unwrap();
    assert!(theirs.is_none());
    drop(watchdog);
    assert_eq!(java.unlock("theirs", ttl).await, Unlocked::Free);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_whose_ttl_was_removed_is_renewed_or_released_by_its_holder() {
    let server = TestServer::start().await;
    let lock = manager(&server).await.lock_apart("order");
    let persist =
        async || crate::reentrant::support::command::<i64>(&server, "PERSIST order").await;
    let guard = lock.clone().renew(false).acquire().await.unwrap();
    assert_eq!(persist().await, 1);
    let other = lock.try_acquire().await;
    assert!(
        matches!(&other, Err(LockError::NotALock { kind, .. }) if kind == "hash without a ttl"),
        "{other:?}"
    );
    guard.release().await.unwrap();
    until_clean(&server).await;

    let guard = lock.clone().ttl(ms(300)).acquire().await.unwrap();
    assert_eq!(persist().await, 1);
    let renewed = async || server.pttl("order").await > 0;
    eventually("it has a ttl again", LIMIT, renewed).await;
    guard.release().await.unwrap();
    until_clean(&server).await;
}
