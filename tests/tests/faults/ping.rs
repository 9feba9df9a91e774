//! `ping` tells whether locks can be granted (P11).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use lock_core::observe::{Event, Observer};
use lock_core::{LockError, LockManager};
use lock_tests::{LIMIT, TestCluster, TestServer, eventually};

use crate::support::{assert_unavailable, command, connect, in_time, ms, until_clean};

/// Proves P11.
#[tokio::test]
async fn a_ping_names_its_server_and_leaves_nothing() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let pong = locks.ping().await.unwrap();
    assert_eq!(pong.servers(), [server.addr().to_string()]);
    assert!(!pong.round_trip().is_zero());
    // Pings of one manager and of several, all at once.
    let other = LockManager::connect(&server.url()).await.unwrap();
    let pings = (0..40).map(|n| {
        if n % 2 == 0 {
            locks.ping()
        } else {
            other.ping()
        }
    });
    for pong in in_time("all", join_all(pings)).await {
        pong.unwrap();
    }
    until_clean(&server).await;
    locks.shutdown(LIMIT).await;
    let closed = locks.ping().await;
    assert!(matches!(closed, Err(LockError::ShutDown)), "{closed:?}");
}

/// Proves P11.
#[tokio::test]
async fn a_ping_is_no_call_and_no_hold_of_the_service() {
    #[derive(Default)]
    struct Calls(AtomicUsize);
    impl Observer for Calls {
        fn observe(&self, event: &Event<'_>) {
            if !matches!(event, Event::Outstanding { .. } | Event::Settled { .. }) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    let calls = Arc::new(Calls::default());
    let builder = LockManager::builder().observer(Arc::clone(&calls));
    let locks = builder.connect("memory://").await.unwrap();
    assert!(locks.ping().await.unwrap().servers().is_empty());
    assert_eq!(calls.0.load(Ordering::SeqCst), 0);
    drop(locks.lock("a").acquire().await.unwrap());
    assert_ne!(calls.0.load(Ordering::SeqCst), 0);
    assert_eq!(locks.shutdown(LIMIT).await, 0);
}

/// Proves P11.
#[tokio::test]
async fn a_server_that_grants_no_lock_does_not_answer_a_ping() {
    let server = TestServer::start().await;
    let locks = connect(&server.url(), ms(1000)).await;
    locks.ping().await.unwrap();
    let refusals = [
        ("config set min-replicas-to-write 1", "min-replicas"),
        ("config set maxmemory 1", "memory"),
        ("replicaof 127.0.0.1 1", "replica"),
    ];
    for (refusal, word) in refusals {
        command::<String>(&server, refusal).await;
        let error = in_time(refusal, locks.ping()).await.unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        for words in [
            "config set min-replicas-to-write 0",
            "config set maxmemory 0",
            "replicaof no one",
        ] {
            command::<String>(&server, words).await;
        }
        eventually("it answers again", LIMIT, async || {
            locks.ping().await.is_ok()
        })
        .await;
    }
    command::<i64>(&server, "rpush lock:lock-core-ping a").await;
    let foreign = locks.ping().await;
    assert!(
        matches!(foreign, Err(LockError::NotALock { .. })),
        "{foreign:?}"
    );
}

/// Proves P11.
#[tokio::test]
async fn a_ping_of_a_server_that_is_away_ends_with_unavailable_after() {
    let server = TestServer::start().await;
    let builder = LockManager::builder()
        .command_deadline(LIMIT * 4)
        .unavailable_after(ms(200));
    let locks = builder.connect(&server.url()).await.unwrap();
    server.stop();
    assert_unavailable(in_time("hangs", locks.ping()).await, "127.0.0.1");
    server.kill();
    assert_unavailable(in_time("killed", locks.ping()).await, "127.0.0.1");
    server.restart().await;
    eventually("it answers again", LIMIT, async || {
        locks.ping().await.is_ok()
    })
    .await;
}

/// Proves P11.
#[tokio::test]
async fn a_ping_of_a_cluster_needs_each_master() {
    let cluster = TestCluster::start(3).await;
    let locks = LockManager::builder()
        .command_deadline(ms(1000))
        .connect_lazily(&cluster.url())
        .unwrap();
    let pong = in_time("all masters", locks.ping()).await.unwrap();
    assert_eq!(pong.servers().len(), 3, "{pong:?}");
    let lost = &cluster.masters()[1];
    lost.server.kill();
    let error = in_time("one is away", locks.ping()).await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
}

/// Proves P11.
#[tokio::test]
async fn a_ping_of_a_quorum_needs_a_majority() {
    let nodes = join_all([(); 3].map(|()| TestServer::start())).await;
    let urls = nodes.iter().map(TestServer::url);
    let builder = LockManager::builder().command_deadline(ms(1000));
    builder.begin_quorum(urls.clone()).await.unwrap();
    let builder = LockManager::builder().command_deadline(ms(1000));
    let locks = builder.connect_quorum(urls).await.unwrap();
    let pong = in_time("all nodes", locks.ping()).await.unwrap();
    assert_eq!(pong.servers().len(), 3, "{pong:?}");
    nodes[0].kill();
    eventually("the others answer", LIMIT, async || {
        let pong = locks.ping().await;
        pong.is_ok_and(|pong| pong.servers().len() == 2)
    })
    .await;
    nodes[1].kill();
    let error = in_time("no majority", locks.ping()).await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
}
