//! A program that starts before its server: `connect_lazily`.

use std::time::Duration;

use lock_core::{LockError, LockManager, LockManagerBuilder};
use lock_tests::{AclServer, LIMIT, Sentinel, TestCluster, TestServer};

fn builder() -> LockManagerBuilder {
    LockManager::builder().command_deadline(Duration::from_secs(2))
}

fn lazily(url: &str) -> LockManager {
    builder().connect_lazily(url).unwrap()
}

/// Acquires and releases, after a wait for the server.
async fn works(locks: &LockManager) {
    let guard = locks.lock("a").acquire_within(LIMIT).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_call_waits_for_a_server_that_comes_later() {
    let server = TestServer::start().await;
    server.kill();
    let locks = lazily(&server.url());
    let refused = locks.lock("a").try_acquire().await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })));
    let short = Duration::from_millis(50);
    let refused = locks.lock("a").acquire_within(short).await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })));
    tokio::join!(works(&locks), server.restart());
}

#[tokio::test]
async fn each_kind_of_server_is_connected_to_by_the_first_call() {
    let server = TestServer::start().await;
    works(&lazily(&server.url())).await;
    let sentinel = Sentinel::start("mymaster", server.addr()).await;
    works(&lazily(&format!(
        "redis+sentinel://{}/mymaster",
        sentinel.addr()
    )))
    .await;
    let cluster = TestCluster::start(3).await;
    works(&lazily(&cluster.url())).await;
    let nodes = [
        TestServer::start().await,
        TestServer::start().await,
        TestServer::start().await,
    ];
    let urls: Vec<String> = nodes.iter().map(TestServer::url).collect();
    builder().begin_quorum(&urls).await.unwrap();
    let addresses: Vec<String> = nodes.iter().map(|node| node.addr().to_string()).collect();
    works(&lazily(&format!("redis+quorum://{}", addresses.join(",")))).await;
}

#[tokio::test]
async fn the_first_call_has_the_error_that_connect_has() {
    let server = TestServer::start().await;
    let sentinel = Sentinel::start("mymaster", server.addr()).await;
    let mut acl = AclServer::start("~lock:* ~lock-core:* &lock-core:*").await;
    acl.allow(["eval", "evalsha", "hello", "get"]).await;
    for url in [
        format!("redis://{}", sentinel.addr()),
        format!("redis+sentinel://{}/other", sentinel.addr()),
        format!("redis://stranger:wrong@{}", server.addr()),
        acl.url(),
    ] {
        let at_start = builder().connect(&url).await.unwrap_err();
        let locks = lazily(&url);
        for _ in 0..2 {
            let later = locks.lock("a").acquire_within(LIMIT).await.unwrap_err();
            assert_eq!(later.to_string(), at_start.to_string());
        }
    }
}

#[test]
fn a_url_that_cannot_work_and_a_missing_runtime_are_refused_at_once() {
    for url in ["localhost", "redis://127.0.0.1:1"] {
        let refused = builder().connect_lazily(url);
        assert!(matches!(refused, Err(LockError::InvalidConfig { .. })));
    }
}

/// A release that the server will refuse as the acquire is not repeated.
#[tokio::test]
async fn a_login_that_is_refused_does_not_delay_the_end() {
    let server = TestServer::start().await;
    let url = format!("redis://stranger:wrong@{}", server.addr());
    let long = Duration::from_secs(3600);
    let locks = builder().default_ttl(long).connect_lazily(&url).unwrap();
    let refused = locks.lock("a").acquire().await.map(drop);
    assert!(matches!(refused, Err(LockError::InvalidConfig { .. })));
    let refused = locks.reentrant_lock("r").try_acquire().await.map(drop);
    assert!(matches!(refused, Err(LockError::InvalidConfig { .. })));
    let ended = tokio::time::timeout(LIMIT, locks.shutdown(long)).await;
    assert_eq!(ended.expect("at once"), 0);
}
