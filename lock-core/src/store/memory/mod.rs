//! Locks in the memory of this process, with the semantics of the server: for development, tests and docs.

mod inspect;
mod reentrant;
#[cfg(test)]
mod reentrant_tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use once_cell::sync::{Lazy, OnceCell};

use self::reentrant::{Listeners, ReentrantHold};
use super::{
    Answer, Attempt, Cursor, EventSink, Events, Forced, Grant, GuardedCall, Mode, Passed,
    QueuePlace, Released, Renewal, Scanned, Snapshot, Store, StoreError, Subscription,
};
use crate::base::key::LockKey;
use crate::base::kind::Kind;
use crate::base::sync::lock;
use crate::base::time::{Clock, Moment};
use crate::base::token::{ClientId, Token};

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
    /// Opens a separate store for the empty name, and a shared one for any other name.
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
    state: Mutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    /// The exclusive locks.
    locks: HashMap<Box<str>, Slot>,
    /// The reentrant locks that are held.
    tenures: HashMap<Box<str>, ReentrantHold>,
    listeners: Listeners,
    clients: HashMap<Box<str>, EventSink>,
    fence: u64,
    /// The number of locks at which stale entries are swept out.
    sweep_at: usize,
}

#[derive(Default)]
struct Slot {
    holder: Option<Holder>,
    queue: VecDeque<QueuedWaiter>,
    /// The time until which each client counts as alive.
    alive: HashMap<Box<str>, Moment>,
}

struct Holder {
    token: Token,
    expires: Moment,
}

/// Minimum reserved tokens of a queued waiter: other waiters may join its waiting line before the grant.
const RESERVE_IF_QUEUED: u64 = 7;

struct QueuedWaiter {
    token: Token,
    ttl: Duration,
    reserve: u64,
}

/// Events to send once the state is unlocked.
enum Message {
    Granted(Token, Grant, Box<str>),
    Contended(Token),
    Revoked(Token),
    /// For this client, about the lock of this name.
    Unlocked(Box<str>, Box<str>),
}

impl Server {
    fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::default(),
        })
    }

    fn deliver(&self, outbox: Vec<Message>) {
        for message in outbox {
            self.send(&message);
        }
    }

    fn send(&self, message: &Message) {
        let client = match message {
            Message::Granted(token, ..) | Message::Contended(token) | Message::Revoked(token) => {
                token.client()
            }
            Message::Unlocked(client, _) => client,
        };
        let sink = lock(&self.state).clients.get(client).cloned();
        if let Some(events) = sink.and_then(|sink: Weak<dyn Events>| sink.upgrade()) {
            match message {
                Message::Granted(token, grant, lock) => {
                    events.granted(token.as_str(), *grant, lock);
                }
                Message::Contended(token) => events.contended(token.as_str()),
                Message::Revoked(token) => events.revoked(token.as_str()),
                Message::Unlocked(_, lock) => events.unlocked(lock),
            }
        }
    }
}

/// The waiter that was granted a lock.
enum Promotion {
    ToTheOneThatAsks { fence: u64 },
    ToAnother,
}

impl MemoryState {
    /// Mints a fencing token, and reserves `reserve` tokens behind it for the client to give out.
    fn mint(&mut self, now: Moment, reserve: u64) -> u64 {
        // Below 2^53 like those of the server: microseconds, with the last token as the floor.
        let minted = (self.fence + 1).max(now.0 / 1000);
        self.fence = minted + reserve;
        minted
    }

