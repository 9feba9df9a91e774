//! Locks in the memory of this process, with the semantics of the server: for development, tests and docs.

mod reentrant;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use once_cell::sync::{Lazy, OnceCell};

use self::reentrant::{Listeners, Tenure};
use super::{
    Answer, Attempt, EventSink, Events, Forced, Mode, Place, Released, Renewal, Snapshot,
    SnapshotState, Store, StoreError, Subscription,
};
use crate::clock::{Clock, Moment};
use crate::key::{Kind, LockKey};
use crate::sync::lock;
use crate::token::{ClientId, Token};

/// Named servers, so that several managers of one process can share locks as several processes would.
static SERVERS: Lazy<Mutex<HashMap<String, Weak<Server>>>> = Lazy::new(Mutex::default);

/// A manager's view of a [`Server`].
pub(crate) struct MemoryStore {
    server: Arc<Server>,
    client: OnceCell<ClientId>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// A store of its own for the empty name, a shared one for any other.
    pub(crate) fn open(name: &str, clock: Arc<dyn Clock>) -> Self {
        let server = if name.is_empty() {
            Server::new(clock)
        } else {
            let mut servers = lock(&SERVERS);
            servers.retain(|_, server| server.strong_count() > 0);
            if let Some(server) = servers.get(name).and_then(Weak::upgrade) {
                server
            } else {
                let server = Server::new(clock);
                servers.insert(name.to_owned(), Arc::downgrade(&server));
                server
            }
        };
        Self {
            server,
            client: OnceCell::new(),
        }
    }

    pub(crate) fn attach(&self, client: &ClientId, sink: EventSink) {
        lock(&self.server.state)
            .clients
            .insert(client.as_str().into(), sink);
        let _ = self.client.set(client.clone());
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        if let Some(client) = self.client.get() {
            lock(&self.server.state).clients.remove(client.as_str());
        }
    }
}

struct Server {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The exclusive locks.
    locks: HashMap<Box<str>, Slot>,
    /// The reentrant locks that are held.
    tenures: HashMap<Box<str>, Tenure>,
    listeners: Listeners,
    clients: HashMap<Box<str>, EventSink>,
    fence: u64,
    /// When the locks grow past this, entries that no longer mean anything are swept out.
    sweep_at: usize,
}

#[derive(Default)]
struct Slot {
    holder: Option<Holder>,
    queue: VecDeque<Waiter>,
    /// Until when each client counts as alive.
    alive: HashMap<Box<str>, Moment>,
}

struct Holder {
    token: Token,
    expires: Moment,
}

struct Waiter {
    token: Token,
    ttl: Duration,
}

/// An event to send once the state is unlocked.
enum Message {
    Granted(Token, u64, Box<str>),
    Revoked(Token),
    /// For this client, of the lock of this name.
    Unlocked(Box<str>, Box<str>),
}

impl Server {
    fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::default(),
        })
    }

    fn deliver(&self, message: &Message) {
        let client = match message {
            Message::Granted(token, ..) | Message::Revoked(token) => token.client(),
            Message::Unlocked(client, _) => client,
        };
        let sink = lock(&self.state).clients.get(client).cloned();
        if let Some(events) = sink.and_then(|sink: Weak<dyn Events>| sink.upgrade()) {
            match message {
                Message::Granted(token, fence, lock) => {
                    events.granted(token.as_str(), *fence, lock);
                }
                Message::Revoked(token) => events.revoked(token.as_str()),
                Message::Unlocked(_, lock) => events.unlocked(lock),
            }
        }
    }
}

impl State {
    fn mint(&mut self, now: Moment) -> u64 {
        // Below 2^53 like the server's: microseconds, with the last token as the floor.
        self.fence = (self.fence + 1).max(now.0 / 1000);
        self.fence
    }

    /// The slot's holder once leases that have run out are gone.
    fn slot(&mut self, key: &LockKey, now: Moment) -> &mut Slot {
        if !self.locks.contains_key(&key.lock) {
            self.sweep(now);
        }
        let slot = self.locks.entry(key.lock.clone()).or_default();
        slot.expire(now);
        slot
    }

