//! Ways to two holders that an attack has found: one server restarts, moves or is looked at in vain at the wrong moment.

use std::time::{Duration, Instant};

use lock_core::{LockGuard, LockManager};
use lock_tests::kit::command;
use lock_tests::{Proxy, TestServer, eventually};

use super::forgets::{bare_majority, is_refused, wakes_up};
use super::rig::{LIMIT, Quorum, Trio, WAIT, behind, counter_of};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Tries until the lock is granted, and requires that no other holder believes in it then.
async fn take_after(lock: &lock_core::Lock, holder: &LockGuard) -> LockGuard {
    loop {
        if let Ok(Some(guard)) = lock.try_acquire().await {
            assert!(!(guard.is_held() && holder.is_held()), "two believers");
            return guard;
        }
        tokio::time::sleep(MS * 5).await;
    }
}

async fn within<T>(act: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, act).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_waits_longer_than_any_program_needs_it() {
    let quorum = Quorum::start_with(3, SECOND * 6).await;
    let short = async || {
        let locks = quorum.manager_with(|builder| builder.default_ttl(MS * 50));
        locks.await
    };
    let (holder, rival) = (quorum.manager().await, short().await);
    for _ in 0..10 {
        drop(rival.lock("used").acquire().await.unwrap());
    }
    let guard = bare_majority(&quorum, &holder, SECOND * 3).await;
    quorum.nodes[1].restart().await;
    wakes_up(&quorum).await;
    for rival in [rival, short().await] {
        let second = within(take_after(&rival.lock("a"), &guard)).await;
        second.release().await.unwrap();
    }
    assert!(!guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_during_a_wait_begins_another_one() {
    let quorum = Quorum::start_with(3, SECOND * 4).await;
    let locks = quorum.manager().await;
    quorum.nodes[2].kill();
    quorum.nodes[1].restart().await;
    let began = Instant::now();
    let lock = locks.lock("a").ttl(SECOND);
    while began.elapsed() < quorum.wait / 2 {
        assert!(lock.try_acquire().await.is_err());
    }
    let _: redis::Value = command(&quorum.nodes[1], "SAVE").await;
    let began = Instant::now();
    quorum.nodes[1].restart().await;
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(began.elapsed() >= quorum.wait, "{:?}", began.elapsed());
}

/// The holder has the votes of the first two nodes. The second is cut off, so that its vote is not renewed and ends. Then the first
/// restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_only_renews_with_a_node_cut_off_is_alone_after_a_restart() {
    let quorum = Quorum::start_with(3, SECOND * 6).await;
    let nodes = &quorum.nodes;
    let proxy = Proxy::start(&nodes[1]);
    let urls = Trio::urls(nodes, &proxy);
    let holder = quorum.builder().connect_quorum(urls).await.unwrap();
    let rival = quorum.manager().await;
    let lock = holder.lock("a").ttl(SECOND);
    let guard = lock.acquire().await.unwrap();
    quorum.voted("a", &[0, 1, 2]).await;
    proxy.refuse(true);
    proxy.reset();
    // Several ttls later, only the renewals of the others have kept the lock.
    eventually("the vote has ended", LIMIT, async || {
        !nodes[1].exists("lock:a").await
    })
    .await;
    assert!(guard.is_held());
    nodes[0].restart().await;
    let _second = within(take_after(&rival.lock("a"), &guard)).await;
}

/// An old connection goes on to the former server, while the address leads to another one. Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_lock_is_lost_before_a_server_at_a_moved_address_votes() {
    let (quorum, standby) = (
        Quorum::start_with(3, SECOND * 4).await,
        TestServer::start().await,
    );
    let nodes = &quorum.nodes;
    let (old, new) = (Proxy::start(&nodes[1]), Proxy::to(standby.addr()));
    let holder = quorum.builder();
    let holder = holder
        .connect_quorum(Trio::urls(nodes, &old))
        .await
        .unwrap();
    let guard = holder.lock("a").ttl(SECOND).acquire().await.unwrap();
    quorum.voted("a", &[0, 1, 2]).await;
    // The holder has the first node and the former server of the second.
    nodes[2].restart().await;
    // It finds nothing out: new connections are refused, and the old one answers.
    old.refuse(true);
    let rival = quorum.builder();
    let rival = rival.connect_quorum(Trio::urls(nodes, &new)).await.unwrap();
    let _second = within(take_after(&rival.lock("a"), &guard)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_does_not_vote_while_its_address_cannot_be_looked_at() {
    let quorum = Quorum::start_with(3, SECOND * 4).await;
    let proxy = Proxy::start(&quorum.nodes[1]);
    let locks = quorum.builder().command_deadline(SECOND);
    let urls = Trio::urls(&quorum.nodes, &proxy);
    let locks = locks.connect_quorum(urls).await.unwrap();
    let lock = locks.lock("a").ttl(SECOND);
    let take = async || lock.try_acquire().await.map(|guard| guard.is_some());
    assert!(take().await.unwrap());
    quorum.nodes[2].kill();
    for slow in [false, true] {
        eventually("it votes", LIMIT, async || take().await.is_ok()).await;
        // Every new connection is refused, or its requests are never answered; the old one answers.
        if slow {
            proxy.retarget(silent().await);
        } else {
            proxy.refuse(true);
        }
        let began = Instant::now();
        eventually("it votes no more", LIMIT, async || take().await.is_err()).await;
        assert!(began.elapsed() < quorum.wait, "{:?}", began.elapsed());
        proxy.refuse(false);
        proxy.retarget(quorum.nodes[1].addr());
    }
    eventually("it votes again", LIMIT, async || take().await.is_ok()).await;
}

/// An address that accepts connections, and answers nothing.
async fn silent() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            open.push(socket);
        }
    });
    at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_that_lost_all_its_data_waits_for_a_newcomer_with_short_locks() {
    let quorum = Quorum::start_with(3, SECOND * 4).await;
    let locks = quorum.manager().await;
    let guard = locks.lock("a").renew(false).acquire().await.unwrap();
    let began = Instant::now();
    for node in &quorum.nodes {
        node.flushall().await;
    }
    let newcomer = quorum.manager_with(|builder| builder.default_ttl(MS * 50));
    let lock = newcomer.await.lock("a");
    let _second = within(take_after(&lock, &guard)).await;
    assert!(began.elapsed() >= quorum.wait, "{:?}", began.elapsed());
}

