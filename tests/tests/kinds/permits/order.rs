//! The order of the waiters.

use super::rig::{Seen, everywhere, queued, used, waiters};

/// Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_request_does_not_overtake_a_large_one() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(4).await;
        let (two, one) = (
            semaphore.clone().permits(2).acquire().await,
            semaphore.acquire().await,
        );
        let other = rig.semaphore(4).await;
        let large = queued(&semaphore, other.clone().permits(3).acquire()).await;
        // One is free, and the first waiter wants three.
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        let small = queued(&semaphore, semaphore.acquire()).await;
        drop(one);
        used(&semaphore, 2).await;
        assert_eq!(semaphore.seen().await.waiters(), 2);
        drop(two);
        let large = large.await.unwrap();
        let small = small.await.unwrap();
        assert!(large.is_held() && small.is_held());
        used(&semaphore, 4).await;
    })
    .await;
}

/// Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_leaves_the_head_lets_those_behind_it_in() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(2).await;
        let _one = semaphore.acquire().await.unwrap();
        let large = queued(&semaphore, rig.semaphore(2).await.permits(2).acquire()).await;
        let small = queued(&semaphore, rig.semaphore(2).await.acquire()).await;
        large.abort();
        assert!(small.await.unwrap().is_held());
        waiters(&semaphore, 0).await;
    })
    .await;
}

/// Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_behind_a_writer_wait_for_it_and_are_served_together() {
    everywhere(async |rig| {
        let lock = rig.rw_lock().await;
        let first = lock.read().await.unwrap();
        let writer = queued(&lock, rig.rw_lock().await.write()).await;
        assert!(
            lock.try_read().await.unwrap().is_none(),
            "the writer is first"
        );
        let one = queued(&lock, rig.rw_lock().await.read()).await;
        let two = queued(&lock, rig.rw_lock().await.read()).await;
        let last = queued(&lock, rig.rw_lock().await.write()).await;
        let late = queued(&lock, rig.rw_lock().await.read()).await;
        first.release().await.unwrap();
        let writer = writer.await.unwrap();
        assert_eq!(lock.seen().await.waiters(), 4);
        writer.release().await.unwrap();
        let (one, two) = (one.await.unwrap(), two.await.unwrap());
        assert_eq!(one.fencing_token(), two.fencing_token(), "one phase");
        assert!(!last.is_finished() && !late.is_finished());
        drop((one, two));
        last.await.unwrap().release().await.unwrap();
        assert!(late.await.unwrap().is_held());
    })
    .await;
}

/// Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_one_manager_are_served_in_their_order() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(1).await;
        let held = semaphore.acquire().await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..8 {
            waiting.push(queued(&semaphore, semaphore.acquire()).await);
        }
        drop(held);
        let mut last = None;
        for task in waiting {
            let guard = task.await.unwrap();
            assert!(last < Some(guard.fencing_token()));
            last = Some(guard.fencing_token());
            guard.release().await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_after_the_drop_of_a_permit_finds_it_free() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(1).await;
        for _ in 0..50 {
            drop(semaphore.acquire().await.unwrap());
            assert!(semaphore.try_acquire().await.unwrap().is_some());
        }
    })
    .await;
}
