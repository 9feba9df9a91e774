//! No held lock is lost by one fault of one node: the votes that it was won without come soon, and a renewal counts for each lease alone.

use std::time::Duration;

use futures_util::StreamExt;
use lock_core::{LockGuard, LockManager, LossReason, NodeVote};
use lock_tests::kit::command;
use lock_tests::{Proxy, Request, eventually};
use tokio::time::timeout;

use super::rig::{LIMIT, LONG, Quorum, Trio, behind};

fn is_renewal(request: &Request) -> bool {
    request.script() == Some("quorum extend") && request.has("lock:a")
}

fn is_heal(request: &Request) -> bool {
    request.script() == Some("quorum heal") && request.has("lock:a")
}

async fn take(locks: &LockManager, key: &str, ttl: Duration) -> LockGuard {
    locks.lock(key).ttl(ttl).acquire().await.unwrap()
}

/// A lock with the votes of the first two nodes, of which the second is behind a proxy, and the first renewal of it, held back.
async fn bare_beside(ttl: Duration, other: Duration) -> (Trio, LockGuard, LockGuard) {
    let trio = Trio::start(LONG).await;
    Trio::give_to_another(&trio.nodes[2]).await;
    let bare = take(&trio.locks, "a", ttl).await;
    let beside = take(&trio.locks, "b", other).await;
    (trio, bare, beside)
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_during_a_common_renewal_costs_no_lock() {
    let ttl = Duration::from_secs(3);
    let (trio, bare, beside) = bare_beside(ttl, ttl).await;
    let common = |request: &Request| is_renewal(request) && request.has("lock:b");
    trio.proxy.hold_next_request_matching(common).wait().await;
    trio.proxy.reset();
    let lost = async { tokio::join!(bare.lost(), beside.lost()) };
    assert!(timeout(ttl * 2, lost).await.is_err());
    assert!(bare.is_held() && beside.is_held());
}

/// The node may have had the vote, and no other client can have the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_a_restarted_node_knows_nothing_of_is_no_loss() {
    let (trio, bare, beside) = bare_beside(LONG, LONG).await;
    trio.nodes[1].restart().await;
    bare.release().await.unwrap();
    drop(beside);
}

/// Each renewal counts for its own third of the ttl, whatever is renewed at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_late_for_a_shorter_lease_is_not_for_a_longer_one() {
    let ttl = Duration::from_secs(6);
    let (trio, bare, beside) = bare_beside(ttl, Duration::from_millis(600)).await;
    drop(trio.proxy.on_request(is_renewal).await);
    trio.proxy.delay(Duration::from_millis(150));
    assert!(timeout(ttl, bare.lost()).await.is_err());
    drop(beside);
}

/// The vote of the former holder is still on a node when the next one has won. Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_refused_the_winner_votes_once_it_is_free() {
    let trio = Trio::start(LONG).await;
    let rival = trio.manager(LONG).await;
    let former = rival.lock("a").acquire().await.unwrap();
    trio.all_voted().await;
    let is_release =
        |request: &Request| request.script() == Some("quorum release") && request.has("lock:a");
    let release = trio.proxy.hold_next_request_matching(is_release);
    former.release().await.unwrap();
    release.wait().await;
    let guard = trio.locks.lock("a").acquire().await.unwrap();
    release.deliver();
    trio.all_have_the_vote_of(&guard).await;
}

/// Proves P1, P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_is_asked_for_the_votes_of_all_held_locks() {
    let trio = Trio::start(LONG).await;
    let _in_use = trio.locks.lock("c").acquire().await.unwrap();
    trio.proxy.refuse(true);
    trio.proxy.reset();
    eventually("the node is not reached", LIMIT, async || {
        trio.proxy.refused_connections() >= 3
    })
    .await;
    let renewed = trio.locks.lock("a").acquire().await.unwrap();
    let fixed = trio.locks.lock("b").renew(false).acquire().await.unwrap();
    trio.proxy.refuse(false);
    trio.all_have_the_vote_of(&renewed).await;
    trio.voted("b").await;
    fixed.release().await.unwrap();
}

/// After its wait. Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_votes_again_after_its_wait_is_asked_at_once() {
    let (ttl, rest) = (Duration::from_secs(20), Duration::from_secs(3));
    let quorum = Quorum::start_with(3, ttl * 2).await;
    let locks = quorum.manager().await;
    let lock = locks.lock("a").ttl(ttl).renew(false);
    quorum.nodes[1].restart().await;
    quorum.waits_for(1, rest).await;
    let guard = lock.acquire().await.unwrap();
    assert_eq!(quorum.votes("a", &[0, 1, 2]).await, [0, 2]);
    quorum.voted("a", &[0, 1, 2]).await;
    assert!(guard.is_held());
}

impl Trio {
    async fn voted(&self, key: &str) {
        let key = format!("lock:{key}");
        eventually("all have voted", LIMIT, async || {
            let mut voted = 0;
            for node in &self.nodes {
                voted += u32::from(node.exists(&key).await);
            }
            voted == 3
        })
        .await;
    }

