//! The request that lets go and asks again at once, for those in line in the same process: lost, late, given up.

use std::time::Duration;

use lock_core::{Lock, LockGuard, LockManager};
use lock_tests::{DropMode, LIMIT, Proxy, TestServer, eventually};
use tokio::task::JoinHandle;

use crate::support::{KEY, LONG, NAME, behind, command, direct, in_time, is_pass, ms, queue_len};
use crate::support::{until_clean, until_gone, until_queued, until_waiting, warm_server};

const MODES: [DropMode; 2] = [DropMode::Close, DropMode::Silent];

/// A lock whose every request goes through a proxy.
struct Rig {
    server: TestServer,
    proxy: Proxy,
    locks: LockManager,
    lock: Lock,
}

impl Rig {
    async fn new(deadline: Duration) -> Self {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let locks = behind(&proxy, deadline).await;
        let lock = locks.lock(NAME).ttl(LONG);
        Self {
            server,
            proxy,
            locks,
            lock,
        }
    }

    async fn ends_clean(self) {
        assert_eq!(self.locks.shutdown(LIMIT).await, 0);
        until_clean(&self.server).await;
    }
}

/// A caller in line behind a guard of the same manager.
async fn in_line(lock: &Lock, place: u64) -> JoinHandle<LockGuard> {
    let theirs = lock.clone();
    let waiter = tokio::spawn(async move { theirs.acquire().await.unwrap() });
    until_waiting(lock, place).await;
    waiter
}

#[tokio::test]
async fn a_pass_whose_reply_was_lost_serves_those_in_line() {
    for mode in MODES {
        let rig = Rig::new(ms(400)).await;
        let (proxy, lock) = (&rig.proxy, &rig.lock);
        let guard = lock.acquire().await.unwrap();
        let (next, third) = (in_line(lock, 1).await, in_line(lock, 2).await);
        let lost = proxy.drop_next_reply_matching(is_pass, mode);
        let fence = guard.fencing_token();
        let released = in_time("the release", guard.release()).await;
        assert!(released.is_ok(), "{mode:?}: {released:?}");
        lost.wait().await;
        let next = in_time("the next one", next).await.unwrap();
        assert!(next.is_held() && next.fencing_token() > fence);
        assert!(!third.is_finished(), "two believers");
        let fence = next.fencing_token();
        next.release().await.unwrap();
        let third = in_time("the last one", third).await.unwrap();
        assert!(third.fencing_token() > fence);
        third.release().await.unwrap();
        rig.ends_clean().await;
    }
}

#[tokio::test]
async fn a_pass_that_handed_over_and_whose_reply_was_lost_keeps_one_place() {
    for mode in MODES {
        let rig = Rig::new(ms(400)).await;
        let (server, proxy, lock) = (&rig.server, &rig.proxy, &rig.lock);
        let guard = lock.acquire().await.unwrap();
        let other = direct(server).await.lock(NAME).ttl(LONG);
        let rival = tokio::spawn(async move { other.acquire().await.unwrap() });
        until_queued(server, 1).await;
        let next = in_line(lock, 2).await;
        let lost = proxy.drop_next_reply_matching(is_pass, mode);
        in_time("the release", guard.release()).await.unwrap();
        lost.wait().await;
        let rival = in_time("the hand-over", rival).await.unwrap();
        until_queued(server, 1).await;
        assert!(rival.is_held() && !next.is_finished(), "two believers");
        let value = server.get(KEY).await;
        // Whatever is repeated leaves the new holder alone.
        until_waiting(lock, 1).await;
        assert_eq!(server.get(KEY).await, value);
        rival.release().await.unwrap();
        let taken = in_time("the next one", next).await.unwrap();
        taken.release().await.unwrap();
        rig.ends_clean().await;
    }
}

#[tokio::test]
async fn a_release_that_is_dropped_on_its_way_serves_those_in_line() {
    let rig = Rig::new(LIMIT).await;
    let (server, proxy, lock) = (&rig.server, &rig.proxy, &rig.lock);
    let guard = lock.acquire().await.unwrap();
    let next = in_line(lock, 1).await;
    let held = proxy.hold_next_request_matching(is_pass);
    let release = tokio::spawn(guard.release());
    held.wait().await;
    release.abort();
    assert!(release.await.unwrap_err().is_cancelled());
    held.deliver();
    let next = in_time("the next one", next).await.unwrap();
    assert!(next.is_held());
    let value = server.get(KEY).await;
    assert!(value.is_some());
    next.release().await.unwrap();
    until_gone(server, KEY).await;
    rig.ends_clean().await;
}

#[tokio::test]
async fn a_waiter_that_leaves_while_the_lock_is_passed_to_it_leaves_nothing() {
    let rig = Rig::new(LIMIT).await;
    let (server, proxy, lock) = (&rig.server, &rig.proxy, &rig.lock);
    for (others, forgotten) in [(false, false), (true, false), (false, true), (true, true)] {
        if forgotten {
            // The script that passes on, but not the one that cleans up: so the request is repeated behind the clean-up.
            command::<()>(server, "SCRIPT FLUSH").await;
            let another = rig.locks.lock("another").acquire().await.unwrap();
            another.release().await.unwrap();
        }
        let guard = lock.acquire().await.unwrap();
        let next = in_line(lock, 1).await;
        let behind = if others {
            Some(in_line(lock, 2).await)
        } else {
            None
        };
        let held = proxy.hold_next_request_matching(is_pass);
        let release = tokio::spawn(guard.release());
        held.wait().await;
        next.abort();
        assert!(next.await.unwrap_err().is_cancelled());
        held.deliver();
        in_time("the release", release).await.unwrap().unwrap();
        if let Some(behind) = behind {
            let guard = in_time("the one behind", behind).await.unwrap();
            assert!(guard.is_held());
            guard.release().await.unwrap();
        }
        until_gone(server, KEY).await;
        assert_eq!(queue_len(server).await, 0);
    }
    rig.ends_clean().await;
}

#[tokio::test]
async fn a_pass_that_comes_late_takes_nothing_from_the_next_holder() {
    let rig = Rig::new(ms(2000)).await;
    let (server, proxy, lock) = (&rig.server, &rig.proxy, &rig.lock);
    let guard = lock.acquire().await.unwrap();
    let next = in_line(lock, 1).await;
    let held = proxy.hold_next_request_matching(is_pass);
    let release = tokio::spawn(guard.release());
    held.wait().await;
    // Everything is repeated on another connection.
    proxy.reset();
    in_time("the release", release).await.unwrap().unwrap();
    let next = in_time("the next one", next).await.unwrap();
    let (value, calls) = (server.get(KEY).await, proxy.requests().len());
    server.reset_stats().await;
    held.deliver();
    eventually("the late one is carried out", LIMIT, async || {
        server.commandstats().await.contains_key("evalsha")
    })
    .await;
    assert_eq!(server.get(KEY).await, value);
    assert_eq!(queue_len(server).await, 0);
    assert!(next.is_held());
    assert_eq!(proxy.requests().len(), calls, "nothing to say about it");
    next.release().await.unwrap();
    rig.ends_clean().await;
}
