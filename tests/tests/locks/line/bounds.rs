//! How long a process keeps a lock to itself while another one waits (the exception of P8).

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Lock, LockManagerBuilder};
use lock_tests::kit::command;
use lock_tests::{LIMIT, Proxy, TestServer, eventually};
use tokio::task::JoinSet;

use crate::line::support::{
    Entry, KEY, LONG, Log, NAME, direct, granted, in_time, ms, patient, rows,
};
use crate::line::support::{in_line, is_acquire, until_clean, until_waiting};

const TASKS: u64 = 4;

/// Tasks that take the lock again and again until there are so many grants.
fn crowd(tasks: &mut JoinSet<()>, lock: &Lock, manager: usize, log: &Arc<Log>, work: Work) {
    for _ in 0..TASKS {
        let (lock, log) = (lock.clone(), Arc::clone(log));
        tasks.spawn(async move {
            while log.len() < work.grants {
                let guard = lock.acquire().await.unwrap();
                log.enter(manager, guard, work.moment).await;
            }
        });
    }
}

#[derive(Clone, Copy)]
struct Work {
    grants: usize,
    moment: Duration,
}

/// Two managers contend from the first moment on. Answers who was granted the lock.
async fn contend(settings: fn() -> LockManagerBuilder, work: Work) -> Vec<Entry> {
    let server = TestServer::start().await;
    let barrier = direct(&server).await.lock(NAME).ttl(LONG);
    let barrier = barrier.acquire().await.unwrap();
    let log = Arc::new(Log::default());
    let mut tasks = JoinSet::new();
    for manager in 0..2 {
        let locks = settings().connect(&server.url()).await.unwrap();
        let lock = locks.lock(NAME).ttl(LONG);
        crowd(&mut tasks, &lock, manager, &log, work);
        // The place of the manager before, and those who wait here.
        until_waiting(&lock, manager as u64 + TASKS).await;
    }
    barrier.release().await.unwrap();
    while let Some(done) = in_time("the tasks", tasks.join_next()).await {
        done.unwrap();
    }
    until_clean(&server).await;
    let mut entries = log.entries();
    // At the end one of them has the lock for itself.
    entries.truncate(work.grants);
    let last = entries.last().unwrap().manager;
    while entries.pop_if(|entry| entry.manager == last).is_some() {}
    entries
}

async fn rows_are_bounded_by(limit: u32, settings: fn() -> LockManagerBuilder) {
    let work = Work {
        grants: 40 * limit.max(4) as usize,
        moment: Duration::ZERO,
    };
    let entries = contend(settings, work).await;
    let rows = rows(&entries);
    let longest = rows.iter().map(|row| row.len()).max().unwrap_or_default();
    println!("{} rows, the longest of {longest}", rows.len());
    assert!(rows.len() > 10, "{} rows", rows.len());
    assert!(longest <= limit as usize, "{longest} in a row");
    assert!(limit == 1 || longest > 1, "nothing was handed over");
}

fn rows_of(limit: u32) -> LockManagerBuilder {
    patient().handover_limit(limit)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_limit_of_one_processes_take_turns() {
    rows_are_bounded_by(1, || rows_of(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_limit_of_two_no_row_is_longer() {
    rows_are_bounded_by(2, || rows_of(2)).await;
}

/// Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_usual_limit_no_row_is_longer_than_64() {
    rows_are_bounded_by(64, patient).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_bounded_by_its_time() {
    const TIME: Duration = ms(10);
    let work = Work {
        grants: 120,
        moment: ms(2),
    };
    let settings = || rows_of(1024);
    let entries = contend(settings, work).await;
    let rows = rows(&entries);
    let longest = rows.iter().map(|row| row.len()).max().unwrap_or_default();
    println!("{} rows, the longest of {longest}", rows.len());
    assert!(longest > 1, "nothing was handed over");
    for row in rows {
        let [before @ .., _] = row else { continue };
        let Some(handing) = before.last() else {
            continue;
        };
        // The row had begun before its first guard was seen, and the hand-over came after its release.
        let lasted = handing.released - row[0].granted;
        assert!(lasted < TIME, "handed over after {lasted:?}");
    }
}

/// The fencing tokens end a row as well, so it has to be seen in the middle of a block of them: after some 960 grants begins
/// one that lasts for another 1024.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_row_ends_for_a_latecomer() {
    const BEFORE: usize = 1100;
    const AFTER: usize = 1500;
    let server = TestServer::start().await;
    let locks = rows_of(2).connect(&server.url()).await.unwrap();
    let log = Arc::new(Log::default());
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, log) = (locks.lock(NAME).ttl(LONG), Arc::clone(&log));
        tasks.spawn(async move {
            loop {
                let guard = lock.acquire().await.unwrap();
                let moment = if log.len() < BEFORE { ms(0) } else { ms(2) };
                log.enter(0, guard, moment).await;
            }
        });
    }
    eventually("a long row", LIMIT, async || log.len() >= BEFORE).await;
    let other = direct(&server).await.lock(NAME).ttl(LONG);
    let guard = in_time("the latecomer's grant", other.acquire()).await;
    log.enter(1, guard.unwrap(), Duration::ZERO).await;
    let entries = log.entries();
    let place = entries.iter().position(|entry| entry.manager == 1).unwrap();
    println!("granted as number {place}");
    assert!(place < AFTER, "only as number {place}");
    tasks.shutdown().await;
    until_clean(&server).await;
}

/// The lease of a holder that tells nobody anything runs out, and the first in the queue takes the lock by asking.
#[tokio::test]
async fn the_others_in_the_queue_are_known_to_one_who_took_the_lock_by_asking() {
    let server = TestServer::start().await;
    let () = command(&server, &format!("SET {KEY} foreign PX 1500")).await;
    let locks = rows_of(2).connect(&server.url()).await.unwrap();
    let lock = locks.lock(NAME).ttl(LONG);
    let mut waiting = Vec::new();
    for _ in 0..6 {
        waiting.push(in_line(&lock).await);
    }
    let proxy = Proxy::start(&server);
    let others = patient().connect(&proxy.url()).await.unwrap();
    let other = others.lock(NAME).ttl(LONG);
    let rival = tokio::spawn(async move { other.acquire().await.unwrap() });
    until_waiting(&lock, 7).await;
    // Now the other one does not ask any more, neither for the lock nor to be remembered.
    let silenced = proxy.hold_next_request_matching(is_acquire);
    let mut waiting = waiting.into_iter();
    let mut mine = 0;
    while !rival.is_finished() {
        let next = waiting.next().expect("six in a row, where two may be");
        let guard = tokio::select! {
            guard = next => guard.unwrap(),
            () = until_its_turn(&rival) => break,
        };
        mine += 1;
        guard.release().await.unwrap();
    }
    assert_eq!(mine, 2);
    silenced.deliver();
    granted(rival).await.release().await.unwrap();
    drop(waiting);
}

async fn until_its_turn<T>(task: &tokio::task::JoinHandle<T>) {
    eventually("the other's turn", LIMIT, async || task.is_finished()).await;
}
