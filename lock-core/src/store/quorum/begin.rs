//! The beginning of a quorum, by its operator: its nodes have nothing to forget, so they vote at once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep, timeout};

use super::QuorumStore;
use super::causes::{Failure, late, twice};
use super::members::Member;
use super::vetting::{Run, Vetted, Vetting};
use crate::base::error::Cause;
use crate::store::StoreError;

/// The beginning of a quorum needs every node.
#[derive(Debug, thiserror::Error)]
#[error("a quorum begins with all its nodes; node {node} at {address}: {why}")]
struct NotBegun {
    node: usize,
    address: Arc<str>,
    why: String,
}

/// Pause before the nodes are looked at again.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

const HAS_BEGUN: &str = "other nodes vote already, and this one has no note: it was replaced or has lost its data, and joins by itself";

/// What was found of the note of a node.
enum Found {
    Blank,
    Votes,
    /// No node had a note when this one was written, and it has not voted since.
    New {
        boot: String,
        left: Duration,
    },
    Waits(Duration),
}

impl QuorumStore {
    /// Writes the note of every node, then ends their waits. All nodes have to answer before a note is written, and all need a note
    /// before a wait ends. It may be repeated, by several programs at once.
    pub(crate) async fn begin(&self) -> Result<(), StoreError> {
        let runs = self.runs().await?;
        let end = Instant::now() + self.members.limit;
        loop {
            let found = self.found_on_all(&runs, Vetting::Look).await?;
            let votes = found.iter().any(|found| matches!(found, Found::Votes));
            let other = self.members.all.iter().zip(&found);
            let mut other = other.filter_map(|(node, found)| match found {
                Found::Blank if votes => Some((node, HAS_BEGUN.to_owned())),
                Found::New { left, .. } if votes => Some((node, not_new(*left))),
                Found::Waits(left) => Some((node, not_new(*left))),
                Found::Blank | Found::New { .. } | Found::Votes => None,
            });
            match other.next() {
                None if votes => return Ok(()),
                None => break,
                // Another program may be ending the waits at this moment.
                Some(_) if votes && Instant::now() < end => sleep(LOOK_PAUSE).await,
                Some((node, why)) => return Err(wrong(node, why)),
            }
        }
        let noted = self.found_on_all(&runs, Vetting::New).await?;
        let nodes = self.members.all.iter().zip(&runs).zip(&noted);
        let begun = nodes.map(async |((node, run), noted)| {
            let how = match noted {
                Found::New { boot, .. } => Vetting::Begin { boot },
                _ => Vetting::Look,
            };
            match self.found(node, run, how).await? {
                Found::Votes => Ok(()),
                Found::Waits(left) | Found::New { left, .. } => Err(wrong(node, not_new(left))),
                Found::Blank => Err(wrong(node, HAS_BEGUN.to_owned())),
            }
        });
        try_join_all(begun).await.map(drop)
    }

    /// As [`begin`](Self::begin), whatever the nodes have: no program runs, and no lock is held.
    pub(crate) async fn begin_anew(&self) -> Result<(), StoreError> {
        let runs = self.runs().await?;
        for (node, run) in self.members.all.iter().zip(&runs) {
            self.found(node, run, Vetting::Anew).await?;
        }
        Ok(())
    }

    /// The runs of all nodes, each on a server of its own.
    async fn runs(&self) -> Result<Vec<Run>, StoreError> {
        let nodes = &self.members.all;
        let runs = nodes.iter().map(|node| {
            self.on(node, async {
                node.ready().await?;
                node.run().await
            })
        });
        let runs = try_join_all(runs).await?;
        for (node, run) in nodes.iter().zip(&runs) {
            let mut earlier = nodes.iter().zip(&runs).take(node.index);
            if let Some((other, _)) = earlier.find(|(_, other)| other.id == run.id) {
                return Err(twice(&other.address, &node.address));
            }
        }
        Ok(runs)
    }

    async fn found_on_all(&self, runs: &[Run], how: Vetting<'_>) -> Result<Vec<Found>, StoreError> {
        let nodes = self.members.all.iter().zip(runs);
        try_join_all(nodes.map(|(node, run)| self.found(node, run, how))).await
    }

    async fn found(&self, node: &Member, run: &Run, how: Vetting<'_>) -> Result<Found, StoreError> {
        let members = &self.members;
        let vetted = node.vet(members.statement(node, how, run));
        let vetted = self.on(node, vetted).await?;
        Ok(match vetted {
            Vetted::Blank => Found::Blank,
            Vetted::Note { left, counted, .. } if left.is_zero() => {
                members.has_minted(counted);
                Found::Votes
            }
            Vetted::Note {
                boot, left, is_new, ..
            } if is_new => Found::New { boot, left },
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
        node: &Member,
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
        "it belongs to this quorum already, and votes in {left:.1?}: wait, or begin the quorum `anew` if no program runs and no lock is held"
    )
}

fn wrong(node: &Member, why: String) -> StoreError {
    not_begun(&node.failed(StoreError::Misconfigured(why.into())))
}

fn not_begun(failure: &Failure) -> StoreError {
    let not_begun = NotBegun {
        node: failure.node,
        address: Arc::clone(&failure.address),
        why: failure.why(),
    };
    match failure.error {
        StoreError::Misconfigured(_) => StoreError::Misconfigured(not_begun.to_string().into()),
        _ => StoreError::NotNow(Cause::of(Arc::new(not_begun))),
    }
}
