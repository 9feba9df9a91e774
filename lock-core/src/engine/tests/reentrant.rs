//! Reentrant locks on the line, over a memory store: owners, re-entry, and the passing of a lock from owner to owner.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::base::error::LockError;

use crate::base::owner::Owner;

use crate::face::manager::LockManager;

use crate::face::reentrant::ReentrantLock;

/// Longer than any test runs; a limit against hanging, not a measure.
const PATIENCE: Duration = Duration::from_secs(30);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it takes too long")
}

/// Polls a future once.
async fn once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// The lock for a new owner.
fn apart(lock: &ReentrantLock) -> ReentrantLock {
    lock.clone().owner(&Owner::new())
}

#[tokio::test]
async fn an_owner_enters_again_and_the_last_guard_lets_go() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let lock = locks.reentrant_lock("a").owner(&Owner::new());
    let mut guards = Vec::new();
    for count in 1..=8 {
        guards.push(lock.acquire().await.unwrap());
        assert!(guards.iter().all(|guard| guard.hold_count() == count));
        assert_eq!(lock.inspect().await.unwrap().holds(), u64::from(count));
    }
    let fence = guards[0].fencing_token();
    assert!(guards.iter().all(|guard| guard.fencing_token() == fence));
    // The first guard is released first: the others still have the lock.
    for left in (0..8).rev() {
        guards.remove(0).release().await.unwrap();
        assert!(guards.iter().all(|guard| guard.hold_count() == left));
        assert_eq!(lock.inspect().await.unwrap().holds(), u64::from(left));
    }
    let next = lock.acquire().await.unwrap();
    assert!(next.fencing_token() > fence);
}

#[tokio::test]
async fn an_owner_waits_for_the_one_before() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let lock = locks.reentrant_lock("a");
    let first = apart(&lock).acquire().await.unwrap();
    let next = apart(&lock);
    let second = next.acquire();
    let release = async {
        tokio::task::yield_now().await;
        first.release().await.unwrap();
    };
    let (second, ()) = tokio::join!(soon(second), release);
    assert!(second.unwrap().is_held());
}

#[tokio::test]
async fn who_waits_for_an_owner_that_gets_the_lock_enters_with_it() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let (holder, me) = (Owner::new(), Owner::new());
    let lock = locks.reentrant_lock("a");
    let held = lock.clone().owner(&holder).acquire().await.unwrap();
    let mine = lock.owner(&me);
    // Both waiters wait. When one of them has the lock, so has the other, and neither releases before both have it.
    let release = async {
        tokio::task::yield_now().await;
        held.release().await.unwrap();
    };
    let both = async { tokio::join!(mine.acquire(), mine.acquire(), release) };
    let (one, other, ()) = Box::pin(soon(both)).await;
    assert_eq!(one.unwrap().hold_count(), 2);
    assert!(other.unwrap().is_held());
}

#[tokio::test]
async fn a_waiter_that_moves_up_takes_the_lock_for_its_own_owner() {
    let elsewhere = LockManager::connect("memory://moves-up").await.unwrap();
    let held = apart(&elsewhere.reentrant_lock("a"));
    let held = held.acquire().await.unwrap();
    let here = LockManager::connect("memory://moves-up").await.unwrap();
    let lock = here.reentrant_lock("a");
    let (other, mine) = (apart(&lock), apart(&lock));
    let mut first = Box::pin(other.acquire());
    for _ in 0..3 {
        assert!(once(&mut first).await.is_pending());
    }
    let mut second = Box::pin(mine.acquire());
    // It asks beside the line first, then for its place behind the first waiter.
    for _ in 0..3 {
        assert!(once(&mut second).await.is_pending());
    }
    drop(first);
    held.release().await.unwrap();
    let outer = soon(second).await.unwrap();
    let inner = soon(mine.acquire()).await.unwrap();
    assert_eq!((outer.hold_count(), inner.hold_count()), (2, 2));
}

#[tokio::test]
async fn managers_pass_a_reentrant_lock_on_by_its_announcements() {
    let one = LockManager::connect("memory://announced").await.unwrap();
    let two = LockManager::connect("memory://announced").await.unwrap();
    let held = apart(&one.reentrant_lock("a"));
    let mut held = held.acquire().await.unwrap();
    for turn in 0..20 {
        let next = if turn % 2 == 0 { &two } else { &one };
        let lock = apart(&next.reentrant_lock("a"));
        let release = async {
            // Until the other acquisition waits.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let fence = held.fencing_token();
            held.release().await.unwrap();
            fence
        };
        let (guard, fence) = Box::pin(soon(async { tokio::join!(lock.acquire(), release) })).await;
        held = guard.unwrap();
        assert!(held.fencing_token() > fence);
    }
}

