//! The state of a node of a quorum, for its operator.

use std::time::Duration;

/// Whether a node of a quorum votes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeVote {
    /// It votes.
    Votes,
    /// It has restarted, has lost its data or is new, and does not vote yet.
    #[non_exhaustive]
    Waits {
        /// The rest of its wait.
        left: Duration,
        /// Whether the quorum is new: [`begin_quorum`](crate::LockManagerBuilder::begin_quorum) ends the wait.
        is_new: bool,
    },
    /// It belongs to no quorum.
    Blank,
}

/// A node of a quorum, returned by [`LockManagerBuilder::quorum_status`](crate::LockManagerBuilder::quorum_status).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumNode {
    address: String,
    vote: Result<NodeVote, String>,
    clock_ahead_ms: Option<i64>,
}

impl QuorumNode {
    pub(crate) fn new(
        address: String,
        vote: Result<NodeVote, String>,
        clock_ahead_ms: Option<i64>,
    ) -> Self {
        Self {
            address,
            vote,
            clock_ahead_ms,
        }
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether it votes.
    ///
    /// # Errors
    ///
    /// Why that is not known: the node does not answer, or it belongs to another quorum.
    pub fn vote(&self) -> Result<NodeVote, &str> {
        self.vote.as_ref().copied().map_err(String::as_str)
    }

    /// How far its clock is ahead of that of this machine, in milliseconds; negative if it is behind. Precise to half of a round
    /// trip. `None` without an answer.
    #[must_use]
    pub fn clock_ahead_ms(&self) -> Option<i64> {
        self.clock_ahead_ms
    }
}
