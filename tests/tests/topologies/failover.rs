//! The hole that no lock on one master with replicas can close: the master dies before a replica has the lock.

use std::time::Duration;

use lock_core::LockManager;
use lock_tests::kit::command;
use lock_tests::{LIMIT, TestServer, eventually};

async fn replicates(replica: &TestServer, master: &TestServer) {
    let port = master.port();
    let () = command(replica, &format!("REPLICAOF 127.0.0.1 {port}")).await;
    eventually("the replica is in step", LIMIT, async || {
        let info: String = command(replica, "INFO replication").await;
        info.contains("master_link_status:up")
    })
    .await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreplicated_lock_has_two_believers_whose_tokens_tell_them_apart() {
    let (master, replica) = (TestServer::start().await, TestServer::start().await);
    replicates(&replica, &master).await;
    let first = LockManager::connect(&master.url()).await.unwrap();
    // A first tenure reaches the replica, the counter with it.
    let guard = first.lock("job").acquire().await.unwrap();
    let earlier = guard.fencing_token();
    eventually("replicated", LIMIT, async || {
        replica.exists("lock:job").await
    })
    .await;
    guard.release().await.unwrap();
    eventually("replicated", LIMIT, async || {
        !replica.exists("lock:job").await
    })
    .await;

    // The link is cut, and the next one is granted by the master alone.
    let () = command(&replica, "REPLICAOF NO ONE").await;
    let lock = first.lock("job").ttl(Duration::from_secs(60));
    let old = lock.acquire().await.unwrap();
    master.kill();

    let second = LockManager::connect(&replica.url()).await.unwrap();
    let new = second
        .lock("job")
        .try_acquire()
        .await
        .unwrap()
        .expect("it never heard of it");
    assert!(old.is_held() && new.is_held(), "two believers");
    assert!(earlier < old.fencing_token());
    assert!(
        old.fencing_token() < new.fencing_token(),
        "a resource that has seen the new one refuses the old one"
    );
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_has_one_believer_whichever_master_dies() {
    for dies in 0..3 {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(TestServer::start().await);
        }
        let urls: Vec<_> = nodes.iter().map(TestServer::url).collect();
        LockManager::builder().begin_quorum(&urls).await.unwrap();
        let first = LockManager::connect_quorum(&urls).await.unwrap();
        let second = LockManager::connect_quorum(&urls).await.unwrap();
        let guard = first.lock("job").acquire().await.unwrap();
        nodes[dies].kill();
        assert!(second.lock("job").try_acquire().await.unwrap().is_none());
        assert!(guard.is_held());
        guard.release().await.unwrap();
        let next = second.lock("job").acquire_within(LIMIT).await.unwrap();
        next.release().await.unwrap();
    }
}
