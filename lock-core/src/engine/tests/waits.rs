//! Acquisitions that wait by themselves: each has its own place in the server's queue, and no line passes the lock on.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::super::acquire::{Queue, Waiter};
use super::super::acquisition::Acquisition;
use super::super::hold::Hold;
use super::super::patience::{Limit, Patience};
use super::super::shared::Shared;
use super::{PATIENCE, Rig, TTL, once, soon};
use crate::base::clocks::ManualClock;
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::sync::lock;
use crate::base::timers::OF_CALLER;
use crate::face::guard::LockGuard;
use crate::store::{Events, Grant};

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Arc<Hold>, LockError>> + 'a>>;

/// A waiter for the lock `a` without a line.
fn waits(shared: &Arc<Shared>, limit: Limit) -> Waiting<'_> {
    let terms = shared.config.terms(TTL).unwrap();
    let key = LockKey::new("lock:", "a").unwrap();
    let request = super::LockRequest::plain(key, terms);
    Box::pin(async move {
        let patience = Patience::new(&OF_CALLER, limit);
        let queue = Queue::Server(shared.acquisition(&request)?);
        let hold = Arc::new(Hold::new(request));
        let acquired = Waiter::new(shared, patience, queue, hold).run().await?;
        Ok(acquired.expect("nothing comes before it").0)
    })
}

/// Two engines over one server: the lock is held at the first, and the second one waits for it.
async fn held(name: &str) -> (Rig, Rig, LockGuard) {
    let clock = ManualClock::new();
    let (one, two) = (Rig::new(name, &clock), Rig::new(name, &clock));
    let guard = one.take("a", true, Limit::Forever).await.unwrap();
    (one, two, guard)
}

async fn in_queue(rig: &Rig) -> u64 {
    let key = Arc::new(LockKey::new("lock:", "a").unwrap());
    rig.engine.shared.store.inspect(&key).await.unwrap().waiting
}

/// The acquisitions of this engine, the oldest first.
fn acquisitions(rig: &Rig) -> Vec<Arc<Acquisition>> {
    let mut all = lock(&rig.engine.shared.registry).all();
    all.sort_by_key(|acquisition| acquisition.sequence);
    all
}

