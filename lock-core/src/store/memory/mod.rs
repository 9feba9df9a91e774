//! Locks in the memory of this process, with the semantics of the server: for development, tests and docs.

mod common;
#[cfg(feature = "testing")]
mod faults;
mod kinds;
mod latch;
#[cfg(test)]
mod reentrant_tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use once_cell::sync::{Lazy, OnceCell};

use self::common::Message;
#[cfg(feature = "testing")]
use self::faults::{Faults, away};
use self::kinds::{Locks, of_kind};
use super::{
    Announcer, Answer, Attempt, EventSink, Events, Passed, Released, Renewal, Scanned, Snapshot,
    SnapshotState, StoreError, Subscription, Together,
};
#[cfg(feature = "testing")]
use crate::base::asked::is_only_asked;
use crate::base::key::{LockKey, Prefix};
use crate::base::refusal::Refusal;
use crate::base::sync::lock;
use crate::base::time::Clock;
#[cfg(feature = "testing")]
use crate::base::timers::Timers;
use crate::base::token::{ClientId, Token};

/// Named servers, so that several managers of one process can share locks as several processes would.
static SERVERS: Lazy<Mutex<HashMap<String, Weak<InMemory>>>> = Lazy::new(Mutex::default);

/// A manager's view of a [`InMemory`].
pub(crate) struct MemoryStore {
    server: Arc<InMemory>,
    client: OnceCell<ClientId>,
    #[cfg(feature = "testing")]
    timers: OnceCell<Timers>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// Opens a separate store for the empty name, and a shared one for any other name.
    pub(crate) fn open(name: &str, clock: Arc<dyn Clock>) -> Self {
        Self::over(if name.is_empty() {
            InMemory::new(clock)
        } else {
            let mut servers = lock(&SERVERS);
            servers.retain(|_, server| server.strong_count() > 0);
            if let Some(server) = servers.get(name).and_then(Weak::upgrade) {
                server
            } else {
                let server = InMemory::new(clock);
                servers.insert(name.to_owned(), Arc::downgrade(&server));
                server
            }
        })
    }

    pub(crate) fn over(server: Arc<InMemory>) -> Self {
        Self {
            server,
            client: OnceCell::new(),
            #[cfg(feature = "testing")]
            timers: OnceCell::new(),
        }
    }

    /// The server, unless a test has it away.
    #[cfg_attr(
        not(feature = "testing"),
        expect(clippy::unnecessary_wraps, reason = "it is always there")
    )]
    pub(super) fn reached(&self) -> Result<&Self, StoreError> {
        #[cfg(feature = "testing")]
        if is_only_asked()
            || self
                .client
                .get()
                .is_some_and(|client| self.server.faults.separate(client.as_str()))
        {
            return Err(away());
        }
        Ok(self)
    }

    #[cfg(feature = "testing")]
    pub(super) fn waits_with(&self, timers: Timers) {
        let _ = self.timers.set(timers);
    }

    /// Waits as long as a test wants it to.
    #[cfg(feature = "testing")]
    pub(super) async fn answers(&self) {
        if let (Some(delay), Some(timers)) = (self.server.faults.delay(), self.timers.get()) {
            timers.sleep(delay).await;
        }
    }

    pub(crate) fn attach(&self, client: ClientId, sink: EventSink) {
        let mut locks = lock(&self.server.locks);
        locks.common.clients.insert(client.as_str().into(), sink);
        drop(locks);
        let _ = self.client.set(client);
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        if let Some(client) = self.client.get() {
            lock(&self.server.locks)
                .common
                .clients
                .remove(client.as_str());
        }
    }
}

/// The locks of all managers of one name.
pub(crate) struct InMemory {
    clock: Arc<dyn Clock>,
    locks: Mutex<Locks>,
    #[cfg(feature = "testing")]
    pub(crate) faults: Faults,
}

