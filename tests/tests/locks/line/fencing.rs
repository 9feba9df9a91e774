//! P10 where hand-overs inside a process and between processes are mixed.

use std::sync::Arc;
use std::time::Duration;

use lock_tests::TestServer;
use lock_tests::kit::command;
use tokio::task::JoinSet;

use crate::line::support::{
    LONG, Log, NAME, direct, granted, in_line, in_time, patient, rows, until_clean, until_waiting,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fencing_tokens_grow_over_local_and_remote_hand_overs() {
    grow(None).await;
}

/// The clock is a floor that hides a counter which forgets what a line gives out itself. Not here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fencing_tokens_grow_where_the_counter_is_ahead_of_the_clock() {
    // Below 2^53.
    grow(Some(5_000_000_000_000_000)).await;
}

/// A counter that was lost, or that somebody wrote to, is put right by the clock. One of the texts is as long as a token, and
/// in the order of texts behind each.
#[tokio::test]
async fn fencing_tokens_grow_whatever_the_counter_says() {
    let server = TestServer::start().await;
    let (here, there) = (direct(&server).await, direct(&server).await);
    let mut held = here.lock(NAME).ttl(LONG).acquire().await.unwrap();
    for (turn, counter) in ["7", "", "zzzzzzzzzzzzzzzz", "-1", "0.5", "1000000000000000"]
        .into_iter()
        .enumerate()
    {
        let next = [&there, &here][turn % 2].lock(NAME).ttl(LONG);
        let next = in_line(&next).await;
        let () = command(&server, &format!("SET lock-core:fence {counter}")).await;
        let before = held.fencing_token();
        held.release().await.unwrap();
        held = granted(next).await;
        assert!(held.fencing_token() > before, "the counter was `{counter}`");
    }
    held.release().await.unwrap();
    until_clean(&server).await;
}

/// A counter that is no number is replaced: the server's clock is above what was counted before.
#[tokio::test]
async fn a_release_hands_over_in_order_though_the_counter_is_none() {
    const WAITERS: u64 = 4;
    let server = TestServer::start().await;
    let lock = direct(&server).await.lock(NAME).ttl(LONG);
    let held = lock.acquire().await.unwrap();
    let mut last = held.fencing_token();
    let mut waiters = JoinSet::new();
    for number in 1..=WAITERS {
        let theirs = direct(&server).await.lock(NAME).ttl(LONG);
        waiters.spawn(async move { (number, theirs.acquire().await) });
        until_waiting(&lock, number).await;
    }
    let _: u64 = command(&server, "DEL lock-core:fence").await;
    let _: u64 = command(&server, "LPUSH lock-core:fence none").await;
    held.release().await.unwrap();
    for expected in 1..=WAITERS {
        let next = in_time("a grant", waiters.join_next()).await.unwrap();
        let (number, next) = next.unwrap();
        let next = next.unwrap();
        assert_eq!(number, expected);
        assert!(next.fencing_token() > last);
        last = next.fencing_token();
        next.release().await.unwrap();
    }
    until_clean(&server).await;
}

async fn grow(counter: Option<u64>) {
    const TASKS: usize = 4;
    const GRANTS: usize = 3000;
    let server = TestServer::start().await;
    if let Some(counter) = counter {
        let () = command(&server, &format!("SET lock-core:fence {counter}")).await;
    }
    let log = Arc::new(Log::default());
    let mut tasks = Vec::new();
    for manager in 0..2 {
        // Rows of different lengths, so that blocks of tokens are used up, and left unused.
        let settings = patient().handover_limit([5, 64][manager]);
        let locks = settings.connect(&server.url()).await.unwrap();
        for _ in 0..TASKS {
            let (lock, log) = (locks.lock(NAME).ttl(LONG), Arc::clone(&log));
            tasks.push(tokio::spawn(async move {
                while log.len() < GRANTS {
                    let guard = lock.acquire().await.unwrap();
                    log.enter(manager, guard, Duration::ZERO).await;
                }
            }));
        }
    }
    for task in tasks {
        in_time("the tasks", task).await.unwrap();
    }
    let entries = log.entries();
    assert!(counter.is_none_or(|counter| entries[0].fence > counter));
    for pair in entries.windows(2) {
        assert!(pair[0].fence < pair[1].fence, "{pair:?}");
    }
    let rows = rows(&entries).len();
    println!("{} grants in {rows} rows", entries.len());
    assert!(rows > 20 && rows < GRANTS, "{rows} rows: not mixed");
    until_clean(&server).await;
}
