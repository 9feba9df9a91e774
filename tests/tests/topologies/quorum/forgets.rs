//! Nodes that have lost their votes, or were replaced behind their address: none votes before the locks have ended.

use std::time::Duration;

use lock_core::{LockError, LockGuard, LockManager};
use lock_tests::kit::command;
use lock_tests::{Proxy, TestServer};

use super::rig::{DEFAULT, LIMIT, LONG, Quorum, Trio, behind, counter_of};

/// Long enough for a client to be granted a lock that it should not have.
const SOON: Duration = Duration::from_secs(1);

/// No client is granted the lock now, because nodes wait and for no other reason: all of them answer.
pub(super) async fn is_refused(locks: &LockManager, key: &str) {
    let lock = locks.lock(key);
    // Where a node is late, nothing is known of the others.
    lock_tests::eventually("each node answers", LIMIT, async || {
        match lock.acquire_within(SOON).await {
            Err(LockError::TimedOut { .. }) => true,
            Err(LockError::Unavailable { cause }) => cause.to_string().contains("votes in"),
            other => panic!("a second majority: {other:?}"),
        }
    })
    .await;
    let nodes = lock.inspect().await.unwrap().nodes().to_vec();
    assert!(nodes.iter().all(|node| node.error().is_none()), "{nodes:?}");
}

/// A lock on nodes 0 and 1 of three: the third was stopped, and goes on without having heard of it.
pub(super) async fn bare_majority(
    quorum: &Quorum,
    locks: &LockManager,
    ttl: Duration,
) -> LockGuard {
    quorum.nodes[2].stop();
    let lock = locks.lock("a").ttl(ttl).renew(false);
    let guard = lock.acquire_within(LIMIT).await.unwrap();
    quorum.voted("a", &[0, 1]).await;
    guard
}

