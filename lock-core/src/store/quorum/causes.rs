//! Why a quorum could not answer: the failure of each node.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::nodes::majority;
use crate::base::error::Cause;
use crate::base::time::in_millis;
use crate::store::{Misconfiguration, StoreError};

/// The failure of one node.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) node: usize,
    pub(super) address: Arc<str>,
    pub(super) error: StoreError,
}

/// Too few nodes answered.
#[derive(Debug, thiserror::Error)]
struct NoMajority {
    nodes: usize,
    failures: Vec<Failure>,
}

impl fmt::Display for NoMajority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, nodes) = (self.failures.len(), self.nodes);
        write!(f, "no majority: {failed} of {nodes} nodes did not vote")?;
        for failure in &self.failures {
            let Failure { node, address, .. } = failure;
            write!(f, "; node {node} at {address}: {}", failure.why())?;
        }
        Ok(())
    }
}

impl Failure {
    /// What to do about it, if it is more than to reach the node.
    fn advice(&self) -> Option<&'static str> {
        match &self.error {
            StoreError::Ambiguous(cause) | StoreError::NotNow(cause) => cause.known_advice(),
            StoreError::NotYet(_) => Some("wait until these nodes vote"),
            StoreError::Misconfigured(_) => Some("repair the nodes that are named"),
        }
    }

    pub(super) fn why(&self) -> String {
        match &self.error {
            StoreError::Ambiguous(cause)
            | StoreError::NotNow(cause)
            | StoreError::NotYet(cause) => cause.to_string(),
            StoreError::Misconfigured(wrong) => wrong.to_string(),
        }
    }
}

/// One error for the failures of several nodes. It is ambiguous if any request may have been carried out. It is permanent only
/// if the misconfigured nodes alone make a majority impossible, and ends by itself if the waiting nodes do.
pub(super) fn combined(nodes: usize, mut failures: Vec<Failure>) -> StoreError {
    failures.sort_by_key(|failure| failure.node);
    let wrong = |failure: &&Failure| matches!(failure.error, StoreError::Misconfigured(_));
    let hopeless = failures.iter().filter(wrong).count() > nodes - majority(nodes);
    let waiting = failures.iter().filter(|it| is_waiting(&it.error)).count();
    let waits = waiting > 0 && failures.len() - waiting <= nodes - majority(nodes);
    let ambiguous = |failure: &Failure| matches!(failure.error, StoreError::Ambiguous(_));
    let ambiguous = failures.iter().any(ambiguous);
    let advice = failures.iter().find_map(Failure::advice);
    let no_majority = NoMajority { nodes, failures };
    if hopeless {
        return StoreError::Misconfigured(no_majority.to_string().into());
    }
    let cause = Cause::of(Arc::new(no_majority)).advised(advice);
    if waits {
        StoreError::NotYet(cause)
    } else if ambiguous {
        StoreError::Ambiguous(cause)
    } else {
        StoreError::NotNow(cause)
    }
}

/// A node took longer than its answers usually take.
pub(super) fn late(limit: Duration) -> StoreError {
    StoreError::Ambiguous(Why::Late(limit).cause())
}

/// The clocks of the nodes that voted are too far apart: one clock may have jumped, and its node has forgotten votes too early.
pub(super) fn clocks_apart(by: Duration) -> StoreError {
    StoreError::NotNow(Why::ClocksApart(by).cause())
}

/// A node without recent replies is skipped until it answers.
pub(super) fn silent() -> StoreError {
    StoreError::NotNow(Why::Silent.cause())
}

/// A node that is new or has restarted may have forgotten a vote, so it waits.
pub(super) fn in_wait(left: Duration) -> StoreError {
    StoreError::NotYet(Why::Waits(left).cause())
}

/// The node has no counter: it has lost its data.
pub(super) fn unknown() -> StoreError {
    StoreError::NotYet(Why::Unknown.cause())
}

/// Whether a node has no votes, because it may have forgotten them.
fn is_waiting(error: &StoreError) -> bool {
    matches!(error, StoreError::NotYet(_))
}

