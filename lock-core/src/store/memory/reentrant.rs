//! The reentrant kind in memory, and who listens for it.

use std::collections::HashMap;
use std::sync::Arc;

use super::{MemoryState, MemoryStore, Message, Server};
use crate::key::{LockKey, Names};
use crate::store::{
    Announcer, Answer, Attempt, Forced, Released, Renewal, Snapshot, SnapshotState, Subscription,
};
use crate::sync::lock;
use crate::time::Moment;
use crate::token::Token;

/// From the first acquisition of an owner to its last release.
pub(super) struct ReentrantHold {
    owner: Box<str>,
    fence: u64,
    /// The acquisitions that are counted.
    counted: Vec<Token>,
    expires: Moment,
}

impl ReentrantHold {
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.expires <= now
    }

    fn holds(&self) -> u64 {
        self.counted.len() as u64
    }

    /// Never shortens it: other holds may rely on more.
    fn prolong(&mut self, until: Moment) {
        self.expires = self.expires.max(until);
    }
}

/// A client and the lock that it listens for.
type Listener = (Box<str>, Box<str>);

/// For each channel, who listens, and how often.
#[derive(Default)]
pub(super) struct Listeners(HashMap<Box<str>, HashMap<Listener, usize>>);

/// An acquisition without an owner is its own.
fn or_token<'a>(owner: Option<&'a str>, token: &'a Token) -> &'a str {
    owner.unwrap_or_else(|| token.as_str())
}

impl MemoryState {
    /// The tenure of a lock, where it is not over.
    pub(super) fn tenure(&mut self, name: &str, now: Moment) -> Option<&mut ReentrantHold> {
        if self.tenures.get(name)?.is_over(now) {
            self.tenures.remove(name);
        }
        self.tenures.get_mut(name)
    }

    /// Whether an exclusive lock stands under this name.
    fn is_exclusive(&mut self, name: &str, now: Moment) -> bool {
        self.locks.get_mut(name).is_some_and(|slot| {
            slot.expire(now);
            slot.holder.is_some()
        })
    }

    pub(super) fn reenter(&mut self, now: Moment, attempt: Attempt<'_>) -> Answer {
        let (name, token) = (attempt.key.lock(), attempt.token);
        let (owner, until) = (or_token(attempt.owner, token), now + attempt.ttl);
        if self.is_exclusive(name, now) {
            let kind = "string".to_owned();
            return Answer::Foreign { kind };
        }
        if let Some(tenure) = self.tenure(name, now) {
            if *tenure.owner != *owner {
                let remaining = now.until(tenure.expires);
                return Answer::Busy { remaining };
            }
            if !tenure.counted.contains(token) {
                tenure.counted.push(*token);
            }
            tenure.prolong(until);
            let fence = tenure.fence;
            return Answer::Granted { fence };
        }
        self.sweep(now);
        let fence = self.mint(now, attempt.reserve);
        let tenure = ReentrantHold {
            owner: owner.into(),
            fence,
            counted: vec![*token],
            expires: until,
        };
        self.tenures.insert(name.into(), tenure);
        Answer::Granted { fence }
    }

    pub(super) fn leave(
        &mut self,
        now: Moment,
        key: &LockKey,
        token: &Token,
        owner: Option<&str>,
        outbox: &mut Vec<Message>,
    ) -> Released {
        let counted = self.tenure(key.lock(), now).and_then(|tenure| {
            let at = tenure.counted.iter().position(|t| t == token)?;
            (*tenure.owner == *or_token(owner, token)).then(|| {
                tenure.counted.swap_remove(at);
                tenure.holds()
            })
        });
        match counted {
            None => Released::NotHeld,
            Some(0) => {
                self.tenures.remove(key.lock());
                let announced = self.announce(key);
                let heard = announced.len() as u64;
                outbox.extend(announced);
                Released::Announced { heard }
            }
            Some(holds) => Released::StillHeld { holds },
        }
    }

    pub(super) fn extend_reentrant(&mut self, now: Moment, renewal: &Renewal<'_>) -> bool {
        let owner = or_token(renewal.owner, renewal.token);
        let tenure = self
            .tenure(renewal.key.lock(), now)
            .filter(|tenure| *tenure.owner == *owner && tenure.counted.contains(renewal.token));
        if let Some(tenure) = tenure {
            tenure.prolong(now + renewal.ttl);
            return true;
        }
        false
    }

    pub(super) fn inspect_reentrant(&mut self, now: Moment, key: &LockKey) -> Snapshot {
        let state = if self.is_exclusive(key.lock(), now) {
            let kind = "string".to_owned();
            SnapshotState::Foreign { kind }
        } else if let Some(tenure) = self.tenure(key.lock(), now) {
            SnapshotState::Held {
                remaining: now.until(tenure.expires),
                client: tenure.owner.chars().take(36).collect(),
                holds: tenure.holds(),
                owner: Some(tenure.owner.clone().into()),
            }
        } else {
            SnapshotState::Free
        };
        // Who waits has only subscribed: there is no queue to count.
        Snapshot {
            state,
            waiting: 0,
            nodes: Vec::new(),
        }
    }