/// Only the silent node knows the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_with_a_shorter_wait_begins_nothing_while_a_node_is_silent() {
    let quorum = Quorum::start(3).await;
    for node in &quorum.nodes[..2] {
        node.flushall().await;
    }
    quorum.nodes[2].stop();
    let other = || {
        let builder = LockManager::builder().default_ttl(SECOND / 2);
        builder.quorum_wait(SECOND * 2)
    };
    assert!(other().connect_quorum(quorum.urls()).await.is_err());
    for node in &quorum.nodes[..2] {
        assert!(!node.exists("lock-core:quorum").await);
    }
    quorum.nodes[2].cont();
    let refused = other().connect_quorum(quorum.urls()).await.unwrap_err();
    assert!(refused.to_string().contains("quorum_wait"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_a_replica_meanwhile_does_not_vote() {
    // The data that it takes over are those of a node that votes, of another quorum.
    let (quorum, other) = (Quorum::start(3).await, Quorum::start(3).await);
    let (locks, rival) = (quorum.manager().await, quorum.manager().await);
    let guard = bare_majority(&quorum, &locks, SECOND * 60).await;
    let node = &quorum.nodes[1];
    replicate(node, &other.nodes[0]).await;
    let () = command(node, "REPLICAOF NO ONE").await;
    wakes_up(&quorum).await;
    is_refused(&rival, "a").await;
    is_refused(&quorum.manager().await, "a").await;
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_counter_was_deleted_has_lost_data_and_waits() {
    let quorum = Quorum::start(3).await;
    let (locks, rival) = (quorum.manager().await, quorum.manager().await);
    let guard = bare_majority(&quorum, &locks, SECOND * 60).await;
    let node = &quorum.nodes[1];
    let counter = counter_of(node).await;
    let _: u64 = command(node, &format!("DEL lock:a {counter}")).await;
    wakes_up(&quorum).await;
    is_refused(&rival, "a").await;
    is_refused(&quorum.manager().await, "a").await;
    assert!(guard.is_held());
}

/// The replica has the note and the counter of the node, and an old state of its votes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_behind_the_address_of_a_node_does_not_vote() {
    let (quorum, replica) = (Quorum::start(3).await, TestServer::start().await);
    let proxy = Proxy::start(&quorum.nodes[1]);
    let urls = Trio::urls(&quorum.nodes, &proxy);
    let locks = quorum.manager().await;
    replicate(&replica, &quorum.nodes[1]).await;
    let () = command(&replica, "REPLICAOF NO ONE").await;
    assert!(replica.exists(&counter_of(&replica).await).await);
    let guard = bare_majority(&quorum, &locks, SECOND * 60).await;
    proxy.retarget(replica.addr());
    wakes_up(&quorum).await;
    let rival = quorum.builder().connect_quorum(urls).await.unwrap();
    is_refused(&rival, "a").await;
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_node_costs_no_vote() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let builder = TestServer::builder().arg("--repl-backlog-ttl", "1");
        nodes.push(builder.start().await);
    }
    let (quorum, backup) = (Quorum::of(nodes).await, TestServer::start().await);
    let node = &quorum.nodes[1];
    let replication = async || -> String { command(node, "INFO replication").await };
    let id = |info: &str| {
        let line = info.lines().find(|line| line.starts_with("master_replid:"));
        line.unwrap().to_owned()
    };
    let before = id(&replication().await);
    replicate(&backup, node).await;
    drop(backup);
    eventually("it replicates under another name", LIMIT, async || {
        id(&replication().await) != before
    })
    .await;
    quorum.nodes[2].kill();
    let locks = quorum.manager().await;
    let guard = locks.lock("a").acquire_within(LIMIT).await.unwrap();
    guard.release().await.unwrap();
}

async fn replicate(replica: &TestServer, master: &TestServer) {
    let port = master.port();
    let () = command(replica, &format!("REPLICAOF 127.0.0.1 {port}")).await;
    eventually("it has the data of its master", LIMIT, async || {
        let info: String = command(replica, "INFO replication").await;
        info.contains("master_link_status:up")
    })
    .await;
}

/// What a look has seen may be long ago when its answer comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_counts_from_its_beginning() {
    let quorum = Quorum::start_with(3, SECOND * 8).await;
    let proxy = Proxy::start(&quorum.nodes[1]);
    let locks = quorum.builder().command_deadline(LIMIT);
    let urls = Trio::urls(&quorum.nodes, &proxy);
    let locks = locks.connect_quorum(urls).await.unwrap();
    let lock = locks.lock("a").ttl(SECOND);
    let take = async || {
        let limited = tokio::time::timeout(SECOND, lock.try_acquire()).await;
        matches!(limited, Ok(Ok(Some(_))))
    };
    eventually("it votes", LIMIT, async || take().await).await;
    quorum.nodes[2].kill();
    let held = proxy.hold_next_request_matching(|request| request.has("INFO"));
    eventually("it is looked at", LIMIT, async || {
        take().await;
        tokio::time::timeout(MS, held.wait()).await.is_ok()
    })
    .await;
    let began = Instant::now();
    // From now on no other look is possible.
    proxy.refuse(true);
    while began.elapsed() < quorum.wait / 2 {
        take().await;
    }
    held.deliver();
    let end = Instant::now() + SECOND;
    while Instant::now() < end {
        assert!(!take().await, "the address was seen half a wait ago");
    }
    proxy.refuse(false);
    eventually("it votes again", LIMIT, async || take().await).await;
}

