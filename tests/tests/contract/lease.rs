//! P2, P7 and P12: how long a hold lasts.

use std::time::Duration;

use lock_core::{LockError, LossReason};
use lock_tests::{LIMIT, boottime_now};
use tokio::time::timeout;

use super::rig::{LONG, Rig, SHORT, SKEW, in_a_runtime_of_its_own};

const TTL: Duration = Duration::from_secs(1);

pub(crate) async fn is_held_remaining_and_lost_follow_the_deadline(rig: &Rig) {
    let drift = TTL / 100 + Duration::from_millis(2);
    let lock = rig.lock("fixed").await.ttl(TTL).renew(false);
    let called = boottime_now();
    let guard = lock.acquire().await.unwrap();
    let granted = boottime_now();
    // The deadline is ttl - drift after an instant between these two; it is never seen further away than that.
    let believed = TTL.saturating_sub(drift);
    let (earliest, latest) = (called + believed, granted + believed);
    let before = boottime_now();
    let remaining = guard.remaining();
    let after = boottime_now();
    assert!(
        before + remaining <= latest.max(before),
        "{remaining:?} too much"
    );
    assert!(
        remaining.is_zero() || after + remaining >= earliest,
        "{remaining:?} too little"
    );

    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(boottime_now() >= earliest, "lost before its time");
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(!guard.is_held(), "once false, always false");
    let late = guard.release().await;
    assert!(
        matches!(
            late,
            Err(LockError::Lost {
                reason: LossReason::Expired,
                ..
            })
        ),
        "{late:?}"
    );
}

pub(crate) async fn lost_resolves_before_another_is_granted(rig: &Rig) {
    // On one thread, so that the order of what is recorded is the order in which it came about.
    let (lost, granted) = in_a_runtime_of_its_own(async {
        let lock = rig.lock("fixed").await.ttl(TTL).renew(false);
        let guard = lock.acquire().await.unwrap();
        let next = rig.lock("fixed").await;
        let losing = tokio::spawn(async move {
            assert_eq!(guard.lost().await, LossReason::Expired);
            let lost = boottime_now();
            assert!(!guard.is_held());
            lost
        });
        let gaining = tokio::spawn(async move {
            let _guard = next.acquire().await.unwrap();
            boottime_now()
        });
        (losing.await.unwrap(), gaining.await.unwrap())
    });
    assert!(
        lost <= granted,
        "lost at {lost:?}, given to another at {granted:?}"
    );
}

pub(crate) async fn the_watchdog_keeps_a_guard_beyond_three_ttls(rig: &Rig) {
    let ttl = SHORT;
    let lock = rig.lock("kept").await.ttl(ttl);
    let other = rig.lock("kept").await;
    let guard = lock.acquire().await.unwrap();
    let lost = timeout(ttl * 3 + ttl / 5, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(guard.is_held() && !guard.remaining().is_zero());
    assert!(other.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// Proves P12.
pub(crate) async fn max_hold_ends_a_renewed_hold(rig: &Rig) {
    let ttl = SHORT;
    let most = ttl * 3 / 2;
    let lock = rig.lock("capped").await.ttl(ttl).max_hold(most);
    let called = boottime_now();
    let guard = lock.acquire().await.unwrap();
    // Not `Expired`: it was renewed until then.
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    assert!(boottime_now() >= called + most);
    assert!(!guard.is_held());
    let late = guard.release().await;
    assert!(
        matches!(
            late,
            Err(LockError::Lost {
                reason: LossReason::MaxHold,
                ..
            })
        ),
        "{late:?}"
    );
}

/// Proves P12.
pub(crate) async fn max_hold_hands_the_lock_to_the_next_waiter(rig: &Rig) {
    let lock = rig
        .lock("capped")
        .await
        .max_hold(Duration::from_millis(300));
    let guard = lock.acquire().await.unwrap();
    let next = tokio::spawn({
        let lock = rig.lock("capped").await;
        async move { lock.acquire().await.unwrap() }
    });
    // The lease is an hour: the waiter has it only because the hold was ended.
    let next = timeout(LIMIT, next).await.expect("handed on").unwrap();
    assert!(next.is_held() && !guard.is_held());
    assert_eq!(guard.lost().await, LossReason::MaxHold);
}

pub(crate) async fn max_hold_of_the_manager_applies_and_a_lock_overrides_it(rig: &Rig) {
    let brief = Duration::from_millis(100);
    let locks = rig.manager_with(|builder| builder.max_hold(brief)).await;
    let own = locks.lock("b").max_hold(LONG).acquire().await.unwrap();
    let capped = locks.lock("a").acquire().await.unwrap();
    assert_eq!(capped.lost().await, LossReason::MaxHold);
    assert!(own.is_held());
}

pub(crate) async fn the_ttl_of_a_lock_is_its_own(rig: &Rig) {
    let default = Duration::from_secs(100);
    let locks = rig
        .manager_with(|builder| builder.default_ttl(default))
        .await;
    let (short, long) = (Duration::from_secs(40), Duration::from_secs(4000));
    for (lock, ttl) in [
        (locks.lock("default"), default),
        (locks.lock("short").ttl(short), short),
        (locks.lock("long").ttl(long), long),
    ] {
        let guard = lock.acquire().await.unwrap();
        let remaining = lock.inspect().await.unwrap().remaining().unwrap();
        assert!(
            remaining <= ttl + SKEW && remaining > ttl / 2,
            "{remaining:?} of {ttl:?}"
        );
        assert!(guard.remaining() < ttl && guard.remaining() > ttl / 2);
    }
}
