//! The beginning of a new quorum: its nodes have nothing to forget, so they vote at once.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::QuorumStore;
use super::causes::{Failure, late, new_no_more};
use super::node::Node;
use crate::error::Cause;
use crate::store::StoreError;
use crate::store::redis::{Enlist, Enlisted, Enlisting};

/// A new quorum needs every node.
#[derive(Debug, thiserror::Error)]
#[error("a new quorum begins with all its nodes; node {node} at {address}: {why}")]
struct NotBegun {
    node: usize,
    address: Arc<str>,
    why: String,
}

impl QuorumStore {
    /// Writes the note of every node. All have to answer, and none may have a note: it may have forgotten votes.
    pub(crate) async fn begin(&self) -> Result<(), StoreError> {
        let nodes = self.members.all.iter();
        let runs = join_all(nodes.map(|node| self.on(node, fresh(node)))).await;
        let runs: Result<Vec<_>, _> = runs.into_iter().collect();
        // Only after all nodes were checked, so that a replaced node does not begin if another node refuses. One after the other,
        // in the same order in every program: if several programs begin one quorum at once, the first at the first node begins
        // it.
        let mut nodes: Vec<_> = runs?.into_iter().zip(&self.members.all).collect();
        nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (run, node) in nodes {
            self.on(node, begun(node, &run)).await?;
        }
        Ok(())
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

/// The run of a server that has no note.
async fn fresh(node: &Node) -> Result<String, StoreError> {
    node.master.ready().await?;
    if node.master.has_note().await? {
        return Err(new_no_more());
    }
    node.master.run().await
}

async fn begun(node: &Node, run: &str) -> Result<(), StoreError> {
    let what = Enlist {
        how: Enlisting::NewQuorum,
        run,
        heard_of_another: None,
        ttls: &[],
    };
    match node.master.enlist(what).await? {
        Enlisted::Node { .. } => Ok(()),
        Enlisted::Already | Enlisted::AskOthers => Err(new_no_more()),
    }
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
