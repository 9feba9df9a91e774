//! Nodes that are gone, or do not answer.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_core::observe::{Event, Observer};
use lock_core::{LockError, LockGuard, LockManager, LossReason, Owner};
use lock_tests::kit::command;
use lock_tests::{Capture, Proxy, Said, TestServer, eventually};
use tokio::time::timeout;

use super::rig::{LIMIT, Quorum, behind};

const ALL: [usize; 5] = [0, 1, 2, 3, 4];

/// What a service does with a lock: take it, be refused, wait, hand over, let go.
async fn everything_works(quorum: &Quorum) {
    let (one, other) = (quorum.manager().await, quorum.manager().await);
    let mut last = 0;
    for _ in 0..5 {
        let guard = one.lock("job").acquire().await.unwrap();
        assert!(guard.fencing_token().get() > last);
        assert!(other.lock("job").try_acquire().await.unwrap().is_none());
        let waiting = tokio::spawn({
            let lock = other.lock("job");
            async move { lock.acquire().await.unwrap() }
        });
        eventually("it waits", LIMIT, async || {
            one.lock("job").inspect().await.unwrap().waiters() == 1
        })
        .await;
        guard.release().await.unwrap();
        let next = timeout(LIMIT, waiting).await.expect("handed on").unwrap();
        last = next.fencing_token().get();
        next.release().await.unwrap();
    }
    for locks in [one, other] {
        assert_eq!(locks.shutdown(LIMIT).await, 0);
    }
}

async fn take_for_three_seconds(locks: &LockManager, key: &str) -> LockGuard {
    let lock = locks.lock(key).ttl(Duration::from_secs(3));
    lock.acquire().await.unwrap()
}

