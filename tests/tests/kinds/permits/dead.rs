//! Holders and waiters that die.

use std::time::Duration;

use lock_core::{LockManager, LossReason};
use lock_tests::{LIMIT, eventually};
use tokio::time::{Instant, timeout};

use super::rig::{Seen, everywhere, on_servers, queued, used};
use crate::rig::{LONG, Rig, in_a_process_that_dies};

const TTL: Duration = Duration::from_millis(1500);

/// Proves P7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permits_of_a_dead_holder_come_back_after_its_ttl() {
    everywhere(async |rig| {
        for weight in [1, 2, 4] {
            let started = Instant::now();
            let lost = in_a_process_that_dies(async {
                let semaphore = rig.semaphore(4).await.ttl(TTL);
                semaphore.clone().permits(weight).acquire().await.unwrap()
            });
            let all = rig.semaphore(4).await.permits(4).acquire().await.unwrap();
            assert!(started.elapsed() + Duration::from_millis(50) >= TTL);
            assert!(!lost.is_held());
            all.release().await.unwrap();
        }
    })
    .await;
}

/// Queues for this weight as a process that dies then.
fn queue_and_die(rig: &Rig, max: u32, weight: u32) {
    in_a_process_that_dies(async {
        let semaphore = rig
            .named(&format!("dying-{weight}"))
            .await
            .semaphore("s", max);
        let waiting = semaphore.clone().permits(weight).acquire();
        let waiting = tokio::spawn(async move { waiting.await.map(drop) });
        let name = format!("dying-{weight}");
        eventually("it is queued", LIMIT, async || {
            let info = semaphore.seen().await;
            info.queue()
                .iter()
                .any(|waiter| waiter.name() == Some(&*name))
        })
        .await;
        drop(waiting);
    });
}

/// Proves P7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_waiters_of_each_weight_are_skipped() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(4).await;
        let all = semaphore.clone().permits(4).acquire().await.unwrap();
        for weight in [1, 2, 4] {
            queue_and_die(rig, 4, weight);
        }
        let next = rig.named("next").await.semaphore("s", 4);
        let next = tokio::spawn(async move { next.permits(4).acquire().await.unwrap() });
        eventually("it is queued", LIMIT, async || {
            let info = semaphore.seen().await;
            info.queue()
                .iter()
                .any(|waiter| waiter.name() == Some("next"))
        })
        .await;
        all.release().await.unwrap();
        assert!(timeout(LIMIT, next).await.unwrap().unwrap().is_held());
        assert_eq!(semaphore.seen().await.waiters(), 0);
    })
    .await;
}

/// Proves P7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_head_that_does_not_fit_does_not_block_one_that_does() {
    on_servers(async |rig| {
        let semaphore = rig.semaphore(4).await;
        let _three = semaphore.clone().permits(3).acquire().await.unwrap();
        queue_and_die(rig, 4, 2);
        let started = Instant::now();
        let small = rig.semaphore(4).await;
        assert!(small.acquire_within(LIMIT).await.unwrap().is_held());
        // It counts as alive for nine seconds at most.
        assert!(started.elapsed() < Duration::from_secs(9));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_renewed_and_their_loss_is_told() {
    on_servers(async |rig| {
        let locks = rig.manager().await;
        let semaphore = locks.semaphore("s", 2).ttl(TTL);
        let (kept, lost) = (
            semaphore.acquire().await.unwrap(),
            semaphore.acquire().await.unwrap(),
        );
        tokio::time::sleep(TTL * 3).await;
        assert!(kept.is_held() && lost.is_held());
        lock_tests::kit::command::<()>(rig.the_server(), "DEL lock:s").await;
        assert_eq!(timeout(LIMIT, lost.lost()).await.unwrap(), LossReason::Gone);
        assert!(kept.release().await.is_err());
    })
    .await;
}

/// Proves P3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_tells_all_holders_and_serves_the_waiters() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(2).await;
        let (one, two) = (
            semaphore.acquire().await.unwrap(),
            rig.semaphore(2).await.acquire().await.unwrap(),
        );
        let next = queued(&semaphore, rig.semaphore(2).await.permits(2).acquire()).await;
        assert!(semaphore.force_release().await.unwrap());
        for guard in [&one, &two] {
            let reason = timeout(LIMIT, guard.lost()).await.unwrap();
            assert_eq!(reason, LossReason::ForceReleased);
        }
        let next = timeout(LIMIT, next).await.unwrap().unwrap();
        drop((one, two));
        next.release().await.unwrap();
        assert!(!semaphore.force_release().await.unwrap());
    })
    .await;
}

/// Proves P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_dropped_leaves_nothing() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(1).await;
        let held = semaphore.acquire().await.unwrap();
        let other = rig.semaphore(1).await;
        let waiting = queued(&semaphore, other.acquire()).await;
        waiting.abort();
        super::rig::waiters(&semaphore, 0).await;
        // Dropped as it is granted.
        let waiting = queued(&semaphore, other.acquire()).await;
        held.release().await.unwrap();
        waiting.abort();
        drop(waiting.await);
        used(&semaphore, 0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_over_a_connection_of_the_user_are_found_by_polling() {
    on_servers(async |rig| {
        let client = redis::Client::open(rig.the_server().url()).unwrap();
        let connection = client.get_connection_manager().await.unwrap();
        let locks = LockManager::builder().default_ttl(LONG);
        let locks = locks.from_connection(connection).unwrap();
        let polling = locks.semaphore("s", 1);
        let held = rig.semaphore(1).await.acquire().await.unwrap();
        let waiting = queued(&polling, polling.acquire()).await;
        held.release().await.unwrap();
        let guard = timeout(LIMIT, waiting).await.unwrap().unwrap();
        eventually("it is renewed for its own ttl", LIMIT, async || {
            polling
                .seen()
                .await
                .remaining()
                .is_some_and(|left| left > LONG / 2)
        })
        .await;
        guard.release().await.unwrap();
    })
    .await;
}

/// Proves P7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_has_died_keeps_no_number_of_permits() {
    everywhere(async |rig| {
        let _lost = in_a_process_that_dies(async {
            let semaphore = rig.semaphore(2).await.ttl(TTL);
            semaphore.clone().permits(2).acquire().await.unwrap()
        });
        queue_and_die(rig, 2, 1);
        let semaphore = rig.semaphore(3).await;
        eventually("the lease has ended", LIMIT, async || {
            !semaphore.seen().await.is_held()
        })
        .await;
        assert_eq!(semaphore.seen().await.waiters(), 1);
        let all = semaphore.clone().permits(3).try_acquire().await.unwrap();
        assert_eq!(semaphore.seen().await.permits(), Some((3, 3)));
        assert_eq!(semaphore.seen().await.waiters(), 0);
        drop(all);
    })
    .await;
}
