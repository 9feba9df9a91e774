//! Releases that a node does not hear of at first, and the end of a manager.

use std::time::Duration;

use lock_core::LockManager;
use lock_tests::kit::command;
use lock_tests::{Proxy, eventually};
use tokio::runtime::Handle;

use super::rig::{LIMIT, Quorum, behind};

/// A ttl that is longer than the test, and shorter than that of its lock, ms.
const SHORT: i64 = 600_000;

/// Three nodes, of which two are behind proxies.
struct Away {
    quorum: Quorum,
    proxies: [Proxy; 2],
    locks: LockManager,
}

impl Away {
    async fn start() -> Self {
        let quorum = Quorum::start(3).await;
        let nodes = &quorum.nodes;
        let proxies = [Proxy::start(&nodes[1]), Proxy::start(&nodes[2])];
        let urls = [
            nodes[0].url(),
            behind(&proxies[0], &nodes[1]),
            behind(&proxies[1], &nodes[2]),
        ];
        let locks = quorum.builder().connect_quorum(urls).await.unwrap();
        Self {
            quorum,
            proxies,
            locks,
        }
    }

    /// Takes the lock with the vote of this node, and releases it while the node is away.
    async fn release_without(&self, node: usize) {
        let proxy = &self.proxies[node - 1];
        let guard = self.locks.lock("a").acquire_within(LIMIT).await.unwrap();
        self.voted_on(node).await;
        proxy.refuse(true);
        proxy.reset();
        guard.release().await.unwrap();
        assert_eq!(self.quorum.votes("a", &[node]).await, [node]);
    }

    async fn voted_on(&self, node: usize) {
        eventually("it has voted", LIMIT, async || {
            !self.quorum.votes("a", &[node]).await.is_empty()
        })
        .await;
    }

    fn come_back(&self) {
        for proxy in &self.proxies {
            proxy.refuse(false);
        }
    }
}

/// Proves P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_were_away_during_two_releases_do_not_keep_the_lock() {
    let away = Away::start().await;
    away.release_without(1).await;
    let other = away.quorum.manager().await;
    // The lock has no majority now, unless the release reaches the first node.
    away.proxies[0].refuse(false);
    away.release_without(2).await;
    away.come_back();
    let guard = other.lock("a").acquire_within(LIMIT).await.unwrap();
    guard.release().await.unwrap();
    away.quorum.no_votes("a", &[0, 1, 2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_only_a_renewal_finds_is_released() {
    let away = Away::start().await;
    let (proxy, node) = (&away.proxies[0], &away.quorum.nodes[1]);
    proxy.refuse(true);
    proxy.reset();
    eventually("it is away", LIMIT, async || {
        let other = away.locks.lock("b").acquire_within(LIMIT).await.unwrap();
        other.release().await.unwrap();
        proxy.refused_connections() > 0
    })
    .await;
    let guard = away.locks.lock("a").acquire_within(LIMIT).await.unwrap();
    // An earlier attempt had the vote of that node, and its undo was lost.
    let token: String = command(&away.quorum.nodes[0], "GET lock:a").await;
    let () = command(node, &format!("SET lock:a {token} PX {SHORT}")).await;
    proxy.refuse(false);
    eventually("the vote is renewed", LIMIT, async || {
        guard.extend(away.quorum.wait / 2).await.unwrap();
        let left: i64 = command(node, "PTTL lock:a").await;
        left > SHORT
    })
    .await;
    guard.release().await.unwrap();
    away.quorum.no_votes("a", &[0, 1, 2]).await;
}

/// Proves P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_for_a_release_that_a_node_has_not_heard_of() {
    let away = Away::start().await;
    away.release_without(1).await;
    let proxy = &away.proxies[0];
    let refused = proxy.refused_connections();
    let (left, ()) = tokio::join!(away.locks.shutdown(LIMIT), async {
        eventually("it goes on", LIMIT, async || {
            proxy.refused_connections() > refused
        })
        .await;
        proxy.refuse(false);
    });
    assert_eq!(left, 0);
    assert!(away.quorum.votes("a", &[0, 1, 2]).await.is_empty());
    // A node that stays away does not delay the end by more than a command.
    let away = Away::start().await;
    away.release_without(1).await;
    let ended = tokio::time::timeout(LIMIT, away.locks.shutdown(Duration::from_secs(3600)));
    assert_eq!(ended.await.expect("in time"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_stopped_during_many_releases_keeps_no_vote() {
    let quorum = Quorum::start(3).await;
    let locks = quorum.manager().await;
    let keys: Vec<String> = (0..200).map(|n| format!("a{n}")).collect();
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(locks.lock(key).acquire().await.unwrap());
    }
    // On a busy machine a node that answers late is left out now and then.
    eventually("it has voted", LIMIT, async || {
        let size: usize = command(&quorum.nodes[1], "DBSIZE").await;
        size >= keys.len() / 2
    })
    .await;
    quorum.nodes[1].stop();
    for guard in guards {
        guard.release().await.unwrap();
    }
    for _ in 0..2000 {
        drop(locks.lock("b").acquire_within(LIMIT).await.unwrap());
    }
    quorum.nodes[1].cont();
    eventually("no vote is left", LIMIT, async || {
        let keys = quorum.nodes[1].keys().await;
        keys.iter().all(|key| key.starts_with("lock-core:quorum"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_outlives_the_managers_that_were_shut_down() {
    let quorum = Quorum::start(3).await;
    for _ in 0..20 {
        let locks = quorum.manager().await;
        let guard = locks.lock("a").acquire().await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(locks.shutdown(LIMIT).await, 0);
    }
    // Each address would be looked at again after half an hour.
    eventually("their tasks have ended", LIMIT, async || {
        Handle::current().metrics().num_alive_tasks() == 0
    })
    .await;
}