/// Whether a lock that was taken for three seconds is renewed.
async fn outlives_its_ttl(guard: &LockGuard) -> bool {
    timeout(Duration::from_secs(5), guard.lost()).await.is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_works_with_two_of_five_killed() {
    let quorum = Quorum::start(5).await;
    // Killed before anybody connects, and while managers are connected.
    quorum.nodes[1].kill();
    everything_works(&quorum).await;
    let locks = quorum.manager().await;
    let guard = take_for_three_seconds(&locks, "kept").await;
    // A node that was not ready in time votes with the first renewal, which needs the majority that there was.
    quorum.voted("kept", &[0, 2, 3, 4]).await;
    quorum.nodes[4].kill();
    everything_works(&quorum).await;
    assert!(
        outlives_its_ttl(&guard).await,
        "renewed by the three that are left"
    );
    guard.release().await.unwrap();
    quorum.no_votes("kept", &[0, 2, 3]).await;
}

/// Its votes and its renewals take a quarter of its ttl. Proves P11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_four_round_trips_is_acquired_and_renewed() {
    let quorum = Quorum::start(3).await;
    let proxies: Vec<_> = quorum.nodes.iter().map(Proxy::start).collect();
    let urls = proxies.iter().zip(&quorum.nodes);
    let urls = urls.map(|(proxy, node)| behind(proxy, node));
    let builder = quorum.builder().command_deadline(LIMIT);
    let locks = builder.connect_quorum(urls).await.unwrap();
    for proxy in &proxies {
        proxy.delay(Duration::from_secs(3) / 8);
    }
    // The first ones wait for answers as long as they took before: what is left of their leases may be too short for a renewal.
    for _ in 0..3 {
        let _ = take_for_three_seconds(&locks, "learns")
            .await
            .release()
            .await;
    }
    let guard = take_for_three_seconds(&locks, "far").await;
    assert!(outlives_its_ttl(&guard).await, "it is renewed");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_works_with_two_of_five_stopped() {
    let quorum = Quorum::start(5).await;
    let locks = quorum.manager().await;
    let guard = take_for_three_seconds(&locks, "kept").await;
    quorum.voted("kept", &ALL).await;
    quorum.nodes[0].stop();
    quorum.nodes[3].stop();
    everything_works(&quorum).await;
    assert!(
        outlives_its_ttl(&guard).await,
        "renewed by the three that answer"
    );
    guard.release().await.unwrap();
    quorum.nodes[0].cont();
    quorum.nodes[3].cont();
    // Whatever was on its way to those that slept is undone behind it, or ends with its ttl of three seconds.
    quorum.no_votes("kept", &ALL).await;
    everything_works(&quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_of_five_gone_it_says_so_in_time_and_leaves_nothing() {
    for stopped in [false, true] {
        let quorum = Quorum::start(5).await;
        let locks = quorum.manager().await;
        for node in [0, 2, 3] {
            if stopped {
                quorum.nodes[node].stop();
            } else {
                quorum.nodes[node].kill();
            }
        }
        let limit = Duration::from_secs(2);
        let began = Instant::now();
        let error = locks.lock("job").acquire_within(limit).await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(began.elapsed() < limit + LIMIT, "{:?}", began.elapsed());
        let tried = locks.lock("job").try_acquire().await.unwrap_err();
        assert!(matches!(tried, LockError::Unavailable { .. }), "{tried:?}");
        // Which nodes, where, and what each of them said.
        let text = tried.to_string();
        assert!(text.contains("3 of 5 nodes did not vote"), "{text}");
        for node in [0, 2, 3] {
            let address = quorum.nodes[node].addr();
            assert!(
                text.contains(&format!("node {node} at {address}: ")),
                "{text}"
            );
        }
        quorum.no_votes("job", &[1, 4]).await;
        for node in [1, 4] {
            for key in quorum.nodes[node].keys().await {
                assert!(key.starts_with("lock-core:quorum"), "{key}");
            }
        }
        if stopped {
            for node in [0, 2, 3] {
                quorum.nodes[node].cont();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_not_ready_in_time_votes_with_the_first_renewal() {
    let quorum = Quorum::start(3).await;
    drop(quorum.manager().await);
    quorum.nodes[1].stop();
    let locks = quorum.manager().await;
    let guard = take_for_three_seconds(&locks, "a").await;
    quorum.nodes[1].cont();
    quorum.voted("a", &[0, 1, 2]).await;
    // From now on there is no majority without it.
    quorum.nodes[0].kill();
    assert!(
        outlives_its_ttl(&guard).await,
        "renewed by the two that are left"
    );
    guard.release().await.unwrap();
    quorum.no_votes("a", &[1, 2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_heals_a_vote_that_was_lost_and_never_that_of_another() {
    let quorum = Quorum::start(5).await;
    let locks = quorum.manager().await;
    let guard = take_for_three_seconds(&locks, "a").await;
    quorum.voted("a", &ALL).await;
    let _: u64 = command(&quorum.nodes[1], "DEL lock:a").await;
    let () = command(&quorum.nodes[3], "SET lock:a theirs PX 3600000").await;
    let ours = quorum.nodes[0].get("lock:a").await;
    eventually("the vote is back", LIMIT, async || {
        quorum.nodes[1].get("lock:a").await == ours
    })
    .await;
    assert_eq!(
        quorum.nodes[3].get("lock:a").await.as_deref(),
        Some("theirs")
    );
    assert!(guard.is_held());
    guard.release().await.unwrap();
    quorum.no_votes("a", &[0, 1, 2, 4]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_a_majority_has_lost_is_lost_and_not_healed() {
    // Nodes without their data wait, and give the lock to no other client while its lease lasts.
    let flushed = ("FLUSHALL", LossReason::Expired);
    for (loses, expected) in [("DEL lock:a", LossReason::Gone), flushed] {
        let quorum = Quorum::start(5).await;
        let locks = quorum.manager().await;
        let guard = take_for_three_seconds(&locks, "a").await;
        quorum.voted("a", &ALL).await;
        for node in [0, 1, 4] {
            let _: redis::Value = command(&quorum.nodes[node], loses).await;
        }
        let reason = timeout(LIMIT, guard.lost()).await.expect("noticed");
        assert_eq!(reason, expected, "{loses}");
        quorum.no_votes("a", &ALL).await;
    }
}

/// Gives these nodes a vote of another attempt in the place of the one they have: an earlier one may have arrived late.
async fn set_editions(quorum: &Quorum, nodes: &[usize], edition: u64) {
    for node in nodes {
        let node = &quorum.nodes[*node];
        let vote = node.get("lock:a").await.unwrap();
        let (token, known) = vote.split_once('{').unwrap();
        assert_ne!(known, format!("{edition}}}"));
        let () = command(node, &format!("SET lock:a {token}{{{edition}}} PX 3000")).await;
    }
}

/// Proves P1, case C2 of the design: a renewal counts an edition, and not any vote of the token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_of_votes_of_an_earlier_attempt_is_none() {
    let quorum = Quorum::start(5).await;
    let locks = quorum.manager().await;
    let guard = take_for_three_seconds(&locks, "a").await;
    quorum.voted("a", &ALL).await;
    set_editions(&quorum, &[0, 1, 4], 0).await;
    let reason = timeout(LIMIT, guard.lost()).await.expect("noticed");
    assert_eq!(reason, LossReason::Gone);
    quorum.no_votes("a", &ALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_replaces_the_vote_of_an_earlier_attempt() {
    let quorum = Quorum::start(5).await;
    let locks = quorum.manager().await;
    let guard = take_for_three_seconds(&locks, "a").await;
    quorum.voted("a", &ALL).await;
    let ours = quorum.nodes[0].get("lock:a").await;
    set_editions(&quorum, &[1, 3], 0).await;
    eventually("the votes are those of this attempt", LIMIT, async || {
        quorum.nodes[1].get("lock:a").await == ours && quorum.nodes[3].get("lock:a").await == ours
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    quorum.no_votes("a", &ALL).await;
}

/// An attempt of a waiter may begin when another one has won and was released. Its votes may arrive before that release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_behind_votes_of_a_later_attempt_is_no_loss() {
    let quorum = Quorum::start(5).await;
    let locks = quorum.manager().await;
    let guard = take_for_three_seconds(&locks, "a").await;
    quorum.voted("a", &ALL).await;
    set_editions(&quorum, &ALL, 1_000).await;
    guard.release().await.unwrap();
    let vote = quorum.nodes[0].get("lock:a").await;
    assert!(vote.is_some_and(|vote| vote.ends_with("{1000}")), "kept");
}

/// Proves P16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_shows_each_node_and_why_one_does_not_say() {
    let quorum = Quorum::start(3).await;
    let locks = quorum.manager().await;
    // A node that was not ready in time votes with the first renewal.
    let ttl = Duration::from_secs(9);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    quorum.voted("a", &[0, 1, 2]).await;
    quorum.nodes[1].kill();
    quorum.nodes[2].flushall().await;
    let info = locks.lock("a").inspect().await.unwrap();
    let nodes = info.nodes();
    assert_eq!(nodes.len(), 3);
    for (node, server) in nodes.iter().zip(&quorum.nodes) {
        assert_eq!(node.address(), server.addr().to_string());
    }
    assert_eq!(nodes[0].holder(), info.holder());
    assert!(nodes[0].remaining() > Some(Duration::ZERO) && nodes[0].error().is_none());
    assert!(nodes[1].error().is_some() && nodes[1].holder().is_none());
    assert!(nodes[2].error().is_none() && nodes[2].holder().is_none());
    drop(guard);
}

#[tokio::test]
async fn what_is_no_quorum_is_refused_in_a_sentence() {
    let refused = async |urls: &[&str]| match LockManager::connect_quorum(urls).await {
        Err(LockError::InvalidConfig { reason }) => reason,
        other => panic!("{other:?}"),
    };
    let nodes: Vec<String> = (1..=11).map(|n| format!("redis://127.0.0.1:{n}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    for count in [0, 1, 2, 4, 6, 8, 10, 11] {
        let reason = refused(&nodes[..count]).await;
        assert!(reason.contains("name 3, 5, 7 or 9"), "{reason}");
    }
    let reason = refused(&[nodes[0], nodes[1], nodes[0]]).await;
    assert!(reason.contains("twice"), "{reason}");
    let one_url = LockManager::connect("redis+quorum://127.0.0.1:1,127.0.0.1:2").await;
    assert!(matches!(one_url, Err(LockError::InvalidConfig { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_url_names_all_nodes_with_a_password_and_a_database_each() {
    let mut nodes = Vec::new();
    for node in 0..3 {
        let password = format!("s,cret{node}");
        nodes.push(
            TestServer::builder()
                .arg("--requirepass", &password)
                .start()
                .await,
        );
    }
    let parts: Vec<String> = (0..3)
        .map(|n| format!(":s%2Ccret{n}@{}/{n}", nodes[n].addr()))
        .collect();
    let url = format!("redis+quorum://{}", parts.join(","));
    let urls = parts.iter().map(|part| format!("redis://{part}"));
    LockManager::builder().begin_quorum(urls).await.unwrap();
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
    // A majority with a wrong password is an error that says so, without any password.
    let wrong = LockManager::connect(&url.replace("cret", "wrong"))
        .await
        .unwrap_err();
    let text = format!("{wrong} {wrong:?}");
    assert!(matches!(wrong, LockError::InvalidConfig { .. }), "{text}");
    assert!(
        !text.contains("wrong0") && text.contains("node 2 at"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_locks_needs_a_majority_of_the_nodes() {
    let quorum = Quorum::start(3).await;
    let locks = quorum.manager().await;
    let guard = locks.lock("a").acquire().await.unwrap();
    let listed = async || {
        let (mut list, mut keys) = (locks.list(), Vec::new());
        while let Some(page) = list.next_page().await? {
            keys.extend(page.iter().map(|lock| lock.key().to_owned()));
        }
        Ok::<_, LockError>(keys)
    };
    quorum.nodes[0].stop();
    assert_eq!(listed().await.unwrap(), ["a"]);
    quorum.nodes[1].stop();
    let error = listed().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    quorum.nodes.iter().for_each(TestServer::cont);
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reentrant_lock_is_refused_in_a_sentence() {
    let quorum = Quorum::start(3).await;
    let locks = quorum.manager().await;
    let refused = locks
        .reentrant_lock("a")
        .owner(&Owner::new())
        .acquire()
        .await
        .unwrap_err();
    match &refused {
        LockError::InvalidConfig { reason } => assert!(reason.contains("not over a quorum")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_log_says_once_that_a_node_stops_voting_and_that_it_votes_again() {
    let quorum = Quorum::start(3).await;
    let nodes = Arc::new(Nodes::default());
    let observed = Arc::clone(&nodes);
    let locks = quorum.manager_with(|it| it.observer(observed)).await;
    // A client that only holds a lock asks for votes as well, with each renewal.
    let guard = take_for_three_seconds(&locks, "kept").await;
    quorum.voted("kept", &[0, 1, 2]).await;
    let capture = Capture::start();
    let said = |message: &str| -> Vec<Said> {
        let mut events = capture.events();
        events.retain(|event| event.message() == message);
        events
    };
    quorum.nodes[1].stop();
    let stops = || said("a node of the quorum does not vote");
    eventually("it stops", LIMIT, async || !stops().is_empty()).await;
    assert!(outlives_its_ttl(&guard).await);
    quorum.nodes[1].cont();
    let votes = || said("a node of the quorum votes again");
    eventually("it votes again", LIMIT, async || !votes().is_empty()).await;
    guard.release().await.unwrap();
    let address = quorum.nodes[1].addr().to_string();
    let (stopped, again) = (stops(), votes());
    assert_eq!(
        (stopped.len(), again.len()),
        (1, 1),
        "{stopped:#?} {again:#?}"
    );
    for said in [&stopped[0], &again[0]] {
        assert_eq!(said.field("address"), Some(&*address));
    }
    let numbers = (stopped[0].field("voting"), stopped[0].field("needed"));
    assert_eq!(numbers, (Some("2"), Some("2")));
    let told = nodes.0.lock().unwrap();
    let events = [
        format!("{address} left, 2 of 2"),
        format!("{address} returned"),
    ];
    assert_eq!(*told, events, "and so does the observer");
}

/// Such a client asks a node that does not answer seldom, and only whether it answers again.
#[tokio::test]
async fn a_node_that_stops_is_named_also_where_locks_are_short() {
    let quorum = Quorum::start(3).await;
    let nodes = Arc::new(Nodes::default());
    let observed = Arc::clone(&nodes);
    let locks = quorum.manager_with(|it| it.observer(observed)).await;
    let short = async || {
        let guard = locks.lock("short").acquire().await.unwrap();
        guard.release().await.unwrap();
    };
    short().await;
    let told = |word: &str| {
        nodes
            .0
            .lock()
            .unwrap()
            .iter()
            .filter(|it| it.contains(word))
            .count()
    };
    quorum.nodes[1].stop();
    eventually("it stops", LIMIT, async || {
        short().await;
        told("left") > 0
    })
    .await;
    quorum.nodes[1].cont();
    eventually("it votes again", LIMIT, async || {
        short().await;
        told("returned") > 0
    })
    .await;
    assert_eq!((told("left"), told("returned")), (1, 1));
}

/// The events about nodes.
#[derive(Default)]
struct Nodes(Mutex<Vec<String>>);

impl Observer for Nodes {
    fn observe(&self, event: &Event<'_>) {
        let line = match event {
            Event::NodeLeft {
                node,
                voting,
                needed,
                ..
            } => format!("{node} left, {voting} of {needed}"),
            Event::NodeReturned { node, .. } => format!("{node} returned"),
            _ => return,
        };
        self.0.lock().unwrap().push(line);
    }
}
