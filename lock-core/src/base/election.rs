//! The record beside the lock of an election, which names the leader.

use std::time::Duration;

use super::beside::Beside;

/// The record. As a channel it tells those who observe that it has changed.
pub(crate) const LEADER: Beside = Beside("lock-core:leader:");

/// Who leads an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaderSnapshot {
    Free,
    /// The holder is not named: a lock with the same key, or a leader of a quorum that has just won.
    Unknown {
        remaining: Duration,
    },
    Leads {
        term: u64,
        value: String,
        remaining: Duration,
    },
}
