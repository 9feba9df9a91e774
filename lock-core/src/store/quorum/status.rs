//! The nodes of a quorum, as an operator sees them: who votes, who waits, and how far their clocks are apart.

use futures_util::future::join_all;
use tokio::time::timeout;

use super::QuorumStore;
use super::causes::late;
use super::members::Member;
use super::vetting::{Vetted, Vetting};
use crate::base::finding::Finding;
use crate::base::quorum_node::{NodeVote, QuorumNode};
use crate::store::StoreError;
use crate::store::redis::unreachable;

impl QuorumStore {
    /// The state of each node. Nothing is written.
    pub(crate) async fn status(&self) -> Vec<QuorumNode> {
        join_all(self.members.all.iter().map(|node| self.status_of(node))).await
    }

    async fn status_of(&self, node: &Member) -> QuorumNode {
        let limit = self.members.limit;
        // A few round trips, each of which has the whole time.
        let asked = timeout(limit * 3, self.asked(node)).await;
        let (vote, clock) = match asked.unwrap_or_else(|_| Err(late(limit))) {
            Ok((vote, clock)) => (Ok(vote), Some(clock)),
            Err(error) => (Err(node.failed(error).why()), None),
        };
        QuorumNode::new(node.address.to_string(), vote, clock)
    }

    async fn asked(&self, node: &Member) -> Result<(NodeVote, i64), StoreError> {
        node.master.ready().await?;
        let run = node.master.run().await?;
        let statement = self.members.statement(node, Vetting::Look, &run);
        let vote = match node.master.vet(statement).await? {
            Vetted::Blank => NodeVote::Blank,
            Vetted::Note { left, .. } if left.is_zero() => NodeVote::Votes,
            Vetted::Note { left, is_new, .. } => NodeVote::Waits { left, is_new },
            other @ Vetted::Other { .. } => return Err(self.members.is_other(node, other)),
        };
        Ok((vote, node.master.clock_ahead().await?))
    }

    /// Examines each node.
    pub(super) async fn examined(&self) -> Vec<Finding> {
        let nodes = self.members.all.iter().map(async |node| {
            let examined = timeout(self.members.limit * 3, node.master.examine()).await;
            examined.unwrap_or_else(|_| vec![unreachable(&node.address, late(self.members.limit))])
        });
        join_all(nodes).await.into_iter().flatten().collect()
    }
}
