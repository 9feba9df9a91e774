//! However many wait in a process, it asks once for each message.

use lock_core::{LockError, LockGuard, LockManager, Owner};
use lock_tests::{LIMIT, Proxy};
use tokio::sync::mpsc;

use crate::reentrant::apart::Apart;
use crate::reentrant::redisson_client::{Redisson, Unlocked};
use crate::reentrant::support::{
    LONG, PATIENT, in_time, is_acquire, is_subscribe, manager, manager_at, until_clean,
    until_listening, until_parked, until_waiting, warm_server,
};

const WAITERS: usize = 32;

/// As many tasks of this manager that wait for the lock, and give their guards to the channel.
async fn wait_for_it(
    locks: &LockManager,
    proxy: &Proxy,
    owners: bool,
    granted: &mpsc::Sender<LockGuard>,
) {
    for _ in 0..WAITERS {
        let mut lock = locks.lock_apart("order");
        if owners {
            lock = lock.owner(&Owner::new());
        }
        let granted = granted.clone();
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let _ = granted.send(guard).await;
        });
    }
    let lock = locks.lock_apart("order");
    until_waiting(&lock, WAITERS as u64).await;
    // The line asks, and once more after its subscription. An owner may be in already, so each one tries first.
    until_parked(proxy, if owners { WAITERS } else { 0 }, &lock).await;
}

/// How many tries one unlock of Redisson causes in this many processes with many waiters each.
async fn tries_after_an_unlock(processes: usize, owners: bool) -> Vec<usize> {
    let server = warm_server().await;
    let java = Redisson::new(&server).await;
    assert_eq!(java.try_lock("order", LONG).await, None);
    let mut all = Vec::new();
    let (granted, mut guards) = mpsc::channel(1);
    for _ in 0..processes {
        let proxy = Proxy::start(&server);
        let locks = manager_at(&proxy.url(), LIMIT).await;
        wait_for_it(&locks, &proxy, owners, &granted).await;
        all.push((locks, proxy));
    }
    // A refresh may come at any time; one every three seconds at most, so it does not hide a crowd.
    let before: Vec<_> = all
        .iter()
        .map(|(_, proxy)| proxy.count(is_acquire))
        .collect();
    assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
    let guard = in_time("the lock", guards.recv()).await.unwrap();
    // A round trip of each process later, whatever the message caused has been sent.
    for (locks, _) in &all {
        assert!(locks.lock_apart("order").inspect().await.unwrap().is_held());
    }
    let tries = all
        .iter()
        .zip(before)
        .map(|((_, proxy), before)| proxy.count(is_acquire) - before)
        .collect();
    // Everybody gets it in the end.
    guard.release().await.unwrap();
    for _ in 1..WAITERS * processes {
        let guard = in_time("the lock", guards.recv()).await.unwrap();
        guard.release().await.unwrap();
    }
    until_clean(&server).await;
    tries
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_unlock_is_at_most_two_tries_however_many_wait_here() {
    for owners in [false, true] {
        let tries = tries_after_an_unlock(1, owners).await;
        assert!((1..=2).contains(&tries[0]), "{tries:?}, owners: {owners}");
    }
}

/// Proves P9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_unlock_is_at_most_two_tries_in_each_process() {
    let tries = tries_after_an_unlock(3, false).await;
    assert!(tries.iter().all(|tries| *tries <= 2), "{tries:?}");
}

/// Thousands of channels may take longer than a command. Proves P15.
#[tokio::test]
async fn a_new_connection_is_in_use_before_its_channels_are_subscribed_to() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), PATIENT).await;
    let holder = manager(&server).await.lock_apart("order");
    let guard = holder.acquire().await.unwrap();
    let lock = locks.lock_apart("order");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_listening(&server, "order", 1).await;

    let before = proxy.connections();
    let subscription = proxy.hold_next_request_matching(is_subscribe);
    proxy.reset();
    subscription.wait().await;
    // Takes one command deadline. Another one would be a silence that replaces the connection.
    let late = locks.lock("other").inspect().await;
    assert!(matches!(late, Err(LockError::Unavailable { .. })));
    assert_eq!(proxy.connections() - before, 1);
    subscription.deliver();
    until_listening(&server, "order", 1).await;
    guard.release().await.unwrap();
    let guard = in_time("the lock", waiting).await.unwrap().unwrap();
    assert_eq!(proxy.connections() - before, 1);
    guard.release().await.unwrap();
}
