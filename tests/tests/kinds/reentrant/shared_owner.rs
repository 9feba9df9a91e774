//! One owner in Redisson and here, or in several processes: what the other side does with the lock is never taken for ours.

use std::thread;
use std::time::Duration;

use lock_core::{GuardedScript, LockError, LossReason, Owner};
use lock_tests::{LIMIT, Proxy, TestServer, eventually};
use tokio::runtime;
use tokio::time::sleep;

use crate::reentrant::apart::Apart;
use crate::reentrant::redisson_client::{Redisson, Unlocked};
use crate::reentrant::support::{LONG, PATIENT, command, hash, in_time, manager, manager_at, ms};
use crate::reentrant::support::{is_acquire, until_clean};

/// Proves P3.
#[tokio::test]
async fn a_release_leaves_a_lock_that_redisson_took_anew() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let us = Owner::parse(&java.owner).unwrap();
    let lock = manager(&server).await.lock_apart("order").owner(&us);
    let guard = lock.acquire().await.unwrap();
    assert!(java.force_unlock("order").await);
    assert_eq!(java.try_lock("order", LONG).await, None);
    let released = guard.release().await;
    assert!(
        matches!(released, Err(LockError::Lost { .. })),
        "{released:?}"
    );
    assert_eq!(java.hold_count("order").await, 1);
    assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_guard_is_lost_though_redisson_has_the_lock_for_its_owner() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let us = Owner::parse(&java.owner).unwrap();
    let lock = manager(&server).await.lock_apart("order").owner(&us);
    let lock = lock.ttl(ms(3000));
    // The script finds it out, or the renewal.
    for scripted in [true, false] {
        let guard = lock.acquire().await.unwrap();
        assert!(java.force_unlock("order").await);
        assert_eq!(java.try_lock("order", LONG).await, None);
        if scripted {
            let script = GuardedScript::new("return 1");
            let run = guard.guarded(&script).run::<i64>().await;
            assert!(matches!(run, Err(LockError::Lost { .. })), "{run:?}");
        }
        assert_eq!(in_time("the loss", guard.lost()).await, LossReason::Gone);
        drop(guard);
        assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
        until_clean(&server).await;
    }
}

#[tokio::test]
async fn a_fencing_token_does_not_come_again_after_redisson_let_go() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let other = Redisson::new(&server).await;
    let us = Owner::parse(&java.owner).unwrap();
    let lock = manager(&server).await.lock_apart("order").owner(&us);
    let guard = lock.acquire().await.unwrap();
    let first = guard.fencing_token();
    // Still the same tenure.
    assert_eq!(java.try_lock("order", LONG).await, None);
    guard.release().await.unwrap();
    let again = lock.acquire().await.unwrap();
    assert_eq!(again.fencing_token(), first);
    again.release().await.unwrap();
    assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);

    assert_eq!(other.try_lock("order", LONG).await, None);
    assert_eq!(other.unlock("order", LONG).await, Unlocked::Free);
    assert_eq!(java.try_lock("order", LONG).await, None);
    let guard = lock.acquire().await.unwrap();
    assert!(guard.fencing_token() > first);
    guard.release().await.unwrap();
    assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
}

/// As in a crash: nobody releases, and nobody renews.
fn crashes_with_the_lock(server: &TestServer, owner: &Owner) {
    let (url, owner) = (server.url(), owner.clone());
    let crashing = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let locks = lock_core::LockManager::connect(&url).await.unwrap();
            let lock = locks.lock_apart("order").ttl(CRASHED).owner(&owner);
            std::mem::forget(lock.acquire().await.unwrap());
            std::mem::forget(lock.acquire().await.unwrap());
        });
    });
    crashing.join().unwrap();
}

/// The ttl of what crashes.
const CRASHED: Duration = Duration::from_millis(1500);

