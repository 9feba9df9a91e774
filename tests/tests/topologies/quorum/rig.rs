//! Five masters and managers over them.

use std::time::Duration;

use lock_core::{LockManager, LockManagerBuilder};
use lock_tests::kit::command;
use lock_tests::{Proxy, Request, TestServer, eventually};

pub(crate) use lock_tests::LIMIT;

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// The wait of a quorum, longer than any test.
pub(crate) const WAIT: Duration = Duration::from_secs(2 * 3600);

/// The wait where none is stated.
pub(crate) const DEFAULT: Duration = Duration::from_secs(60);

pub(crate) struct Quorum {
    pub(crate) nodes: Vec<TestServer>,
    pub(crate) wait: Duration,
}

impl Quorum {
    pub(crate) async fn start(count: usize) -> Self {
        Self::start_with(count, WAIT).await
    }

    pub(crate) async fn start_with(count: usize, wait: Duration) -> Self {
        let quorum = Self::blank(count, wait).await;
        quorum.begin().await;
        quorum
    }

    /// A quorum that has not begun.
    pub(crate) async fn blank(count: usize, wait: Duration) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(TestServer::start().await);
        }
        Self { nodes, wait }
    }

    pub(crate) async fn of(nodes: Vec<TestServer>) -> Self {
        let quorum = Self { nodes, wait: WAIT };
        quorum.begin().await;
        quorum
    }

    /// A new quorum: its nodes vote at once.
    pub(crate) async fn begin(&self) {
        let builder = self.builder().command_deadline(LIMIT);
        builder.begin_quorum(self.urls()).await.unwrap();
    }

    /// The settings of every program: a ttl as long as the quorum allows.
    pub(crate) fn builder(&self) -> LockManagerBuilder {
        let builder = LockManager::builder().quorum_wait(self.wait);
        builder.default_ttl(self.wait / 2)
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
        tweak(self.builder())
            .connect_quorum(self.urls())
            .await
            .unwrap()
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

/// The node behind a proxy, by the name that the quorum has for it.
pub(crate) fn behind(proxy: &Proxy, node: &TestServer) -> String {
    format!("{}?node={}", proxy.url(), node.addr())
}

/// The key of the counter of a node that votes.
pub(crate) async fn counter_of(node: &TestServer) -> String {
    let boot: String = command(node, "HGET lock-core:quorum boot").await;
    format!("lock-core:quorum:fence:{boot}")
}

/// A request for the vote for the lock `a`.
pub(crate) fn is_vote(request: &Request) -> bool {
    request.script() == Some("quorum acquire") && request.has("lock:a")
}

/// Three nodes, the second of them behind a proxy. All vote for the manager.
pub(crate) struct Trio {
    pub(crate) nodes: [TestServer; 3],
    pub(crate) proxy: Proxy,
    pub(crate) locks: LockManager,
    wait: Duration,
}

impl Trio {
    pub(crate) async fn start(ttl: Duration) -> Self {
        Self::start_with(ttl, WAIT).await
    }

    pub(crate) async fn start_with(ttl: Duration, wait: Duration) -> Self {
        let quorum = Quorum::start_with(3, wait).await;
        let proxy = Proxy::start(&quorum.nodes[1]);
        let locks = Self::connect(&quorum.nodes, &proxy, (ttl, wait)).await;
        // A node that was not ready in time votes with the first renewal, which is soon.
        let ready = locks.lock("ready").ttl(ttl.min(Duration::from_secs(3)));
        let ready = ready.acquire().await.unwrap();
        quorum.voted("ready", &[0, 1, 2]).await;
        ready.release().await.unwrap();
        Self {
            nodes: quorum.nodes.try_into().unwrap(),
            proxy,
            locks,
            wait,
        }
    }

    pub(crate) fn urls(nodes: &[TestServer], proxy: &Proxy) -> [String; 3] {
        [nodes[0].url(), behind(proxy, &nodes[1]), nodes[2].url()]
    }

    async fn connect(
        nodes: &[TestServer],
        proxy: &Proxy,
        (ttl, wait): (Duration, Duration),
    ) -> LockManager {
        let urls = Self::urls(nodes, proxy);
        let builder = LockManager::builder().quorum_wait(wait).default_ttl(ttl);
        // Only an answer decides, however late it comes.
        builder
            .command_deadline(LIMIT)
            .connect_quorum(urls)
            .await
            .unwrap()
    }

    pub(crate) async fn manager(&self, ttl: Duration) -> LockManager {
        Self::connect(&self.nodes, &self.proxy, (ttl, self.wait)).await
    }

    /// The vote of a node for the lock `a` is that of another client.
    pub(crate) async fn give_to_another(node: &TestServer) {
        let () = command(node, "SET lock:a another's PX 3600000").await;
    }
}