/// The replica has an old state of the votes, and the node takes it over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_took_over_its_own_old_data_does_not_vote_for_a_newcomer() {
    let (quorum, backup) = (Quorum::start(3).await, TestServer::start().await);
    let node = &quorum.nodes[1];
    replicate(&backup, node).await;
    let () = command(&backup, "REPLICAOF NO ONE").await;
    // A holder with a bare majority, which does not look at its nodes.
    for node in &quorum.nodes[..2] {
        Trio::give_to_another(node).await;
    }
    replicate(node, &backup).await;
    let () = command(node, "REPLICAOF NO ONE").await;
    assert!(node.exists(&counter_of(node).await).await);
    assert_eq!(quorum.votes("a", &[0, 1, 2]).await, [0]);
    is_refused(&quorum.manager().await, "a").await;
}

/// Each program looks on new connections, which show it the other server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_were_exchanged_are_not_used() {
    let quorum = Quorum::start_with(3, SECOND * 4).await;
    let nodes = &quorum.nodes;
    let proxies = [Proxy::start(&nodes[0]), Proxy::start(&nodes[1])];
    let urls = [
        behind(&proxies[0], &nodes[0]),
        behind(&proxies[1], &nodes[1]),
        nodes[2].url(),
    ];
    let locks = quorum.builder().connect_quorum(&urls).await.unwrap();
    drop(locks.lock("a").acquire().await.unwrap());
    proxies[0].retarget(nodes[1].addr());
    proxies[1].retarget(nodes[0].addr());
    eventually("it says so", LIMIT, async || {
        let tried = locks.lock("a").ttl(SECOND).try_acquire().await;
        tried.is_err_and(|error| error.to_string().contains("were exchanged"))
    })
    .await;
    assert!(quorum.builder().connect_quorum(&urls).await.is_err());
}

