//! The stores of locks. A store handles keys, tokens and leases. It does not know guards.

mod any;
mod memory;
mod misconfiguration;
mod quorum;
mod redis;
mod subscription;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::base::error::{Cause, LockError};
use crate::base::finding::Finding;
use crate::base::key::{LockKey, Prefix};
use crate::base::kind::{Kind, Reweigh, Share};
use crate::base::observe::Event;
use crate::base::token::Token;

pub(crate) use self::any::AnyStore;
pub(crate) use self::memory::MemoryStore;
pub(crate) use self::misconfiguration::Misconfiguration;
pub(crate) use self::quorum::{QuorumConfig, QuorumStore, node_urls};
#[cfg(feature = "tls-rustls")]
pub(crate) use self::redis::SentinelTls;
pub(crate) use self::redis::{
    ClusterAddresses, GuardedCall, RedisConfig, RedisStore, UserConnection,
};
pub(crate) use self::subscription::{Announcer, Subscription};
pub(crate) use crate::base::snapshot::{
    HolderSnapshot, LatchSnapshot, LeaderSnapshot, NodeSnapshot, Snapshot, SnapshotState,
};

/// Whether an attempt that finds the lock held joins the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Try,
    Wait,
}

/// One attempt to acquire a lock, or to keep a place in its queue.
///
/// No `Debug`: tokens and owners are secrets.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) key: &'a Arc<LockKey>,
    pub(crate) token: &'a Token,
    pub(crate) ttl: Duration,
    pub(crate) mode: Mode,
    /// How long a waiter counts as alive after this call.
    pub(crate) alive_for: Duration,
    /// The owner of a reentrant acquisition. Without one, the token is its own owner. Unused for an exclusive lock.
    pub(crate) owner: Option<&'a str>,
    /// The value of a candidate, with which it is named while it leads.
    pub(crate) value: Option<&'a str>,
    /// The number of reserved tokens to request, besides the first fencing token.
    pub(crate) reserve: u64,
    pub(crate) share: Share,
}

/// The answer to an [`Attempt`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The first fencing token, and the number of reserved tokens behind it.
    Granted {
        fence: u64,
        reserve: u64,
    },
    Busy {
        /// The rest of the holder's lease.
        remaining: Duration,
        /// The name of the holder's client, if it has one.
        holder: Option<Box<str>>,
    },
    Queued(QueuePlace),
    Foreign {
        kind: String,
    },
    /// The semaphore has another number of permits than the request names.
    OtherMax {
        max: u32,
    },
    /// The semaphore has fewer permits than the request needs.
    TooMany {
        max: u32,
    },
}

/// The answer to attempts of one request, for different locks: all are granted, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Together {
    /// The fencing token of each.
    Granted(Vec<u64>),
    /// The lock at this place was not granted, for this reason.
    Refused(usize, Answer),
}

/// The answer to a [`Reweigh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reweighed {
    /// The fencing token from now on.
    Done {
        fence: u64,
    },
    NotHeld,
    /// Others read, or wait.
    NotAlone,
}

/// The answer to a change of the number of permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resized {
    Done,
    /// Nothing is held, and no number is remembered.
    Idle,
    OtherMax {
        max: u32,
    },
    Foreign {
        kind: String,
    },
}

/// A place in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuePlace {
    /// The rest of the holder's lease.
    pub(crate) remaining: Duration,
    /// Grants made after this answer have a larger number, which is the fencing token unless grants share one.
    pub(crate) last_fence: u64,
    /// The name of the holder's client, if it has one.
    pub(crate) holder: Option<Box<str>>,
    /// The holder's sequence number, if the holder is an acquisition of the same client.
    pub(crate) own_holder: Option<u64>,
    /// The holder is a client of another kind, whose release no message announces.
    pub(crate) is_foreign: bool,
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// The token did not hold the lock; its place in the queue, if any, is gone.
    NotHeld,
    Free,
    /// The lock is free, and this number of connections was told.
    Announced {
        heard: u64,
    },
    HandedOver,
    /// The owner still holds the lock through other acquisitions; the server counts this many.
    StillHeld {
        holds: u64,
    },
    /// The lock ends by itself after the minimum time that was requested.
    Kept,
}