#[tokio::test]
async fn a_process_whose_turn_is_over_lets_another_in_before_its_own_waiters() {
    let connect = || {
        LockManager::builder()
            .handover_limit(1)
            .connect("memory://gives-way")
    };
    let (here, there) = (connect().await.unwrap(), connect().await.unwrap());
    let (here, there) = (here.reentrant_lock("a"), there.reentrant_lock("a"));
    let (first, there) = (apart(&here), apart(&there));
    let mut held = first.acquire().await.unwrap();
    let mut other = Box::pin(there.acquire());
    // Until the other acquisition listens.
    for _ in 0..20 {
        assert!(once(&mut other).await.is_pending());
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        let next = apart(&here);
        let mut next = Box::pin(next.acquire());
        assert!(once(&mut next).await.is_pending());
        held.release().await.unwrap();
        // If both could get the lock, the waiter of this process is faster.
        let taken = tokio::select! {
            biased;
            guard = soon(&mut next) => Ok(guard),
            guard = soon(&mut other) => Err(guard),
        };
        match taken {
            Ok(guard) => held = guard.unwrap(),
            Err(guard) => return assert!(guard.unwrap().is_held()),
        }
    }
    panic!("it starves");
}

/// The error of an owner whose limit is shorter than the pause for which its process yields the turn.
async fn told_while_giving_way(here: &ReentrantLock, there: &ReentrantLock) -> Option<LockError> {
    let (first, there) = (apart(here), apart(there));
    let mut held = first.acquire().await.unwrap();
    let mut other = Box::pin(there.acquire());
    // Until the other acquisition listens. Then it sleeps.
    for _ in 0..20 {
        assert!(once(&mut other).await.is_pending());
        tokio::task::yield_now().await;
    }
    let waiter = apart(here);
    let mut next = Box::pin(waiter.acquire());
    assert!(once(&mut next).await.is_pending());
    held.release().await.unwrap();
    // This has shown that another process listens.
    held = soon(next).await.unwrap();
    let waiter = apart(here);
    let mut next = Box::pin(waiter.acquire());
    assert!(once(&mut next).await.is_pending());
    held.release().await.unwrap();
    let mine = apart(here);
    mine.acquire_within(Duration::from_micros(1)).await.err()
}

#[tokio::test]
async fn whose_time_is_over_while_its_process_gives_way_is_told_so() {
    let locks = LockManager::builder().handover_limit(1);
    let here = locks.connect("memory://in-time").await.unwrap();
    let there = LockManager::connect("memory://in-time").await.unwrap();
    // On a machine that stands still for longer than the pause, the lock is free.
    for round in 0..20 {
        let name = format!("a{round}");
        let (here, there) = (here.reentrant_lock(&name), there.reentrant_lock(&name));
        if let Some(error) = told_while_giving_way(&here, &there).await {
            assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
            return;
        }
    }
    panic!("it does not give way");
}

#[tokio::test]
async fn a_renewed_hold_keeps_a_fixed_one_of_its_owner_and_not_the_other_way() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let lock = locks.reentrant_lock("a").owner(&Owner::new());
    let short = lock.clone().ttl(Duration::from_millis(60));
    let renewed = short.acquire().await.unwrap();
    let fixed = short.clone().renew(false).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(renewed.is_held() && fixed.is_held());
    renewed.release().await.unwrap();
    assert!(fixed.is_held());
    assert_eq!(soon(fixed.lost()).await, crate::LossReason::Expired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn guards_of_one_owner_that_enter_at_the_same_moment_share_one_lease() {
    let locks = LockManager::connect("memory://").await.unwrap();
    for round in 0..20_000 {
        let lock = locks.reentrant_lock("a").owner(&Owner::new());
        let start = Arc::new(tokio::sync::Barrier::new(2));
        let enter = || {
            let (lock, start) = (lock.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                lock.acquire().await.unwrap()
            })
        };
        let (one, other) = (enter(), enter());
        let (one, other) = (soon(one).await.unwrap(), soon(other).await.unwrap());
        let counts = (one.hold_count(), other.hold_count());
        assert_eq!(counts, (2, 2), "round {round}");
        one.release().await.unwrap();
        other.release().await.unwrap();
    }
}
