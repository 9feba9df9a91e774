//! The store of a manager, of whichever kind.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::quorum::NOT_OVER_A_QUORUM;
use super::redis::{count_down, election, exclusive, permits};
use super::{
    Answer, Attempt, Cursor, EventSink, Forced, GuardedCall, LatchSnapshot, LeaderSnapshot,
    MemoryStore, Passed, QuorumStore, RedisStore, Released, Renewal, Resized, Reweigh, Reweighed,
    Scanned, Snapshot, Store, StoreError, Subscription, Together,
};
use crate::base::finding::Finding;
use crate::base::key::{Announced, LockKey, Prefix};
use crate::base::rt::Handle;
use crate::base::token::{ClientId, Token};

/// The stores of a manager. An enum instead of a trait object: no allocation for each call.
#[derive(Debug)]
pub(crate) enum AnyStore {
    Memory(MemoryStore),
    Redis(RedisStore),
    Quorum(QuorumStore),
}

/// Calls the same method on any kind of store.
macro_rules! on_store {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            AnyStore::Memory($store) => $call,
            AnyStore::Redis($store) => $call,
            AnyStore::Quorum($store) => $call,
        }
    };
}

impl AnyStore {
    /// Whether the engine's runtime drives connections of the store, and so I/O.
    pub(crate) fn is_driven_here(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Redis(store) => store.is_driven_here(),
            Self::Quorum(_) => true,
        }
    }

    /// Host and port of the server, if there is only one and its address is known.
    pub(crate) fn server(&self) -> Option<Arc<str>> {
        match self {
            Self::Redis(store) => store.server(),
            Self::Memory(_) | Self::Quorum(_) => None,
        }
    }

    /// Host and port of the server of a lock, if there is only one and its address is known.
    pub(crate) fn server_of(&self, key: &LockKey) -> Option<Arc<str>> {
        match self {
            Self::Redis(store) => store.server_of(key),
            Self::Memory(_) | Self::Quorum(_) => None,
        }
    }

    fn named(&self, error: StoreError) -> StoreError {
        match self.server() {
            Some(server) => error.at(&server),
            None => error,
        }
    }

    /// Waits for the first connection, and looks whom it leads to.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(store) => store.ready().await.map_err(|error| self.named(error)),
            Self::Quorum(store) => store.ready().await,
        }
    }

    /// The parts that grant locks by themselves, as ends of a key: a tag for each master of a cluster.
    pub(crate) async fn parts(&self) -> Result<Vec<&'static str>, StoreError> {
        match self {
            Self::Redis(store) => store.parts().await,
            Self::Memory(_) | Self::Quorum(_) => Ok(vec![""]),
        }
    }

    /// Waits until every node of a quorum has confirmed the releases.
    pub(crate) async fn cleaned_up(&self) {
        if let Self::Quorum(store) = self {
            store.cleaned_up().await;
        }
    }

    /// Gives the store the receiver of its events, the client id, and the runtime of its connections.
    pub(crate) fn attach(&self, client: &ClientId, sink: EventSink, runtime: Handle) {
        match self {
            Self::Memory(store) => store.attach(client, sink),
            Self::Redis(store) => store.attach(client, sink, runtime),
            Self::Quorum(store) => store.attach(client, sink, runtime),
        }
    }
}

impl AnyStore {
    /// Runs a script of the user if the token holds the lock. `None` if it does not; the inner error is that of the script.
    pub(crate) async fn guarded(
        &self,
        call: GuardedCall<'_>,
    ) -> Result<Result<Option<::redis::Value>, String>, StoreError> {
        let without = match self {
            Self::Redis(store) => {
                let answer = store.guarded(call).await;
                return answer.map_err(|error| self.named(error));
            }
            Self::Memory(_) => "memory:// runs no scripts: use a server for guarded scripts",
            Self::Quorum(_) => {
                "a guarded script runs on one server: use it with a lock on that server, not over a quorum"
            }
        };
        Err(StoreError::Misconfigured(without.into()))
    }
}

impl AnyStore {
    /// Whether one request can take both locks.
    pub(crate) fn takes_together(&self, one: &LockKey, other: &LockKey) -> bool {
        let are_taken = one.traits().taken_together && other.traits().taken_together;
        are_taken
            && match self {
                Self::Memory(_) => true,
                Self::Redis(store) => store.has_in_one_slot(one, other),
                // Each node would have to take back what a majority did not grant.
                Self::Quorum(_) => false,
            }
    }

