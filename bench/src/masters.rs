//! The servers of a quorum.

use std::time::Duration;

use anyhow::Result;
use lock_core::LockManager;
use lock_tests::{TestServer, TestServerBuilder};

use crate::contestant::PATIENCE;
use crate::network::Network;

/// How many.
pub(crate) const MASTERS: usize = 5;

/// Masters of the step's own, which end with this.
pub(crate) struct Masters {
    servers: Vec<TestServer>,
    stopped: usize,
}

impl Masters {
    pub(crate) async fn start() -> Result<Self> {
        Self::start_as(|| TestServer::builder().in_own_session()).await
    }

    pub(crate) async fn start_as(builder: impl Fn() -> TestServerBuilder) -> Result<Self> {
        let mut servers = Vec::new();
        for _ in 0..MASTERS {
            servers.push(builder().start().await);
        }
        let masters = Self {
            servers,
            stopped: 0,
        };
        let builder = LockManager::builder().command_deadline(PATIENCE);
        builder.begin_quorum(masters.urls()).await?;
        Ok(masters)
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(TestServer::url).collect()
    }

    /// The ids of their processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(TestServer::pid).collect()
    }

    /// The names by which the quorum knows them.
    pub(crate) fn labels(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(|server| server.addr().to_string())
    }

    /// A network before each of them, with this delay in each direction.
    pub(crate) fn far_away(&self, delay: Duration) -> Result<Vec<Network>> {
        let servers = self.servers.iter();
        servers
            .map(|server| Network::start(server.addr(), delay))
            .collect()
    }

    /// The first ones answer nothing from now on, though they accept what they are sent: to a client that is worse than
    /// being dead.
    pub(crate) fn stop(&mut self, count: usize) {
        for server in &self.servers[..count] {
            server.stop();
        }
        self.stopped = count;
    }
}

impl Drop for Masters {
    fn drop(&mut self) {
        for server in &self.servers[..self.stopped] {
            server.cont();
        }
    }
}