/// The node has forgotten its counter, and its clock is behind the counters of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_counts_on_above_what_the_programs_have_seen_on_other_nodes() {
    const AHEAD: &str = "8000000000000000";
    let quorum = Quorum::start_with(3, SECOND * 3).await;
    let locks = quorum.manager().await;
    let token = async |locks: &LockManager| {
        let guard = locks.lock("a").acquire_within(LIMIT).await.unwrap();
        let token = guard.fencing_token().get();
        guard.release().await.unwrap();
        token
    };
    token(&locks).await;
    let set = async |node: &TestServer| {
        let counter = counter_of(node).await;
        let () = command(node, &format!("SET {counter} {AHEAD}")).await;
    };
    set(&quorum.nodes[0]).await;
    quorum.nodes[2].kill();
    // The counter of the second node is raised.
    let before = token(&locks).await;
    quorum.nodes[1].restart().await;
    // A newcomer reads the counter of the first node.
    let newcomer = quorum.manager().await;
    newcomer.lock("b").try_acquire().await.unwrap_err();
    quorum.nodes[0].kill();
    quorum.nodes[2].restart().await;
    let after = token(&newcomer).await;
    assert!(after > before, "{after} after {before}");
}

/// A clock that is ahead for a while would leave a counter that every later token has to follow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_does_not_follow_the_clock() {
    let quorum = Quorum::start(3).await;
    let node = &quorum.nodes[0];
    let counter = counter_of(node).await;
    let () = command(node, &format!("SET {counter} 1500000000000000")).await;
    drop(quorum.manager().await);
    let _vetted = quorum.manager().await;
    let now: u64 = command(node, &format!("GET {counter}")).await;
    assert_eq!(now, 1_500_000_000_000_000);
    assert!(quorum.wait == WAIT);
}
