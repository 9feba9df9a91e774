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
        self.on_every_node(async |node| {
            node.master.ready().await?;
            if node.master.has_note().await? {
                return Err(new_no_more());
            }
            Ok(())
        })
        .await?;
        // Only now, so that a node that was replaced does not begin where another one refuses.
        self.on_every_node(async |node| {
            let run = node.master.run().await?;
            let what = Enlist {
                how: Enlisting::NewQuorum,
                run: &run,
                heard_of_another: None,
                ttls: &[],
            };
            match node.master.enlist(what).await? {
                Enlisted::Node { .. } => Ok(()),
                Enlisted::Already | Enlisted::AskOthers => Err(new_no_more()),
            }
        })
        .await
    }

    /// Does the same on all nodes. Returns the error of one that failed.
    async fn on_every_node(
        &self,
        act: impl AsyncFn(&Arc<Node>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let limit = self.members.limit;
        let outcomes = self.members.all.iter().map(async |node| {
            let outcome = timeout(limit, act(node)).await;
            let outcome = outcome.unwrap_or_else(|_| Err(late(limit)));
            outcome.map_err(|error| node.failed(error))
        });
        match join_all(outcomes).await.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(failure) => Err(not_begun(&failure)),
        }
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
