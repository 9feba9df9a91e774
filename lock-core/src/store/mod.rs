//! The stores of locks.

mod any;
mod calls;
mod kinds;
mod memory;
mod quorum;
mod redis;

pub(crate) use self::any::AnyStore;
pub(crate) use self::calls::{
    Announcer, Answer, Attached, Attempt, Concerned, Cursor, EngineRef, EventSink, Events, Grant,
    GuardedCall, Misconfiguration, Mode, OrRefused, Part, Passed, QueuePlace, Released, Renewal,
    Reweighed, Scanned, StoreError, Subscription, Together, to_each,
};
pub(crate) use self::memory::MemoryStore;
pub(crate) use self::quorum::{QuorumConfig, QuorumStore, node_urls};
#[cfg(feature = "tls-rustls")]
pub(crate) use self::redis::SentinelTls;
pub(crate) use self::redis::{
    ClusterAddresses, RedisConfig, RedisStore, ReplyOfUser, UserConnection,
};
pub(crate) use crate::base::snapshot::{HolderSnapshot, NodeSnapshot, Snapshot, SnapshotState};
