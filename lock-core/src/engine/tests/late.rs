//! What comes late, or from a client that does not run.

use std::pin::pin;
use std::time::Duration;

use super::super::shared::Shared;
use super::{Rig, soon};
use crate::base::clocks::ManualClock;
use crate::base::owner::Owner;
use crate::base::sync::lock;
use crate::face::manager::LockManager;
use crate::face::reentrant::ReentrantLock;
use crate::store::{Events, Grant};

fn acquisitions(shared: &Shared) -> usize {
    lock(&shared.registry).acquisitions.len()
}

#[tokio::test]
async fn a_grant_that_is_told_again_does_not_give_back_a_lock_that_is_kept() {
    let rig = Rig::new("", &ManualClock::new());
    let shared = &rig.engine.shared;
    let grant = Grant {
        kind: crate::base::key::LockKey::new("", "a").unwrap().kind(),
        order: 7,
        fence: 7,
        reserve: 0,
        contended: false,
        ttl: Duration::from_secs(9),
    };
    let tell = |sequence| shared.granted(shared.client.token(sequence).as_str(), grant, "lock:a");
    let now = shared.clock.now();
    lock(&shared.registry).keep(1_000, now, now + Duration::from_secs(1));
    tell(1_000);
    assert_eq!(acquisitions(shared), 0);
    // A grant of an unknown token is given back.
    tell(2_000);
    assert_eq!(acquisitions(shared), 1);
}

#[tokio::test]
async fn a_release_is_tried_for_the_longest_ttl_that_was_asked_for() {
    let rig = Rig::new("", &ManualClock::new());
    let shared = &rig.engine.shared;
    let acquisition = shared.acquisition(&rig.request("a").unwrap()).unwrap();
    let long = Duration::from_secs(600);
    for ttl in [long, Duration::from_secs(1)] {
        let terms = shared.config.terms(ttl).unwrap();
        lock(&acquisition.life).state.on(terms);
    }
    assert!(shared.lasts(&acquisition) >= long);
}

/// Polls a future once.
async fn once(future: impl Future) -> bool {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// Whether a caller gave way, and then did not run.
async fn stood_still(here: &ReentrantLock, there: &ReentrantLock) -> bool {
    let apart = || here.clone().owner(&Owner::new());
    let (first, waiter, sleeper, after) = (apart(), apart(), apart(), apart());
    let there = there.clone().owner(&Owner::new());
    let mut held = first.acquire().await.unwrap();
    let mut other = Box::pin(there.acquire());
    // Until the other acquisition listens. Then it sleeps.
    for _ in 0..20 {
        assert!(!once(&mut other).await);
        tokio::task::yield_now().await;
    }
    let mut next = Box::pin(waiter.acquire());
    assert!(!once(&mut next).await);
    held.release().await.unwrap();
    // This has shown that another process listens.
    held = soon(next).await.unwrap();
    let mut stands_still = Box::pin(sleeper.acquire());
    assert!(!once(&mut stands_still).await);
    let after = tokio::spawn(async move { after.acquire().await.unwrap() });
    tokio::task::yield_now().await;
    held.release().await.unwrap();
    if once(&mut stands_still).await {
        return false;
    }
    drop(soon(after).await.unwrap());
    true
}

#[tokio::test]
async fn a_client_that_yielded_and_does_not_run_is_passed_over() {
    let settings = || LockManager::builder().default_ttl(Duration::from_millis(300));
    let url = "memory://gave-way";
    let here = settings().handover_limit(1).connect(url).await.unwrap();
    let there = settings().connect(url).await.unwrap();
    // On a machine that stands still for longer than the pause, it has the lock.
    for round in 0..20 {
        let name = format!("a{round}");
        if stood_still(&here.reentrant_lock(&name), &there.reentrant_lock(&name)).await {
            return;
        }
    }
    panic!("it does not give way");
}
