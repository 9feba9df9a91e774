//! What an operator does with the nodes of a quorum: to begin it, and to see who votes, who waits, and how far clocks are apart.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::time::{Instant, sleep, timeout};

use super::QuorumStore;
use super::causes::{Failure, late, reconnected, twice};
use super::node::Member;
use super::note::{Run, Vetted, Vetting};
use crate::base::error::Cause;
use crate::base::finding::{Finding, Severity};
use crate::base::quorum_node::{NodeVote, QuorumNode};
use crate::store::StoreError;
use crate::store::redis::{Connection, unreachable};

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

/// The connection to a node, and the run of its server.
type Reached = (Arc<Connection>, Run);

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
                Found::Waits(left) => Some((node, not_new(*left))),
                // Beside a node that votes: a beginning was interrupted.
                Found::Blank | Found::New { .. } | Found::Votes => None,
            });
            match other.next() {
                None => break,
                // Another program may have begun between the looks at two nodes.
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

    /// The connections to all nodes, and their runs, each on a server of its own.
    async fn runs(&self) -> Result<Vec<Reached>, StoreError> {
        let nodes = &self.members.all;
        let runs = nodes.iter().map(|node| {
            self.on(node, async {
                let connection = node.server.connected().await?;
                let run = node.run(&connection).await?;
                Ok((connection, run))
            })
        });
        let runs = try_join_all(runs).await?;
        for (node, (_, run)) in nodes.iter().zip(&runs) {
            let mut earlier = nodes.iter().zip(&runs).take(node.index);
            if let Some((other, _)) = earlier.find(|(_, (_, other))| other.id == run.id) {
                return Err(twice(&other.address, &node.address));
            }
        }
        Ok(runs)
    }

    async fn found_on_all(
        &self,
        runs: &[Reached],
        how: Vetting<'_>,
    ) -> Result<Vec<Found>, StoreError> {
        let nodes = self.members.all.iter().zip(runs);
        try_join_all(nodes.map(|(node, run)| self.found(node, run, how))).await
    }

    async fn found(
        &self,
        node: &Member,
        on: &Reached,
        how: Vetting<'_>,
    ) -> Result<Found, StoreError> {
        let members = &self.members;
        let (connection, run) = on;
        let vetted = node.vet(connection, members.statement(node, how, run));
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

/// A node that answers, and does not vote.
fn of_vote(node: &QuorumNode) -> Option<Finding> {
    let what = match node.vote() {
        Ok(NodeVote::Blank) => "it belongs to no quorum, and does not vote".to_owned(),
        Ok(NodeVote::Waits { left, .. }) => format!("it does not vote for another {left:.0?}"),
        Ok(NodeVote::Votes) | Err(_) => return None,
    };
    let advice = "see that the other nodes vote, or begin the quorum if it is new";
    Some(Finding::of(node.address(), Severity::Problem, what, advice))
}

impl QuorumStore {
    /// The state of each node. Nothing is written.
    pub(crate) async fn status(&self) -> Vec<QuorumNode> {
        join_all(self.members.all.iter().map(|node| self.status_of(node))).await
    }

    async fn status_of(&self, node: &Member) -> QuorumNode {
        let (limit, timers) = (self.members.limit, self.members.timers());
        // A few round trips, each of which has the whole time.
        let asked = timers.timeout(limit * 3, self.asked(node)).await;
        let (vote, clock) = match asked.unwrap_or_else(|_| Err(late(limit))) {
            Ok((vote, clock)) => (Ok(vote), Some(clock)),
            Err(error) => (Err(node.failed(error).why()), None),
        };
        QuorumNode::new(node.address.to_string(), vote, clock)
    }

    async fn asked(&self, node: &Member) -> Result<(NodeVote, i64), StoreError> {
        // The connection in use is for those who lock. In a task, since the caller may be a plain thread.
        let server = Arc::clone(&node.server);
        let dial = async move { server.dial_beside().await };
        let connection = self.members.engine.spawn(dial).await;
        let connection = connection.map_err(|_| reconnected())??;
        let run = node.run(&connection).await?;
        let statement = self.members.statement(node, Vetting::Read, &run);
        let vote = match node.vet(&connection, statement).await? {
            Vetted::Blank => NodeVote::Blank,
            Vetted::Note { left, .. } if left.is_zero() => NodeVote::Votes,
            Vetted::Note { left, is_new, .. } => NodeVote::Waits { left, is_new },
            other @ Vetted::Other { .. } => return Err(self.members.is_other(node, other)),
        };
        Ok((vote, node.server.clock_ahead(&connection).await?))
    }

    /// Examines each node.
    pub(in crate::store) async fn examined(&self) -> Vec<Finding> {
        let nodes = self.members.all.iter().map(async |node| {
            let limit = self.members.limit;
            let timers = self.members.timers();
            let examined = timers.timeout(limit * 3, node.server.examine()).await;
            let mut found =
                examined.unwrap_or_else(|_| vec![unreachable(&node.address, late(limit))]);
            found.extend(of_vote(&self.status_of(node).await));
            found
        });
        join_all(nodes).await.into_iter().flatten().collect()
    }
}
