//! How soon a waiter learns of a free segment. Time passes only while all tasks wait for it.

use std::pin::pin;

use futures_util::FutureExt;
use tokio::time::sleep;

use super::*;
use crate::face::manager::LockManager;

const KEY: &str = "stock";
const SEGMENTS: usize = 4;
/// A ttl that does not end within a test.
const LONG: Duration = Duration::from_secs(3600);

async fn manager(url: &str) -> LockManager {
    let builder = LockManager::builder().default_ttl(LONG);
    builder.connect(url).await.unwrap()
}

/// Takes every segment.
async fn all_of(lock: &SegmentedLock) -> Vec<SegmentGuard> {
    let mut guards = Vec::new();
    while let Some(guard) = lock.try_acquire().await.unwrap() {
        guards.push(guard);
    }
    assert_eq!(guards.len(), SEGMENTS);
    guards
}

/// A guard of a segment without a queue.
async fn not_queued_at(locks: &LockManager, held: &mut Vec<SegmentGuard>) -> SegmentGuard {
    for position in 0..held.len() {
        let lock = locks.lock(held[position].key());
        if lock.inspect().await.unwrap().waiters() == 0 {
            return held.swap_remove(position);
        }
    }
    panic!("a waiter is queued at each segment");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_segment_goes_to_a_waiter_at_another_one_at_once() {
    let locks = manager("memory://").await;
    let lock = locks.segmented_lock(KEY, SEGMENTS);
    let mut held = all_of(&lock).await;
    let mut waiting = pin!(lock.acquire());
    assert!((&mut waiting).now_or_never().is_none());
    let guard = not_queued_at(&locks, &mut held).await;
    let (segment, begun) = (guard.segment(), Instant::now());
    drop(guard);
    // The waiter is polled before the task that sends the release.
    assert!((&mut waiting).now_or_never().is_none());
    let guard = waiting.await.unwrap();
    assert_eq!(guard.segment(), segment);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_hears_soon_of_a_segment_that_another_process_let_go() {
    let url = "memory://segments-elsewhere";
    let (theirs, ours) = (manager(url).await, manager(url).await);
    let mut held = all_of(&theirs.segmented_lock(KEY, SEGMENTS)).await;
    let lock = ours.segmented_lock(KEY, SEGMENTS);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    // By now its interval has its maximum.
    sleep(Duration::from_secs(10)).await;
    let guard = not_queued_at(&theirs, &mut held).await;
    let begun = Instant::now();
    guard.release().await.unwrap();
    let _guard = waiting.await.unwrap();
    let waited = begun.elapsed();
    assert!(waited <= Duration::from_millis(501), "{waited:?}");
}