/// The answer to a [`pass`](Store::pass).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passed {
    /// The token to release did not hold the lock; nothing else was done.
    Lost,
    /// The token was released; this is the outcome of the attempt.
    On(Answer),
}

/// A grant that came as a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) kind: Kind,
    /// Larger than that of each earlier grant of the lock. The fencing token, unless grants share one.
    pub(crate) order: u64,
    pub(crate) fence: u64,
    /// The number of reserved tokens after `fence`, which the client of the holder gives out.
    pub(crate) reserve: u64,
    /// Other waiters are queued behind.
    pub(crate) contended: bool,
    /// The ttl that the server gave the lock: that of the last request that it had received by then.
    pub(crate) ttl: Duration,
}

/// A lease to renew. No `Debug`, as for an [`Attempt`].
#[derive(Clone, Copy)]
pub(crate) struct Renewal<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) token: &'a Token,
    /// Zero if the lease is only confirmed: its end stays as it is.
    pub(crate) ttl: Duration,
    /// The number of the hold, 0 if it does not matter. A hold of permits is lost if the server has an older one: it has lost an upgrade.
    pub(crate) fence: u64,
    /// Whether the lease may end earlier than before. Else a renewal that comes late changes nothing.
    pub(crate) shortens: bool,
    /// As in the [`Attempt`].
    pub(crate) owner: Option<&'a str>,
    pub(crate) value: Option<&'a str>,
}

/// A place in the walk through all locks, kind after kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    pub(crate) kind: Kind,
    pub(crate) node: usize,
    pub(crate) on_node: u64,
    /// The number of the walk, and what it started from, where locks can move from node to node.
    pub(crate) walk: u32,
    pub(crate) version: u64,
}

/// A page of locks, some of which may be free.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) keys: Vec<LockKey>,
    /// `None` after the last page.
    pub(crate) next: Option<Cursor>,
}

/// The answer to a forced release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forced {
    TakenAway,
    NotHeld,
    Foreign { kind: String },
}

/// The reason why a store could not answer.
#[derive(Debug, Clone)]
pub(crate) enum StoreError {
    /// The request may have been carried out, or may still be: the connection broke, or no reply came.
    Ambiguous(Cause),
    /// Not carried out, and a later try may succeed: unreachable, loading, out of memory, read-only.
    NotNow(Cause),
    /// As `NotNow`, for a time that is known: a majority of a quorum has to wait. A waiter waits with it.
    NotYet(Cause),
    /// Not carried out, and never will be until the set-up is repaired.
    Misconfigured(Misconfiguration),
}

impl StoreError {
    pub(crate) fn into_lock_error(self) -> LockError {
        match self {
            Self::Ambiguous(cause) | Self::NotNow(cause) | Self::NotYet(cause) => {
                LockError::Unavailable { cause }
            }
            Self::Misconfigured(wrong) => LockError::InvalidConfig {
                reason: wrong.to_string(),
            },
        }
    }
}

impl StoreError {
    /// The same error, with the name of the server.
    pub(crate) fn at(self, server: &Arc<str>) -> Self {
        match self {
            Self::Ambiguous(cause) => Self::Ambiguous(cause.at(server)),
            Self::NotNow(cause) => Self::NotNow(cause.at(server)),
            Self::Misconfigured(wrong) => Self::Misconfigured(wrong.at(server)),
            Self::NotYet(_) => self,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ambiguous(cause) | Self::NotNow(cause) | Self::NotYet(cause) => {
                match cause.server() {
                    Some(server) => write!(f, "{server}: {cause}"),
                    None => write!(f, "{cause}"),
                }
            }
            Self::Misconfigured(wrong) => wrong.fmt(f),
        }
    }
}

