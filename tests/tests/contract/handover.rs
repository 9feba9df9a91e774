//! What is handed over, and to whom.

use std::time::Duration;

use lock_tests::LIMIT;
use tokio::time::timeout;

use super::rig::{Rig, drive_until_queued, free, queued, queued_behind, waiters};

pub(crate) async fn a_grant_to_a_cancelled_acquire_is_handed_on(rig: &Rig) {
    let (first, second) = (rig.lock("a").await, rig.lock("a").await);
    let guard = first.acquire().await.unwrap();
    let mut cancelled = Box::pin(second.acquire());
    drive_until_queued(&mut cancelled, &first, 1).await;
    let next = queued(&rig.lock("a").await, 2).await;
    guard.release().await.unwrap();
    // It is the cancelled one's now, which has not looked since.
    let info = first.inspect().await.unwrap();
    assert!(info.is_held());
    assert_eq!(info.waiters(), 1);
    drop(cancelled);
    let next = timeout(LIMIT, next).await.expect("handed on").unwrap();
    assert!(next.is_held());
    next.release().await.unwrap();
    free(&first).await;
}

pub(crate) async fn each_waiter_is_granted_its_own_ttl(rig: &Rig) {
    let first = rig.lock("a").await;
    let guard = first.acquire().await.unwrap();
    let ttls = [40, 4000, 400].map(Duration::from_secs);
    // Two of them in one manager, whose own line they then stand in.
    let second = rig.lock("a").await;
    let locks = [
        rig.lock("a").await.ttl(ttls[0]),
        second.clone().ttl(ttls[1]),
        second.clone().ttl(ttls[2]),
    ];
    let mut waiting = Vec::new();
    waiting.push(queued_behind(&first, &locks[0], 1).await);
    waiting.push(queued_behind(&first, &locks[1], 2).await);
    waiting.push(queued_behind(&second, &locks[2], 3).await);
    let mut holder = guard;
    for (next, ttl) in waiting.into_iter().zip(ttls) {
        holder.release().await.unwrap();
        holder = next.await.unwrap();
        let info = first.inspect().await.unwrap();
        let remaining = info.remaining().expect("handed over");
        assert!(
            remaining <= ttl && remaining > ttl / 2,
            "{remaining:?} of {ttl:?}"
        );
        assert!(
            holder.remaining() < ttl,
            "{:?} of {ttl:?}",
            holder.remaining()
        );
    }
}

pub(crate) async fn waiters_with_many_names_are_told_apart(rig: &Rig) {
    // Two managers wait for many locks at once: each grant finds its own waiter.
    let holder = rig.manager().await;
    let others = [rig.manager().await, rig.manager().await];
    let keys: Vec<String> = (0..8).map(|n| format!("lock {n} of {{many}}")).collect();
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for key in &keys {
        held.push(holder.lock(key).acquire().await.unwrap());
        for other in &others {
            let lock = other.lock(key);
            waiting.push(tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                assert_eq!(guard.key(), lock.key());
                guard.release().await.unwrap();
            }));
        }
        waiters(&holder.lock(key), 2).await;
    }
    while let Some(guard) = held.pop() {
        guard.release().await.unwrap();
    }
    for task in waiting {
        task.await.unwrap();
    }
    for key in &keys {
        free(&holder.lock(key)).await;
    }
}
