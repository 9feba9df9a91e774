//! Nodes that have lost their votes, or were replaced behind their address: none votes before the locks have ended.

use std::time::Duration;

use lock_core::{LockError, LockGuard, LockManager};
use lock_tests::kit::command;
use lock_tests::{Proxy, Request, TestServer};
use tokio::time::timeout;

use super::rig::{LIMIT, LONG, Quorum, Trio, is_vote};

/// Long enough for a client to be granted a lock that it should not have.
const SOON: Duration = Duration::from_secs(1);

/// Nobody is granted the lock now, because nodes wait and for no other reason: all of them answer.
pub(super) async fn is_refused(locks: &LockManager, key: &str) {
    let lock = locks.lock(key);
    match lock.acquire_within(SOON).await {
        Err(LockError::TimedOut { .. }) => {}
        Err(LockError::Unavailable { cause }) => {
            assert!(cause.to_string().contains("votes in"), "{cause}");
        }
        other => panic!("a second majority: {other:?}"),
    }
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
    let guard = lock.acquire().await.unwrap();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_flushed_does_not_vote() {
    let quorum = Quorum::start(3).await;
    let (locks, rival) = (quorum.manager().await, quorum.manager().await);
    let guard = bare_majority(&quorum, &locks, LONG).await;
    quorum.nodes[1].flushall().await;
    wakes_up(&quorum).await;
    // Neither for whoever is connected, nor for whoever comes new.
    is_refused(&rival, "a").await;
    is_refused(&quorum.manager().await, "a").await;
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_with_old_data_does_not_vote() {
    let quorum = Quorum::start(3).await;
    let (locks, rival) = (quorum.manager().await, quorum.manager().await);
    let used = locks.lock("used").acquire().await.unwrap();
    used.release().await.unwrap();
    let _: redis::Value = command(&quorum.nodes[1], "SAVE").await;
    let guard = bare_majority(&quorum, &locks, LONG).await;
    quorum.nodes[1].restart().await;
    let data = quorum.nodes[1].keys().await;
    assert!(
        data.contains(&"lock-core:quorum:fence".to_owned()),
        "{data:?}"
    );
    wakes_up(&quorum).await;
    // The newcomer first: it knows the node only by its note.
    is_refused(&quorum.manager().await, "a").await;
    is_refused(&rival, "a").await;
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_waits_for_a_longer_ttl_that_others_use() {
    let quorum = Quorum::start(3).await;
    let short = Duration::from_secs(1);
    let brief = quorum.manager_with(|builder| builder.default_ttl(short));
    let (locks, brief) = (
        quorum.manager_with(|b| b.default_ttl(short)).await,
        brief.await,
    );
    let guard = bare_majority(&quorum, &locks, LONG).await;
    quorum.nodes[1].restart().await;
    wakes_up(&quorum).await;
    // Longer than its own ttl, and than the least wait.
    let refused = brief.lock("a").acquire_within(Duration::from_secs(5)).await;
    assert!(refused.is_err(), "a second majority");
    let newcomer = quorum
        .manager_with(|builder| builder.default_ttl(short))
        .await;
    is_refused(&newcomer, "a").await;
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgot_is_told_of_ttls_that_only_the_other_nodes_know() {
    let quorum = Quorum::start(3).await;
    // So long that nobody tells a node of it again while the test runs, and learns from it meanwhile.
    let ttl = Duration::from_secs(600);
    let manager = async || {
        // Half of the deadline is how long it waits for what the other nodes know.
        let locks = quorum.manager_with(|b| b.default_ttl(ttl).command_deadline(LIMIT));
        locks.await
    };
    // A node that was not ready in time votes for a later lock.
    let all_vote = async |locks: &LockManager, ttl: Duration| {
        lock_tests::eventually("all vote", LIMIT, async || {
            let taken = locks.lock("ready").ttl(ttl).acquire().await.unwrap();
            let votes = quorum.votes("ready", &[0, 1, 2]).await.len();
            taken.release().await.unwrap();
            votes == 3
        })
        .await;
    };
    let rival = manager().await;
    all_vote(&rival, ttl).await;
    let locks = manager().await;
    all_vote(&locks, LONG).await;
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    quorum.nodes[1].restart().await;
    lock_tests::eventually("it has a note", LIMIT, async || {
        drop(rival.lock("b").try_acquire().await);
        quorum.nodes[1].exists("lock-core:quorum").await
    })
    .await;
    let known: Vec<String> = command(&quorum.nodes[1], "HKEYS lock-core:quorum").await;
    let ttls = known.iter().filter_map(|field| field.parse().ok());
    let longest = ttls.max().map(Duration::from_millis);
    assert!(longest >= Some(LONG), "it waits for {longest:?}: {known:?}");
}

/// The other server does not know of that vote: it waits for those that were sent before somebody heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_comes_after_the_server_was_found_to_be_another_does_not_count() {
    let (trio, standby) = (Trio::start(LONG).await, TestServer::start().await);
    // The lock needs the votes of the other two. They count alike: the standby would refuse to raise a counter.
    trio.nodes[2].kill();
    for node in &trio.nodes[..2] {
        let () = command(node, "SET lock-core:quorum:fence 4000000000000000").await;
    }
    // A client that knows the node as a slow one waits for its vote for some seconds.
    trio.proxy.delay(Duration::from_millis(200));
    let locks = trio.manager(LONG).await;
    trio.proxy.delay(Duration::ZERO);
    trio.proxy.retarget(standby.addr());
    let vote = trio.proxy.hold_next_request_matching(is_vote);
    let lock = locks.lock("a");
    let trying = tokio::spawn(async move { lock.try_acquire().await });
    vote.wait().await;
    // Whoever asks for votes looks at the address from time to time.
    lock_tests::eventually("it asks the other server", LIMIT, async || {
        let _ = timeout(Duration::from_millis(100), locks.lock("b").try_acquire()).await;
        standby.exists("lock-core:quorum").await
    })
    .await;
    assert!(!trying.is_finished(), "it has waited for the vote");
    vote.deliver();
    let granted = trying.await.unwrap();
    assert!(!matches!(granted, Ok(Some(_))), "{granted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_votes_though_long_locks_were_used_earlier() {
    let quorum = Quorum::start(3).await;
    let ttl = Duration::from_secs(1);
    let locks = quorum
        .manager_with(|builder| builder.default_ttl(ttl))
        .await;
    let long = locks.lock("long").ttl(ttl * 5).acquire().await.unwrap();
    long.release().await.unwrap();
    // The ttl of five seconds counts for ten.
    lock_tests::eventually("it is forgotten", LIMIT, async || {
        drop(locks.lock("used").acquire().await.unwrap());
        let until: Option<u64> = command(&quorum.nodes[0], "HGET lock-core:quorum 5632").await;
        let time: (u64, u64) = command(&quorum.nodes[0], "TIME").await;
        until.is_none_or(|until| until < time.0 * 1000)
    })
    .await;
    quorum.nodes[1].restart().await;
    quorum.nodes[2].kill();
    drop(locks.lock("b").acquire_within(LIMIT).await.unwrap());
    let known: Vec<String> = command(&quorum.nodes[1], "HKEYS lock-core:quorum").await;
    assert!(known.contains(&"1536".to_owned()), "{known:?}");
    assert!(!known.contains(&"5632".to_owned()), "{known:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_behind_the_address_of_a_node_does_not_vote() {
    let (quorum, standby) = (Quorum::start(3).await, TestServer::start().await);
    // An address is looked at in half of that.
    let ttl = Duration::from_secs(20);
    let proxy = Proxy::start(&quorum.nodes[1]);
    let urls = [quorum.nodes[0].url(), proxy.url(), quorum.nodes[2].url()];
    let manager = async || {
        let builder = LockManager::builder().default_ttl(ttl);
        builder.connect_quorum(&urls).await.unwrap()
    };
    let (locks, rival) = (manager().await, manager().await);
    let guard = bare_majority(&quorum, &locks, ttl).await;
    // Old connections go on to the old server, new ones lead to the other.
    proxy.retarget(standby.addr());
    wakes_up(&quorum).await;
    let newcomer = manager().await;
    is_refused(&newcomer, "a").await;
    is_refused(&rival, "a").await;
    assert!(guard.is_held());
    // Whoever has an old connection notices it, too.
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
    match LockManager::connect_quorum(twice).await {
        Err(LockError::InvalidConfig { reason }) => {
            assert!(reason.contains("same server"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_far_away_are_connected_to_within_the_default_deadline() {
    let quorum = Quorum::start(3).await;
    let proxies: Vec<_> = quorum.nodes.iter().map(Proxy::start).collect();
    for proxy in &proxies {
        proxy.delay(Duration::from_millis(100));
    }
    let locks = LockManager::connect_quorum(proxies.iter().map(Proxy::url))
        .await
        .unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_programs_that_begin_a_quorum_at_once_begins_it() {
    for _ in 0..10 {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(TestServer::start().await);
        }
        let urls: Vec<_> = nodes.iter().map(TestServer::url).collect();
        let mut turned = urls.clone();
        turned.rotate_left(1);
        let builder = || LockManager::builder().command_deadline(LIMIT);
        let (one, other) = tokio::join!(
            builder().begin_quorum(&urls),
            builder().begin_quorum(&turned)
        );
        assert_eq!(
            u32::from(one.is_ok()) + u32::from(other.is_ok()),
            1,
            "{one:?} {other:?}"
        );
        let locks = LockManager::connect_quorum(&urls).await.unwrap();
        drop(locks.lock("a").acquire_within(LIMIT).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_begins_once() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(TestServer::start().await);
    }
    let urls: Vec<_> = nodes.iter().map(TestServer::url).collect();
    let begin = async || LockManager::builder().begin_quorum(&urls).await;
    nodes[1].kill();
    let gone = begin().await.unwrap_err();
    assert!(matches!(gone, LockError::Unavailable { .. }), "{gone:?}");
    nodes[1].restart().await;
    // Nobody has begun it.
    is_refused(&LockManager::connect_quorum(&urls).await.unwrap(), "a").await;
    for node in &nodes {
        node.flushall().await;
    }
    begin().await.unwrap();
    let locks = LockManager::connect_quorum(&urls).await.unwrap();
    drop(locks.lock("a").acquire_within(LIMIT).await.unwrap());
    nodes[2].flushall().await;
    let again = begin().await.unwrap_err();
    assert!(
        matches!(&again, LockError::InvalidConfig { reason } if reason.contains("already")),
        "{again:?}"
    );
    assert!(!nodes[2].exists("lock-core:quorum").await, "it has to wait");
}

/// A node that has voted may forget that, and asks the others for how long it has to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_votes_before_a_majority_knows_of_the_ttl() {
    let trio = Trio::start(Duration::from_secs(10)).await;
    trio.nodes[0].stop();
    trio.nodes[2].stop();
    let lock = trio.locks.lock("a").ttl(LONG);
    lock.try_acquire().await.unwrap_err();
    lock_tests::eventually("it knows of the ttl", LIMIT, async || {
        let known: Vec<String> = command(&trio.nodes[1], "HKEYS lock-core:quorum").await;
        let ttls = known.iter().filter_map(|field| field.parse().ok());
        ttls.max().map(Duration::from_millis) >= Some(LONG)
    })
    .await;
    assert_eq!(trio.proxy.count(is_vote), 0);
    trio.nodes[0].cont();
    trio.nodes[2].cont();
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_flushed_is_not_healed_before_it_votes_again() {
    let trio = Trio::start(Duration::from_secs(10)).await;
    let lock = trio.locks.lock("a").ttl(Duration::from_secs(3));
    let guard = lock.acquire().await.unwrap();
    // Else its vote, behind the loss, says that the node has to wait, and it is not even asked to heal.
    lock_tests::eventually("it has voted", LIMIT, async || {
        trio.nodes[1].get("lock:a").await.is_some()
    })
    .await;
    trio.nodes[1].flushall().await;
    let is_heal = |request: &Request| request.script() == Some("quorum heal");
    // The second is sent behind the answer to the first.
    trio.proxy.on_count(2, is_heal).await;
    assert_eq!(trio.nodes[1].get("lock:a").await, None);
    assert!(guard.is_held());
    guard.release().await.unwrap();
}
