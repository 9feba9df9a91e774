//! What a user of the nodes must be allowed: what the page for operators names.

use std::time::Duration;

use lock_core::{LockManager, LossReason};
use lock_tests::{AclServer, eventually, rights};
use tokio::time::timeout;

use super::rig::LIMIT;

const PATTERNS: &str = "~lock:* ~lock-core:* &lock-core:*";

/// The commands that the page names for a lock on one master, and for a quorum.
fn named() -> Vec<&'static str> {
    let [mut master, _, quorum, ..] = rights();
    master.commands.extend(quorum.commands);
    master.commands
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_works_with_the_rights_that_the_page_names() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        let mut server = AclServer::start(PATTERNS).await;
        server.allow(named()).await;
        servers.push(server);
    }
    let urls: Vec<_> = servers.iter().map(AclServer::url).collect();
    let builder = LockManager::builder().command_deadline(LIMIT);
    builder.begin_quorum(&urls).await.unwrap();
    let connect = async || {
        let builder = LockManager::builder().command_deadline(LIMIT);
        let locks = builder.connect_quorum(&urls).await;
        locks.unwrap()
    };
    let (one, other) = (connect().await, connect().await);
    let ttl = Duration::from_millis(900);
    let guard = one.lock("a").ttl(ttl).acquire().await.unwrap();
    assert!(other.lock("a").try_acquire().await.unwrap().is_none());
    assert!(
        timeout(ttl * 2, guard.lost()).await.is_err(),
        "it is renewed"
    );
    let waiting = tokio::spawn({
        let lock = other.lock("a");
        async move { lock.acquire_within(LIMIT).await.unwrap() }
    });
    eventually("it waits", LIMIT, async || {
        one.lock("a").inspect().await.unwrap().waiters() == 1
    })
    .await;
    guard.release().await.unwrap();
    let next = waiting.await.unwrap();
    assert!(one.lock("a").force_release().await.unwrap());
    let reason = timeout(LIMIT, next.lost()).await.expect("told");
    assert_eq!(reason, LossReason::ForceReleased);
    let list = ["RPUSH", "lock:foreign", "x"];
    for server in &mut servers {
        server.admin(&list).await;
    }
    let foreign = one.lock("foreign").try_acquire().await;
    assert!(matches!(
        foreign,
        Err(lock_core::LockError::NotALock { .. })
    ));
}