    fn sweep(&mut self, now: Moment) {
        if self.locks.len() + self.tenures.len() < self.sweep_at {
            return;
        }
        self.tenures.retain(|_, tenure| !tenure.is_over(now));
        self.locks.retain(|_, slot| {
            slot.expire(now);
            slot.holder.is_some() || slot.alive.values().any(|until| *until > now)
        });
        self.sweep_at = ((self.locks.len() + self.tenures.len()) * 2).max(64);
    }

    /// Gives the lock to the first live waiter. The message is for the waiter, unless it is the one that asks.
    fn grant_next(
        &mut self,
        key: &LockKey,
        now: Moment,
        asking: Option<&Token>,
    ) -> Option<(u64, Option<Message>)> {
        while let Some(waiter) = self.locks.get_mut(&key.lock)?.queue.pop_front() {
            let slot = self.locks.get_mut(&key.lock)?;
            let ours = asking == Some(&waiter.token);
            let client = waiter.token.client();
            let alive = slot.alive.get(client).is_some_and(|until| *until > now)
                && self.clients.contains_key(client);
            if !(ours || alive) {
                continue;
            }
            let fence = self.mint(now);
            let slot = self.locks.get_mut(&key.lock)?;
            slot.holder = Some(Holder {
                token: waiter.token.clone(),
                expires: now + waiter.ttl,
            });
            let message = (!ours).then(|| Message::Granted(waiter.token, fence, key.lock.clone()));
            return Some((fence, message));
        }
        None
    }

    /// What stands under the name of an exclusive lock, where that is a reentrant one.
    fn foreign(&mut self, key: &LockKey, now: Moment) -> Option<String> {
        self.tenure(&key.lock, now).map(|_| "hash".to_owned())
    }

    /// Forgets a name that nobody holds or waits for.
    fn tidy(&mut self, key: &LockKey) {
        if let Some(slot) = self.locks.get_mut(&key.lock)
            && slot.queue.is_empty()
        {
            slot.alive.clear();
            if slot.holder.is_none() {
                self.locks.remove(&key.lock);
            }
        }
    }
}

impl Slot {
    fn expire(&mut self, now: Moment) {
        self.holder.take_if(|holder| holder.expires <= now);
    }

    fn held_by(&self, token: &Token) -> bool {
        self.holder.as_ref().is_some_and(|h| h.token == *token)
    }
}

impl MemoryStore {
    /// Runs one operation on the state, then sends what it wants sent.
    fn run<T, M>(&self, operation: impl FnOnce(&mut State, Moment) -> (T, M)) -> T
    where
        M: IntoIterator<Item = Message>,
    {
        let now = self.server.clock.now();
        let (result, messages) = operation(&mut lock(&self.server.state), now);
        for message in messages {
            self.server.deliver(&message);
        }
        result
    }
}

fn acquire(state: &mut State, now: Moment, attempt: Attempt<'_>) -> (Answer, Option<Message>) {
    let (key, token) = (attempt.key, attempt.token);
    if key.kind() == Kind::Reentrant {
        return (state.reenter(now, attempt), None);
    }
    if let Some(kind) = state.foreign(key, now) {
        return (Answer::Foreign { kind }, None);
    }
    let slot = state.slot(key, now);
    let mut message = None;
    if slot.holder.is_none() {
        match state.grant_next(key, now, Some(token)) {
            Some((fence, None)) => return (Answer::Granted { fence, holds: 1 }, None),
            Some((_, to_another)) => message = to_another,
            None => {
                let fence = state.mint(now);
                state.slot(key, now).holder = Some(Holder {
                    token: token.clone(),
                    expires: now + attempt.ttl,
                });
                state.tidy(key);
                return (Answer::Granted { fence, holds: 1 }, None);
            }
        }
    } else if slot.held_by(token) {
        let fence = state.mint(now);
        if let Some(holder) = &mut state.slot(key, now).holder {
            holder.expires = now + attempt.ttl;
        }
        return (Answer::Granted { fence, holds: 1 }, None);
    }

    let last_fence = state.fence;
    let slot = state.slot(key, now);
    let holder = slot.holder.as_ref();
    let remaining = holder.map_or(Duration::ZERO, |holder| now.until(holder.expires));
    if attempt.mode == Mode::Try {
        return (Answer::Busy { remaining }, message);
    }
    let own_holder = holder
        .filter(|holder| holder.token.client() == token.client())
        .and_then(|holder| holder.token.as_str().rsplit(':').next()?.parse().ok());
    let joined = !slot.queue.iter().any(|waiter| waiter.token == *token);
    if joined {
        slot.queue.push_back(Waiter {
            token: token.clone(),
            ttl: attempt.ttl,
        });
    }
    slot.alive
        .insert(token.client().into(), now + attempt.alive_for);
    let place = Place {
        remaining,
        joined,
        depth: slot.queue.len() as u64,
        last_fence,
        own_holder,
    };
    (Answer::Queued(place), message)
}

