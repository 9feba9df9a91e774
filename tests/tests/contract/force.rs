//! What operators do: look at a lock, and take it away.

use std::time::{Duration, SystemTime};

use lock_core::{LockError, LossReason};
use lock_tests::LIMIT;
use tokio::time::timeout;

use super::kinds::Manager;
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
    assert_eq!(reason, LossReason::Gone);
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

/// Proves P16.
pub(crate) async fn inspect_shows_each_state(rig: &Rig) {
    let lock = async |name: &str| named(rig, name).await.lock("a");
    let (first, second) = (lock("orders-1").await, lock("orders-2").await);
    let info = first.inspect().await.unwrap();
    assert!(!info.is_held() && info.holder().is_none() && info.remaining().is_none());
    assert_eq!((info.waiters(), info.foreign()), (0, None));
    assert!(info.held_since().is_none() && info.queue().is_empty());

    let began = SystemTime::now() - Duration::from_millis(1);
    let guard = first.acquire().await.unwrap();
    let info = second.inspect().await.unwrap();
    assert!(info.is_held());
    assert_eq!(info.holder(), Some("orders-1"));
    let now = SystemTime::now();
    assert!(
        info.held_since()
            .is_some_and(|since| (began..=now).contains(&since))
    );
    assert!(
        info.fence()
            .is_some_and(|most| most >= guard.fencing_token())
    );
    assert!(
        info.remaining()
            .is_some_and(|left| left <= LONG + SKEW && left > LONG / 2)
    );

    let next = queued(&second, 1).await;
    let third = lock("orders-3").await;
    let last = queued_behind(&first, &third, 2).await;
    let info = first.inspect().await.unwrap();
    assert_eq!(info.holder(), Some("orders-1"));
    let queue = info.queue().iter();
    let queue: Vec<_> = queue
        .map(|waiter| (waiter.name().unwrap(), waiter.since().unwrap()))
        .collect();
    assert_eq!(
        (queue[0].0, queue[1].0, queue.len()),
        ("orders-2", "orders-3", 2)
    );
    assert!(began <= queue[0].1 && queue[0].1 <= queue[1].1, "{queue:?}");
    guard.release().await.unwrap();
    let info = first.inspect().await.unwrap();
    assert_eq!((info.waiters(), info.holder()), (1, Some("orders-2")));
    next.await.unwrap().release().await.unwrap();
    assert_eq!(first.inspect().await.unwrap().holder(), Some("orders-3"));
    last.await.unwrap().release().await.unwrap();
    let info = second.inspect().await.unwrap();
    assert!(!info.is_held() && info.waiters() == 0);
}

async fn named(rig: &Rig, name: &str) -> Manager {
    rig.manager_with(|builder| builder.client_name(name)).await
}

/// Proves P16.
pub(crate) async fn errors_name_the_holder(rig: &Rig) {
    let (one, other) = (named(rig, "orders-1").await, named(rig, "orders-2").await);
    let _guard = one.lock("a").acquire().await.unwrap();
    // The same for the holder's own process.
    for manager in [&one, &other] {
        let lock = manager.lock("a");
        for limit in [Duration::ZERO, Duration::from_millis(200)] {
            let error = lock.acquire_within(limit).await.unwrap_err();
            let (LockError::Busy { holder, .. } | LockError::TimedOut { holder, .. }) = &error
            else {
                panic!("{error:?}")
            };
            assert_eq!(holder.as_deref(), Some("orders-1"), "{error}");
            assert!(error.to_string().contains("held by `orders-1`"), "{error}");
        }
    }
}

/// Proves P16.
pub(crate) async fn a_list_has_each_held_lock_of_the_prefix_once(rig: &Rig) {
    let of = |prefix: &'static str| {
        rig.manager_with(move |builder| builder.client_name("orders-1").prefix(prefix))
    };
    let (locks, elsewhere) = (of("shop[1]:").await, of("shop1:").await);
    let mut guards = Vec::new();
    for n in 0..40 {
        for manager in [&locks, &elsewhere] {
            guards.push(manager.lock(format!("order:{n}")).acquire().await.unwrap());
        }
    }
    let mut list = locks.list();
    let mut found = Vec::new();
    while let Some(page) = list.next_page().await.unwrap() {
        for lock in page {
            assert_eq!(lock.info().holder(), Some("orders-1"));
            found.push(lock.key().to_owned());
        }
    }
    found.sort();
    let mut expected: Vec<_> = (0..40).map(|n| format!("order:{n}")).collect();
    expected.sort();
    assert_eq!(found, expected);
    assert!(list.next_page().await.unwrap().is_none());
}
