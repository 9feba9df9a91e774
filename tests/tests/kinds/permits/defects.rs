//! Defects that other libraries have, each absent here. The number is that of the report.

use std::time::Duration;

use lock_core::LockManager;
use lock_tests::LIMIT;
use tokio::time::{Instant, timeout};

use super::rig::{Seen, everywhere, on_servers, queued, used};

/// redisson#5379: no order between readers and writers, and writers starve. Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_among_readers_that_never_pause_is_served() {
    everywhere(async |rig| {
        let mut readers = Vec::new();
        for _ in 0..6 {
            let lock = rig.rw_lock().await;
            readers.push(tokio::spawn(async move {
                loop {
                    let guard = lock.read().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    guard.release().await.unwrap();
                }
            }));
        }
        let lock = rig.rw_lock().await;
        for _ in 0..5 {
            let writer = timeout(LIMIT, lock.write()).await.unwrap().unwrap();
            writer.release().await.unwrap();
        }
        readers.iter().for_each(tokio::task::JoinHandle::abort);
    })
    .await;
}

/// redisson#4796: a reader that writes waits for itself.
#[tokio::test]
async fn a_reader_that_wants_to_write_is_told_and_does_not_hang() {
    everywhere(async |rig| {
        let (lock, other) = (rig.rw_lock().await, rig.rw_lock().await);
        let (one, _two) = (lock.read().await.unwrap(), other.read().await.unwrap());
        assert!(timeout(LIMIT, one.try_upgrade()).await.unwrap().is_err());
    })
    .await;
}

/// redisson#3891: a writer that waits stays stuck after the readers have gone. Proves P9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_writer_is_served_by_the_release_of_the_last_reader() {
    everywhere(async |rig| {
        let lock = rig.rw_lock().await;
        let (one, two) = (
            lock.read().await.unwrap(),
            rig.rw_lock().await.read().await.unwrap(),
        );
        let writer = queued(&lock, rig.rw_lock().await.write()).await;
        one.release().await.unwrap();
        assert!(!writer.is_finished());
        let released = Instant::now();
        two.release().await.unwrap();
        let _guard = timeout(LIMIT, writer).await.unwrap().unwrap();
        // Not by a refresh, which comes after three seconds.
        assert!(released.elapsed() < Duration::from_secs(2));
    })
    .await;
}

/// redisson#3046: no watchdog for permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_is_renewed_for_as_long_as_it_is_held() {
    everywhere(async |rig| {
        let ttl = Duration::from_millis(900);
        let semaphore = rig.semaphore(1).await.ttl(ttl);
        let permit = semaphore.acquire().await.unwrap();
        tokio::time::sleep(ttl * 3).await;
        assert!(permit.is_held());
        assert!(
            rig.semaphore(1)
                .await
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
    })
    .await;
}

/// redisson#4100: keys stay for ever. Proves P4.
#[tokio::test]
async fn each_key_has_a_ttl_while_it_is_there() {
    on_servers(async |rig| {
        let locks = rig.manager().await;
        let (semaphore, rw) = (locks.semaphore("s", 1), locks.rw_lock("rw"));
        let _held = (
            semaphore.acquire().await.unwrap(),
            rw.write().await.unwrap(),
        );
        let waiting = [
            queued(&semaphore, semaphore.acquire()).await.abort_handle(),
            tokio::spawn({
                let rw = rw.clone();
                async move { rw.read().await.map(drop) }
            })
            .abort_handle(),
        ];
        super::rig::waiters(&rw, 1).await;
        for key in rig.the_server().keys().await {
            if key != lock_tests::kit::FENCE {
                let ttl: i64 =
                    lock_tests::kit::command(rig.the_server(), &format!("PTTL {key}")).await;
                assert!(ttl > 0, "{key}: {ttl}");
            }
        }
        waiting.iter().for_each(tokio::task::AbortHandle::abort);
    })
    .await;
}

/// redisson#4462, #2933: permits are lost for ever in a crash. Curator (apache/curator#835, #982): a cancelled wait leaves one.
/// Proves P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permit_is_lost_by_cancelled_waits() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(2).await;
        for round in 0..40_u64 {
            let limit = Duration::from_micros(50 * round);
            let waits = [semaphore.acquire(), rig.semaphore(2).await.acquire()];
            let _held = semaphore.try_acquire().await.unwrap();
            for wait in waits {
                let _ = timeout(limit, wait).await;
            }
        }
        used(&semaphore, 0).await;
        let both = timeout(LIMIT, semaphore.permits(2).acquire()).await;
        both.unwrap().unwrap().release().await.unwrap();
    })
    .await;
}

/// The leases of Redisson's permits are counted by the clock of the client.
#[tokio::test]
async fn the_clock_of_the_server_counts_the_leases() {
    on_servers(async |rig| {
        let permit = rig.semaphore(1).await.acquire().await.unwrap();
        let time: (u64, u64) = lock_tests::kit::command(rig.the_server(), "TIME").await;
        let fields: Vec<String> = lock_tests::kit::command(rig.the_server(), "HVALS lock:s").await;
        let deadlines = fields.iter().map(|field| field.split(' ').next().unwrap());
        let ends = time.0 * 1000 + crate::rig::LONG.as_millis() as u64;
        for deadline in deadlines {
            let deadline: u64 = deadline.parse().unwrap();
            assert!(
                deadline.abs_diff(ends) < 60_000,
                "{deadline} against {ends}"
            );
        }
        permit.release().await.unwrap();
    })
    .await;
}

/// DistributedLock#172: waiters poll. Here a release is one command, and no waiter asks. Proves P9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_is_waited_for_costs_two_commands() {
    on_servers(async |rig| {
        let locks: LockManager = rig.manager().await;
        let semaphore = locks.semaphore("s", 1);
        semaphore.acquire().await.unwrap().release().await.unwrap();
        let held = semaphore.acquire().await.unwrap();
        let calls = async || {
            let info: String =
                lock_tests::kit::command(rig.the_server(), "INFO commandstats").await;
            let calls = info.lines().filter(|line| line.starts_with("cmdstat_eval"));
            calls
                .map(|line| {
                    line.split(['=', ','])
                        .nth(1)
                        .unwrap()
                        .parse::<u64>()
                        .unwrap()
                })
                .sum::<u64>()
        };
        let (mut waiting, mut inspected) = (Vec::new(), 0);
        semaphore_waiters(&locks, &mut 0).await;
        let before = calls().await;
        for count in 1..=10 {
            let semaphore = semaphore.clone();
            waiting.push(tokio::spawn(async move {
                semaphore.acquire().await.unwrap().release().await
            }));
            while semaphore_waiters(&locks, &mut inspected).await < count {}
        }
        held.release().await.unwrap();
        for task in waiting {
            task.await.unwrap().unwrap();
        }
        // One more for the release of the first.
        assert_eq!(calls().await - before - inspected, 2 * 10 + 1);
    })
    .await;
}

async fn semaphore_waiters(locks: &LockManager, inspected: &mut u64) -> u64 {
    *inspected += 1;
    locks.semaphore("s", 1).seen().await.waiters()
}
