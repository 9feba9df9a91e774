//! The server forgets: its scripts, or everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::LossReason;
use lock_tests::TestServer;

use crate::support::{KEY, LONG, NAME, QUEUE, Section, command, direct, in_time, ms, until_clean};
use crate::support::{renewed, until_queued, warm_server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_all_the_time_are_not_noticed() {
    const TASKS: usize = 16;
    const ROUNDS: usize = 15;
    let server = Arc::new(TestServer::start().await);
    let managers = [direct(&server).await, direct(&server).await];
    let over = Arc::new(AtomicBool::new(false));
    let flushing = tokio::spawn({
        let (server, over) = (Arc::clone(&server), Arc::clone(&over));
        async move {
            let mut connection = server.connection().await;
            let mut flushed = 0;
            while !over.load(Ordering::SeqCst) {
                redis::cmd("SCRIPT")
                    .arg("FLUSH")
                    .query_async::<()>(&mut connection)
                    .await
                    .unwrap();
                flushed += 1;
            }
            flushed
        }
    });
    let sections: [Section; 2] = Default::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let name = ["a", "b"][task / 2 % 2];
            let lock = managers[task % 2].lock(name).ttl(LONG);
            let section = sections[task / 2 % 2].clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.acquire().await.unwrap();
                    section.work(&guard, ms(1)).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("the tasks", task).await.unwrap();
    }
    over.store(true, Ordering::SeqCst);
    let flushed = flushing.await.unwrap();
    assert!(flushed > ROUNDS, "{flushed} flushes");
    sections.iter().for_each(Section::assert_exclusive);
    let entered: usize = sections.iter().map(Section::entered).sum();
    assert_eq!(entered, TASKS * ROUNDS);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_renewal_repeats_itself_when_its_script_is_gone() {
    let server = warm_server().await;
    let locks = direct(&server).await;
    let guard = locks.lock(NAME).ttl(ms(1500)).acquire().await.unwrap();
    for _ in 0..3 {
        command::<()>(&server, "SCRIPT FLUSH").await;
        assert!(renewed(&guard).await);
    }
    guard.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_flush_of_everything_costs_the_guard_and_waiters_still_get_the_lock() {
    let server = warm_server().await;
    let holder = direct(&server).await;
    let guard = holder.lock(NAME).ttl(ms(3000)).acquire().await.unwrap();
    let section = Section::default();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let lock = direct(&server).await.lock(NAME).ttl(LONG);
        let section = section.clone();
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            section.work(&guard, ms(5)).await;
            let fence = guard.fencing_token();
            guard.release().await.unwrap();
            fence
        }));
        until_queued(&server, tasks.len()).await;
    }
    server.flushall().await;
    // Not by its deadline: at the next renewal it is told.
    assert_eq!(in_time("the loss", guard.lost()).await, LossReason::Gone);
    assert!(!guard.is_held());
    for task in tasks {
        let fence = in_time("a waiter", task).await.unwrap();
        assert!(fence > guard.fencing_token(), "the counter went back");
    }
    section.assert_exclusive();
    drop(guard);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_queue_that_was_deleted_is_made_again_for_everybody() {
    let server = warm_server().await;
    let locks = direct(&server).await;
    // A third of the ttl is the refresh interval, which makes good what the server has lost.
    let held = locks.lock(NAME).ttl(ms(1500)).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let lock = direct(&server).await.lock(NAME).ttl(ms(1500));
        waiters.push(tokio::spawn(async move { lock.acquire().await }));
    }
    until_queued(&server, 3).await;
    // Only the list: what is known about the waiters stays, and could be mistaken for a place in it.
    command::<()>(&server, &format!("DEL {QUEUE}")).await;
    until_queued(&server, 3).await;
    held.release().await.unwrap();
    for waiter in waiters {
        let guard = in_time("a waiter", waiter).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    until_clean(&server).await;
}

#[tokio::test]
async fn a_queue_of_another_type_keeps_no_release_from_its_lock() {
    let server = warm_server().await;
    let lock = direct(&server).await.lock(NAME).ttl(LONG);
    let guard = lock.acquire().await.unwrap();
    command::<()>(&server, &format!("SET {QUEUE} foreign")).await;
    guard.release().await.unwrap();
    assert!(!server.exists(KEY).await);
    assert_eq!(server.get(QUEUE).await.as_deref(), Some("foreign"));
}

#[tokio::test]
async fn what_dead_clients_leave_in_a_busy_queue_is_tidied_away() {
    let server = warm_server().await;
    let locks = direct(&server).await;
    let held = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = direct(&server).await.lock(NAME).ttl(LONG);
        async move { lock.acquire().await }
    });
    until_queued(&server, 1).await;
    let waiters = format!("lock-core:waiters:{{lock:{NAME}}}");
    let mut connection = server.connection().await;
    for client in 0..150 {
        let added: redis::RedisResult<()> = redis::cmd("HSET")
            .arg(&waiters)
            .arg(format!("{client:036}"))
            .arg("1000 gone")
            .query_async(&mut connection)
            .await;
        added.unwrap();
    }
    // The next one that joins finds far more clients than waiters.
    let late = tokio::spawn({
        let lock = direct(&server).await.lock(NAME).ttl(LONG);
        async move { lock.acquire().await }
    });
    until_queued(&server, 2).await;
    let known: usize = command(&server, &format!("HLEN {waiters}")).await;
    assert_eq!(known, 4, "two waiters and their clients");
    held.release().await.unwrap();
    for waiter in [waiter, late] {
        let guard = in_time("a waiter", waiter).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    until_clean(&server).await;
}
