//! P1: one holder at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lock_tests::boottime_now;
use tokio::task::JoinSet;

use super::kinds::Lock;
use super::rig::{Rig, free};

/// A resource that notices when two are at it.
#[derive(Default)]
struct Resource {
    inside: AtomicBool,
    overlaps: AtomicU64,
    counter: AtomicU64,
}

impl Resource {
    /// Reads, dawdles and writes: an overlap loses a count, too.
    async fn increment(&self) {
        if self.inside.swap(true, Ordering::SeqCst) {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        let read = self.counter.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.counter.store(read + 1, Ordering::SeqCst);
        if !self.inside.swap(false, Ordering::SeqCst) {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn contend(locks: &[Lock], tasks: usize, rounds: usize) -> Arc<Resource> {
    let resource = Arc::new(Resource::default());
    let mut running = JoinSet::new();
    for lock in locks {
        for task in 0..tasks {
            let (lock, resource) = (lock.clone(), Arc::clone(&resource));
            running.spawn(async move {
                for _ in 0..rounds {
                    let guard = lock.acquire().await.unwrap();
                    resource.increment().await;
                    assert!(guard.is_held());
                    // Both ways to let go take part.
                    if task % 2 == 0 {
                        guard.release().await.unwrap();
                    }
                }
            });
        }
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    resource
}

pub(crate) async fn tasks_of_two_managers_never_overlap(rig: &Rig) {
    let locks = [rig.lock("shared").await, rig.lock("shared").await];
    let resource = contend(&locks, 8, 4).await;
    assert_eq!(resource.overlaps.load(Ordering::SeqCst), 0);
    assert_eq!(resource.counter.load(Ordering::SeqCst), 64);
    free(&locks[0]).await;
}

pub(crate) async fn sixty_four_tasks_all_get_it(rig: &Rig) {
    let lock = rig.lock("popular").await;
    let resource = contend(std::slice::from_ref(&lock), 64, 1).await;
    assert_eq!(resource.overlaps.load(Ordering::SeqCst), 0);
    assert_eq!(resource.counter.load(Ordering::SeqCst), 64);
    free(&lock).await;
}

/// Proves P1.
pub(crate) async fn at_no_instant_do_two_guards_report_held(rig: &Rig) {
    let first = rig.lock("brief").await;
    let guard = first
        .ttl(Duration::from_secs(1))
        .renew(false)
        .acquire()
        .await
        .unwrap();
    // A thread of its own looks, so that the answer does not hang on the runtime.
    let stop = Arc::new(AtomicBool::new(false));
    let watching = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut last_held = None;
            while !stop.load(Ordering::SeqCst) {
                let before = boottime_now();
                if guard.is_held() {
                    last_held = Some(before);
                }
                std::thread::sleep(Duration::from_micros(50));
            }
            last_held
        }
    });
    let taken_over = rig.lock("brief").await.acquire().await.unwrap();
    let granted = boottime_now();
    assert!(taken_over.is_held());
    // It looks on for a while after the takeover: an event of its own, as another round of the lock is.
    taken_over.release().await.unwrap();
    stop.store(true, Ordering::SeqCst);
    let last_held = watching.join().unwrap().unwrap_or_default();
    assert!(
        last_held < granted,
        "held at {last_held:?} while another had been granted it by {granted:?}"
    );
}