    async fn all_voted(&self) {
        self.voted("a").await;
    }

    async fn all_have_the_vote_of(&self, guard: &LockGuard) {
        eventually("all have the vote of the holder", LIMIT, async || {
            let mut votes = Vec::new();
            for node in &self.nodes {
                votes.push(node.get("lock:a").await);
            }
            votes[0].is_some() && votes.iter().all(|vote| *vote == votes[0])
        })
        .await;
        assert!(guard.is_held());
    }
}

impl Quorum {
    /// The wait of a node has this rest, as if it had begun some time ago.
    async fn waits_for(&self, node: usize, rest: Duration) {
        let (node, key) = (&self.nodes[node], "lock-core:quorum");
        // A program has met it, and the note has its wait.
        drop(self.manager().await);
        eventually("it waits", LIMIT, async || node.exists(key).await).await;
        let earlier = self.wait.as_millis() - rest.as_millis();
        let _: i64 = command(node, &format!("HINCRBY {key} since -{earlier}")).await;
    }
}

/// The connections that are made to a node which no program can use, in four seconds of locks that are taken.
async fn attempts(proxy: &Proxy, locks: &LockManager) -> u64 {
    let attempts = || proxy.connections() + proxy.refused_connections();
    let cycles_for = async |lasts| {
        let cycles = async {
            loop {
                let guard = locks.lock("a").acquire_within(LIMIT).await.unwrap();
                guard.release().await.unwrap();
            }
        };
        let _: Result<(), _> = timeout(lasts, cycles).await;
    };
    // The first ones follow each other soon.
    cycles_for(Duration::from_secs(2)).await;
    let before = attempts();
    cycles_for(Duration::from_secs(4)).await;
    attempts() - before
}

/// Once a second, and not at each lock. Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_no_program_can_use_is_tried_with_backoff() {
    let quorum = Quorum::start(3).await;
    let node = &quorum.nodes[2];
    let proxy = Proxy::start(node);
    let [one, other] = [0, 1].map(|node| quorum.nodes[node].url());
    let urls = [one.clone(), other.clone(), behind(&proxy, node)];
    let locks = quorum.builder().connect_quorum(&urls).await.unwrap();
    proxy.refuse(true);
    proxy.reset();
    let dead = attempts(&proxy, &locks).await;
    proxy.refuse(false);
    locks.shutdown(LIMIT).await;
    let wrong = format!(
        "redis://stranger:wrong@{}?node={}",
        proxy.addr(),
        node.addr()
    );
    let urls = [one, other, wrong];
    let locks = quorum.builder().connect_quorum(&urls).await.unwrap();
    let refused = attempts(&proxy, &locks).await;
    let () = command(node, "CONFIG SET maxclients 1").await;
    let urls = Trio::urls_behind(&quorum, &proxy);
    let locks = quorum.builder().connect_quorum(urls).await.unwrap();
    let full = attempts(&proxy, &locks).await;
    // A busy machine makes fewer. Where a server that is full has closed a connection, an older protocol is tried.
    assert!(
        dead <= 10 && refused <= 10 && full <= 20,
        "{dead} {refused} {full}"
    );
}

impl Trio {
    fn urls_behind(quorum: &Quorum, proxy: &Proxy) -> [String; 3] {
        let nodes = &quorum.nodes;
        [nodes[0].url(), nodes[1].url(), behind(proxy, &nodes[2])]
    }
}

/// What the quorum has refused left nothing there, and its release is refused as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_kind_or_login_does_not_delay_the_end() {
    let quorum = Quorum::start(3).await;
    let nodes = quorum.nodes.iter().map(|it| it.addr().to_string());
    let nodes: Vec<_> = nodes.collect();
    let wrong = format!("redis+quorum://stranger:wrong@{}", nodes.join(","));
    let not_let_in = quorum.builder().connect_lazily(&wrong).unwrap();
    for locks in [quorum.manager().await, not_let_in] {
        let refused = [
            locks.reentrant_lock("r").acquire().await.map(drop),
            locks.semaphore("s", 2).acquire().await.map(drop),
            locks.rw_lock("w").write().await.map(drop),
        ];
        assert!(refused.iter().all(Result::is_err));
        let _ = locks.lock("a").acquire_within(LIMIT).await;
        let ended = timeout(LIMIT, locks.shutdown(LONG)).await;
        assert_eq!(ended.expect("at once"), 0);
    }
}

/// The number of rounds of a test with random faults: `LOCK_TEST_ROUNDS`, or the usual number.
fn rounds(usual: usize) -> usize {
    let asked = std::env::var("LOCK_TEST_ROUNDS").ok();
    asked.and_then(|it| it.parse().ok()).unwrap_or(usual)
}

