//! The beginning of a quorum, by its operator: its nodes have nothing to forget, so they vote at once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::timeout;

use super::QuorumStore;
use super::causes::{Failure, late};
use super::node::Node;
use crate::error::Cause;
use crate::store::StoreError;
use crate::store::redis::{Run, Vetted, Vetting};

/// The beginning of a quorum needs every node.
#[derive(Debug, thiserror::Error)]
#[error("a quorum begins with all its nodes; node {node} at {address}: {why}")]
struct NotBegun {
    node: usize,
    address: Arc<str>,
    why: String,
}

/// What was found of the note of a node.
enum Found {
    Blank,
    Votes,
    /// No node had a note when this one was written, and it has not voted since.
    New {
        boot: String,
    },
    Waits(Duration),
}

impl QuorumStore {
    /// Writes the note of every node, then ends their waits. All nodes have to answer before a note is written, and all need a note
    /// before a wait ends. It may be repeated, by several programs at once: what others have begun is continued.
    pub(crate) async fn begin(&self) -> Result<(), StoreError> {
        let nodes = &self.members.all;
        let runs = self.runs().await?;
        let looks = nodes.iter().zip(&runs);
        let looks = looks.map(|(node, run)| self.found(node, run, Vetting::Look));
        let found = try_join_all(looks).await?;
        let votes = found.iter().any(|found| matches!(found, Found::Votes));
        for (node, found) in nodes.iter().zip(&found) {
            match found {
                Found::Blank if votes => {
                    let joins = "other nodes vote already, and this one has no note: it was replaced or has lost its data, and joins by itself";
                    return Err(wrong(node, joins.to_owned()));
                }
                Found::Waits(left) => return Err(wrong(node, not_new(*left))),
                Found::Blank | Found::New { .. } | Found::Votes => {}
            }
        }
        let noted = nodes.iter().zip(&runs);
        let noted = noted.map(|(node, run)| self.found(node, run, Vetting::New));
        let noted = try_join_all(noted).await?;
        for ((node, run), found) in nodes.iter().zip(&runs).zip(noted) {
            let left = match found {
                Found::Votes => continue,
                Found::New { boot } => {
                    let how = Vetting::Begin { boot: &boot };
                    match self.found(node, run, how).await? {
                        Found::Votes => continue,
                        Found::Waits(left) => left,
                        Found::Blank | Found::New { .. } => Duration::ZERO,
                    }
                }
                Found::Waits(left) => left,
                Found::Blank => Duration::ZERO,
            };
            return Err(wrong(node, not_new(left)));
        }
        Ok(())
    }

    /// As [`begin`](Self::begin), whatever the nodes have: no program runs, and no lock is held.
    pub(crate) async fn begin_anew(&self) -> Result<(), StoreError> {
        let runs = self.runs().await?;
        for (node, run) in self.members.all.iter().zip(&runs) {
            self.found(node, run, Vetting::Anew).await?;
        }
        Ok(())
    }

    /// The runs of all nodes.
    async fn runs(&self) -> Result<Vec<Run>, StoreError> {
        let nodes = self.members.all.iter();
        try_join_all(nodes.map(|node| {
            self.on(node, async {
                node.master.ready().await?;
                node.master.run().await
            })
        }))
        .await
    }

    async fn found(&self, node: &Node, run: &Run, how: Vetting<'_>) -> Result<Found, StoreError> {
        let members = &self.members;
        let vetted = node.master.vet(members.statement(node, how, run));
        let vetted = self.on(node, vetted).await?;
        Ok(match vetted {
            Vetted::Blank => Found::Blank,
            Vetted::Note { left, counted, .. } if left.is_zero() => {
                members.has_minted(counted);
                Found::Votes
            }
            Vetted::Note { boot, is_new, .. } if is_new => Found::New { boot },
            Vetted::Note { left, .. } => Found::Waits(left),
            other @ Vetted::Other { .. } => {
                let error = members.is_other(node, other);
                return Err(not_begun(&node.failed(error)));
            }
        })
    }

    /// Does something on a node within the command deadline.
    async fn on<T>(
        &self,
        node: &Node,
        act: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = self.members.limit;
        let outcome = timeout(limit, act).await;
        let outcome = outcome.unwrap_or_else(|_| Err(late(limit)));
        outcome.map_err(|error| not_begun(&node.failed(error)))
    }
}

fn not_new(left: Duration) -> String {
    format!(
        "it belongs to this quorum already, and votes in {left:?}: wait, or begin the quorum `anew` if no program runs and no lock is held"
    )
}

fn wrong(node: &Node, why: String) -> StoreError {
    not_begun(&node.failed(StoreError::Misconfigured(why)))
}

fn not_begun(failure: &Failure) -> StoreError {
    let not_begun = NotBegun {
        node: failure.node,
        address: Arc::clone(&failure.address),
        why: failure.why(),
    };
    match failure.error {
        StoreError::Misconfigured(_) => StoreError::Misconfigured(not_begun.to_string()),
        _ => StoreError::NotNow(Cause::new(Arc::new(not_begun))),
    }
}
