//! Tests of the reentrant kind in memory.

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::base::claim::{Claim, PLAIN};
use crate::base::clocks::ManualClock;
use crate::base::owner::Owner;
use crate::base::time::Clock;
use crate::base::token::ClientId;
use crate::store::{Concerned, EventSink, Events, Grant, Mode, SnapshotState};

const TTL: Duration = Duration::from_secs(9);

fn of(owner: &Owner) -> Claim {
    Claim {
        owner: Some(owner.clone()),
        ..PLAIN.clone()
    }
}

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
        store.attach(client.clone(), Arc::downgrade(&sink) as EventSink);
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

    fn acquire(&self, key: &Arc<LockKey>, owner: &Owner, token: u64) -> Answer {
        self.acquire_for(key, owner, token, TTL)
    }

    fn acquire_for(&self, key: &Arc<LockKey>, owner: &Owner, token: u64, ttl: Duration) -> Answer {
        let attempt = Attempt {
            key,
            token: &self.client.token(token),
            ttl,
            mode: Mode::Wait,
            alive_for: TTL,
            claim: &of(owner),
            reserve: 0,
        };
        self.store.acquire(attempt)
    }

    fn release(&self, key: &Arc<LockKey>, owner: &Owner, token: u64) -> Released {
        let token = self.client.token(token);
        self.store.release(key, &token, Some(owner.as_str()))
    }

    fn extend(&self, key: &Arc<LockKey>, owner: &Owner, token: u64, ttl: Duration) -> bool {
        let renewal = Renewal {
            fence: 0,
            key,
            token: &self.client.token(token),
            ttl,
            shortens: false,
            claim: &of(owner),
        };
        self.store.extend(&[renewal]) == [true]
    }

    fn remaining(&self, key: &Arc<LockKey>) -> Option<Duration> {
        match self.store.inspect(key).state {
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

#[test]
fn an_owner_enters_again_and_the_last_release_frees() {
    let (rig, key, owner) = (Rig::alone(), key(), Owner::new());
    let fence = granted(&rig.acquire(&key, &owner, 1));
    assert_eq!(granted(&rig.acquire(&key, &owner, 2)), fence);
    let other = rig.acquire(&key, &Owner::new(), 3);
    let holder = Some("test".into());
    let remaining = TTL;
    assert_eq!(other, Answer::Busy { remaining, holder });
    let still = Released::StillHeld { holds: 1 };
    assert_eq!(rig.release(&key, &owner, 1), still);
    assert_eq!(
        rig.release(&key, &owner, 2),
        Released::Announced { heard: 0 }
    );
    assert!(granted(&rig.acquire(&key, &owner, 4)) > fence);
}

#[test]
fn a_call_that_is_repeated_counts_once() {
    let (rig, key, owner) = (Rig::alone(), key(), Owner::new());
    let first = rig.acquire(&key, &owner, 1);
    assert_eq!(rig.acquire(&key, &owner, 1), first);
    rig.acquire(&key, &owner, 2);
    let still = Released::StillHeld { holds: 1 };
    assert_eq!(rig.release(&key, &owner, 2), still);
    assert_eq!(rig.release(&key, &owner, 2), Released::NotHeld);
    let stranger = Owner::new();
    assert_eq!(rig.release(&key, &stranger, 1), Released::NotHeld);
    assert_eq!(
        rig.release(&key, &owner, 1),
        Released::Announced { heard: 0 }
    );
}

#[test]
fn nothing_an_owner_does_shortens_the_lease() {
    let (rig, key, owner) = (Rig::alone(), key(), Owner::new());
    rig.acquire(&key, &owner, 1);
    rig.acquire_for(&key, &owner, 2, TTL / 3);
    assert_eq!(rig.remaining(&key), Some(TTL));
    assert!(rig.extend(&key, &owner, 2, TTL / 3));
    assert_eq!(rig.remaining(&key), Some(TTL));
    rig.release(&key, &owner, 1);
    assert_eq!(rig.remaining(&key), Some(TTL));
    rig.clock.advance(TTL / 3);
    assert!(rig.extend(&key, &owner, 2, TTL));
    assert_eq!(rig.remaining(&key), Some(TTL));
}

#[test]
fn an_acquisition_of_an_ended_tenure_neither_renews_nor_releases() {
    let (rig, key, owner) = (Rig::alone(), key(), Owner::new());
    rig.acquire(&key, &owner, 1);
    rig.clock.advance(TTL);
    assert!(!rig.extend(&key, &owner, 1, TTL));
    rig.acquire(&key, &owner, 2);
    assert!(!rig.extend(&key, &owner, 1, TTL));
    assert_eq!(rig.release(&key, &owner, 1), Released::NotHeld);
    assert!(rig.extend(&key, &owner, 2, TTL));
    assert!(!rig.extend(&key, &Owner::new(), 2, TTL));
}

#[test]
fn without_an_owner_each_acquisition_is_its_own() {
    let (rig, key) = (Rig::alone(), key());
    let token = rig.client.token(1);
    let attempt = |token| Attempt {
        key: &key,
        token,
        ttl: TTL,
        mode: Mode::Try,
        alive_for: TTL,
        claim: &PLAIN,
        reserve: 0,
    };
    granted(&rig.store.acquire(attempt(&token)));
    let second = rig.client.token(2);
    let second = rig.store.acquire(attempt(&second));
    assert!(matches!(second, Answer::Busy { .. }));
    let released = rig.store.release(&key, &token, None);
    assert_eq!(released, Released::Announced { heard: 0 });
}

#[test]
fn only_subscribers_get_the_message_of_the_last_release() {
    let clock = ManualClock::new();
    let (one, two) = (Rig::new("listen", &clock), Rig::new("listen", &clock));
    let (key, owner) = (key(), Owner::new());
    let first = two.store.watch(key.lock());
    let second = two.store.watch(key.lock());
    one.acquire(&key, &owner, 1);
    one.acquire(&key, &owner, 2);
    one.release(&key, &owner, 1);
    assert!(two.told.take().is_empty(), "it is still held");
    one.release(&key, &owner, 2);
    assert_eq!(two.told.take(), ["unlocked a"], "once, however many listen");
    assert!(one.told.take().is_empty());
    drop(first);
    one.acquire(&key, &owner, 3);
    one.release(&key, &owner, 3);
    assert_eq!(two.told.take(), ["unlocked a"]);
    drop(second);
    one.acquire(&key, &owner, 4);
    one.release(&key, &owner, 4);
    assert!(two.told.take().is_empty());
    assert!(lock(&one.store.server.locks).common.listeners.is_empty());
}

#[test]
fn a_forced_release_tells_every_holder_and_who_listens() {
    let clock = ManualClock::new();
    let (one, two) = (Rig::new("force", &clock), Rig::new("force", &clock));
    let (key, owner) = (key(), Owner::new());
    let _listening = two.store.watch(key.lock());
    one.acquire(&key, &owner, 1);
    two.acquire(&key, &owner, 2);
    let forced = two.store.force_release(&key);
    assert_eq!(forced, Ok(true));
    let revoked = |rig: &Rig, n| format!("revoked {}", rig.client.token(n).as_str());
    assert_eq!(one.told.take(), [revoked(&one, 1)]);
    assert_eq!(two.told.take(), [revoked(&two, 2), "unlocked a".to_owned()]);
    let again = two.store.force_release(&key);
    assert_eq!(again, Ok(false));
}

#[test]
fn the_two_kinds_are_foreign_to_each_other() {
    let (rig, reentrant) = (Rig::alone(), key());
    let exclusive = Arc::new(LockKey::new("", "a").unwrap());
    let owner = Owner::new();
    rig.acquire(&reentrant, &owner, 1);
    let hash = Answer::Refused(Refusal::Foreign("hash".to_owned()));
    assert_eq!(rig.acquire(&exclusive, &owner, 2), hash);
    let forced = rig.store.force_release(&exclusive);
    assert!(matches!(forced, Err(Refusal::Foreign(_))));
    rig.release(&reentrant, &owner, 1);
    granted(&rig.acquire(&exclusive, &owner, 3));
    let string = Answer::Refused(Refusal::Foreign("string".to_owned()));
    assert_eq!(rig.acquire(&reentrant, &owner, 4), string);
    let seen = rig.store.inspect(&reentrant).state;
    assert!(matches!(seen, SnapshotState::Foreign { .. }));
}