/// A lock goes from one program to another, and a node dies or stops up to 40 ms later. Returns why the lock is lost, if it is.
async fn one_node_fails(nodes: usize, far: Option<Duration>) -> Option<LossReason> {
    let ttl = Duration::from_secs(2);
    let quorum = Quorum::start_with(nodes, ttl * 2).await;
    let proxy = Proxy::start(&quorum.nodes[0]);
    let mut urls = quorum.urls();
    urls[0] = behind(&proxy, &quorum.nodes[0]);
    let manager = async || {
        let builder = quorum.builder().command_deadline(Duration::from_secs(3));
        builder.connect_quorum(&urls).await.unwrap()
    };
    let (rival, locks) = (manager().await, manager().await);
    if let Some(far) = far {
        proxy.delay(far / 2);
    }
    for locks in [&rival, &locks, &rival] {
        take(locks, "a", ttl).await.release().await.unwrap();
    }
    let former = take(&rival, "a", ttl).await;
    let waiting = tokio::spawn(async move { (take(&locks, "a", ttl).await, locks) });
    eventually("it waits", LIMIT, async || {
        rival.lock("a").inspect().await.unwrap().waiters() == 1
    })
    .await;
    former.release().await.unwrap();
    let (guard, _locks) = waiting.await.unwrap();
    tokio::time::sleep(Duration::from_micros(fastrand::u64(1_000..40_000))).await;
    let node = &quorum.nodes[fastrand::usize(..nodes)];
    if fastrand::bool() {
        node.kill();
    } else {
        node.stop();
    }
    timeout(ttl * 2, guard.lost()).await.ok()
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_any_one_node_from_a_millisecond_after_its_grant() {
    let far = Duration::from_millis(30);
    for (nodes, far) in [(3, None), (5, None), (3, Some(far))] {
        let rounds = (0..rounds(6)).map(|_| one_node_fails(nodes, far));
        let lost = futures_util::stream::iter(rounds).buffer_unordered(6);
        let lost: Vec<_> = lost.filter_map(async |lost| lost).collect().await;
        assert!(lost.is_empty(), "{nodes} nodes, {far:?}: {lost:?}");
    }
}

/// As *Running a quorum* says: the next node when all vote, and two seconds later. Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_no_held_lock() {
    let ttl = Duration::from_millis(1_500);
    let quorum = Quorum::start_with(3, ttl * 2).await;
    let (one, other) = (quorum.manager().await, quorum.manager().await);
    let mut held = Vec::new();
    for key in 0..20 {
        let locks = if key % 2 == 0 { &one } else { &other };
        held.push(take(locks, &format!("held{key}"), ttl).await);
    }
    let fixed = one.lock("fixed").renew(false);
    let contended = async |locks: &LockManager| loop {
        let guard = take(locks, "a", ttl).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        guard.release().await.unwrap();
    };
    let restarts = async {
        for round in 0..rounds(1) * 3 {
            let fixed = fixed.acquire_within(LIMIT).await.unwrap();
            quorum.nodes[round % 3].restart().await;
            eventually("all vote", LIMIT, async || {
                let status = quorum.builder().quorum_status(quorum.urls()).await.unwrap();
                status.iter().all(|node| node.vote() == Ok(NodeVote::Votes))
            })
            .await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            for key in 0..20 {
                let votes = quorum.votes(&format!("held{key}"), &[0, 1, 2]).await;
                assert_eq!(votes, [0, 1, 2]);
            }
            drop(fixed);
        }
    };
    tokio::select! {
        () = restarts => {}
        () = contended(&one) => {}
        () = contended(&other) => {}
    }
    assert!(held.iter().all(|guard| guard.is_held()));
}

/// What a node is asked for: once for a vote and once to release it, and once more if it refused the vote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_asked_again_once_for_a_vote_that_it_refused() {
    let trio = Trio::start(LONG).await;
    let cycles = 50;
    for _ in 0..cycles {
        let guard = trio.locks.lock("a").acquire().await.unwrap();
        trio.all_voted().await;
        guard.release().await.unwrap();
    }
    assert_eq!(trio.proxy.count(is_heal), 0, "a lock without a rival");
    let rival = trio.manager(LONG).await;
    let works = async |locks: &LockManager| {
        for _ in 0..cycles {
            let guard = locks.lock("a").acquire().await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            guard.release().await.unwrap();
        }
    };
    tokio::join!(works(&trio.locks), works(&rival));
    let healed = trio.proxy.count(is_heal);
    println!("{healed} of {} grants: asked again", cycles * 2);
    assert!(healed <= cycles * 2, "{healed}");
}

/// What a node that is back has still is not asked for again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_often_costs_no_renewals() {
    let trio = Trio::start(LONG).await;
    let guard = trio.locks.lock("a").acquire().await.unwrap();
    trio.all_have_the_vote_of(&guard).await;
    let vetted = || {
        let is_vet = |request: &Request| request.script() == Some("quorum vet");
        trio.proxy.count(is_vet)
    };
    for _ in 0..5 {
        let before = vetted();
        trio.proxy.reset();
        eventually("it is vetted again", LIMIT, async || vetted() > before).await;
    }
    // The answer of the last vetting comes before that of what follows it.
    let beside = trio.locks.lock("b").acquire().await.unwrap();
    trio.voted("b").await;
    assert_eq!(trio.proxy.count(is_renewal), 0);
    drop((guard, beside));
}
