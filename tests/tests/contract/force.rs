//! What operators do: look at a lock, and take it away.

use std::time::Duration;

use lock_core::{LockError, LossReason};
use lock_tests::LIMIT;
use tokio::time::timeout;

use super::rig::{LONG, Rig, SKEW, free, queued, queued_behind};

pub(crate) async fn force_release_tells_the_holder(rig: &Rig) {
    let holder = rig.lock("a").await;
    let guard = holder.acquire().await.unwrap();
    // From elsewhere. The lease is an hour and its renewal is far away: only the message can tell.
    assert!(rig.lock("a").await.force_release().await.unwrap());
    let reason = timeout(LIMIT, guard.lost()).await.expect("told");
    assert_eq!(reason, LossReason::ForceReleased);
    assert!(!guard.is_held());
    let late = guard.release().await;
    assert!(
        matches!(
            late,
            Err(LockError::Lost {
                reason: LossReason::ForceReleased,
                ..
            })
        ),
        "{late:?}"
    );
    // From the same manager, too.
    let guard = holder.acquire().await.unwrap();
    assert!(holder.force_release().await.unwrap());
    assert_eq!(guard.lost().await, LossReason::ForceReleased);
}

pub(crate) async fn force_release_is_found_at_the_next_renewal(rig: &Rig) {
    let guard = rig
        .lock("a")
        .await
        .ttl(Duration::from_secs(3))
        .acquire()
        .await
        .unwrap();
    assert!(rig.lock("a").await.force_release().await.unwrap());
    let reason = timeout(LIMIT, guard.lost()).await.expect("found");
    assert_eq!(reason, LossReason::Taken);
}

pub(crate) async fn force_release_hands_the_lock_on(rig: &Rig) {
    let guard = rig.lock("a").await.acquire().await.unwrap();
    let next = queued(&rig.lock("a").await, 1).await;
    let after = queued(&rig.lock("a").await, 2).await;
    let operator = rig.lock("a").await;
    assert!(operator.force_release().await.unwrap());
    let next = timeout(LIMIT, next).await.expect("handed on").unwrap();
    assert!(next.is_held());
    assert_eq!(operator.inspect().await.unwrap().waiters(), 1);
    // The old holder's release does not touch it.
    let _ = guard.release().await;
    assert!(operator.inspect().await.unwrap().is_held());
    next.release().await.unwrap();
    after.await.unwrap().release().await.unwrap();
    free(&operator).await;
}

pub(crate) async fn force_release_of_a_free_lock_is_false(rig: &Rig) {
    let lock = rig.lock("a").await;
    assert!(!lock.force_release().await.unwrap());
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(!lock.force_release().await.unwrap());
}

pub(crate) async fn inspect_shows_each_state(rig: &Rig) {
    let (first, second) = (rig.lock("a").await, rig.lock("a").await);
    let info = first.inspect().await.unwrap();
    assert!(!info.is_held() && info.holder().is_none() && info.remaining().is_none());
    assert_eq!((info.waiters(), info.foreign()), (0, None));

    let guard = first.acquire().await.unwrap();
    let info = second.inspect().await.unwrap();
    assert_eq!(first.inspect().await.unwrap().holder(), info.holder());
    assert!(info.is_held());
    assert!(
        info.remaining()
            .is_some_and(|left| left <= LONG + SKEW && left > LONG / 2)
    );
    let holder = info.holder().expect("held").to_owned();
    assert_eq!(holder.len(), 8);

    let next = queued(&second, 1).await;
    let third = rig.lock("a").await;
    let last = queued_behind(&first, &third, 2).await;
    assert_eq!(first.inspect().await.unwrap().holder(), Some(&*holder));
    guard.release().await.unwrap();
    let info = first.inspect().await.unwrap();
    assert_eq!(info.waiters(), 1);
    assert_ne!(info.holder(), Some(&*holder), "another manager");
    let of_the_second = info.holder().expect("held").to_owned();
    next.await.unwrap().release().await.unwrap();
    assert_ne!(
        first.inspect().await.unwrap().holder(),
        Some(&*of_the_second)
    );
    last.await.unwrap().release().await.unwrap();
    let info = second.inspect().await.unwrap();
    assert!(!info.is_held() && info.waiters() == 0);
}