    /// The slot of a lock, without a holder whose lease has expired.
    fn slot(&mut self, key: &LockKey, now: Moment) -> &mut Slot {
        if !self.locks.contains_key(key.lock()) {
            self.sweep(now);
        }
        let slot = self.locks.entry(key.lock().into()).or_default();
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

    /// Grants the lock to the first live waiter. Sends it a message, unless it sent the request `asking`.
    fn grant_next(
        &mut self,
        key: &LockKey,
        now: Moment,
        asking: Option<&Attempt<'_>>,
        outbox: &mut Vec<Message>,
    ) -> Option<Promotion> {
        while let Some(waiter) = self.locks.get_mut(key.lock())?.queue.pop_front() {
            let slot = self.locks.get_mut(key.lock())?;
            let ours = asking.filter(|attempt| *attempt.token == waiter.token);
            let client = waiter.token.client();
            let alive = slot.alive.get(client).is_some_and(|until| *until > now)
                && self.clients.contains_key(client);
            if !(ours.is_some() || alive) {
                continue;
            }
            let contended = !slot.queue.is_empty();
            // The queue has the terms of an earlier request.
            let asked = (waiter.ttl, waiter.reserve);
            let (ttl, reserve) = ours.map_or(asked, |attempt| (attempt.ttl, attempt.reserve));
            let fence = self.mint(now, reserve);
            let slot = self.locks.get_mut(key.lock())?;
            slot.holder = Some(Holder {
                token: waiter.token,
                expires: now + ttl,
            });
            if ours.is_some() {
                if contended {
                    outbox.push(Message::Contended(waiter.token));
                }
                return Some(Promotion::ToTheOneThatAsks { fence });
            }
            let grant = Grant {
                fence,
                reserve,
                contended,
                ttl,
            };
            outbox.push(Message::Granted(waiter.token, grant, key.lock().into()));
            return Some(Promotion::ToAnother);
        }
        None
    }

    /// The type of the key of an exclusive lock, if a reentrant lock has that key.
    fn foreign(&mut self, key: &LockKey, now: Moment) -> Option<String> {
        self.tenure(key.lock(), now).map(|_| "hash".to_owned())
    }

    /// Forgets a lock without holder and waiters.
    fn tidy(&mut self, key: &LockKey) {
        if let Some(slot) = self.locks.get_mut(key.lock())
            && slot.queue.is_empty()
        {
            slot.alive.clear();
            if slot.holder.is_none() {
                self.locks.remove(key.lock());
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
    /// Runs one operation on the state, then sends its messages.
    fn run<T>(
        &self,
        operation: impl FnOnce(&mut MemoryState, Moment, &mut Vec<Message>) -> T,
    ) -> T {
        let now = self.server.clock.now();
        let mut outbox = Vec::new();
        let result = operation(&mut lock(&self.server.state), now, &mut outbox);
        self.server.deliver(outbox);
        result
    }
}

fn acquire(
    state: &mut MemoryState,
    now: Moment,
    attempt: Attempt<'_>,
    outbox: &mut Vec<Message>,
) -> Answer {
    let (key, token) = (attempt.key, attempt.token);
    let reserve = attempt.reserve;
    let granted = |fence| Answer::Granted { fence, reserve };
    if key.kind() == Kind::Reentrant {
        return state.reenter(now, attempt);
    }
    if let Some(kind) = state.foreign(key, now) {
        return Answer::Foreign { kind };
    }
    let slot = state.slot(key, now);
    if slot.holder.is_none() {
        match state.grant_next(key, now, Some(&attempt), outbox) {
            Some(Promotion::ToTheOneThatAsks { fence }) => return granted(fence),
            Some(Promotion::ToAnother) => {}
            None => {
                let fence = state.mint(now, attempt.reserve);
                state.slot(key, now).holder = Some(Holder {
                    token: *token,
                    expires: now + attempt.ttl,
                });
                state.tidy(key);
                return granted(fence);
            }
        }
    } else if slot.held_by(token) {
        let fence = state.mint(now, attempt.reserve);
        if let Some(holder) = &mut state.slot(key, now).holder {
            // Never shorter: a delayed request may be older than the grant that its client relies on.
            holder.expires = holder.expires.max(now + attempt.ttl);
        }
        return granted(fence);
    }

    let last_fence = state.fence;
    let slot = state.slot(key, now);
    let holder = slot.holder.as_ref();
    let remaining = holder.map_or(Duration::ZERO, |holder| now.until(holder.expires));
    if attempt.mode == Mode::Try {
        return Answer::Busy {
            remaining,
            holder: holder.map(|holder| holder.token.name().into()),
        };
    }
    let own_holder = holder
        .filter(|holder| holder.token.client() == token.client())
        .map(|holder| holder.token.number());
    let name = holder.map(|holder| holder.token.name().into());
    let waiter = QueuedWaiter {
        token: *token,
        ttl: attempt.ttl,
        reserve: attempt.reserve.max(RESERVE_IF_QUEUED),
    };
    match slot.queue.iter_mut().find(|known| known.token == *token) {
        Some(known) => *known = waiter,
        None => slot.queue.push_back(waiter),
    }
    slot.alive
        .insert(token.client().into(), now + attempt.alive_for);
    let place = QueuePlace {
        remaining,
        last_fence,
        holder: name,
        own_holder,
        is_foreign: false,
    };
    // Each request of the first waiter notifies the holder that the lock is contended.
    if let Some(holder) = &slot.holder
        && holder.token.client() != token.client()
        && slot
            .queue
            .front()
            .is_some_and(|first| first.token == *token)
    {
        outbox.push(Message::Contended(holder.token));
    }
    Answer::Queued(place)
}

impl Store for MemoryStore {
    async fn acquire(&self, attempt: Attempt<'_>) -> Result<Answer, StoreError> {
        Ok(self.run(|state, now, outbox| acquire(state, now, attempt, outbox)))
    }

    async fn pass(&self, attempt: Attempt<'_>, from: &Token) -> Result<Passed, StoreError> {
        Ok(self.run(|state, now, outbox| {
            let slot = state.slot(attempt.key, now);
            if !slot.held_by(from) {
                state.tidy(attempt.key);
                return Passed::Lost;
            }
            slot.holder = None;
            Passed::On(acquire(state, now, attempt, outbox))
        }))
    }

    async fn release(
        &self,
        key: &Arc<LockKey>,
        token: &Token,
        owner: Option<&str>,
    ) -> Result<Released, StoreError> {
        if key.kind() == Kind::Reentrant {
            return Ok(self.run(|state, now, outbox| state.leave(now, key, token, owner, outbox)));
        }
        Ok(self.run(|state, now, outbox| {
            let slot = state.slot(key, now);
            let released = if slot.held_by(token) {
                slot.holder = None;
                match state.grant_next(key, now, None, outbox) {
                    Some(_) => Released::HandedOver,
                    None => Released::Free,
                }
            } else {
                slot.queue.retain(|waiter| waiter.token != *token);
                Released::NotHeld
            };
            state.tidy(key);
            released
        }))
    }

    async fn extend(&self, renewals: &[Renewal<'_>]) -> Vec<Result<bool, StoreError>> {
        self.run(|state, now, _| {
            let renewed = renewals.iter().map(|renewal| {
                if renewal.key.kind() == Kind::Reentrant {
                    return state.extend_reentrant(now, renewal);
                }
                let slot = state.locks.get_mut(renewal.key.lock());
                let holder = slot.and_then(|slot| {
                    slot.expire(now);
                    slot.holder.as_mut()
                });
                match holder {
                    Some(holder) if holder.token == *renewal.token => {
                        let end = now + renewal.ttl;
                        let is_later = end > holder.expires;
                        if is_later || (renewal.shortens && !renewal.ttl.is_zero()) {
                            holder.expires = end;
                        }
                        true
                    }
                    _ => false,
                }
            });
            renewed.map(Ok).collect()
        })
    }

    async fn inspect(&self, key: &LockKey) -> Result<Snapshot, StoreError> {
        Ok(self.run(|state, now, _| state.inspect(now, key)))
    }

    async fn scan(&self, prefix: &str, _: Cursor) -> Result<Scanned, StoreError> {
        Ok(self.run(|state, _, _| state.scan(prefix)))
    }

    async fn force_release(&self, key: &LockKey) -> Result<Forced, StoreError> {
        if key.kind() == Kind::Reentrant {
            return Ok(self.run(|state, now, outbox| state.force_reentrant(now, key, outbox)));
        }
        Ok(self.run(|state, now, outbox| {
            if let Some(kind) = state.foreign(key, now) {
                return Forced::Foreign { kind };
            }
            let Some(holder) = state.slot(key, now).holder.take() else {
                state.tidy(key);
                return Forced::NotHeld;
            };
            // The old holder is notified first, as by the server.
            outbox.push(Message::Revoked(holder.token));
            state.grant_next(key, now, None, outbox);
            state.tidy(key);
            Forced::TakenAway
        }))
    }

    async fn subscribe(&self, key: &LockKey) -> Result<Option<Subscription>, StoreError> {
        Ok(self.listen(key))
    }

    async fn guarded(
        &self,
        _: GuardedCall<'_>,
    ) -> Result<Result<Option<redis::Value>, String>, StoreError> {
        Err(StoreError::Misconfigured(
            "memory:// runs no scripts: use a server for guarded scripts".into(),
        ))
    }

    fn pushes(&self, _: &LockKey) -> bool {
        true
    }
}