impl InMemory {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            locks: Mutex::default(),
            #[cfg(feature = "testing")]
            faults: Faults::default(),
        })
    }

    /// Tells the clients, or this one, that a test has cut their connections, or that they have one again.
    #[cfg(feature = "testing")]
    pub(crate) fn tell(&self, only: Option<&str>, tell: impl Fn(&dyn Events)) {
        let clients = lock(&self.locks).common.clients.clone();
        let told = |id: &str| only.is_none_or(|only| only == id);
        let sinks = clients.iter().filter(|(id, _)| told(id));
        let clients: Vec<_> = sinks.filter_map(|(_, sink)| sink.upgrade()).collect();
        for client in clients {
            tell(&*client);
        }
    }

    fn deliver(&self, outbox: Vec<Message>) {
        for message in outbox {
            self.send(&message);
        }
    }

    fn send(&self, message: &Message) {
        let client = match message {
            Message::Granted(token, ..)
            | Message::Contended(token)
            | Message::Revoked(token)
            | Message::Freed(token) => token.client(),
            Message::Unlocked(client, _) => client,
        };
        #[cfg(feature = "testing")]
        if self.faults.separate(client) {
            return;
        }
        let sink = lock(&self.locks).common.clients.get(client).cloned();
        if let Some(events) = sink.and_then(|sink: Weak<dyn Events>| sink.upgrade()) {
            match message {
                Message::Granted(token, grant, lock) => {
                    events.granted(token.as_str(), *grant, lock);
                }
                Message::Contended(token) => events.contended(token.as_str()),
                Message::Revoked(token) => events.revoked(token.as_str()),
                Message::Freed(token) => events.freed(token.as_str()),
                Message::Unlocked(_, lock) => events.unlocked(lock),
            }
        }
    }
}

impl MemoryStore {
    /// Runs one operation on the locks, then sends its messages.
    pub(super) fn run<T>(&self, operation: impl FnOnce(&mut Locks) -> T) -> T {
        let mut locks = lock(&self.server.locks);
        locks.common.now = self.server.clock.now();
        let result = operation(&mut locks);
        let outbox = std::mem::take(&mut locks.common.outbox);
        drop(locks);
        self.server.deliver(outbox);
        result
    }
}

impl MemoryStore {
    pub(super) fn acquire_all(&self, attempts: &[Attempt<'_>]) -> Together {
        self.run(|locks| {
            let mut fences = Vec::with_capacity(attempts.len());
            for (at, attempt) in attempts.iter().enumerate() {
                let answer = locks.acquire(*attempt);
                let Answer::Granted { fence, .. } = answer else {
                    for Attempt { key, token, .. } in &attempts[..at] {
                        of_kind!(locks, key.kind(), kind, common => kind.release(common, key, token, None));
                    }
                    return Together::Refused(at, answer);
                };
                fences.push(fence);
            }
            Together::Granted(fences)
        })
    }
}

impl MemoryStore {
    /// Subscribes to what is announced under this name.
    pub(super) fn watch(&self, name: &str) -> Option<Subscription> {
        let client = self.client.get()?;
        let mut locks = lock(&self.server.locks);
        locks.common.listen(client.as_str(), name);
        drop(locks);
        let announcer = Arc::new(Subscriber {
            server: Arc::clone(&self.server),
            client: client.as_str().into(),
        });
        Some(Subscription::counted(vec![announcer], name, name))
    }
}

impl MemoryStore {
    pub(super) fn acquire(&self, attempt: Attempt<'_>) -> Answer {
        self.run(|locks| locks.acquire(attempt))
    }

    pub(super) fn pass(&self, attempt: Attempt<'_>, from: &Token) -> Passed {
        self.run(|locks| locks.exclusive.pass(&mut locks.common, attempt, from))
    }

    pub(super) fn release(
        &self,
        key: &Arc<LockKey>,
        token: &Token,
        owner: Option<&str>,
    ) -> Released {
        self.run(
            |locks| of_kind!(locks, key.kind(), kind, common => kind.release(common, key, token, owner)),
        )
    }

    pub(super) fn extend(&self, renewals: &[Renewal<'_>]) -> Vec<bool> {
        self.run(|locks| {
            let renewed = renewals.iter().map(|renewal| {
                of_kind!(locks, renewal.key.kind(), kind, common => kind.extend(common, renewal))
            });
            renewed.collect()
        })
    }

    pub(super) fn inspect(&self, key: &LockKey) -> Snapshot {
        self.run(|locks| {
            let foreign = locks.foreign(key);
            let mut snapshot =
                of_kind!(locks, key.kind(), kind, common => kind.inspect(common, key));
            if let Some(kind) = foreign {
                snapshot.state = SnapshotState::Foreign { kind };
            }
            snapshot
        })
    }

    pub(super) fn scan(&self, prefix: Prefix<'_>) -> Scanned {
        self.run(|locks| Scanned {
            keys: locks.listed(prefix),
            next: None,
        })
    }

    pub(super) fn force_release(&self, key: &LockKey) -> Result<bool, Refusal> {
        self.run(|locks| {
            locks.check(key)?;
            Ok(of_kind!(locks, key.kind(), kind, common => kind.force_release(common, key)))
        })
    }
}

/// A client of the server that is subscribed.
struct Subscriber {
    server: Arc<InMemory>,
    client: Box<str>,
}

impl Announcer for Subscriber {
    fn left(&self, _: &str, name: &str) {
        lock(&self.server.locks).common.leave(&self.client, name);
    }
}
