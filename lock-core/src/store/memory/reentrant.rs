//! The reentrant kind in memory, and its subscribers.

use std::collections::HashMap;
use std::sync::Arc;

use super::{MemoryState, MemoryStore, Message, Server};
use crate::base::key::{LockKey, Names};
use crate::base::sync::lock;
use crate::base::time::Moment;
use crate::base::token::{Bearer, CLIENT_LEN, Token};
use crate::store::{
    Announcer, Answer, Attempt, Forced, Released, Renewal, Snapshot, SnapshotState, Subscription,
};

/// A tenure: from the first acquisition of an owner to its last release.
pub(super) struct ReentrantHold {
    owner: Box<str>,
    fence: u64,
    /// The client that began it.
    began: Bearer,
    /// The counted acquisitions.
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

    /// Never shortens the lease: other holds may rely on more.
    fn prolong(&mut self, until: Moment) {
        self.expires = self.expires.max(until);
    }
}

/// A client, and the lock that it is subscribed for.
type Listener = (Box<str>, Box<str>);

/// For each channel, its subscribers and their number.
#[derive(Default)]
pub(super) struct Listeners(pub(super) HashMap<Box<str>, HashMap<Listener, usize>>);

/// An acquisition without an owner is its own owner.
fn or_token<'a>(owner: Option<&'a str>, token: &'a Token) -> &'a str {
    owner.unwrap_or_else(|| token.as_str())
}

impl MemoryState {
    /// The tenure of a lock, unless it has expired.
    pub(super) fn tenure(&mut self, name: &str, now: Moment) -> Option<&mut ReentrantHold> {
        if self.tenures.get(name)?.is_over(now) {
            self.tenures.remove(name);
        }
        self.tenures.get_mut(name)
    }

    /// Whether an exclusive lock has this name.
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
                let holder = tenure.began.name.clone();
                return Answer::Busy { remaining, holder };
            }
            if !tenure.counted.contains(token) {
                tenure.counted.push(*token);
            }
            tenure.prolong(until);
            let (fence, reserve) = (tenure.fence, attempt.reserve);
            return Answer::Granted { fence, reserve };
        }
        self.sweep(now);
        let fence = self.mint(now, attempt.reserve);
        let tenure = ReentrantHold {
            owner: owner.into(),
            fence,
            began: Bearer::parse(token.bearer()),
            counted: vec![*token],
            expires: until,
        };
        self.tenures.insert(name.into(), tenure);
        let reserve = attempt.reserve;
        Answer::Granted { fence, reserve }
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
                client: tenure.owner.chars().take(CLIENT_LEN).collect(),
                holder: tenure.began.clone(),
                holds: tenure.holds(),
                owner: Some(tenure.owner.clone().into()),
            }
        } else {
            SnapshotState::Free
        };
        // Waiters only subscribe: there is no queue to count.
        Snapshot {
            state,
            waiting: 0,
            queue: Vec::new(),
            fence: self
                .tenure(key.lock(), now)
                .map_or(0, |tenure| tenure.fence),
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
        // Removes an expired tenure.
        self.tenure(key.lock(), now);
        let Some(tenure) = self.tenures.remove(key.lock()) else {
            return Forced::NotHeld;
        };
        // The old holders are notified first, as by the server.
        outbox.extend(tenure.counted.into_iter().map(Message::Revoked));
        outbox.extend(self.announce(key));
        Forced::TakenAway
    }

    /// The messages to all subscribers that the lock is free.
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

/// A client of the server that is subscribed.
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
