//! Ways to the nodes: users, forwarded ports, nodes that name no host.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::{LockError, LockManager, LockManagerBuilder, Tls};
use lock_tests::kit::command;
use lock_tests::{
    Authority, BusPort, LIMIT, Proxy, ServerBinary, TestCluster, TestServer, TlsServer, eventually,
    rights,
};

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

/// A proxy for each node, and a client that reaches the nodes through them.
pub(super) async fn behind_proxies(
    cluster: &TestCluster,
    builder: LockManagerBuilder,
) -> (Vec<Proxy>, LockManager) {
    let nodes = cluster.nodes.iter();
    let proxies: Vec<_> = nodes.map(|node| Proxy::start(&node.server)).collect();
    let ports: HashMap<u16, u16> = cluster
        .nodes
        .iter()
        .zip(&proxies)
        .map(|(node, proxy)| (node.addr().port(), proxy.addr().port()))
        .collect();
    let builder = builder
        .cluster_addresses(move |host, port| (host.to_owned(), *ports.get(&port).unwrap_or(&1)));
    let url = format!("redis+cluster://{}", proxies[0].addr());
    let locks = builder.connect(&url).await.unwrap();
    (proxies, locks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_behind_forwarded_ports_are_reached_through_the_address_map() {
    let cluster = TestCluster::start(3).await;
    let (proxies, locks) = behind_proxies(&cluster, LockManager::builder()).await;
    works(&locks).await;
    for proxy in &proxies {
        assert!(proxy.connections() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_far_away_serve_within_the_default_deadline() {
    let cluster = TestCluster::start(3).await;
    let (proxies, locks) = behind_proxies(&cluster, LockManager::builder()).await;
    for proxy in &proxies {
        proxy.delay(Duration::from_millis(200));
    }
    for number in 0..6 {
        let lock = locks.lock(format!("key-{number}"));
        let guard = lock.try_acquire().await.unwrap().expect("it is free");
        guard.release().await.unwrap();
    }
}

/// How often the nodes were asked for the slots.
async fn asked_for_slots(cluster: &TestCluster) -> u64 {
    let mut asked = 0;
    for node in &cluster.nodes {
        let stats = node.server.commandstats().await;
        asked += stats.get("cluster|slots").copied().unwrap_or_default();
    }
    asked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_asks_for_the_slots_once_a_second_and_only_while_it_is_used() {
    let cluster = TestCluster::start(3).await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    let span = Duration::from_secs(3);
    let asked_in_span = async || {
        let before = asked_for_slots(&cluster).await;
        tokio::time::sleep(span).await;
        asked_for_slots(&cluster).await - before
    };
    assert_eq!(asked_in_span().await, 0);
    let guard = locks.lock("a").acquire().await.unwrap();
    let asked = asked_in_span().await;
    assert!((2..=5).contains(&asked), "{asked} in {span:?}");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_the_lock_without_the_message_and_after_a_lost_connection() {
    let cluster = TestCluster::start(3).await;
    let holder = LockManager::connect(&cluster.url()).await.unwrap();
    let (proxies, waiter) = behind_proxies(&cluster, LockManager::builder()).await;
    for breaks in [false, true] {
        let guard = holder.lock("a").acquire().await.unwrap();
        let lock = waiter.lock("a");
        let waiting = tokio::spawn(async move { lock.acquire_within(LIMIT).await });
        let observed = holder.lock("a");
        eventually("it is queued", LIMIT, async || {
            observed.inspect().await.unwrap().waiters() == 1
        })
        .await;
        for proxy in &proxies {
            proxy.drop_pushes(!breaks);
            if breaks {
                proxy.reset();
            }
        }
        guard.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        next.release().await.unwrap();
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
pub(super) async fn permit(cluster: &TestCluster, commands: &[&str], patterns: &str) {
    for node in &cluster.nodes {
        let rights = commands.join(" +");
        let set = format!(
            "ACL SETUSER app on >secret resetkeys resetchannels {patterns} -@all +{rights}"
        );
        let () = command(&node.server, &set).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_on_the_operators_page_are_enough_and_a_missing_one_is_named() {
    let cluster = TestCluster::start(2).await;
    let [exclusive, _, _, of_cluster, _] = rights();
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

    for missing in ["lindex", "asking", "cluster|slots"] {
        let mut others = commands.clone();
        others.retain(|command| *command != missing);
        permit(&cluster, &others, &exclusive.patterns).await;
        match LockManager::connect(&url).await {
            Err(LockError::InvalidConfig { reason }) => {
                assert!(
                    reason.contains(&format!("may not run {missing}, "))
                        && reason.contains(&format!("`ACL SETUSER app +{missing}`")),
                    "{reason}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Two masters that speak TLS to clients and to each other, and their URL.
async fn with_tls(authority: &Authority) -> (Vec<(TlsServer, BusPort)>, String) {
    let identity = authority.issue("localhost", false);
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let bus = BusPort::free();
        let builder = TestServer::builder()
            .arg("--cluster-enabled", "yes")
            .arg("--tls-cluster", "yes")
            .arg("--cluster-port", &bus.number().to_string())
            .arg("--cluster-announce-hostname", "localhost")
            .arg("--cluster-preferred-endpoint-type", "hostname");
        let node = TlsServer::start_with(builder, authority, &identity, false).await;
        nodes.push((node, bus));
    }
    let slots = ["0 8191", "8192 16383"];
    for ((number, (node, _)), slots) in nodes.iter().enumerate().zip(slots) {
        let plain = node.plain();
        let () = command(plain, &format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1)).await;
        let () = command(plain, &format!("CLUSTER ADDSLOTSRANGE {slots}")).await;
        let (first, bus) = (nodes[0].0.port(), nodes[0].1.number());
        let () = command(plain, &format!("CLUSTER MEET 127.0.0.1 {first} {bus}")).await;
    }
    for (node, _) in &nodes {
        eventually("the cluster is complete", LIMIT, async || {
            let info: String = command(node.plain(), "CLUSTER INFO").await;
            let slots: String = command(node.plain(), "CLUSTER NODES").await;
            info.contains("cluster_state:ok") && slots.matches(",localhost").count() == 2
        })
        .await;
    }
    let url = format!("rediss+cluster://{}", nodes[0].0.at("localhost"));
    (nodes, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_is_reached_over_tls_by_its_name() {
    let authority = Authority::new();
    let (nodes, url) = with_tls(&authority).await;
    let builder = LockManager::builder().tls(Tls::new().ca(authority.pem()));
    let locks = builder.connect(&url).await.unwrap();
    works(&locks).await;
    for (node, _) in &nodes {
        let stats = node.plain().commandstats().await;
        assert!(stats.contains_key("evalsha"), "{stats:?}");
    }
    let stranger = LockManager::builder().tls(Tls::new().ca(Authority::new().pem()));
    let refused = stranger.connect(&url).await;
    assert!(
        matches!(refused, Err(LockError::InvalidConfig { .. })),
        "{refused:?}"
    );
}
