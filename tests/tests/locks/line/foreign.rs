//! Beside clients of another kind, which take the lock with `SET NX PX`, and remove it without a word.

use std::time::{Duration, Instant};

use lock_core::{LockError, LockManager};
use lock_tests::kit::{command, ms, script_calls};
use lock_tests::{LIMIT, TestServer, eventually};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const KEY: &str = "lock:a";
const LONG: Duration = Duration::from_secs(3600);
/// Shorter than the interval at which a waiter asks without a message.
const SOON: Duration = Duration::from_millis(1500);

async fn connect(server: &TestServer) -> LockManager {
    let builder = LockManager::builder().default_ttl(LONG);
    builder.connect(&server.url()).await.unwrap()
}

async fn queued(server: &TestServer, waiters: usize) {
    let queue = format!("LLEN lock-core:queue:{{{KEY}}}");
    eventually("they are queued", LIMIT, async || {
        command::<usize>(server, &queue).await == waiters
    })
    .await;
}

#[tokio::test]
async fn a_release_by_a_client_of_another_kind_is_found_soon() {
    let server = TestServer::start().await;
    let locks = connect(&server).await;
    let () = command(&server, &format!("SET {KEY} theirs PX 3600000")).await;
    let lock = locks.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    queued(&server, 1).await;
    let () = command(&server, &format!("DEL {KEY}")).await;
    let guard = timeout(SOON, waiting).await.expect("in time").unwrap();
    guard.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_asks_a_last_time_when_its_limit_ends() {
    let server = TestServer::start().await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let guard = one.lock("a").acquire().await.unwrap();
    let wait = |limit| {
        let lock = other.lock("a");
        tokio::spawn(async move { lock.acquire_within(limit).await })
    };
    let waiting = wait(ms(200));
    queued(&server, 1).await;
    let in_vain = waiting.await.unwrap();
    assert!(
        matches!(in_vain, Err(LockError::TimedOut { .. })),
        "{in_vain:?}"
    );
    let waiting = wait(ms(500));
    queued(&server, 1).await;
    let () = command(&server, &format!("DEL {KEY}")).await;
    let next = waiting.await.unwrap().unwrap();
    assert!(guard.is_held(), "it is told at its next renewal");
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_behind_a_client_of_another_kind_ask_as_one_for_each_process() {
    let server = TestServer::start().await;
    let () = command(&server, &format!("SET {KEY} theirs PX 3600000")).await;
    let mut waiting = JoinSet::new();
    for _ in 0..4 {
        let locks = connect(&server).await;
        for _ in 0..25 {
            let lock = locks.lock("a");
            waiting.spawn(async move { lock.acquire().await });
        }
    }
    queued(&server, 4).await;
    let (before, from) = (script_calls(&server).await, Instant::now());
    sleep(ms(1000)).await;
    let calls = (script_calls(&server).await - before) as f64;
    let a_second = calls / from.elapsed().as_secs_f64();
    println!("100 waiters in 4 processes ask {a_second:.0} times a second");
    // Each process asks every 25 to 75 ms.
    assert!((40.0..=160.0).contains(&a_second), "{a_second}");
}

/// Pause of each client between two holds.
const BETWEEN: Duration = ms(5);

/// A client of another kind: tries every 50 ms, holds for 5 ms.
async fn theirs(server: &TestServer, number: usize, end: Instant) -> u32 {
    let (mut held, mut connection) = (0, server.connection().await);
    while Instant::now() < end {
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg(number).arg("NX").arg("PX").arg(5000);
        let taken: Option<String> = set.query_async(&mut connection).await.unwrap();
        if taken.is_some() {
            sleep(ms(5)).await;
            let () = redis::cmd("DEL")
                .arg(KEY)
                .query_async(&mut connection)
                .await
                .unwrap();
            held += 1;
            sleep(BETWEEN).await;
        } else {
            sleep(ms(50)).await;
        }
    }
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_another_kind_and_ours_get_their_shares() {
    let server = TestServer::start().await;
    let locks = connect(&server).await;
    let end = Instant::now() + Duration::from_secs(4);
    let ours = async {
        let mut held = 0;
        while Instant::now() < end {
            let guard = locks.lock("a").acquire().await.unwrap();
            sleep(ms(5)).await;
            guard.release().await.unwrap();
            held += 1;
            sleep(BETWEEN).await;
        }
        held
    };
    let (ours, one, two, three) = tokio::join!(
        ours,
        theirs(&server, 1, end),
        theirs(&server, 2, end),
        theirs(&server, 3, end)
    );
    println!("ours {ours}, theirs {one}, {two}, {three}");
    let theirs = (one + two + three) / 3;
    assert!(ours * 4 > theirs, "ours {ours}, theirs {theirs}");
}
