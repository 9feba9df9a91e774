//! The stores of locks.

mod any;
mod calls;
mod kinds;
mod memory;
#[cfg(feature = "quorum")]
mod quorum;
#[cfg(not(feature = "quorum"))]
#[path = "quorum/absent.rs"]
mod quorum;
mod redis;

pub(crate) use self::any::AnyStore;
pub(crate) use self::calls::{
    Announcer, Answer, Attached, Attempt, Concerned, Cursor, EngineRef, EventSink, Events, Grant,
    GuardedCall, Misconfiguration, Mode, OrRefused, Passed, QueuePlace, Released, Renewal,
    Reweighed, Scanned, StoreError, Subscription, Together, to_each,
};
#[cfg(feature = "testing")]
pub(crate) use self::memory::InMemory;
pub(crate) use self::memory::MemoryStore;
pub(crate) use self::quorum::QuorumStore;
#[cfg(feature = "cluster")]
pub(crate) use self::redis::ClusterAddresses;
#[cfg(all(feature = "sentinel", feature = "tls-rustls"))]
pub(crate) use self::redis::SentinelTls;
pub(crate) use self::redis::{RedisConfig, RedisStore, ReplyOfUser, UserConnection, node_urls};
pub(crate) use crate::base::snapshot::{HolderSnapshot, Snapshot, SnapshotState};
