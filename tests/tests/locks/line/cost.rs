//! What a hand-over costs.

use std::sync::Arc;
use std::time::Duration;

use crate::line::support::{KEY, granted, until_waiting, warm_server};
use crate::line::support::{LONG, Log, NAME, direct, in_line, in_time, script_calls, until_clean};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_hand_overs_inside_a_process_cost_next_to_no_commands() {
    const TASKS: u64 = 8;
    const GRANTS: usize = 1000;
    let server = warm_server().await;
    let lock = direct(&server).await.lock(NAME).ttl(LONG);
    let barrier = lock.acquire().await.unwrap();
    let log = Arc::new(Log::default());
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (lock, log) = (lock.clone(), Arc::clone(&log));
            tokio::spawn(async move {
                while log.len() < GRANTS {
                    let guard = lock.acquire().await.unwrap();
                    log.enter(0, guard, Duration::ZERO).await;
                }
            })
        })
        .collect();
    until_waiting(&lock, TASKS).await;
    server.reset_stats().await;
    barrier.release().await.unwrap();
    for task in tasks {
        in_time("the tasks", task).await.unwrap();
    }
    let (calls, grants) = (script_calls(&server).await, log.len());
    println!("{calls} script calls for {grants} grants");
    // Each brings more fencing tokens than the one before, and the last one lets go: a handful.
    assert!(calls <= 30, "{calls} script calls for {grants} grants");
    until_clean(&server).await;
}

/// Proves P9.
#[tokio::test]
async fn a_hand_over_inside_a_process_sends_nothing() {
    let server = warm_server().await;
    let lock = direct(&server).await.lock(NAME).ttl(LONG);
    let first = lock.acquire().await.unwrap();
    let waiters = [
        in_line(&lock).await,
        in_line(&lock).await,
        in_line(&lock).await,
    ];
    // This one goes by the server, and brings the fencing tokens for the others.
    first.release().await.unwrap();
    let [second, third, fourth] = waiters;
    let second = granted(second).await;
    let token = server.get(KEY).await;
    server.reset_stats().await;
    second.release().await.unwrap();
    let third = granted(third).await;
    drop(third);
    let fourth = granted(fourth).await;
    assert_eq!(script_calls(&server).await, 0);
    assert_eq!(server.get(KEY).await, token, "one token for all");
    fourth.release().await.unwrap();
    assert_eq!(script_calls(&server).await, 1);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_waiter_that_queued_alone_hands_over_to_one_that_came_behind_it() {
    let server = warm_server().await;
    let elsewhere = direct(&server).await.lock(NAME).ttl(LONG);
    let held = elsewhere.acquire().await.unwrap();
    let lock = direct(&server).await.lock(NAME).ttl(LONG);
    let (first, second) = (in_line(&lock).await, in_line(&lock).await);
    held.release().await.unwrap();
    let first = granted(first).await;
    server.reset_stats().await;
    let fence = first.fencing_token();
    first.release().await.unwrap();
    let second = granted(second).await;
    assert_eq!(script_calls(&server).await, 0);
    assert_eq!(second.fencing_token().get(), fence.get() + 1);
    second.release().await.unwrap();
    until_clean(&server).await;
}
