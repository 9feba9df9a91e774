//! Tests of the reentrant kind in memory.

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::base::kind::Share;
use crate::base::owner::Owner;
use crate::base::time::Clock;
use crate::base::time::manual::ManualClock;
use crate::base::token::ClientId;
use crate::store::{Concerned, EventSink, Events, Grant, Mode, SnapshotState, Store};

const TTL: Duration = Duration::from_secs(9);

/// The messages that a client received.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl Events for Told {
    fn observed(&self, _: &crate::base::observe::Event<'_>) {}

    fn granted(&self, _: &str, _: Grant, _: &str) {}
    fn contended(&self, _: &str) {}
    fn revoked(&self, token: &str) {
        lock(&self.0).push(format!("revoked {token}"));
    }
    fn unlocked(&self, name: &str) {
        lock(&self.0).push(format!("unlocked {name}"));
    }
    fn interrupted(&self, _: Concerned<'_>) {}
}

/// One client of a server that all clients of a name share.
struct Rig {
    store: MemoryStore,
    client: ClientId,
    told: Arc<Told>,
    clock: ManualClock,
}

impl Rig {
    fn new(name: &str, clock: &ManualClock) -> Self {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let (store, client) = (MemoryStore::open(name, shared), ClientId::random("test"));
        let told = Arc::new(Told::default());
        let sink: Arc<dyn Events> = told.clone();
        store.attach(&client, Arc::downgrade(&sink) as EventSink);
        Self {
            store,
            client,
            told,
            clock: clock.clone(),
        }
    }

    fn alone() -> Self {
        Self::new("", &ManualClock::new())
    }

    async fn acquire(&self, key: &Arc<LockKey>, owner: &Owner, token: u64) -> Answer {
        self.acquire_for(key, owner, token, TTL).await
    }

    async fn acquire_for(
        &self,
        key: &Arc<LockKey>,
        owner: &Owner,
        token: u64,
        ttl: Duration,
    ) -> Answer {
        let attempt = Attempt {
            key,
            token: &self.client.token(token),
            ttl,
            mode: Mode::Wait,
            alive_for: TTL,
            owner: Some(owner.as_str()),
            value: None,
            reserve: 0,
            share: Share::ONLY,
        };
        self.store.acquire(attempt).await.unwrap()
    }

    async fn release(&self, key: &Arc<LockKey>, owner: &Owner, token: u64) -> Released {
        let token = self.client.token(token);
        let released = self.store.release(key, &token, Some(owner.as_str()));
        released.await.unwrap()
    }

    async fn extend(&self, key: &Arc<LockKey>, owner: &Owner, token: u64, ttl: Duration) -> bool {
        let renewal = Renewal {
            fence: 0,
            key,
            token: &self.client.token(token),
            ttl,
            shortens: false,
            owner: Some(owner.as_str()),
            value: None,
        };
        matches!(self.store.extend(&[renewal]).await[..], [Ok(true)])
    }

    async fn remaining(&self, key: &Arc<LockKey>) -> Option<Duration> {
        match self.store.inspect(key).await.unwrap().state {
            SnapshotState::Held { remaining, .. } => Some(remaining),
            _ => None,
        }
    }
}

fn key() -> Arc<LockKey> {
    Arc::new(LockKey::reentrant("", "a").unwrap())
}

fn granted(answer: &Answer) -> u64 {
    match *answer {
        Answer::Granted { fence, .. } => fence,
        ref other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_owner_enters_again_and_the_last_release_frees() {
    let (rig, key, owner) = (Rig::alone(), key(), Owner::new());
    let fence = granted(&rig.acquire(&key, &owner, 1).await);
    assert_eq!(granted(&rig.acquire(&key, &owner, 2).await), fence);
    let other = rig.acquire(&key, &Owner::new(), 3).await;
    let holder = Some("test".into());
    let remaining = TTL;
    assert_eq!(other, Answer::Busy { remaining, holder });
    let still = Released::StillHeld { holds: 1 };
    assert_eq!(rig.release(&key, &owner, 1).await, still);
    assert_eq!(
        rig.release(&key, &owner, 2).await,
        Released::Announced { heard: 0 }
    );
    assert!(granted(&rig.acquire(&key, &owner, 4).await) > fence);
}

#[tokio::test]
async fn a_call_that_is_repeated_counts_once() {
    let (rig, key, owner) = (Rig::alone(), key(), Owner::new());
    let first = rig.acquire(&key, &owner, 1).await;
    assert_eq!(rig.acquire(&key, &owner, 1).await, first);
    rig.acquire(&key, &owner, 2).await;
    let still = Released::StillHeld { holds: 1 };
    assert_eq!(rig.release(&key, &owner, 2).await, still);
    assert_eq!(rig.release(&key, &owner, 2).await, Released::NotHeld);
    let stranger = Owner::new();
    assert_eq!(rig.release(&key, &stranger, 1).await, Released::NotHeld);
    assert_eq!(
        rig.release(&key, &owner, 1).await,
        Released::Announced { heard: 0 }
    );
}

#[tokio::test]
async fn nothing_an_owner_does_shortens_the_lease() {
    let (rig, key, owner) = (Rig::alone(), key(), Owner::new());
    rig.acquire(&key, &owner, 1).await;
    rig.acquire_for(&key, &owner, 2, TTL / 3).await;
    assert_eq!(rig.remaining(&key).await, Some(TTL));
    assert!(rig.extend(&key, &owner, 2, TTL / 3).await);
    assert_eq!(rig.remaining(&key).await, Some(TTL));
    rig.release(&key, &owner, 1).await;
    assert_eq!(rig.remaining(&key).await, Some(TTL));
    rig.clock.advance(TTL / 3);
    assert!(rig.extend(&key, &owner, 2, TTL).await);
    assert_eq!(rig.remaining(&key).await, Some(TTL));
}

#[tokio::test]
async fn an_acquisition_of_an_ended_tenure_neither_renews_nor_releases() {
    let (rig, key, owner) = (Rig::alone(), key(), Owner::new());
    rig.acquire(&key, &owner, 1).await;
    rig.clock.advance(TTL);
    assert!(!rig.extend(&key, &owner, 1, TTL).await);
    rig.acquire(&key, &owner, 2).await;
    assert!(!rig.extend(&key, &owner, 1, TTL).await);
    assert_eq!(rig.release(&key, &owner, 1).await, Released::NotHeld);
    assert!(rig.extend(&key, &owner, 2, TTL).await);
    assert!(!rig.extend(&key, &Owner::new(), 2, TTL).await);
}

#[tokio::test]
async fn without_an_owner_each_acquisition_is_its_own() {
    let (rig, key) = (Rig::alone(), key());
    let token = rig.client.token(1);
    let attempt = |token| Attempt {
        key: &key,
        token,
        ttl: TTL,
        mode: Mode::Try,
        alive_for: TTL,
        owner: None,
        value: None,
        reserve: 0,
        share: Share::ONLY,
    };
    granted(&rig.store.acquire(attempt(&token)).await.unwrap());
    let second = rig.client.token(2);
    let second = rig.store.acquire(attempt(&second)).await.unwrap();
    assert!(matches!(second, Answer::Busy { .. }));
    let released = rig.store.release(&key, &token, None).await;
    assert_eq!(released.unwrap(), Released::Announced { heard: 0 });
}

#[tokio::test]
async fn only_subscribers_get_the_message_of_the_last_release() {
    let clock = ManualClock::new();
    let (one, two) = (Rig::new("listen", &clock), Rig::new("listen", &clock));
    let (key, owner) = (key(), Owner::new());
    let first = two.store.subscribe(&key).await;
    let second = two.store.subscribe(&key).await;
    one.acquire(&key, &owner, 1).await;
    one.acquire(&key, &owner, 2).await;
    one.release(&key, &owner, 1).await;
    assert!(two.told.take().is_empty(), "it is still held");
    one.release(&key, &owner, 2).await;
    assert_eq!(two.told.take(), ["unlocked a"], "once, however many listen");
    assert!(one.told.take().is_empty());
    drop(first);
    one.acquire(&key, &owner, 3).await;
    one.release(&key, &owner, 3).await;
    assert_eq!(two.told.take(), ["unlocked a"]);
    drop(second);
    one.acquire(&key, &owner, 4).await;
    one.release(&key, &owner, 4).await;
    assert!(two.told.take().is_empty());
    assert!(lock(&one.store.server.locks).common.listeners.is_empty());
}

#[tokio::test]
async fn a_forced_release_tells_every_holder_and_who_listens() {
    let clock = ManualClock::new();
    let (one, two) = (Rig::new("force", &clock), Rig::new("force", &clock));
    let (key, owner) = (key(), Owner::new());
    let _listening = two.store.subscribe(&key).await;
    one.acquire(&key, &owner, 1).await;
    two.acquire(&key, &owner, 2).await;
    let forced = two.store.force_release(&key).await;
    assert_eq!(forced.unwrap(), Forced::TakenAway);
    let revoked = |rig: &Rig, n| format!("revoked {}", rig.client.token(n).as_str());
    assert_eq!(one.told.take(), [revoked(&one, 1)]);
    assert_eq!(two.told.take(), [revoked(&two, 2), "unlocked a".to_owned()]);
    let again = two.store.force_release(&key).await;
    assert_eq!(again.unwrap(), Forced::NotHeld);
}

#[tokio::test]
async fn the_two_kinds_are_foreign_to_each_other() {
    let (rig, reentrant) = (Rig::alone(), key());
    let exclusive = Arc::new(LockKey::new("", "a").unwrap());
    let owner = Owner::new();
    rig.acquire(&reentrant, &owner, 1).await;
    let hash = Answer::Foreign {
        kind: "hash".to_owned(),
    };
    assert_eq!(rig.acquire(&exclusive, &owner, 2).await, hash);
    let forced = rig.store.force_release(&exclusive).await.unwrap();
    assert!(matches!(forced, Forced::Foreign { .. }));
    rig.release(&reentrant, &owner, 1).await;
    granted(&rig.acquire(&exclusive, &owner, 3).await);
    let string = Answer::Foreign {
        kind: "string".to_owned(),
    };
    assert_eq!(rig.acquire(&reentrant, &owner, 4).await, string);
    let seen = rig.store.inspect(&reentrant).await.unwrap().state;
    assert!(matches!(seen, SnapshotState::Foreign { .. }));
}