/// The events that a store reports to its client.
pub(crate) trait Events: Send + Sync {
    /// A waiting token was given the lock named `lock` on the server.
    fn granted(&self, token: &str, grant: Grant, lock: &str);
    /// Another acquisition is queued for the lock that this token holds.
    fn contended(&self, token: &str);
    /// The lock that this token held was force-released.
    fn revoked(&self, token: &str);
    /// The lock that this token waits for may be free: ask again.
    fn freed(&self, _token: &str) {}
    /// The reentrant lock named `lock`, with a local [subscription](Store::subscribe), was announced free.
    fn unlocked(&self, lock: &str);
    /// Messages about these locks may have been lost: their waiters must ask again.
    fn interrupted(&self, of: Concerned<'_>);
    /// A connection was made after one that broke. The messages about these locks in between are lost, so the leases have to be
    /// confirmed.
    fn reconnected(&self, _of: Concerned<'_>) {}
    /// Whether the engine holds or waits for a lock: then a lost connection has to be made again at once.
    fn is_in_use(&self) -> bool {
        false
    }
    /// Whether a new master may still have a lock that was released at the old one.
    fn has_released_lately(&self) -> bool {
        false
    }
    /// For the observer: a connection, or a node of a quorum.
    fn observed(&self, event: &Event<'_>);
    /// The largest fencing token that this client knows, 0 for none. A server that is reached anew must not mint it again.
    fn largest_token(&self) -> u64 {
        0
    }
}

/// Whether an event concerns a lock: a server may have only some of them.
pub(crate) type Concerned<'a> = &'a dyn Fn(&LockKey) -> bool;

/// An event that concerns every lock.
pub(crate) fn every(_: &LockKey) -> bool {
    true
}

/// The receiver of a store's events. Weak, because the engine owns the store.
pub(crate) type EventSink = Weak<dyn Events>;

/// The operations on a lock, and the subscriptions to its announcements. Each operation is atomic, and safe to repeat with the
/// same token. The same methods serve all kinds of lock: the key names the kind.
///
/// Every call has the time limit of the store: it returns, with an error if necessary.
pub(crate) trait Store: Send + Sync {
    /// Waits for the connection of a lock, if there is none and no request can be sent yet.
    fn connecting(&self, _key: &LockKey) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        None
    }

    fn acquire(
        &self,
        attempt: Attempt<'_>,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    fn release(
        &self,
        key: &Arc<LockKey>,
        token: &Token,
        owner: Option<&str>,
    ) -> impl Future<Output = Result<Released, StoreError>> + Send;

    /// Releases `from` and makes the attempt, in one step (on a quorum in two). Only for exclusive locks.
    fn pass(
        &self,
        attempt: Attempt<'_>,
        from: &Token,
    ) -> impl Future<Output = Result<Passed, StoreError>> + Send;

    /// A number of the server of a lock: a renewal on one of them must not wait for another one.
    fn part_of(&self, _key: &LockKey) -> usize {
        0
    }

    /// For each renewal, whether its token still held the lock. They may be of different servers, so each has its own answer.
    fn extend(
        &self,
        renewals: &[Renewal<'_>],
    ) -> impl Future<Output = Vec<Result<bool, StoreError>>> + Send;

    fn inspect(&self, key: &LockKey) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// A page of the locks of all kinds: of exclusive ones those with the prefix, of others all in its namespace. A lock may come
    /// twice.
    fn scan(
        &self,
        prefix: Prefix<'_>,
        cursor: Cursor,
    ) -> impl Future<Output = Result<Scanned, StoreError>> + Send;

    /// Examines the servers.
    fn examine(&self) -> impl Future<Output = Vec<Finding>> + Send;

    fn force_release(
        &self,
        key: &LockKey,
    ) -> impl Future<Output = Result<Forced, StoreError>> + Send;

    /// Subscribes to the announcements of a reentrant lock. From the return on, [`Events::unlocked`] reports each of them,
    /// until the subscription is dropped. `None` if the store receives no announcements, so that waiters have to poll.
    fn subscribe(
        &self,
        key: &LockKey,
    ) -> impl Future<Output = Result<Option<Subscription>, StoreError>> + Send;

    /// True if the grants of a lock arrive as messages; false if its waiters have to poll.
    fn pushes(&self, key: &LockKey) -> bool;
}

/// The answer to a call for several renewals, as the answer to each.
pub(crate) fn to_each(
    answer: Result<Vec<bool>, StoreError>,
    renewals: usize,
) -> Vec<Result<bool, StoreError>> {
    match answer {
        Ok(held) => held.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); renewals],
    }
}
