//! Replies that are lost after the server has done what was asked (P6), or come too late (P2).

use std::sync::{Arc, Mutex};

use lock_core::{LockError, LockGuard};
use lock_tests::{DropMode, LIMIT, Proxy};

use crate::support::{
    KEY, LONG, NAME, WAYS, Way, in_time, is_acquire, is_release, ms, warm_server,
};
use crate::support::{assert_unavailable, behind, direct, until_clean, until_gone};

/// Loses the reply to an acquire while another manager waits for the same lock. Returns whether the call came
/// through; either way the lock passes on, at once, and never has two believers.
async fn lose_the_reply_to_an_acquire(way: Way, mode: DropMode) -> bool {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(400)).await;
    let lost = proxy.drop_next_reply_matching(is_acquire, mode);
    let first: Arc<Mutex<Option<LockGuard>>> = Arc::default();

    let lock = locks.lock(NAME).ttl(LONG);
    let mine = Arc::clone(&first);
    let caller = tokio::spawn(async move {
        let outcome = way.acquire(&lock).await;
        outcome.map(|guard| *mine.lock().unwrap() = guard)
    });
    lost.wait().await;
    let other = direct(&server).await.lock(NAME).ttl(LONG);
    let theirs = Arc::clone(&first);
    let rival = tokio::spawn(async move {
        let guard = other.acquire().await.unwrap();
        let believed = theirs.lock().unwrap().as_ref().map(|guard| guard.is_held());
        assert_ne!(believed, Some(true), "two believers");
        guard
    });

    let outcome = in_time("the caller", caller).await.unwrap();
    let guard = first.lock().unwrap().take();
    let came_through = match outcome {
        Ok(()) => {
            let guard = guard.expect("nobody else held the lock before");
            assert!(guard.is_held());
            assert!(!rival.is_finished(), "two believers");
            guard.release().await.unwrap();
            true
        }
        Err(error) => {
            assert_unavailable::<()>(Err(error), "");
            false
        }
    };
    let rival = in_time("the rival", rival).await.unwrap();
    rival.release().await.unwrap();
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    until_clean(&server).await;
    came_through
}

/// Proves P6.
#[tokio::test]
async fn an_acquire_whose_reply_was_lost_with_the_connection_succeeds() {
    for way in WAYS {
        assert!(
            lose_the_reply_to_an_acquire(way, DropMode::Close).await,
            "{way:?}"
        );
    }
}

#[tokio::test]
async fn an_acquire_that_waits_survives_a_connection_that_falls_silent() {
    for way in [Way::Within, Way::Forever] {
        assert!(
            lose_the_reply_to_an_acquire(way, DropMode::Silent).await,
            "{way:?}"
        );
    }
}

#[tokio::test]
async fn a_try_on_a_connection_that_falls_silent_leaves_nothing() {
    lose_the_reply_to_an_acquire(Way::Try, DropMode::Silent).await;
}

#[tokio::test]
async fn an_acquire_without_time_for_a_second_call_cleans_up() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(300)).await;
    let lost = proxy.drop_next_reply_matching(is_acquire, DropMode::Silent);
    let lock = locks.lock(NAME).ttl(LONG);
    assert_unavailable(lock.acquire_within(ms(100)).await, "");
    lost.wait().await;
    until_gone(&server, KEY).await;
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    until_clean(&server).await;
}

/// Proves P6.
#[tokio::test]
async fn a_place_in_the_queue_whose_reply_was_lost_is_kept_once() {
    for mode in [DropMode::Close, DropMode::Silent] {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let locks = behind(&proxy, ms(400)).await;
        let holder = direct(&server).await;
        let guard = holder.lock(NAME).ttl(LONG).acquire().await.unwrap();
        let lost = proxy.drop_next_reply_matching(is_acquire, mode);
        let lock = locks.lock(NAME).ttl(LONG);
        let caller = tokio::spawn(async move { lock.acquire().await });
        lost.wait().await;
        // It asks again, and still has one place.
        proxy.on_count(2, is_acquire).await;
        assert_eq!(crate::support::queue_len(&server).await, 1);
        guard.release().await.unwrap();
        let next = in_time("the waiter", caller).await.unwrap().unwrap();
        assert!(next.is_held());
        next.release().await.unwrap();
        until_clean(&server).await;
    }
}

/// Proves P6.
#[tokio::test]
async fn a_release_that_handed_over_and_lost_its_reply_spares_the_next_holder() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(400)).await;
    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let other = direct(&server).await.lock(NAME).ttl(LONG);
    let rival = tokio::spawn(async move { other.acquire().await });
    crate::support::until_queued(&server, 1).await;
    let lost = proxy.drop_next_reply_matching(is_release, DropMode::Close);
    in_time("the release", guard.release()).await.unwrap();
    lost.wait().await;
    let next = in_time("the hand-over", rival).await.unwrap().unwrap();
    assert!(next.is_held());
    assert!(server.exists(KEY).await);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_reply_later_than_the_lease_is_no_grant() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let lock = locks.lock(NAME).ttl(ms(300));
    proxy.delay(ms(200));
    assert_unavailable(lock.try_acquire().await, "later than the lease");
    match lock.acquire_within(ms(1500)).await {
        Err(LockError::Unavailable { .. }) => {}
        other => panic!("{other:?}"),
    }
    proxy.delay(ms(0));
    until_gone(&server, KEY).await;
    let guard = in_time("the lock", lock.acquire()).await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    until_clean(&server).await;
}
