//! A guard that was lost has nothing to hand on.

use lock_core::{Lock, LockError, LockGuard, LossReason};
use lock_tests::TestServer;
use tokio::task::JoinHandle;

use crate::line::support::{LONG, NAME, direct, granted, in_line, in_time, ms, until_clean};

/// A guard that has fencing tokens to hand on with, and one who waits for it in the same process.
async fn with_tokens(holder: &Lock, waiter: &Lock) -> (LockGuard, JoinHandle<LockGuard>) {
    let first = waiter.acquire().await.unwrap();
    let held = in_line(holder).await;
    let local = in_line(waiter).await;
    first.release().await.unwrap();
    (granted(held).await, local)
}

/// Another process has the lock, and the one in line here has it next.
async fn rival_before(local: JoinHandle<LockGuard>, rival: LockGuard) {
    assert!(!local.is_finished() && rival.is_held(), "two believers");
    let fence = rival.fencing_token();
    rival.release().await.unwrap();
    let local = granted(local).await;
    assert!(local.fencing_token() > fence);
    local.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_taken_away_goes_to_another_process_before_those_in_line() {
    let server = TestServer::start().await;
    let locks = direct(&server).await.lock(NAME).ttl(LONG);
    let (held, local) = with_tokens(&locks, &locks).await;
    let rivals = direct(&server).await.lock(NAME).ttl(LONG);
    let rival = in_line(&rivals).await;
    assert!(rivals.force_release().await.unwrap());
    assert_eq!(
        in_time("the loss", held.lost()).await,
        LossReason::ForceReleased
    );
    let rival = granted(rival).await;
    assert!(rival.fencing_token() > held.fencing_token());
    match held.release().await {
        Err(LockError::Lost { .. }) => {}
        other => panic!("{other:?}"),
    }
    // By the server, at the end of its queue.
    crate::line::support::until_waiting(&rivals, 1).await;
    rival_before(local, rival).await;
    until_clean(&server).await;
}

#[tokio::test]
async fn a_guard_ended_by_its_cap_goes_to_another_process_before_those_in_line() {
    let server = TestServer::start().await;
    let locks = direct(&server).await.lock(NAME).ttl(LONG);
    let (held, local) = with_tokens(&locks.clone().max_hold(ms(1000)), &locks).await;
    let rivals = direct(&server).await.lock(NAME).ttl(LONG);
    let rival = in_line(&rivals).await;
    assert_eq!(in_time("the loss", held.lost()).await, LossReason::MaxHold);
    drop(held);
    let rival = granted(rival).await;
    rival_before(local, rival).await;
    until_clean(&server).await;
}

#[tokio::test]
async fn a_lease_that_ran_out_while_the_server_stood_still_is_not_handed_on() {
    for dropped in [true, false] {
        let server = TestServer::start().await;
        let lock = direct(&server).await.lock(NAME).ttl(ms(1500));
        let (held, local) = with_tokens(&lock, &lock).await;
        server.stop();
        assert_eq!(in_time("the loss", held.lost()).await, LossReason::Expired);
        let fence = held.fencing_token();
        if dropped {
            drop(held);
        } else {
            match held.release().await {
                Err(LockError::Lost { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        tokio::task::yield_now().await;
        assert!(!local.is_finished(), "granted by nobody");
        server.cont();
        let local = granted(local).await;
        assert!(local.is_held() && local.fencing_token() > fence);
        local.release().await.unwrap();
        until_clean(&server).await;
    }
}

/// A lease that is nearly over, and whose renewals go unanswered, is not worth handing on.
#[tokio::test]
async fn what_is_left_of_a_lease_that_cannot_be_renewed_is_not_handed_on() {
    let server = TestServer::start().await;
    let lock = direct(&server).await.lock(NAME).ttl(ms(6000));
    let (held, local) = with_tokens(&lock, &lock).await;
    server.stop();
    lock_tests::eventually("little is left", lock_tests::LIMIT, async || {
        held.remaining() < ms(1500)
    })
    .await;
    drop(held);
    tokio::task::yield_now().await;
    assert!(!local.is_finished());
    server.cont();
    let local = granted(local).await;
    assert!(local.remaining() > ms(2000), "a lease of its own");
    local.release().await.unwrap();
    until_clean(&server).await;
}
