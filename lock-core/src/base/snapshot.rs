//! The state of a lock, as a store reports it.

use std::time::Duration;

use crate::base::error::Cause;
use crate::base::kind::Kind;
use crate::base::token::Bearer;

/// The visible state of a lock.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) state: SnapshotState,
    pub(crate) waiting: u64,
    /// The first waiters of the queue, in order.
    pub(crate) queue: Vec<Bearer>,
    /// No holder so far has a larger fencing token. 0 if nothing is known.
    pub(crate) fence: u64,
    /// The answer of each node of a quorum; empty for any other store.
    pub(crate) nodes: Vec<NodeSnapshot>,
}

/// The answer of one node of a quorum about a lock.
#[derive(Debug, Clone)]
pub(crate) struct NodeSnapshot {
    pub(crate) address: String,
    pub(crate) state: Result<SnapshotState, Cause>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SnapshotState {
    Free,
    Held {
        remaining: Duration,
        client: String,
        holder: Bearer,
        holds: u64,
        /// The owner of these holds; `None` for an exclusive lock.
        owner: Option<String>,
    },
    /// Several may hold it.
    Shared {
        used: u32,
        max: u32,
        /// The first of the holders.
        members: Vec<HolderSnapshot>,
    },
    Foreign {
        kind: String,
    },
}

/// One of several holders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HolderSnapshot {
    pub(crate) client: String,
    pub(crate) holder: Bearer,
    pub(crate) weight: u32,
    pub(crate) remaining: Duration,
}

impl SnapshotState {
    /// Whether something that is no lock has the name of one.
    pub(crate) fn is_stranger(&self) -> Option<&str> {
        match self {
            Self::Foreign { kind } if Kind::named(kind).is_none() => Some(kind),
            _ => None,
        }
    }
}
