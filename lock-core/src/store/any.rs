//! The store of a manager, of whichever kind.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::redis::kinds::exclusive;
use super::{
    Answer, Attached, Attempt, Cursor, GuardedCall, MemoryStore, OrRefused, Passed, QuorumStore,
    RedisStore, Released, Renewal, ReplyOfUser, Scanned, Snapshot, StoreError, Subscription,
    Together, to_each,
};
use crate::base::beside::Beside;
use crate::base::finding::Finding;
use crate::base::key::{LockKey, Prefix};
use crate::base::token::Token;

/// The stores of a manager. An enum instead of a trait object: no allocation for each call.
#[derive(Debug)]
pub(crate) enum AnyStore {
    Memory(MemoryStore),
    Redis(RedisStore),
    Quorum(QuorumStore),
}

/// Its servers.
impl AnyStore {
    pub(crate) fn attach(&self, engine: Attached) {
        match self {
            Self::Memory(store) => {
                #[cfg(feature = "testing")]
                store.waits_with(engine.home.timers);
                store.attach(engine.client, engine.sink);
            }
            Self::Redis(store) => store.attach(engine),
            Self::Quorum(store) => store.attach(&engine),
        }
    }

    /// Whether the engine's runtime drives connections of the store, and so I/O.
    pub(crate) fn is_driven_here(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Redis(store) => store.is_driven_here(),
            Self::Quorum(_) => true,
        }
    }

    /// Host and port of the server of a lock, if there is only one and its address is known.
    pub(crate) fn server_of(&self, key: &LockKey) -> Option<Arc<str>> {
        match self {
            Self::Redis(store) => store.server_of(key),
            Self::Memory(_) | Self::Quorum(_) => None,
        }
    }

    /// A number of the server of a lock: a renewal on one of them must not wait for another one.
    pub(crate) fn part_of(&self, key: &LockKey) -> usize {
        match self {
            Self::Redis(store) => store.part_of(key),
            Self::Memory(_) | Self::Quorum(_) => 0,
        }
    }

    /// The parts that grant locks by themselves, as ends of a key: a tag for each master of a cluster.
    pub(crate) async fn parts(&self) -> Result<Vec<&'static str>, StoreError> {
        match self {
            Self::Redis(store) => store.parts().await,
            Self::Memory(_) | Self::Quorum(_) => Ok(vec![""]),
        }
    }

    /// True if the grants of a lock arrive as messages; false if its waiters have to poll.
    pub(crate) fn pushes(&self, key: &LockKey) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Redis(store) => store.is_told(key),
            Self::Quorum(store) => store.is_pushed_to(),
        }
    }

    /// Waits for the first connection, and looks whom it leads to.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.reached().map(drop),
            Self::Redis(store) => store.ready().await,
            Self::Quorum(store) => store.ready().await,
        }
    }

    /// Waits for the connection of a lock, if there is none and no request can be sent yet.
    pub(crate) fn connecting(
        &self,
        key: &LockKey,
    ) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        match self {
            Self::Redis(store) => store.connecting(key),
            Self::Memory(_) | Self::Quorum(_) => None,
        }
    }

    /// Waits until every node of a quorum has confirmed the releases.
    pub(crate) async fn cleaned_up(&self) {
        if let Self::Quorum(store) = self {
            store.cleaned_up().await;
        }
    }

    /// Examines the servers.
    pub(crate) async fn examine(&self) -> Vec<Finding> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Redis(store) => store.examine().await,
            Self::Quorum(store) => Box::pin(store.examined()).await,
        }
    }
}

/// The operations on a lock, and the subscriptions to its announcements. Each operation is atomic, and safe to repeat with the
/// same token. The key names the kind of the lock.
///
/// Every call has the time limit of the store: it returns, with an error if necessary. Calls of a quorum are boxed, so that the
/// futures of other stores, which share a type with these, stay small.
impl AnyStore {
    pub(crate) async fn acquire(&self, attempt: Attempt<'_>) -> Result<Answer, StoreError> {
        match self {
            Self::Memory(store) => {
                #[cfg(feature = "testing")]
                store.answers().await;
                Ok(store.reached()?.acquire(attempt))
            }
            Self::Redis(store) => store.acquire(attempt).await,
            Self::Quorum(store) => {
                StoreError::unless_over_a_quorum(attempt.key)?;
                Box::pin(store.acquire(attempt)).await
            }
        }
    }

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

