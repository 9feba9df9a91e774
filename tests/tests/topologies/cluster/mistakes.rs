//! What can be wrong with a cluster, and the sentence for each.

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{GuardedScript, LockError, LockManager};
use lock_tests::kit::{command, try_command};
use lock_tests::{LIMIT, TestCluster, TestServer};

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

/// Proves P1.
#[tokio::test]
async fn a_url_with_nodes_of_two_clusters_is_refused_and_both_are_named() {
    let (one, other) = (TestCluster::shared().await, TestCluster::start(2).await);
    let (one, other) = (one.nodes[0].addr(), other.nodes[1].addr());
    let said = refused(&format!("redis+cluster://{one},{other}")).await;
    for at in [one, other] {
        assert!(said.contains(&at.to_string()), "{said}");
    }
    assert!(said.contains("are of different clusters"), "{said}");
}

/// Takes the spare node out of this cluster, and gives it to the other one.
async fn give_away(cluster: &TestCluster, to: &TestCluster) {
    let spare = cluster.nodes.last().unwrap();
    let () = command(&spare.server, "CLUSTER RESET SOFT").await;
    for node in cluster.masters() {
        let () = command(&node.server, &format!("CLUSTER FORGET {}", spare.id)).await;
    }
    to.meet(spare).await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_the_url_that_was_given_to_another_cluster_is_not_believed() {
    let cluster = TestCluster::start_with_spare(2).await;
    let other = TestCluster::start(2).await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    give_away(&cluster, &other).await;
    // All other nodes are out of reach, and what was connected is not any more.
    for node in cluster.masters() {
        node.server.client_kill_all().await;
        node.server.stop();
    }
    for key in ["a", "b", "c"] {
        let tried = locks.lock(key).try_acquire().await;
        assert!(
            matches!(tried, Err(LockError::Unavailable { .. })),
            "{tried:?}"
        );
    }
    for node in cluster.masters() {
        node.server.cont();
    }
    let guard = locks.lock("a").acquire_within(LIMIT).await.unwrap();
    let home = cluster.master_of(cluster.slot_of("lock:a").await);
    assert!(cluster.nodes[home].server.exists("lock:a").await);
    guard.release().await.unwrap();
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_disagree_about_a_slot_are_not_stormed() {
    let cluster = TestCluster::start(2).await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    let slot = cluster.slot_of("lock:a").await;
    let home = cluster.master_of(slot);
    let disagree = format!("CLUSTER SETSLOT {slot} NODE {}", cluster.nodes[1 - home].id);
    let () = command(&cluster.nodes[home].server, &disagree).await;
    for node in &cluster.nodes {
        let moved = try_command::<i64>(&node.server, "EXISTS lock:a").await;
        let said = moved.unwrap_err().to_string();
        assert!(said.contains("Moved"), "{said}");
        node.server.reset_stats().await;
    }
    let limit = Duration::from_secs(3);
    let tried = locks.lock("a").acquire_within(limit).await;
    assert!(
        matches!(tried, Err(LockError::Unavailable { .. })),
        "{tried:?}"
    );
    let rejected = rejected_by(&cluster).await;
    assert!(rejected < 60, "{rejected} in {limit:?}");
    // The same for all locks of the slot together, however many there are.
    let before = rejected;
    let crowd = (0..100).map(|n| locks.lock(format!("{{lock:a}}{n}")));
    let crowd = crowd.map(|lock| async move { lock.acquire_within(limit).await });
    for tried in join_all(crowd).await {
        assert!(
            matches!(tried, Err(LockError::Unavailable { .. })),
            "{tried:?}"
        );
    }
    let rejected = rejected_by(&cluster).await - before;
    assert!(rejected < 60, "{rejected} of a hundred locks in {limit:?}");
    // The slot is settled.
    let node = &cluster.nodes[1 - home];
    let agree = format!("CLUSTER SETSLOT {slot} NODE {}", node.id);
    let () = command(&node.server, &agree).await;
    let guard = locks.lock("a").acquire_within(LIMIT).await.unwrap();
    guard.release().await.unwrap();
}

/// The number of requests that the nodes have sent elsewhere.
async fn rejected_by(cluster: &TestCluster) -> u32 {
    let mut rejected = 0;
    for node in &cluster.nodes {
        let errors: String = command(&node.server, "INFO errorstats").await;
        let moved = errors
            .lines()
            .find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
        rejected += moved.map_or(0, |count| count.trim().parse::<u32>().unwrap());
    }
    rejected
}

#[tokio::test]
async fn an_error_that_a_script_raises_is_its_own_whatever_it_says() {
    let cluster = TestCluster::shared().await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    let guard = locks.lock("{raises}:1").acquire().await.unwrap();
    let words = [
        "TRYAGAIN later",
        "CLUSTERDOWN now",
        "MASTERDOWN as well",
        "MOVED 1 127.0.0.1:1",
        "ASK 1 127.0.0.1:1",
        "NOSCRIPT here",
    ];
    for said in words {
        let text = format!("redis.call('INCR', KEYS[1]); error({{err = '{said}'}})");
        let script = GuardedScript::new(&text);
        let key = format!("{{raises}}:{}", &said[..4].trim());
        let failed = guard.guarded(&script).key(&key).run::<()>().await;
        assert!(
            matches!(failed, Err(LockError::Script { .. })),
            "{failed:?}"
        );
        let home = cluster.master_of(cluster.slot_of(&key).await);
        let ran = cluster.nodes[home].server.get(&key).await;
        assert_eq!(ran.as_deref(), Some("1"), "{said}");
    }
    guard.release().await.unwrap();
}