    pub(super) fn force_reentrant(
        &mut self,
        now: Moment,
        key: &LockKey,
        outbox: &mut Vec<Message>,
    ) -> Forced {
        if self.is_exclusive(key.lock(), now) {
            let kind = "string".to_owned();
            return Forced::Foreign { kind };
        }
        // One that is over is not there any more.
        self.tenure(key.lock(), now);
        let Some(tenure) = self.tenures.remove(key.lock()) else {
            return Forced::NotHeld;
        };
        // The old holders hear first, as they do from the server.
        outbox.extend(tenure.counted.into_iter().map(Message::Revoked));
        outbox.extend(self.announce(key));
        Forced::TakenAway
    }

    /// The message that the lock is free, for everybody who listens.
    fn announce(&self, key: &LockKey) -> Vec<Message> {
        let Names::Reentrant { channel, .. } = key.names() else {
            return Vec::new();
        };
        let listeners = self
            .listeners
            .0
            .get(&*channel.to_string())
            .into_iter()
            .flatten();
        listeners
            .map(|((client, name), _)| Message::Unlocked(client.clone(), name.clone()))
            .collect()
    }
}

impl MemoryStore {
    pub(super) fn listen(&self, key: &LockKey) -> Option<Subscription> {
        let Names::Reentrant { channel, .. } = key.names() else {
            return None;
        };
        let client: Box<str> = self.client.get()?.as_str().into();
        let channel = channel.to_string();
        let listener = (client.clone(), key.lock().into());
        let mut state = lock(&self.server.state);
        let listeners = state
            .listeners
            .0
            .entry(channel.as_str().into())
            .or_default();
        *listeners.entry(listener).or_default() += 1;
        let announcer = Arc::new(Subscriber {
            server: Arc::clone(&self.server),
            client,
        });
        Some(Subscription::counted(announcer, &channel, key.lock()))
    }
}

/// One client of the server that listens.
struct Subscriber {
    server: Arc<Server>,
    client: Box<str>,
}

impl Announcer for Subscriber {
    fn left(&self, channel: &str, name: &str) {
        let mut state = lock(&self.server.state);
        let Some(listeners) = state.listeners.0.get_mut(channel) else {
            return;
        };
        let listener = (self.client.clone(), name.into());
        if let Some(count) = listeners.get_mut(&listener) {
            *count -= 1;
            if *count == 0 {
                listeners.remove(&listener);
            }
        }
        if listeners.is_empty() {
            state.listeners.0.remove(channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::owner::Owner;
    use crate::store::{EventSink, Events, Grant, Mode, Store};
    use crate::time::Clock;
    use crate::time::manual::ManualClock;
    use crate::token::ClientId;

    const TTL: Duration = Duration::from_secs(9);

    /// What a client was told.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Told {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut lock(&self.0))
        }
    }

    impl Events for Told {
        fn granted(&self, _: &str, _: Grant, _: &str) {}
        fn contended(&self, _: &str) {}
        fn revoked(&self, token: &str) {
            lock(&self.0).push(format!("revoked {token}"));
        }
        fn unlocked(&self, name: &str) {
            lock(&self.0).push(format!("unlocked {name}"));
        }
        fn interrupted(&self) {}
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
            let (store, client) = (MemoryStore::open(name, shared), ClientId::random());
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
                reserve: 0,
            };
            self.store.acquire(attempt).await.unwrap()
        }

        async fn release(&self, key: &Arc<LockKey>, owner: &Owner, token: u64) -> Released {
            let token = self.client.token(token);
            let released = self.store.release(key, &token, Some(owner.as_str()));
            released.await.unwrap()
        }

        async fn extend(
            &self,
            key: &Arc<LockKey>,
            owner: &Owner,
            token: u64,
            ttl: Duration,
        ) -> bool {
            let renewal = Renewal {
                key,
                token: &self.client.token(token),
                ttl,
                owner: Some(owner.as_str()),
            };
            self.store.extend(&[renewal]).await.unwrap()[0]
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
            Answer::Granted { fence } => fence,
            ref other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_owner_enters_again_and_the_last_release_frees() {
        let (rig, key, owner) = (Rig::alone(), key(), Owner::new());
        let fence = granted(&rig.acquire(&key, &owner, 1).await);
        assert_eq!(granted(&rig.acquire(&key, &owner, 2).await), fence);
        let other = rig.acquire(&key, &Owner::new(), 3).await;
        assert_eq!(other, Answer::Busy { remaining: TTL });
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
            reserve: 0,
        };
        granted(&rig.store.acquire(attempt(&token)).await.unwrap());
        let second = rig.client.token(2);
        let second = rig.store.acquire(attempt(&second)).await.unwrap();
        assert!(matches!(second, Answer::Busy { .. }));
        let released = rig.store.release(&key, &token, None).await;
        assert_eq!(released.unwrap(), Released::Announced { heard: 0 });
    }

    #[tokio::test]
    async fn who_listens_hears_of_the_last_release_and_nobody_else_does() {
        let clock = ManualClock::new();
        let (one, two) = (Rig::new("listen", &clock), Rig::new("listen", &clock));
        let (key, owner) = (key(), Owner::new());
        let (first, second) = (two.store.listen(&key), two.store.listen(&key));
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
        assert!(lock(&one.store.server.state).listeners.0.is_empty());
    }

    #[tokio::test]
    async fn a_forced_release_tells_every_holder_and_who_listens() {
        let clock = ManualClock::new();
        let (one, two) = (Rig::new("force", &clock), Rig::new("force", &clock));
        let (key, owner) = (key(), Owner::new());
        let _listening = two.store.listen(&key);
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
}