    /// Takes all of these locks, each two of which it [takes together](Self::takes_together), or none.
    pub(crate) async fn acquire_all(
        &self,
        attempts: &[Attempt<'_>],
    ) -> Result<Together, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.acquire_all(attempts)),
            Self::Redis(store) => exclusive::acquire_all(store, attempts).await,
            Self::Quorum(_) => Err(StoreError::not_over_a_quorum(
                "several locks in one request are",
            )),
        }
    }

    /// Releases `from` and makes the attempt, in one step (on a quorum in two). Only for kinds that [pass](crate::base::kind::Traits::passes).
    pub(crate) async fn pass(
        &self,
        attempt: Attempt<'_>,
        from: &Token,
    ) -> Result<Passed, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.pass(attempt, from)),
            Self::Redis(store) => exclusive::pass(store, attempt, from).await,
            Self::Quorum(store) => Box::pin(store.pass(attempt, from)).await,
        }
    }

    /// `is_alone` if the token holds the lock, and no waiter is known.
    pub(crate) async fn release(
        &self,
        key: &Arc<LockKey>,
        token: &Token,
        owner: Option<&str>,
        is_alone: bool,
    ) -> Result<Released, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.release(key, token, owner)),
            Self::Redis(store) => store.release(key, token, owner, is_alone).await,
            Self::Quorum(store) => {
                StoreError::unless_over_a_quorum(key)?;
                Box::pin(store.release(key, token)).await
            }
        }
    }

    /// For each renewal, whether its token still held the lock. They may be of different servers, so each has its own answer.
    pub(crate) async fn extend(&self, renewals: &[Renewal<'_>]) -> Vec<Result<bool, StoreError>> {
        match self {
            Self::Memory(store) => {
                let renewed = store.reached().map(|store| store.extend(renewals));
                to_each(renewed, renewals.len())
            }
            Self::Redis(store) => store.extend(renewals).await,
            Self::Quorum(store) => Box::pin(store.extend(renewals)).await,
        }
    }

    pub(crate) async fn force_release(&self, key: &LockKey) -> OrRefused<bool> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.force_release(key)),
            Self::Redis(store) => store.force_release(key).await,
            Self::Quorum(store) => {
                StoreError::unless_over_a_quorum(key)?;
                Box::pin(store.force_release(key)).await
            }
        }
    }

    pub(crate) async fn inspect(&self, key: &LockKey) -> Result<Snapshot, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.inspect(key)),
            Self::Redis(store) => store.inspect(key).await,
            Self::Quorum(store) => {
                StoreError::unless_over_a_quorum(key)?;
                Box::pin(store.inspect(key)).await
            }
        }
    }

    /// A page of the locks of all kinds: of exclusive ones those with the prefix, of others all in its namespace. A lock may come
    /// twice.
    pub(crate) async fn scan(
        &self,
        prefix: Prefix<'_>,
        cursor: Cursor,
    ) -> Result<Scanned, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.scan(prefix)),
            Self::Redis(store) => store.scan(prefix, cursor).await,
            Self::Quorum(store) => Box::pin(store.scan(prefix, cursor)).await,
        }
    }

    /// Subscribes to the announcements of a lock without a queue. From the return on, [`Events::unlocked`](super::Events::unlocked)
    /// reports each of them, until the subscription is dropped. `None` if none arrive, so that waiters have to poll.
    pub(crate) async fn subscribe(
        &self,
        key: &LockKey,
    ) -> Result<Option<Subscription>, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.watch(key.lock())),
            Self::Redis(store) => store.subscribe(key).await,
            Self::Quorum(_) => Ok(None),
        }
    }

    /// As [`subscribe`](Self::subscribe), for what is announced beside a lock, by the name of that.
    pub(crate) async fn watch(
        &self,
        key: &LockKey,
        what: Beside,
    ) -> Result<Option<Subscription>, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.watch(&key.name_of(what))),
            Self::Redis(store) => store.watch(key, what).await,
            Self::Quorum(_) => Ok(None),
        }
    }

    /// Runs a script of the user if the token holds the lock. `None` if it does not; the inner error is that of the script.
    pub(crate) async fn guarded(
        &self,
        call: GuardedCall<'_>,
    ) -> Result<Result<Option<ReplyOfUser>, String>, StoreError> {
        let without = match self {
            Self::Redis(store) => return store.guarded(call).await,
            Self::Memory(_) => "memory:// runs no scripts: use a server for guarded scripts",
            Self::Quorum(_) => {
                "a guarded script runs on one server: use it with a lock on that server, not over a quorum"
            }
        };
        Err(StoreError::Misconfigured(without.into()))
    }
}