impl Store for MemoryStore {
    async fn acquire(&self, attempt: Attempt<'_>) -> Result<Answer, StoreError> {
        Ok(self.run(|state, now| acquire(state, now, attempt)))
    }

    async fn release(
        &self,
        key: &LockKey,
        token: &Token,
        owner: Option<&str>,
    ) -> Result<Released, StoreError> {
        if key.kind() == Kind::Reentrant {
            return Ok(self.run(|state, now| state.leave(now, key, token, owner)));
        }
        Ok(self.run(|state, now| {
            let slot = state.slot(key, now);
            let (released, message) = if slot.held_by(token) {
                slot.holder = None;
                match state.grant_next(key, now, None) {
                    Some((_, message)) => (Released::HandedOver, message),
                    None => (Released::Free, None),
                }
            } else {
                slot.queue.retain(|waiter| waiter.token != *token);
                (Released::NotHeld, None)
            };
            state.tidy(key);
            (released, message)
        }))
    }

    async fn extend(&self, renewals: &[Renewal<'_>]) -> Result<Vec<bool>, StoreError> {
        Ok(self.run(|state, now| {
            let renewed = renewals.iter().map(|renewal| {
                if renewal.key.kind() == Kind::Reentrant {
                    return state.extend_reentrant(now, renewal);
                }
                let slot = state.locks.get_mut(&renewal.key.lock);
                let holder = slot.and_then(|slot| {
                    slot.expire(now);
                    slot.holder.as_mut()
                });
                match holder {
                    Some(holder) if holder.token == *renewal.token => {
                        holder.expires = now + renewal.ttl;
                        true
                    }
                    _ => false,
                }
            });
            (renewed.collect(), None)
        }))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Snapshot, StoreError> {
        Ok(self.run(|state, now| {
            if key.kind() == Kind::Reentrant {
                return (state.inspect_reentrant(now, key), None);
            }
            if let Some(kind) = state.foreign(key, now) {
                let state = SnapshotState::Foreign { kind };
                return (Snapshot { state, waiting: 0 }, None);
            }
            let slot = state.slot(key, now);
            let snapshot = Snapshot {
                waiting: slot.queue.len() as u64,
                state: match &slot.holder {
                    None => SnapshotState::Free,
                    Some(holder) => SnapshotState::Held {
                        remaining: now.until(holder.expires),
                        client: holder.token.client().to_owned(),
                        holds: 1,
                        owner: None,
                    },
                },
            };
            state.tidy(key);
            (snapshot, None)
        }))
    }

    async fn force_release(&self, key: &LockKey) -> Result<Forced, StoreError> {
        if key.kind() == Kind::Reentrant {
            return Ok(self.run(|state, now| state.force_reentrant(now, key)));
        }
        let (forced, granted) = self.run(|state, now| {
            if let Some(kind) = state.foreign(key, now) {
                return ((Forced::Foreign { kind }, None), None);
            }
            let Some(holder) = state.slot(key, now).holder.take() else {
                state.tidy(key);
                return ((Forced::NotHeld, None), None);
            };
            let granted = state.grant_next(key, now, None).and_then(|(_, m)| m);
            state.tidy(key);
            (
                (Forced::TakenAway, granted),
                Some(Message::Revoked(holder.token)),
            )
        });
        // The old holder hears first, as it does from the server.
        if let Some(granted) = granted {
            self.server.deliver(&granted);
        }
        Ok(forced)
    }

    async fn subscribe(&self, key: &LockKey) -> Result<Option<Subscription>, StoreError> {
        Ok(self.listen(key))
    }

    fn pushes(&self) -> bool {
        true
    }
}
