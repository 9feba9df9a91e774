//! Many locks with waiters in one process, when their messages may have been missed.

use std::time::{Duration, Instant};

use lock_core::LockManager;
use lock_tests::kit::{command, script_calls};
use lock_tests::{LIMIT, TestServer, eventually};
use tokio::task::JoinSet;

const LONG: Duration = Duration::from_secs(3600);
const WAITERS: usize = 10_000;
/// Number of waiters that begin at once, so that each is answered in time.
const PART: usize = 2_000;

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_do_not_wait_behind_the_refreshes_of_a_crowd() {
    let server = TestServer::start().await;
    let mut connection = server.connection().await;
    let builder = LockManager::builder().default_ttl(LONG);
    let locks = builder.connect(&server.url()).await.unwrap();
    let mut waiting = JoinSet::new();
    for first in (0..WAITERS).step_by(PART) {
        let mut held = redis::pipe();
        for number in first..first + PART {
            let holder = format!("00000000-0000-4000-8000-000000000000:{number}:other");
            let mut set = redis::cmd("SET");
            set.arg(format!("lock:w-{number}")).arg(holder);
            held.add_command(set.arg("PX").arg(3_600_000).clone())
                .ignore();
        }
        let () = held.query_async(&mut connection).await.unwrap();
        for number in first..first + PART {
            let lock = locks.lock(format!("w-{number}"));
            waiting.spawn(async move { lock.acquire().await.map(drop) });
        }
        eventually("all are queued", LIMIT, async || {
            // A lock, a queue and a hash each.
            let keys: usize = command(&server, "DBSIZE").await;
            keys >= 3 * (first + PART)
        })
        .await;
    }
    let short = Duration::from_secs(8);
    let mut held = Vec::new();
    for number in 0..50 {
        let lock = locks.lock(format!("held-{number}")).ttl(short);
        held.push(lock.acquire().await.unwrap());
    }
    let before = script_calls(&server).await;
    let cut = Instant::now();
    let _: u64 = command(&server, "CLIENT KILL TYPE pubsub").await;
    // By then requests have timed out and have been repeated.
    eventually("all have asked several times", LIMIT * 4, async || {
        for guard in &held {
            assert!(guard.is_held(), "{guard:?} after {:?}", cut.elapsed());
        }
        script_calls(&server).await - before >= 4 * WAITERS as u64
    })
    .await;
}
