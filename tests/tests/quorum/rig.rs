//! Five masters and managers over them.

use std::time::Duration;

use lock_core::{LockManager, LockManagerBuilder};
use lock_tests::{TestServer, eventually};

pub(crate) use lock_tests::LIMIT;

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

pub(crate) struct Quorum {
    pub(crate) nodes: Vec<TestServer>,
}

impl Quorum {
    pub(crate) async fn start(count: usize) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(TestServer::start().await);
        }
        let quorum = Self { nodes };
        quorum.begin().await;
        quorum
    }

    /// A new quorum: its nodes vote at once.
    pub(crate) async fn begin(&self) {
        let builder = LockManager::builder().command_deadline(LIMIT);
        builder.begin_quorum(self.urls()).await.unwrap();
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(TestServer::url).collect()
    }

    pub(crate) async fn manager(&self) -> LockManager {
        self.manager_with(|builder| builder).await
    }

    pub(crate) async fn manager_with(
        &self,
        tweak: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
    ) -> LockManager {
        let builder = LockManager::builder().default_ttl(LONG);
        tweak(builder).quorum(self.urls()).await.unwrap()
    }

    /// The nodes that have a vote for this lock, of those that can be asked.
    pub(crate) async fn votes(&self, key: &str, nodes: &[usize]) -> Vec<usize> {
        let mut votes = Vec::new();
        for node in nodes {
            if self.nodes[*node].exists(&format!("lock:{key}")).await {
                votes.push(*node);
            }
        }
        votes
    }

    /// Waits until no node of these has a vote for this lock.
    pub(crate) async fn no_votes(&self, key: &str, nodes: &[usize]) {
        eventually("no vote is left", LIMIT, async || {
            self.votes(key, nodes).await.is_empty()
        })
        .await;
    }

    /// Waits until these nodes have a vote for this lock.
    pub(crate) async fn voted(&self, key: &str, nodes: &[usize]) {
        eventually("they have voted", LIMIT, async || {
            self.votes(key, nodes).await == nodes
        })
        .await;
    }
}
