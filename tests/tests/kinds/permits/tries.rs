//! Tries of a process that has let go just before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::poll;

use super::rig::{everywhere, on_servers};

const ROUNDS: usize = 60;

/// Other tasks release all the time: a try waits for what was let go before it, and not for what follows. Proves P11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_does_not_wait_for_the_releases_that_follow_it() {
    on_servers(async |rig| {
        let semaphore = rig.semaphore(64).await;
        let (drops, is_over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let droppers: Vec<_> = (0..16)
            .map(|_| {
                let (semaphore, drops) = (semaphore.clone(), Arc::clone(&drops));
                let is_over = Arc::clone(&is_over);
                tokio::spawn(async move {
                    while !is_over.load(Ordering::Relaxed) {
                        drop(semaphore.acquire().await.unwrap());
                        drops.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut most = 0;
        for _ in 0..20 {
            let before = drops.load(Ordering::Relaxed);
            assert!(semaphore.try_acquire().await.unwrap().is_some());
            most = most.max(drops.load(Ordering::Relaxed) - before);
        }
        is_over.store(true, Ordering::Relaxed);
        for dropper in droppers {
            dropper.await.unwrap();
        }
        // Each of the 16 is released, and another one, in the time of the try.
        assert!(most < 1000, "a try waited for {most} releases");
    })
    .await;
}

/// Proves P11.
#[tokio::test]
async fn an_upgrade_after_a_drop_of_the_other_reader_succeeds() {
    everywhere(async |rig| {
        let lock = rig.rw_lock().await;
        for round in 0..ROUNDS {
            let (one, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
            drop(other);
            let writer = one.try_upgrade().await;
            let writer = writer.unwrap_or_else(|_| panic!("refused in round {round}"));
            writer.release().await.unwrap();
        }
    })
    .await;
}

/// Proves P11.
#[tokio::test]
async fn a_try_after_a_wait_that_was_dropped_is_not_behind_it() {
    everywhere(async |rig| {
        let (lock, other) = (rig.rw_lock().await, rig.rw_lock().await);
        let (semaphore, others) = (rig.semaphore(2).await, rig.semaphore(2).await);
        let (reader, permit) = (other.read().await.unwrap(), others.acquire().await.unwrap());
        for round in 0..ROUNDS {
            let mut writing = Box::pin(lock.write());
            let mut acquiring = Box::pin(semaphore.clone().permits(2).acquire());
            let mut queued = 0;
            // Polled once more when both are queued, so that they read the answers.
            while queued < 2 {
                queued = lock_waits(&lock, &semaphore).await;
                let (write, acquire) = (poll!(writing.as_mut()), poll!(acquiring.as_mut()));
                assert!(write.is_pending() && acquire.is_pending());
            }
            drop(writing);
            assert!(lock.try_read().await.unwrap().is_some(), "read {round}");
            drop(acquiring);
            assert!(
                semaphore.try_acquire().await.unwrap().is_some(),
                "permit {round}"
            );
        }
        reader.release().await.unwrap();
        permit.release().await.unwrap();
    })
    .await;
}

async fn lock_waits(lock: &lock_core::RwLock, semaphore: &lock_core::Semaphore) -> u64 {
    let (one, other) = (lock.inspect().await, semaphore.inspect().await);
    one.unwrap().waiters() + other.unwrap().waiters()
}
