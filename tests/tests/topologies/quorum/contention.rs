//! Votes that are split.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_tests::kit::command;
use lock_tests::{Child, eventually};
use tokio::sync::Barrier;

use super::rig::{DEFAULT, LIMIT, Quorum};

const CLIENTS: usize = 5;
const ROUNDS: usize = 100;
const NO_ENV: [(&str, &str); 0] = [];

/// A minority of the nodes has something else under the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_not_told_of_a_foreign_key_on_a_minority() {
    let quorum = Quorum::start(3).await;
    let (locks, rival) = (quorum.manager().await, quorum.manager().await);
    let () = command(&quorum.nodes[2], "SET lock:a something").await;
    let guard = locks.lock("a").acquire().await.unwrap();
    assert!(rival.lock("a").try_acquire().await.unwrap().is_none());
    let waiting = rival.lock("a");
    let (waited, ()) = tokio::join!(waiting.acquire_within(LIMIT), async {
        eventually("it waits", LIMIT, async || {
            locks.lock("a").inspect().await.unwrap().waiters() == 1
        })
        .await;
        guard.release().await.unwrap();
    });
    drop(waited.unwrap());
}

/// A client of another kind deletes its keys without a message. Proves P11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_another_kind_of_client_asks_often() {
    let quorum = Quorum::start(3).await;
    let locks = quorum.manager().await;
    for node in &quorum.nodes {
        let () = command(node, "SET lock:a redlock PX 3600000").await;
    }
    let waiting = tokio::spawn(locks.lock("a").acquire_within(LIMIT));
    // Two seconds at the pace of a waiter that is told.
    let began = Instant::now();
    let node = &quorum.nodes[0];
    eventually("it asks ten times", LIMIT, async || {
        node.commandstats().await.get("evalsha").copied() >= Some(10)
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(8), "too seldom");
    for node in &quorum.nodes {
        let () = command(node, "DEL lock:a").await;
    }
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_clients_at_once_one_wins_soon_and_none_keeps_a_minority() {
    let quorum = Quorum::start(5).await;
    let mut managers = Vec::new();
    for _ in 0..CLIENTS {
        managers.push(quorum.manager().await);
    }
    let mut needed = Vec::new();
    for round in 0..ROUNDS {
        let key = format!("round:{round}");
        let mut tries = 0;
        loop {
            tries += 1;
            let barrier = Arc::new(Barrier::new(CLIENTS));
            let attempts = managers.iter().map(|locks| {
                let (lock, barrier) = (locks.lock(&key), Arc::clone(&barrier));
                tokio::spawn(async move {
                    barrier.wait().await;
                    lock.try_acquire().await.unwrap()
                })
            });
            let attempts: Vec<_> = attempts.collect();
            let mut won = Vec::new();
            for attempt in attempts {
                won.extend(attempt.await.unwrap());
            }
            assert!(won.len() <= 1, "{} winners", won.len());
            if let Some(guard) = won.pop() {
                guard.release().await.unwrap();
                break;
            }
            assert!(tries < 100, "nobody ever wins");
        }
        needed.push(tries);
        quorum.no_votes(&key, &[0, 1, 2, 3, 4]).await;
    }
    needed.sort_unstable();
    assert!(
        needed[ROUNDS / 2] <= 3,
        "rounds that were needed: {needed:?}"
    );
}

/// A waiter is asked for by its own task and by the refresh of its line, at times at once: what the one has not won, the
/// other may have.
#[tokio::test]
async fn who_waits_in_three_processes_has_the_lock_alone_and_keeps_it() {
    const REQUESTS: u64 = 4_000;
    let quorum = Quorum::start_with(5, DEFAULT).await;
    let nodes = quorum.nodes.iter().map(|node| node.addr().to_string());
    let url = format!("redis+quorum://{}", nodes.collect::<Vec<_>>().join(","));
    let mut racers: Vec<_> = (0..3)
        .map(|_| Child::spawn(env!("CARGO_BIN_EXE_contender"), [&url, "multi"], NO_ENV))
        .collect();
    for racer in &mut racers {
        racer.expect("ready").await;
        racer.send("race hot 3 30000");
    }
    // Each request is counted once.
    eventually("they have asked often", LIMIT * 4, async || {
        let stats = quorum.nodes[0].commandstats().await;
        stats.get("incrby").is_some_and(|count| *count > REQUESTS)
    })
    .await;
    for racer in &mut racers {
        racer.send("stop");
    }
    // Fencing token, asked, granted. A racer that loses its lock ends without a last word.
    let mut grants = Vec::new();
    for racer in &mut racers {
        loop {
            let line = racer.recv_line().await;
            let Some(words) = line.strip_prefix("grant ") else {
                assert_eq!(line, "done");
                break;
            };
            let numbers = words.split(' ').map(|word| word.parse::<u64>().unwrap());
            let [fence, asked, granted] = numbers.collect::<Vec<_>>().try_into().unwrap();
            grants.push((fence, asked, granted));
        }
    }
    grants.sort_unstable();
    println!("{} holds", grants.len());
    for pair in grants.windows(2) {
        let [(fence, ..), (next, _, granted)] = pair else {
            unreachable!("windows of two")
        };
        assert!(fence < next, "a token was given twice");
        let (_, asked, _) = pair[0];
        assert!(asked < *granted, "a token has gone back");
    }
    quorum.no_votes("hot", &[0, 1, 2, 3, 4]).await;
}