/// The node has no note, and there is no other note: these nodes have not answered.
pub(super) fn no_note(missing: Vec<Arc<str>>) -> StoreError {
    StoreError::NotNow(Why::Missing(missing).cause())
}

/// Two addresses lead to one server.
pub(super) fn twice(one: &Arc<str>, other: &Arc<str>) -> StoreError {
    let same = Misconfiguration::SameServer(Arc::clone(one), Arc::clone(other));
    StoreError::Misconfigured(same)
}

pub(super) fn is_twice(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Misconfigured(Misconfiguration::SameServer(..))
    )
}

/// The connection was replaced while the request was on its way: the server may have restarted.
pub(super) fn reconnected() -> StoreError {
    StoreError::Ambiguous(Why::Reconnected.cause())
}

/// The node has a vote of a later attempt, or the votes of this attempt were given up.
pub(super) fn stale() -> StoreError {
    StoreError::NotNow(Why::Stale.cause())
}

/// A release finds no vote, which an undo that went out behind it may have removed.
pub(super) fn overtaken() -> StoreError {
    StoreError::Ambiguous(Why::Overtaken.cause())
}

/// The vote of a node does not belong to this token, or no longer.
pub(super) fn not_ours() -> StoreError {
    StoreError::NotNow(Why::NotOurs.cause())
}

/// Why a node does not vote, beside what its connection says.
#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("its vote is not ours")]
    NotOurs,
    #[error("a later request has its vote")]
    Stale,
    #[error("another request has removed its vote")]
    Overtaken,
    #[error("no reply within {:?}", in_millis(*.0))]
    Late(Duration),
    #[error(
        "no majority: the clocks of the nodes are {:?} apart; synchronise them, or allow for it with `clock_skew`",
        in_millis(*.0)
    )]
    ClocksApart(Duration),
    #[error("no recent reply")]
    Silent,
    #[error("it is new or has restarted, and votes in {0:.1?}")]
    Waits(Duration),
    /// The nodes without an answer, while others have no note.
    #[error("it has no note of a quorum: a new quorum needs all its nodes once, and there is no answer of {}", .0.join(", "))]
    Missing(Vec<Arc<str>>),
    #[error("it has lost its data")]
    Unknown,
    #[error("the connection was replaced during the request")]
    Reconnected,
}

impl Why {
    fn cause(self) -> Cause {
        Cause::of(Arc::new(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(node: usize, error: StoreError) -> Failure {
        Failure {
            node,
            address: format!("10.0.0.{node}:6379").into(),
            error,
        }
    }

    #[test]
    fn an_error_names_each_node_and_what_it_said() {
        let late = late(Duration::from_millis(5));
        let wrong = StoreError::Misconfigured("WRONGPASS".into());
        let error = combined(
            5,
            vec![failure(4, late), failure(1, wrong), failure(2, silent())],
        );
        let StoreError::Ambiguous(cause) = error else {
            panic!("{error:?}")
        };
        assert_eq!(
            cause.to_string(),
            "no majority: 3 of 5 nodes did not vote; node 1 at 10.0.0.1:6379: WRONGPASS; \
             node 2 at 10.0.0.2:6379: no recent reply; node 4 at 10.0.0.4:6379: no reply within 5ms"
        );
    }

    #[test]
    fn a_set_up_that_makes_a_majority_impossible_is_hopeless() {
        let wrong = |node| failure(node, StoreError::Misconfigured("no".into()));
        let some = combined(5, vec![wrong(0), wrong(1), failure(2, silent())]);
        assert!(matches!(some, StoreError::NotNow(_)));
        let most = combined(5, vec![wrong(0), wrong(1), wrong(2)]);
        assert!(matches!(most, StoreError::Misconfigured(_)));
        let waits = |node| failure(node, in_wait(Duration::from_secs(1)));
        let late = |node| failure(node, late(Duration::from_secs(1)));
        let some = combined(5, vec![wrong(0), late(1), waits(2)]);
        assert!(matches!(some, StoreError::NotYet(_)));
        let most = combined(5, vec![wrong(0), late(1), late(2), waits(3)]);
        assert!(matches!(most, StoreError::Ambiguous(_)));
    }
}
