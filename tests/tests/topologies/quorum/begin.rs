//! The beginning of a quorum, by its operator and by the programs that find it.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::{LockError, LockManager, NodeVote};
use lock_tests::kit::command;
use lock_tests::{Proxy, Request, TestServer, eventually};
use tokio::time::timeout;

use super::forgets::is_refused;
use super::rig::{LIMIT, Quorum, WAIT, behind, counter_of};

impl Quorum {
    async fn begin_again(&self) -> Result<(), LockError> {
        self.builder().begin_quorum(self.urls()).await
    }

    pub(super) async fn begin_anew(&self) {
        let begin = self.builder().begin_quorum(self.urls()).anew();
        begin.await.unwrap();
    }

    /// A lock is granted now, with the votes of all nodes.
    async fn votes_now(&self) {
        let locks = self.manager().await;
        // A node that was not ready in time votes with the first renewal.
        let lock = locks.lock("a").ttl(Duration::from_secs(3));
        let guard = lock.acquire_within(LIMIT).await.unwrap();
        self.voted("a", &[0, 1, 2]).await;
        guard.release().await.unwrap();
    }
}

fn says(outcome: Result<impl std::fmt::Debug, LockError>, what: &str) {
    match outcome {
        Err(LockError::InvalidConfig { reason }) => assert!(reason.contains(what), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_is_begun_by_any_number_of_programs_at_once_and_again() {
    for _ in 0..10 {
        let quorum = Quorum::blank(3, WAIT).await;
        let mut turned = quorum.urls();
        turned.rotate_left(1);
        let other = quorum.builder().begin_quorum(turned);
        let (one, other) = tokio::join!(quorum.begin_again(), other);
        one.unwrap();
        other.unwrap();
        quorum.begin_again().await.unwrap();
        quorum.votes_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_begun_half_way_or_found_by_a_program_is_begun_all_the_same() {
    let quorum = Quorum::blank(3, WAIT).await;
    is_refused(&quorum.manager().await, "a").await;
    quorum.begin_again().await.unwrap();
    quorum.votes_now().await;
    // Interrupted when the first node votes, and before the others do.
    let quorum = Quorum::blank(3, WAIT).await;
    let proxies = [1, 2].map(|node| Proxy::start(&quorum.nodes[node]));
    let ends_the_wait = |request: &Request| request.has("begin");
    let held = proxies.each_ref();
    let held = held.map(|proxy| proxy.hold_next_request_matching(ends_the_wait));
    let [one, other] = [0, 1].map(|at| behind(&proxies[at], &quorum.nodes[at + 1]));
    let urls = [quorum.nodes[0].url(), one, other];
    let begin = tokio::spawn(quorum.builder().begin_quorum(urls).into_future());
    for held in &held {
        held.wait().await;
    }
    begin.abort();
    for proxy in &proxies {
        proxy.reset();
    }
    let votes = async |node: usize| {
        let counter = counter_of(&quorum.nodes[node]).await;
        quorum.nodes[node].exists(&counter).await
    };
    eventually("it votes", LIMIT, async || votes(0).await).await;
    assert!(!votes(1).await && !votes(2).await);
    quorum.begin_again().await.unwrap();
    quorum.votes_now().await;
    // Dropped at each of its steps.
    for step in 0..40 {
        let quorum = Quorum::blank(3, WAIT).await;
        let brief = Duration::from_micros(100 * step);
        let _ = timeout(brief, quorum.begin_again()).await;
        quorum.begin_again().await.unwrap();
        quorum.votes_now().await;
    }
}

/// The state of the nodes is not changed by a look at it, nor by one that may only read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_of_the_nodes_is_read_and_nothing_is_written() {
    let quorum = Quorum::start(3).await;
    quorum.votes_now().await;
    let node = &quorum.nodes[1];
    let _: redis::Value = command(node, "SAVE").await;
    node.restart().await;
    let () = command(&quorum.nodes[2], "FLUSHALL").await;
    let reader = "ACL SETUSER reader on nopass ~* &* +@read +@connection +subscribe +eval +evalsha +info +time";
    for node in &quorum.nodes {
        let () = command(node, reader).await;
    }
    let before = data(&quorum).await;
    assert_eq!(
        before[1].len(),
        2,
        "the note and the counter of another run"
    );
    let readers = quorum.nodes.iter().map(TestServer::addr);
    let readers: Vec<_> = readers.map(|at| format!("redis://reader:x@{at}")).collect();
    for urls in [quorum.urls(), readers] {
        let status = quorum.builder().quorum_status(urls).await.unwrap();
        assert_eq!(status[0].vote(), Ok(NodeVote::Votes));
        let waits = status[1].vote();
        assert!(
            matches!(waits, Ok(NodeVote::Waits { left, is_new: false, .. }) if left == WAIT),
            "{waits:?}"
        );
        assert_eq!(status[2].vote(), Ok(NodeVote::Blank));
        assert_eq!(data(&quorum).await, before);
    }
}

/// The keys of each node, with what is in them.
async fn data(quorum: &Quorum) -> Vec<BTreeMap<String, Vec<u8>>> {
    let mut all = Vec::new();
    for node in &quorum.nodes {
        let mut keys = BTreeMap::new();
        for key in node.keys().await {
            let dumped: Vec<u8> = command(node, &format!("DUMP {key}")).await;
            keys.insert(key, dumped);
        }
        all.push(keys);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_new_quorum_begins_without_a_wait() {
    let quorum = Quorum::start(3).await;
    quorum.nodes[2].flushall().await;
    says(quorum.begin_again().await, "joins by itself");
    assert!(!quorum.nodes[2].exists("lock-core:quorum").await);
    // A program has met the node.
    let _ready = quorum.manager().await;
    says(quorum.begin_again().await, "votes in");
    // All have lost their data, and a program has met them: they are as new, and the operator knows better.
    for node in &quorum.nodes {
        node.restart().await;
    }
    quorum.begin_again().await.unwrap();
    let _: redis::Value = command(&quorum.nodes[0], "SAVE").await;
    quorum.nodes[0].restart().await;
    says(quorum.begin_again().await, "votes in");
    quorum.begin_anew().await;
    quorum.votes_now().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_begins_with_all_its_nodes() {
    let quorum = Quorum::blank(3, WAIT).await;
    quorum.nodes[1].kill();
    let missing = quorum.nodes[1].addr().to_string();
    let begun = quorum.begin_again().await.unwrap_err();
    assert!(matches!(begun, LockError::Unavailable { .. }), "{begun:?}");
    assert!(begun.to_string().contains(&missing), "{begun}");
    let connected = quorum.builder().connect_quorum(quorum.urls()).await;
    match connected.unwrap_err() {
        LockError::Unavailable { cause } => {
            let said = cause.to_string();
            let names = format!("needs all its nodes once, and there is no answer of {missing}");
            assert!(said.contains(&names), "{said}");
        }
        other => panic!("{other:?}"),
    }
    for node in [0, 2] {
        assert!(!quorum.nodes[node].exists("lock-core:quorum").await);
    }
    quorum.nodes[1].restart().await;
    quorum.begin_again().await.unwrap();
    quorum.votes_now().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_program_waits_for_all_steps_of_nodes_that_are_far_away() {
    for near in [0, 2] {
        let quorum = Quorum::blank(3, WAIT).await;
        let proxies: Vec<_> = quorum.nodes.iter().map(Proxy::start).collect();
        for proxy in &proxies[near..] {
            proxy.delay(Duration::from_millis(300));
        }
        let nodes = proxies.iter().zip(&quorum.nodes);
        let urls: Vec<_> = nodes.map(|(proxy, node)| behind(proxy, node)).collect();
        // A step takes 0.6 s, and there are five.
        let builder = quorum.builder().command_deadline(Duration::from_secs(2));
        builder.connect_quorum(urls).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_beginning_a_waiter_waits_with_the_quorum() {
    let quorum = Quorum::blank(3, Duration::from_secs(3)).await;
    let locks = quorum.manager().await;
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("votes in"), "{error}");
    let guard = locks.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_with_another_list_or_wait_does_not_use_the_nodes() {
    let quorum = Quorum::start(3).await;
    let other = TestServer::start().await;
    let mut wrong = quorum.urls();
    wrong[2] = other.url();
    let list = quorum.builder().connect_quorum(wrong.clone()).await;
    says(list, "name the same nodes");
    says(
        quorum.builder().begin_quorum(wrong).await,
        "name the same nodes",
    );
    assert!(!other.exists("lock-core:quorum").await);
    let wait = quorum.builder().quorum_wait(WAIT * 2);
    says(
        wait.connect_quorum(quorum.urls()).await,
        "one `quorum_wait`",
    );
    let mut exchanged = quorum.urls();
    let [one, two] = [0, 1].map(|node| quorum.nodes[node].addr());
    exchanged[0] = format!("{}?node={two}", quorum.nodes[0].url());
    exchanged[1] = format!("{}?node={one}", quorum.nodes[1].url());
    let exchanged = quorum.builder().connect_quorum(exchanged).await;
    says(exchanged, "exchanged");
    // The operator may change both.
    let begin = quorum.builder().quorum_wait(WAIT * 2);
    begin.begin_quorum(quorum.urls()).anew().await.unwrap();
    let wait = quorum.builder().quorum_wait(WAIT * 2);
    let locks = wait.connect_quorum(quorum.urls()).await.unwrap();
    drop(locks.lock("a").acquire_within(LIMIT).await.unwrap());
    says(
        quorum.builder().connect_quorum(quorum.urls()).await,
        "one `quorum_wait`",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_is_longer_than_half_of_the_wait_is_refused() {
    let quorum = Quorum::start(3).await;
    let (locks, long) = (quorum.manager().await, WAIT / 2 + Duration::from_millis(1));
    says(locks.lock("a").ttl(long).try_acquire().await, "quorum_wait");
    says(
        locks.lock("a").at_least(long).try_acquire().await,
        "at_least",
    );
    let guard = locks.lock("a").acquire().await.unwrap();
    says(guard.extend(long).await, "quorum_wait");
    guard.extend(WAIT / 2).await.unwrap();
    let default = LockManager::builder().default_ttl(Duration::from_secs(31));
    says(default.connect_quorum(quorum.urls()).await, "quorum_wait");
}