    /// Takes all of these locks, each two of which it [takes together](Self::takes_together), or none. Safe to repeat with the same
    /// tokens.
    pub(crate) async fn acquire_all(
        &self,
        attempts: &[Attempt<'_>],
    ) -> Result<Together, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.acquire_all(attempts)),
            Self::Redis(store) => exclusive::acquire_all(store, attempts).await,
            Self::Quorum(_) => Err(StoreError::Misconfigured(NOT_OVER_A_QUORUM.into())),
        }
        .map_err(|error| self.named(error))
    }

    /// Makes a reader a writer, or a writer a reader. `from` is the fencing token of its hold.
    pub(crate) async fn reweigh(
        &self,
        key: &LockKey,
        token: &Token,
        from: u64,
        to: Reweigh,
    ) -> Result<Reweighed, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reweigh(key, token, from, to)),
            Self::Redis(store) => permits::reweigh(store, key, token, from, to).await,
            Self::Quorum(_) => Err(StoreError::Misconfigured(NOT_OVER_A_QUORUM.into())),
        }
        .map_err(|error| self.named(error))
    }

    /// Changes the number of permits of a semaphore, which is `from` for the caller.
    pub(crate) async fn resize(
        &self,
        key: &LockKey,
        from: u32,
        to: u32,
    ) -> Result<Resized, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.resize(key, from, to)),
            Self::Redis(store) => permits::resize(store, key, from, to).await,
            Self::Quorum(_) => Err(StoreError::Misconfigured(NOT_OVER_A_QUORUM.into())),
        }
        .map_err(|error| self.named(error))
    }
}

impl AnyStore {
    pub(crate) async fn leader(&self, key: &LockKey) -> Result<LeaderSnapshot, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.leader(key)),
            Self::Redis(store) => election::leader(store, key).await,
            Self::Quorum(store) => store.leader(key).await,
        }
        .map_err(|error| self.named(error))
    }

    /// Counts an id of a latch, and reads what is left. Without an id it only reads.
    pub(crate) async fn count_down(
        &self,
        key: &LockKey,
        count: u32,
        ttl: Duration,
        id: Option<&str>,
    ) -> Result<LatchSnapshot, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.count_down(key, count, ttl, id)),
            Self::Redis(store) => count_down(store, key, count, ttl, id).await,
            Self::Quorum(_) => Err(StoreError::Misconfigured(
                "a latch is not over a quorum, whose nodes would count different ids: use a manager of one master".into(),
            )),
        }
        .map_err(|error| self.named(error))
    }

    /// Subscribes to what is announced beside a lock. From the return on, [`Events::unlocked`](super::Events::unlocked) reports it by its
    /// name. `None` if the store receives no announcements.
    pub(crate) async fn watch(
        &self,
        key: &LockKey,
        what: Announced,
    ) -> Result<Option<Subscription>, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.watch(&what.name(key))),
            Self::Redis(store) => store.watch(key, what).await,
            Self::Quorum(_) => Ok(None),
        }
    }
}

impl Store for AnyStore {
    fn connecting(&self, key: &LockKey) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        let connecting = on_store!(self, store => store.connecting(key))?;
        Some(Box::pin(async {
            connecting.await.map_err(|error| self.named(error))
        }))
    }

    async fn acquire(&self, attempt: Attempt<'_>) -> Result<Answer, StoreError> {
        on_store!(self, store => store.acquire(attempt).await).map_err(|error| self.named(error))
    }

    async fn release(
        &self,
        key: &Arc<LockKey>,
        token: &Token,
        owner: Option<&str>,
    ) -> Result<Released, StoreError> {
        on_store!(self, store => store.release(key, token, owner).await)
            .map_err(|error| self.named(error))
    }

    async fn pass(&self, attempt: Attempt<'_>, from: &Token) -> Result<Passed, StoreError> {
        on_store!(self, store => store.pass(attempt, from).await).map_err(|error| self.named(error))
    }

    fn part_of(&self, key: &LockKey) -> usize {
        on_store!(self, store => store.part_of(key))
    }

    async fn extend(&self, renewals: &[Renewal<'_>]) -> Vec<Result<bool, StoreError>> {
        let mut held = on_store!(self, store => Store::extend(store, renewals).await);
        for answer in &mut held {
            if let Err(error) = answer {
                *error = self.named(error.clone());
            }
        }
        held
    }

    async fn inspect(&self, key: &LockKey) -> Result<Snapshot, StoreError> {
        on_store!(self, store => store.inspect(key).await).map_err(|error| self.named(error))
    }

    async fn scan(&self, prefix: Prefix<'_>, cursor: Cursor) -> Result<Scanned, StoreError> {
        on_store!(self, store => store.scan(prefix, cursor).await)
            .map_err(|error| self.named(error))
    }

    async fn examine(&self) -> Vec<Finding> {
        on_store!(self, store => Store::examine(store).await)
    }

    async fn force_release(&self, key: &LockKey) -> Result<Forced, StoreError> {
        on_store!(self, store => store.force_release(key).await).map_err(|error| self.named(error))
    }

    async fn subscribe(&self, key: &LockKey) -> Result<Option<Subscription>, StoreError> {
        on_store!(self, store => store.subscribe(key).await).map_err(|error| self.named(error))
    }

    fn pushes(&self, key: &LockKey) -> bool {
        on_store!(self, store => Store::pushes(store, key))
    }
}