/// Proves P7.
#[tokio::test]
async fn what_crashed_is_not_counted_though_its_owner_comes_and_goes() {
    let server = TestServer::start().await;
    let owner = Owner::new();
    crashes_with_the_lock(&server, &owner);
    let there = manager(&server).await.lock_apart("order").owner(&owner);
    let guard = there.acquire().await.unwrap();
    assert_eq!(hash(&server, "order").await[&owner.to_string()], 3);
    let alone = async {
        while hash(&server, "order").await[&owner.to_string()] > 1 {
            there.acquire().await.unwrap().release().await.unwrap();
            sleep(ms(20)).await;
        }
    };
    in_time("the end of what crashed", alone).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_lock_lasts_for_those_of_its_owner_who_are_left() {
    let server = TestServer::start().await;
    let (owner, stranger) = (Owner::new(), Owner::new());
    let lock = manager(&server).await.lock_apart("order");
    crashes_with_the_lock(&server, &owner);
    // This one has a ttl of minutes, and would hand the lock on to nobody.
    let guard = lock.clone().owner(&owner).acquire().await.unwrap();
    guard.release().await.unwrap();
    let next = lock.owner(&stranger);
    let guard = in_time("the ttl of what crashed", next.acquire())
        .await
        .unwrap();
    guard.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_short_hold_is_given_back_after_an_outage_and_a_long_one_goes_on() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), ms(500)).await;
    let owner = Owner::new();
    let lock = locks.lock_apart("order").owner(&owner);
    let long = lock.acquire().await.unwrap();
    let short = lock.ttl(ms(300)).acquire().await.unwrap();
    proxy.refuse(true);
    proxy.reset();
    drop(short);
    // The short ttl passes, and nothing can be asked.
    sleep(ms(1000)).await;
    proxy.refuse(false);
    let alone = async {
        while hash(&server, "order").await[&owner.to_string()] > 1 {
            sleep(ms(20)).await;
        }
    };
    in_time("the release", alone).await;
    long.release().await.unwrap();
    until_clean(&server).await;
}

/// A limit that the docs name: the request is delivered after the last release of its token, and is counted for nobody.
/// Proves P4.
#[tokio::test]
async fn what_comes_late_is_counted_until_its_process_has_no_lease_left() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), PATIENT).await;
    let owner = Owner::new();
    let lock = locks.lock_apart("order").owner(&owner).ttl(CRASHED);
    let kept = lock.acquire().await.unwrap();
    let late = proxy.hold_next_request_matching(is_acquire);
    let caller = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    late.wait().await;
    caller.abort();
    proxy.reset();
    // By then the clean-up has said for the last time that the token is not counted.
    sleep(ms(2000)).await;
    assert_eq!(hash(&server, "order").await[&owner.to_string()], 1);
    late.deliver();
    eventually("it is counted", LIMIT, async || {
        hash(&server, "order").await[&owner.to_string()] == 2
    })
    .await;
    assert!(kept.is_held());
    kept.release().await.unwrap();
    let stranger = manager(&server).await.lock_apart("order");
    let guard = in_time("the ttl of what came late", stranger.acquire()).await;
    guard.unwrap().release().await.unwrap();
    until_clean(&server).await;
}

/// A limit that the docs name: what is known of our holds lasts as long as our leases. Proves P4.
#[tokio::test]
async fn what_crashed_under_a_longer_lease_of_redisson_counts_until_that_ends() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let owner = Owner::parse(&java.owner).unwrap();
    crashes_with_the_lock(&server, &owner);
    let lease = CRASHED * 3;
    assert_eq!(java.try_lock("order", lease).await, None);
    eventually("our leases are over", LIMIT, async || {
        command::<Vec<String>>(&server, "KEYS lock-core:holds:*")
            .await
            .is_empty()
    })
    .await;
    let lock = manager(&server).await.lock_apart("order");
    let guard = lock.clone().owner(&owner).acquire().await.unwrap();
    assert_eq!(java.hold_count("order").await, 4);
    guard.release().await.unwrap();
    assert_eq!(java.unlock("order", lease).await, Unlocked::StillHeld);
    let guard = in_time("the end of its lease", lock.acquire()).await;
    guard.unwrap().release().await.unwrap();
    until_clean(&server).await;
}