/// The stopped node goes on, as if nothing had been sent to it.
pub(super) async fn wakes_up(quorum: &Quorum) {
    quorum.nodes[2].cont();
    lock_tests::eventually("it has no vote", LIMIT, async || {
        let _: u64 = command(&quorum.nodes[2], "DEL lock:a").await;
        quorum.votes("a", &[2]).await.is_empty()
    })
    .await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_that_restarts_empty_grants_nothing_that_may_be_held() {
    let quorum = Quorum::start(3).await;
    let locks = quorum.manager().await;
    let guard = locks.lock("a").renew(false).acquire().await.unwrap();
    quorum.voted("a", &[0, 1, 2]).await;
    for node in &quorum.nodes {
        node.restart().await;
    }
    assert!(guard.is_held());
    is_refused(&quorum.manager().await, "a").await;
    is_refused(&locks, "a").await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_flushed_does_not_vote() {
    let quorum = Quorum::start(3).await;
    let (locks, rival) = (quorum.manager().await, quorum.manager().await);
    let guard = bare_majority(&quorum, &locks, LONG).await;
    quorum.nodes[1].flushall().await;
    wakes_up(&quorum).await;
    // Neither for a client that is connected, nor for a new one.
    is_refused(&rival, "a").await;
    is_refused(&quorum.manager().await, "a").await;
    assert!(guard.is_held());
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_with_old_data_does_not_vote() {
    let quorum = Quorum::start(3).await;
    let (locks, rival) = (quorum.manager().await, quorum.manager().await);
    let used = locks.lock("used").acquire().await.unwrap();
    used.release().await.unwrap();
    let _: redis::Value = command(&quorum.nodes[1], "SAVE").await;
    let _in_use = rival.lock("x").acquire().await.unwrap();
    for connected_first in [true, false] {
        // One that has seen the wait of the node sits it out, though the quorum begins anew.
        let locks = quorum.manager().await;
        // A program that vets the node anew deletes it at once.
        let counter = counter_of(&quorum.nodes[1]).await;
        assert!(quorum.nodes[1].exists(&counter).await);
        let guard = bare_majority(&quorum, &locks, LONG).await;
        quorum.nodes[1].restart().await;
        wakes_up(&quorum).await;
        // A newcomer knows the node only by its note. The rival has a lock, and so it connects again by itself.
        if connected_first {
            lock_tests::eventually("both are connected", LIMIT, async || {
                let channels: Vec<String> = command(&quorum.nodes[1], "PUBSUB CHANNELS").await;
                channels.len() >= 2
            })
            .await;
            is_refused(&rival, "a").await;
        }
        is_refused(&quorum.manager().await, "a").await;
        is_refused(&rival, "a").await;
        assert!(guard.is_held());
        let _ = guard.release().await;
        quorum.begin_anew().await;
        let _: redis::Value = command(&quorum.nodes[1], "SAVE").await;
    }
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_behind_the_address_of_a_node_does_not_vote() {
    // An address is looked at in a quarter of that.
    let wait = Duration::from_secs(24);
    let (quorum, standby) = (Quorum::start_with(3, wait).await, TestServer::start().await);
    let ttl = wait / 2;
    let proxy = Proxy::start(&quorum.nodes[1]);
    let urls = Trio::urls(&quorum.nodes, &proxy);
    let manager = async || quorum.builder().connect_quorum(&urls).await.unwrap();
    let (locks, rival) = (manager().await, manager().await);
    let guard = bare_majority(&quorum, &locks, ttl).await;
    // Old connections go on to the old server, new ones lead to the other.
    proxy.retarget(standby.addr());
    wakes_up(&quorum).await;
    let newcomer = manager().await;
    is_refused(&newcomer, "a").await;
    is_refused(&rival, "a").await;
    assert!(guard.is_held());
    // A client with an old connection notices it, too.
    lock_tests::eventually("it asks the other server", LIMIT, async || {
        drop(rival.lock("b").acquire_within(SOON).await);
        let channels: Vec<String> = command(&standby, "PUBSUB CHANNELS").await;
        channels.len() >= 2
    })
    .await;
    proxy.retarget(quorum.nodes[1].addr());
    proxy.reset();
    is_refused(&rival, "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_under_two_names_is_refused() {
    let quorum = Quorum::start(3).await;
    let port = quorum.nodes[0].addr().port();
    let twice = [
        quorum.nodes[0].url(),
        format!("redis://localhost:{port}"),
        quorum.nodes[2].url(),
    ];
    for _ in 0..2 {
        match LockManager::connect_quorum(&twice).await {
            Err(LockError::InvalidConfig { reason }) => {
                let is_said = reason.contains("same server") || reason.contains("the same nodes");
                assert!(is_said, "{reason}");
            }
            other => panic!("{other:?}"),
        }
        // Also of a new quorum.
        for node in &quorum.nodes {
            node.flushall().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_of_one_server_are_one_node() {
    let quorum = Quorum::blank(2, DEFAULT).await;
    let server = quorum.nodes[0].url();
    let urls = [
        format!("{server}/0?node=a"),
        format!("{server}/1?node=b"),
        quorum.nodes[1].url(),
    ];
    let is_refused = |outcome: Result<(), LockError>| match outcome {
        Err(LockError::InvalidConfig { reason }) => {
            assert!(reason.contains("same server"), "{reason}");
        }
        other => panic!("{other:?}"),
    };
    for _ in 0..3 {
        let builder = LockManager::builder().begin_quorum(&urls);
        is_refused(builder.await);
        is_refused(LockManager::builder().begin_quorum(&urls).anew().await);
        is_refused(LockManager::connect_quorum(&urls).await.map(drop));
    }
    // Nothing was written.
    for node in &quorum.nodes {
        assert!(!node.exists("lock-core:quorum").await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_far_away_are_connected_to_within_the_default_deadline() {
    let quorum = Quorum::start(3).await;
    let proxies: Vec<_> = quorum.nodes.iter().map(Proxy::start).collect();
    for proxy in &proxies {
        proxy.delay(Duration::from_millis(100));
    }
    let urls = proxies.iter().zip(&quorum.nodes);
    let urls = urls.map(|(proxy, node)| behind(proxy, node));
    let builder = LockManager::builder().quorum_wait(quorum.wait);
    let locks = builder.connect_quorum(urls).await.unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_flushed_is_healed_when_it_votes_again_and_not_before() {
    let wait = Duration::from_secs(4);
    let trio = Trio::start_with(wait / 2, wait).await;
    let guard = trio.locks.lock("a").acquire().await.unwrap();
    let node = &trio.nodes[1];
    // A vote that comes behind the loss would be refused.
    lock_tests::eventually("it has voted", LIMIT, async || {
        node.get("lock:a").await.is_some()
    })
    .await;
    let flushed_at = node.time().await;
    node.flushall().await;
    lock_tests::eventually("the vote is back", LIMIT, async || {
        node.get("lock:a").await.is_some()
    })
    .await;
    let waited = node.time().await.saturating_sub(flushed_at);
    assert!(waited >= wait, "{waited:?}");
    assert!(guard.is_held());
    guard.release().await.unwrap();
}
