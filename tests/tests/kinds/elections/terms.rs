//! Who leads, and with which term.

use std::time::Duration;

use lock_core::LockError;
use lock_tests::{LIMIT, eventually, in_time};

use super::rig::TTL;
use crate::rig::Rig;

/// Proves P10.
pub(crate) async fn the_next_leader_has_a_larger_term(rig: &Rig) {
    // Two candidates of one manager, and one of another: no term is hidden by a hand-over inside the process.
    let (here, there) = (rig.manager().await, rig.manager().await);
    let first = here.election("e").campaign("1").await.unwrap();
    let mut term = first.term();
    let second = tokio::spawn(here.election("e").campaign("2"));
    let waits = async |count| {
        eventually("it is queued", LIMIT, async || {
            there.lock("e").inspect().await.unwrap().waiters() == count
        })
        .await;
    };
    waits(1).await;
    let third = tokio::spawn(there.election("e").campaign("3"));
    waits(2).await;
    let mut leader = first;
    for next in [second, third] {
        assert!(!next.is_finished(), "one at a time");
        leader.resign().await.unwrap();
        leader = in_time("the next leads", next).await.unwrap().unwrap();
        assert!(leader.term() > term && leader.is_held());
        term = leader.term();
    }
}

pub(crate) async fn a_candidate_that_withdraws_leaves_the_queue(rig: &Rig) {
    let locks = rig.manager().await;
    let leader = locks.election("e").campaign("leader").await.unwrap();
    let candidate = tokio::spawn(locks.election("e").campaign("candidate"));
    let waiters = async |count| {
        eventually("the queue is as it should be", LIMIT, async || {
            locks.lock("e").inspect().await.unwrap().waiters() == count
        })
        .await;
    };
    waiters(1).await;
    candidate.abort();
    waiters(0).await;
    leader.resign().await.unwrap();
    eventually("it is free", LIMIT, async || {
        !locks.lock("e").inspect().await.unwrap().is_held()
    })
    .await;
}

pub(crate) async fn no_default_wait_ends_a_campaign(rig: &Rig) {
    let wait = Duration::from_millis(50);
    let locks = rig.manager_with(|builder| builder.default_wait(wait)).await;
    let leader = locks.election("e").campaign("leader").await.unwrap();
    let candidate = tokio::spawn(locks.election("e").campaign("candidate"));
    // A lock of another name waits for as long as its default says, beside it.
    let held = locks.lock("other").acquire().await.unwrap();
    for _ in 0..3 {
        let timed_out = locks.lock("other").acquire().await.unwrap_err();
        assert!(timed_out.is_contention(), "{timed_out}");
    }
    drop(held);
    assert!(!candidate.is_finished());
    leader.resign().await.unwrap();
    let leader = in_time("it leads", candidate).await.unwrap().unwrap();
    assert!(leader.is_held());
}

pub(crate) async fn a_lock_and_an_election_of_one_name_exclude_each_other(rig: &Rig) {
    let (here, there) = (rig.manager().await, rig.manager().await);
    let leader = here.election("e").campaign("leader").await.unwrap();
    assert!(here.lock("e").try_acquire().await.unwrap().is_none());
    assert!(there.lock("e").try_acquire().await.unwrap().is_none());
    leader.resign().await.unwrap();
    let guard = there.lock("e").acquire().await.unwrap();
    let candidate = tokio::spawn(here.election("e").campaign("leader"));
    eventually("it is queued", LIMIT, async || {
        there.lock("e").inspect().await.unwrap().waiters() == 1
    })
    .await;
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let leader = in_time("it leads", candidate).await.unwrap().unwrap();
    assert!(leader.term() > token);
}

pub(crate) async fn a_campaign_with_a_limit_ends_and_leaves_the_queue(rig: &Rig) {
    let locks = rig.manager().await;
    let election = locks.election("e").ttl(TTL);
    let leader = election.campaign("1").await.unwrap();
    let limit = Duration::from_millis(100);
    let late = election.campaign_within("2", limit).await.unwrap_err();
    assert!(matches!(late, LockError::TimedOut { .. }), "{late}");
    let tried = election.campaign_within("2", Duration::ZERO).await;
    let busy = tried.unwrap_err();
    assert!(busy.is_contention(), "{busy}");
    let info = election.inspect().await.unwrap();
    assert!(info.is_held());
    assert_eq!(info.waiters(), 0);
    leader.resign().await.unwrap();
    let next = election.campaign_within("3", Duration::ZERO).await.unwrap();
    assert!(election.force_release().await.unwrap());
    in_time("it is lost", next.lost()).await;
    assert!(!election.force_release().await.unwrap());
}
