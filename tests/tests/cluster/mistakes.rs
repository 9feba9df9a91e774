//! What can be wrong with a cluster, and the sentence for each.

use lock_core::{GuardedScript, LockError, LockManager};
use lock_tests::{TestCluster, TestServer};

async fn refused(url: &str) -> String {
    match LockManager::connect(url).await {
        Err(LockError::InvalidConfig { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_without_cluster_mode_is_named() {
    let server = TestServer::start().await;
    let at = server.addr();
    assert_eq!(
        refused(&format!("redis+cluster://{at}")).await,
        format!("the server at {at} is no node of a cluster: write `redis://{at}`")
    );
}

#[tokio::test]
async fn a_node_behind_a_plain_url_and_in_a_quorum_is_named() {
    let cluster = TestCluster::shared().await;
    let at = cluster.nodes[0].addr();
    let said = format!(
        "the server at {at} is a node of a cluster: write `redis+cluster://{at}`, and name other nodes as well"
    );
    assert_eq!(refused(&format!("redis://{at}")).await, said);
    let nodes: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| node.addr().to_string())
        .collect();
    let quorum = refused(&format!("redis+quorum://{}", nodes.join(","))).await;
    assert!(quorum.contains("is a node of a cluster"), "{quorum}");
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_is_unavailable_and_named() {
    let server = TestServer::start().await;
    let at = server.addr();
    server.kill();
    match LockManager::connect(&format!("redis+cluster://{at}")).await {
        Err(LockError::Unavailable { cause }) => {
            assert_eq!(cause.server(), Some(&*at.to_string()));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_guarded_script_runs_where_its_lock_is() {
    let cluster = TestCluster::shared().await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    let script = GuardedScript::new("return redis.call('INCR', KEYS[1])");
    for number in 0..6 {
        let guard = locks
            .lock(format!("{{stock-{number}}}:7"))
            .acquire()
            .await
            .unwrap();
        let sold = guard
            .guarded(&script)
            .key(format!("{{stock-{number}}}:sold"));
        assert_eq!(sold.run::<u64>().await.unwrap(), 1);
        let elsewhere = guard.guarded(&script).key("sold").run::<u64>().await;
        assert!(
            matches!(elsewhere, Err(LockError::InvalidKey { .. })),
            "{elsewhere:?}"
        );
        guard.release().await.unwrap();
    }
}
