//! P7 and P8: who waits, in which order, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lock_core::{LockError, Owner};
use lock_tests::{LIMIT, eventually};
use tokio::sync::mpsc::unbounded_channel;

use super::rig::{LONG, Rig, SKEW, drive_until_queued, free, queued_behind, waiters};

pub(crate) async fn a_wait_that_ends_says_timed_out_and_leaves_the_queue(rig: &Rig) {
    let (first, second) = (rig.lock("a").await, rig.lock("a").await);
    let guard = first.acquire().await.unwrap();
    let (limit, called) = (Duration::from_secs(1), Instant::now());
    let error = second.acquire_within(limit).await.unwrap_err();
    match &error {
        LockError::TimedOut { key, waited, .. } => {
            assert_eq!(key, "a");
            assert!(*waited >= limit && *waited <= called.elapsed());
        }
        other => panic!("{other:?}"),
    }
    assert!(error.is_contention());
    waiters(&first, 0).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(
        !first.inspect().await.unwrap().is_held(),
        "handed to nobody"
    );
}

pub(crate) async fn a_wait_of_zero_says_busy(rig: &Rig) {
    let (first, second) = (rig.lock("a").await, rig.lock("a").await);
    let _guard = first.acquire().await.unwrap();
    match second.acquire_within(Duration::ZERO).await {
        Err(LockError::Busy {
            key, retry_after, ..
        }) => {
            assert_eq!(key, "a");
            let after = retry_after.expect("the backend knows the lease");
            assert!(after <= LONG + SKEW && after > LONG / 2, "{after:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(first.waiters().await, 0);
}

pub(crate) async fn try_acquire_of_a_held_lock_is_none(rig: &Rig) {
    let (first, second) = (rig.lock("a").await, rig.lock("a").await);
    let guard = first.try_acquire().await.unwrap().expect("free");
    // Not from the same manager either: a lock is not reentrant.
    assert!(first.try_acquire().await.unwrap().is_none());
    assert!(second.try_acquire().await.unwrap().is_none());
    // Nor in the scope of an owner.
    let scoped = Owner::new().scope(first.try_acquire()).await;
    assert!(scoped.unwrap().is_none());
    assert_eq!(first.waiters().await, 0);
    guard.release().await.unwrap();
    assert!(second.try_acquire().await.unwrap().is_some());
}

pub(crate) async fn a_cancelled_wait_leaves_the_queue(rig: &Rig) {
    let (first, second) = (rig.lock("a").await, rig.lock("a").await);
    let guard = first.acquire().await.unwrap();
    for lock in [&first, &second] {
        let mut waiting = Box::pin(lock.acquire());
        drive_until_queued(&mut waiting, &first, 1).await;
        drop(waiting);
        waiters(&first, 0).await;
    }
    // From the middle of the queue, too: those around it keep their places.
    let before = queued_behind(&first, &second, 1).await;
    let middle = queued_behind(&first, &rig.lock("a").await, 2).await;
    let after = queued_behind(&first, &rig.lock("a").await, 3).await;
    middle.abort();
    waiters(&first, 2).await;
    guard.release().await.unwrap();
    let before = before.await.unwrap();
    assert!(!after.is_finished());
    before.release().await.unwrap();
    after.await.unwrap().release().await.unwrap();
    free(&first).await;
}

/// Proves P8.
pub(crate) async fn fifo_order_over_managers(rig: &Rig) {
    const WAITERS: u64 = 9;
    let holder = rig.lock("a").await;
    let guard = holder.acquire().await.unwrap();
    let (granted, mut order) = unbounded_channel();
    for place in 0..WAITERS {
        let (lock, granted) = (rig.lock("a").await, granted.clone());
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            granted.send(place).unwrap();
            guard.release().await.unwrap();
        });
        waiters(&holder, place + 1).await;
    }
    guard.release().await.unwrap();
    for place in 0..WAITERS {
        assert_eq!(order.recv().await, Some(place));
    }
}

pub(crate) async fn fifo_order_inside_a_manager(rig: &Rig) {
    const WAITERS: u64 = 20;
    let lock = rig.lock("a").await;
    let guard = lock.acquire().await.unwrap();
    let (granted, mut order) = unbounded_channel();
    for place in 0..WAITERS {
        let (waiting, granted) = (lock.clone(), granted.clone());
        tokio::spawn(async move {
            let guard = waiting.acquire().await.unwrap();
            granted.send((place, guard.fencing_token())).unwrap();
            guard.release().await.unwrap();
        });
        waiters(&lock, place + 1).await;
    }
    let mut last = guard.fencing_token();
    guard.release().await.unwrap();
    for place in 0..WAITERS {
        let (next, fence) = order.recv().await.expect("every task is granted");
        assert_eq!(next, place);
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
    free(&lock).await;
}

/// Tries without pause until it has the lock; then the waiter must have had it before.
async fn try_hard(rig: &Rig, waiter_was_granted: Arc<AtomicBool>) {
    let newcomer = rig.lock("a").await;
    loop {
        if let Some(guard) = newcomer.try_acquire().await.unwrap() {
            assert!(
                waiter_was_granted.load(Ordering::SeqCst),
                "the newcomer overtook"
            );
            return guard.release().await.unwrap();
        }
        tokio::task::yield_now().await;
    }
}

/// A queued waiter that raises a flag once it holds.
async fn waiter(rig: &Rig) -> (Arc<AtomicBool>, tokio::task::JoinHandle<()>) {
    let lock = rig.lock("a").await;
    // Somebody else, who counts only those that the server knows of.
    let onlooker = rig.lock("a").await;
    let granted = Arc::new(AtomicBool::new(false));
    let task = tokio::spawn({
        let granted = Arc::clone(&granted);
        async move {
            let guard = lock.acquire().await.unwrap();
            granted.store(true, Ordering::SeqCst);
            guard.release().await.unwrap();
        }
    });
    eventually("it is queued, or has been granted", LIMIT, async || {
        granted.load(Ordering::SeqCst) || onlooker.inspect().await.unwrap().waiters() == 1
    })
    .await;
    (granted, task)
}

pub(crate) async fn a_newcomer_never_overtakes_a_live_queue(rig: &Rig) {
    for _ in 0..5 {
        let guard = rig.lock("a").await.acquire().await.unwrap();
        let (granted, task) = waiter(rig).await;
        let let_go = async {
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        };
        tokio::join!(try_hard(rig, granted), let_go);
        task.await.unwrap();
    }
}

/// Proves P8.
pub(crate) async fn a_newcomer_does_not_overtake_when_the_holder_dies(rig: &Rig) {
    // Nobody hands this lock over: whoever asks first after the lease finds it free, and that is the newcomer.
    let (granted, task) = loop {
        rig.hold_and_die("a", Duration::from_secs(1));
        let (granted, task) = waiter(rig).await;
        if !granted.load(Ordering::SeqCst) {
            break (granted, task);
        }
        // A busy machine: the lease was over before anybody could queue.
        task.await.unwrap();
    };
    try_hard(rig, granted).await;
    task.await.unwrap();
}
