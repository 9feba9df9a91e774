//! The nodes of a quorum, as an operator sees them: who votes, who waits, and how far their clocks are apart.

use futures_util::future::join_all;

use super::QuorumStore;
use super::causes::late;
use super::members::Member;
use super::vetting::{Vetted, Vetting};
use crate::base::finding::{Finding, Severity};
use crate::base::quorum_node::{NodeVote, QuorumNode};
use crate::store::StoreError;
use crate::store::redis::unreachable;

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
        node.ready().await?;
        let run = node.run().await?;
        let statement = self.members.statement(node, Vetting::Look, &run);
        let vote = match node.vet(statement).await? {
            Vetted::Blank => NodeVote::Blank,
            Vetted::Note { left, .. } if left.is_zero() => NodeVote::Votes,
            Vetted::Note { left, is_new, .. } => NodeVote::Waits { left, is_new },
            other @ Vetted::Other { .. } => return Err(self.members.is_other(node, other)),
        };
        Ok((vote, node.server.clock_ahead().await?))
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
