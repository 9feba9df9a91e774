//! The events of a master behind Sentinel: each kind of failover, and sentinels that come and go.

use std::time::Duration;

use lock_core::{LockGuard, LockManager};
use lock_tests::kit::command;
use lock_tests::{LIMIT, TestServer, Watched, eventually};

/// Longer than a failover takes, so that it cannot run out in one.
const TTL: Duration = Duration::from_secs(60);

/// A lock that all servers know.
async fn held(locks: &LockManager, watched: &Watched) -> LockGuard {
    let guard = locks.lock("held").ttl(TTL).acquire().await.unwrap();
    // So that a renewal is told from the grant.
    let () = command(&watched.servers[0], "PEXPIRE lock:held 50000").await;
    for server in &watched.servers {
        eventually("replicated", LIMIT, async || {
            let pttl: i64 = command(server, "PTTL lock:held").await;
            (1..=50_000).contains(&pttl)
        })
        .await;
    }
    guard
}

/// The client takes locks at the new master, and still has the one from before.
async fn goes_on(locks: &LockManager, guard: LockGuard, new: &TestServer) {
    eventually("locks are taken at the new master", LIMIT, async || {
        let Ok(guard) = locks.lock("next").ttl(TTL).acquire_within(LIMIT).await else {
            return false;
        };
        let there = new.exists("lock:next").await;
        guard.release().await.is_ok() && there
    })
    .await;
    // Confirmed by a renewal there.
    eventually("the hold is renewed at the new master", LIMIT, async || {
        let pttl: i64 = command(new, "PTTL lock:held").await;
        pttl > 50_000
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(!new.exists("lock:held").await);
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_is_followed() {
    let watched = Watched::start().await;
    let locks = LockManager::connect(&watched.url()).await.unwrap();
    let guard = held(&locks, &watched).await;
    watched.failover().await;
    goes_on(&locks, guard, watched.master().await).await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_killed_is_replaced() {
    let watched = Watched::start().await;
    let locks = LockManager::connect(&watched.url()).await.unwrap();
    let guard = held(&locks, &watched).await;
    let old = watched.servers[0].port();
    watched.servers[0].kill();
    watched.replaced(old).await;
    goes_on(&locks, guard, watched.master().await).await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_stops_is_replaced_and_not_asked_again_when_it_goes_on() {
    let watched = Watched::start().await;
    let locks = LockManager::connect(&watched.url()).await.unwrap();
    let guard = held(&locks, &watched).await;
    let old = &watched.servers[0];
    old.stop();
    watched.replaced(old.port()).await;
    let new = watched.master().await;
    eventually("locks are taken at the new master", LIMIT, async || {
        let next = locks.lock("next").acquire_within(LIMIT).await;
        let there = new.exists("lock:next").await;
        next.unwrap().release().await.unwrap();
        there
    })
    .await;
    let calls = lock_tests::kit::script_calls;
    old.cont();
    // What was in its socket when it stopped.
    let _ = old.exists("lock:held").await;
    let before = calls(old).await;
    for _ in 0..100 {
        let next = locks.lock("next").acquire_within(LIMIT).await.unwrap();
        next.release().await.unwrap();
    }
    assert_eq!(calls(old).await, before);
    goes_on(&locks, guard, new).await;
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_restart_are_watched_again() {
    let watched = Watched::start().await;
    let locks = LockManager::connect(&watched.url()).await.unwrap();
    let guard = held(&locks, &watched).await;
    for sentinel in &watched.sentinels {
        sentinel.restart().await;
    }
    for sentinel in &watched.sentinels {
        eventually("it is subscribed to", LIMIT, async || {
            sentinel.subscribers().await == 1
        })
        .await;
    }
    watched.settled().await;
    watched.failover().await;
    goes_on(&locks, guard, watched.master().await).await;
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_goes_on_without_any_sentinel_while_its_master_lives() {
    let watched = Watched::start().await;
    let locks = LockManager::connect(&watched.url()).await.unwrap();
    let guard = held(&locks, &watched).await;
    for sentinel in &watched.sentinels {
        sentinel.kill();
    }
    // Also over a connection that breaks.
    let master = &watched.servers[0];
    let () = command(master, "CLIENT KILL TYPE pubsub").await;
    goes_on(&locks, guard, master).await;
}