/// Nothing is left of the waiters of the second engine, neither here nor in the server's queue.
async fn until_gone(one: &Rig, two: &Rig) {
    soon(async {
        while !acquisitions(two).is_empty() || in_queue(one).await > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn it_waits_and_is_granted_the_lock_by_a_message() {
    let (_one, two, guard) = held("granted-alone").await;
    let shared = &two.engine.shared;
    let mut waiting = waits(shared, Limit::Forever);
    assert!(once(&mut waiting).await.is_pending());
    assert_eq!(shared.lines(), 0, "no line");
    assert_eq!(in_queue(&two).await, 1);
    guard.release().await.unwrap();
    let Poll::Ready(Ok(hold)) = once(&mut waiting).await else {
        panic!("the message has come with the release")
    };
    assert!(hold.is_taken());
    shared.end(&hold);
    until_gone(&two, &two).await;
}

#[tokio::test]
async fn it_keeps_its_place_by_refreshes_and_asks_when_a_message_was_lost() {
    let (one, two, guard) = held("refreshed-alone").await;
    let shared = &two.engine.shared;
    let mut waiting = waits(shared, Limit::Forever);
    assert!(once(&mut waiting).await.is_pending());
    // The server forgets its place, and no message announces the release.
    let token = shared.token(&acquisitions(&two)[0]);
    let key = Arc::new(LockKey::new("lock:", "a").unwrap());
    shared
        .store
        .release(&key, &token, None, false)
        .await
        .unwrap();
    assert_eq!(in_queue(&two).await, 0);
    two.clock.advance(Duration::from_secs(4));
    soon(async {
        while in_queue(&one).await == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    guard.release().await.unwrap();
    shared.end(&soon(waiting).await.unwrap());
    until_gone(&one, &two).await;
}

#[tokio::test]
async fn it_leaves_the_queue_when_its_limit_ends() {
    let (one, two, guard) = held("late-alone").await;
    let limit = Limit::Within(Duration::from_millis(5));
    let late = waits(&two.engine.shared, limit).await;
    assert!(
        matches!(&late, Err(LockError::TimedOut { key, .. }) if key == "a"),
        "{late:?}"
    );
    assert_eq!(in_queue(&one).await, 0);
    until_gone(&one, &two).await;
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_shutdown_ends_its_wait() {
    let (one, two, guard) = held("shut-down-alone").await;
    let mut waiting = waits(&two.engine.shared, Limit::Forever);
    assert!(once(&mut waiting).await.is_pending());
    assert_eq!(two.engine.shutdown(PATIENCE).await, 0);
    assert!(matches!(waiting.await, Err(LockError::ShutDown)));
    assert_eq!(in_queue(&one).await, 0);
    assert!(guard.is_held());
}

/// Where a waiter is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    NotPolled,
    Waiting,
    /// Its grant has come, and it has not run since.
    Granted,
}

#[tokio::test]
async fn dropped_at_each_await_it_leaves_nothing_behind() {
    for at in [At::NotPolled, At::Waiting, At::Granted] {
        let (one, two, guard) = held(&format!("dropped-alone-{at:?}")).await;
        let mut waiting = waits(&two.engine.shared, Limit::Forever);
        if at != At::NotPolled {
            assert!(once(&mut waiting).await.is_pending());
        }
        if at == At::Granted {
            guard.release().await.unwrap();
            drop(waiting);
            // The next client has the lock at once, not after the ttl of the one that has gone.
            let next = soon(one.take("a", true, Limit::Forever)).await;
            assert!(next.unwrap().is_held());
        } else {
            drop(waiting);
            until_gone(&one, &two).await;
            assert!(guard.is_held());
        }
        until_gone(&one, &two).await;
    }
}

#[tokio::test]
async fn one_that_does_not_run_is_granted_nothing_for_long() {
    let (one, two, guard) = held("stalled-alone").await;
    let mut stalled = waits(&two.engine.shared, Limit::Forever);
    assert!(once(&mut stalled).await.is_pending());
    guard.release().await.unwrap();
    // Its grant is not refreshed: the server ends it with the ttl.
    let mut next = Box::pin(one.take("a", true, Limit::Forever));
    assert!(once(&mut next).await.is_pending());
    two.clock.advance(TTL);
    let next = soon(next).await.unwrap();
    assert!(once(&mut stalled).await.is_pending(), "it asks again");
    next.release().await.unwrap();
    assert!(soon(stalled).await.unwrap().is_taken());
}

#[tokio::test]
async fn three_hold_at_once_and_each_is_released_by_itself() {
    let (one, two, guard) = held("three").await;
    let shared = &two.engine.shared;
    let mut waiting = [(); 3].map(|()| waits(shared, Limit::Forever));
    for waiter in &mut waiting {
        assert!(once(waiter).await.is_pending());
    }
    assert_eq!(in_queue(&two).await, 3, "a place each");
    // A server that counts permits would grant all of them.
    let key = LockKey::new("lock:", "a").unwrap();
    let fence = guard.fencing_token().get();
    let mut holds = Vec::new();
    for (number, acquisition) in (1..).zip(acquisitions(&two)) {
        let grant = Grant {
            kind: key.kind(),
            order: fence + number,
            fence: fence + number,
            reserve: 0,
            contended: false,
            ttl: TTL,
        };
        let token = shared.token(&acquisition);
        shared.granted(token.as_str(), grant, key.lock());
    }
    for waiter in waiting {
        holds.push(soon(waiter).await.unwrap());
    }
    assert!(holds.iter().all(|hold| hold.is_taken()));
    assert_eq!((acquisitions(&two).len(), shared.lines()), (3, 0));
    // A release by force reaches one of them.
    let token = shared.token(holds[0].acquisition().unwrap());
    shared.revoked(token.as_str());
    let now = shared.clock.now();
    let held = || {
        holds
            .iter()
            .filter(|hold| hold.status(now) == super::Status::Held)
    };
    assert_eq!(held().count(), 2);
    for hold in &holds {
        shared.end(hold);
    }
    until_gone(&one, &two).await;
    assert!(guard.is_held());
}
