//! Ways to the nodes: users, forwarded ports, nodes that name no host.

use std::collections::HashMap;

use lock_core::{LockError, LockManager};
use lock_tests::kit::command;
use lock_tests::{LIMIT, Proxy, ServerBinary, TestCluster, eventually, rights};

/// Takes and releases locks on every master.
async fn works(locks: &LockManager) {
    for number in 0..12 {
        let lock = locks.lock(format!("key-{number}"));
        let guard = lock.acquire_within(LIMIT).await.unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_is_reached_with_the_user_and_the_password_of_the_url() {
    let cluster = TestCluster::start(2).await;
    for node in &cluster.nodes {
        let () = command(&node.server, "ACL SETUSER locks on >secret ~* &* +@all").await;
    }
    let at = cluster.nodes[0].addr();
    let locks = LockManager::connect(&format!("redis+cluster://locks:secret@{at}"))
        .await
        .unwrap();
    works(&locks).await;
    for node in &cluster.nodes {
        let clients: String = command(&node.server, "CLIENT LIST").await;
        assert!(clients.contains("user=locks"), "{clients}");
    }
    let refused = LockManager::connect(&format!("redis+cluster://locks:wrong@{at}")).await;
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("check the user and the password in the URL"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_behind_forwarded_ports_are_reached_through_the_address_map() {
    let cluster = TestCluster::start(3).await;
    let proxies: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| Proxy::start(&node.server))
        .collect();
    let ports: HashMap<u16, u16> = cluster
        .nodes
        .iter()
        .zip(&proxies)
        .map(|(node, proxy)| (node.addr().port(), proxy.addr().port()))
        .collect();
    let builder = LockManager::builder()
        .cluster_addresses(move |host, port| (host.to_owned(), *ports.get(&port).unwrap_or(&1)));
    let url = format!("redis+cluster://{}", proxies[0].addr());
    let locks = builder.connect(&url).await.unwrap();
    works(&locks).await;
    for proxy in &proxies {
        assert!(proxy.connections() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_name_no_host_are_on_the_host_that_was_asked() {
    let options = [("--cluster-preferred-endpoint-type", "unknown-endpoint")];
    let cluster = TestCluster::start_with(&ServerBinary::find(), 2, 0, &options).await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    works(&locks).await;
    let slot = cluster.slot_of("lock:key-1").await;
    let from = cluster.master_of(slot);
    cluster.move_slot(slot, from, 1 - from).await;
    works(&locks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_reached_by_their_names() {
    let options = [
        ("--cluster-preferred-endpoint-type", "hostname"),
        ("--cluster-announce-hostname", "localhost"),
    ];
    let cluster = TestCluster::start_with(&ServerBinary::find(), 2, 0, &options).await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    works(&locks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_locks_of_all_masters_are_listed() {
    let cluster = TestCluster::shared().await;
    let builder = LockManager::builder().prefix("listed:");
    let locks = builder.connect(&cluster.url()).await.unwrap();
    let mut held = Vec::new();
    for number in 0..12 {
        held.push(locks.lock(format!("key-{number}")).acquire().await.unwrap());
    }
    let (mut list, mut listed) = (locks.list(), Vec::new());
    while let Some(page) = list.next_page().await.unwrap() {
        listed.extend(page.into_iter().map(|lock| lock.key().to_owned()));
    }
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), held.len(), "{listed:?}");
    for guard in held {
        guard.release().await.unwrap();
    }
}

/// Gives a user these rights on each node.
async fn permit(cluster: &TestCluster, commands: &[&str], patterns: &str) {
    for node in &cluster.nodes {
        let rights = commands.join(" +");
        let set = format!(
            "ACL SETUSER app on >secret resetkeys resetchannels {patterns} -@all +{rights}"
        );
        let () = command(&node.server, &set).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_on_the_page_for_operators_are_enough_and_a_missing_one_is_named() {
    let cluster = TestCluster::start(2).await;
    let [exclusive, _, _, of_cluster] = rights();
    let mut commands = exclusive.commands.clone();
    commands.extend(of_cluster.commands);
    let url = format!("redis+cluster://app:secret@{}", cluster.nodes[0].addr());
    permit(&cluster, &commands, &exclusive.patterns).await;
    let (one, other) = (
        LockManager::connect(&url).await.unwrap(),
        LockManager::connect(&url).await.unwrap(),
    );
    works(&one).await;
    let guard = one.lock("a").acquire().await.unwrap();
    let lock = other.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire_within(LIMIT).await });
    let observed = one.lock("a");
    eventually("it is queued", LIMIT, async || {
        observed.inspect().await.unwrap().waiters() == 1
    })
    .await;
    let slot = cluster.slot_of("lock:a").await;
    let from = cluster.master_of(slot);
    cluster.move_slot(slot, from, 1 - from).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();

    commands.retain(|command| *command != "lindex");
    permit(&cluster, &commands, &exclusive.patterns).await;
    match LockManager::connect(&url).await {
        Err(LockError::InvalidConfig { reason }) => {
            assert!(reason.contains("may not run lindex"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}
