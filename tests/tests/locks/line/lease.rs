//! What lease a guard has that was handed the lock inside a process.

use std::time::{Duration, Instant};

use lock_core::{LockGuard, LossReason};
use lock_tests::{LIMIT, eventually};

use crate::line::support::{KEY, LONG, NAME, deadline, direct, granted, in_line, in_time, ms};
use crate::line::support::{script_calls, until_clean, warm_server};

/// Holds on until at least so much of the lease is used up.
async fn use_up(guard: &LockGuard, time: Duration) {
    let from = guard.remaining();
    eventually("time passes", LIMIT, async || {
        guard.remaining() + time < from
    })
    .await;
}

#[tokio::test]
async fn a_hand_over_inside_a_process_does_not_move_the_deadline() {
    let server = warm_server().await;
    let lock = direct(&server).await.lock(NAME).ttl(LONG);
    let held = lock.acquire().await.unwrap();
    let waiting = [
        in_line(&lock).await,
        in_line(&lock).await,
        in_line(&lock).await,
    ];
    held.release().await.unwrap();
    server.reset_stats().await;
    let mut before = None;
    for waiter in waiting {
        let guard = granted(waiter).await;
        let (from, to) = deadline(&guard);
        if let Some((earliest, latest)) = before {
            assert!(from <= latest && earliest <= to, "the deadline moved");
        }
        before = Some((from, to));
        use_up(&guard, ms(150)).await;
        assert_eq!(script_calls(&server).await, 0, "no command");
        guard.release().await.unwrap();
    }
    until_clean(&server).await;
}

#[tokio::test]
async fn fixed_leases_in_line_have_their_full_ttl_each() {
    let server = warm_server().await;
    let lock = direct(&server).await.lock(NAME).ttl(LONG).renew(false);
    let mut held = lock.acquire().await.unwrap();
    let waiting = [
        in_line(&lock).await,
        in_line(&lock).await,
        in_line(&lock).await,
    ];
    for waiter in waiting {
        use_up(&held, ms(150)).await;
        let (_, latest) = deadline(&held);
        held.release().await.unwrap();
        held = granted(waiter).await;
        let (earliest, _) = deadline(&held);
        assert!(earliest >= latest + ms(100), "a lease that was partly used");
        let on_the_server = server.pttl(KEY).await as u64;
        assert!(
            ms(on_the_server) >= held.remaining(),
            "longer than the server's"
        );
    }
    held.release().await.unwrap();
    until_clean(&server).await;
}

/// One who wants its lease renewed does not stand under one that is not, and the other way round.
#[tokio::test]
async fn fixed_and_renewed_leases_in_one_line_do_not_mix() {
    let server = warm_server().await;
    let locks = direct(&server).await;
    let renewed = locks.lock(NAME).ttl(ms(1500));
    let fixed = renewed.clone().renew(false);
    let first = renewed.acquire().await.unwrap();
    let second = in_line(&renewed).await;
    let waiting = [in_line(&fixed).await, in_line(&fixed).await];
    let last = in_line(&renewed).await;
    first.release().await.unwrap();
    // From here on each has fencing tokens that it could hand on with.
    granted(second).await.release().await.unwrap();
    let [expiring, released] = waiting;
    let guard = granted(expiring).await;
    assert_eq!(in_time("its end", guard.lost()).await, LossReason::Expired);
    drop(guard);
    granted(released).await.release().await.unwrap();
    let guard = granted(last).await;
    let (_, latest) = deadline(&guard);
    eventually("a renewal", LIMIT, async || deadline(&guard).0 > latest).await;
    guard.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn each_in_line_has_the_ttl_that_it_asked_for() {
    let server = warm_server().await;
    let locks = direct(&server).await;
    let mut held = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let ttls = [60, 6000, 600, 600].map(Duration::from_secs);
    let mut waiting = Vec::new();
    for ttl in ttls {
        waiting.push(in_line(&locks.lock(NAME).ttl(ttl)).await);
    }
    for (waiter, ttl) in waiting.into_iter().zip(ttls) {
        held.release().await.unwrap();
        held = granted(waiter).await;
        let remaining = held.remaining();
        assert!(
            remaining <= ttl && remaining > ttl / 2,
            "{remaining:?} of {ttl:?}"
        );
        let on_the_server = ms(server.pttl(KEY).await as u64);
        assert!(
            on_the_server <= ttl && on_the_server > ttl / 2,
            "{on_the_server:?}"
        );
    }
    held.release().await.unwrap();
    until_clean(&server).await;
}

/// Proves P12.
#[tokio::test]
async fn max_hold_counts_from_each_hand_over_for_its_own_guard() {
    const MOST: Duration = ms(800);
    let server = warm_server().await;
    let locks = direct(&server).await;
    let (lock, capped) = (
        locks.lock(NAME).ttl(LONG),
        locks.lock(NAME).ttl(LONG).max_hold(MOST),
    );
    let held = lock.acquire().await.unwrap();
    let (first, second) = (in_line(&lock).await, in_line(&capped).await);
    let (third, last) = (in_line(&capped).await, in_line(&lock).await);
    held.release().await.unwrap();
    // No cap of its own, and none of those behind it.
    let first = granted(first).await;
    use_up(&first, MOST * 3 / 2).await;
    assert!(first.is_held());

    server.reset_stats().await;
    first.release().await.unwrap();
    let second = granted(second).await;
    use_up(&second, MOST / 2).await;
    if second.is_held() {
        let handed = Instant::now();
        second.release().await.unwrap();
        let third = granted(third).await;
        assert_eq!(script_calls(&server).await, 0, "inside the process");
        assert_eq!(in_time("the cap", third.lost()).await, LossReason::MaxHold);
        assert!(handed.elapsed() >= MOST, "the cap of the one before it");
        assert!(third.remaining().is_zero() && !third.is_held());
        // It was told; nobody has to wait for it to let go.
        granted(last).await.release().await.unwrap();
    } else {
        panic!("this machine stood still: nothing was proved");
    }
    until_clean(&server).await;
}

#[tokio::test]
async fn a_lock_to_be_kept_is_neither_handed_on_nor_given_back_early() {
    const LEAST: Duration = ms(1500);
    let server = warm_server().await;
    let locks = direct(&server).await;
    let lock = locks.lock(NAME).ttl(LONG);
    let first = lock.acquire().await.unwrap();
    let kept = in_line(&lock.clone().at_least(LEAST)).await;
    let next = in_line(&lock).await;
    let before = Instant::now();
    // This one goes by the server, and brings fencing tokens to hand on with.
    first.release().await.unwrap();
    let kept = granted(kept).await;
    let token = server.get(KEY).await;
    let fence = kept.fencing_token();
    kept.release().await.unwrap();
    assert_eq!(server.get(KEY).await, token, "given back early");
    let guard = granted(next).await;
    // The server counts in whole milliseconds.
    assert!(
        before.elapsed() + ms(2) >= LEAST,
        "after {:?}",
        before.elapsed()
    );
    assert!(guard.fencing_token() > fence);
    guard.release().await.unwrap();
    until_clean(&server).await;
}
