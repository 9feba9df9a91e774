//! What the cases of permits, of several locks and of elections run on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{LockManager, LockManagerBuilder};
use lock_tests::{LIMIT, Sentinel, ServerBinary, TestCluster, TestServer};
use redis::aio::ConnectionManagerConfig;

/// Longer than any test: nothing happens because a lease ran out.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A store that several managers share, as processes do.
pub(crate) enum Rig {
    /// The store in memory lives as long as a manager of it.
    Memory(
        String,
        #[expect(dead_code, reason = "it keeps the store")] Box<LockManager>,
    ),
    Server(TestServer),
    Connection(TestServer),
    Sentinel(
        Sentinel,
        #[expect(dead_code, reason = "it runs")] TestServer,
    ),
    /// The cases share the cluster, each with a prefix of its own.
    Cluster(Arc<TestCluster>, String),
    Quorum(Vec<TestServer>),
}

fn next() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn builder() -> LockManagerBuilder {
    let builder = LockManager::builder().default_ttl(LONG);
    builder.command_deadline(LIMIT).quorum_wait(LONG * 4)
}

impl Rig {
    pub(crate) async fn memory() -> Self {
        let url = format!("memory://kinds-{}", next());
        let anchor = LockManager::connect(&url).await.unwrap();
        Self::Memory(url, Box::new(anchor))
    }

    pub(crate) async fn server() -> Self {
        Self::Server(TestServer::start().await)
    }

    pub(crate) async fn server_of(binary: &ServerBinary) -> Self {
        Self::Server(TestServer::builder().binary(binary.path()).start().await)
    }

    pub(crate) async fn connection() -> Self {
        Self::Connection(TestServer::start().await)
    }

    pub(crate) async fn sentinel() -> Self {
        let master = TestServer::start().await;
        let sentinel = Sentinel::start("mymaster", master.addr()).await;
        Self::Sentinel(sentinel, master)
    }

    pub(crate) async fn cluster() -> Self {
        Self::Cluster(TestCluster::shared().await, format!("case-{}:", next()))
    }

    pub(crate) async fn quorum() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(TestServer::start().await);
        }
        let urls = nodes.iter().map(TestServer::url);
        builder().begin_quorum(urls).await.unwrap();
        Self::Quorum(nodes)
    }

    /// A manager of its own: another process, as far as the store can tell.
    pub(crate) async fn manager(&self) -> LockManager {
        self.manager_with(|builder| builder).await
    }

    pub(crate) async fn manager_with(
        &self,
        tweak: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
    ) -> LockManager {
        let builder = tweak(builder());
        match self {
            Self::Memory(url, _) => builder.connect(url).await,
            Self::Server(server) => builder.connect(&server.url()).await,
            Self::Connection(server) => {
                let client = redis::Client::open(server.url()).unwrap();
                let config = ConnectionManagerConfig::new().set_response_timeout(Some(LIMIT));
                let connection = client.get_connection_manager_with_config(config).await;
                let builder = builder.poll_interval(Duration::from_millis(20));
                builder.from_connection(connection.unwrap())
            }
            Self::Sentinel(sentinel, _) => {
                let url = format!("redis+sentinel://{}/mymaster", sentinel.addr());
                builder.connect(&url).await
            }
            Self::Cluster(cluster, prefix) => builder.prefix(prefix).connect(&cluster.url()).await,
            Self::Quorum(nodes) => {
                let urls = nodes.iter().map(TestServer::url);
                builder.connect_quorum(urls).await
            }
        }
        .unwrap()
    }
}

/// Runs a future on a runtime that is gone, with its connections, when this returns: a process that dies.
pub(crate) fn in_a_process_that_dies<T>(life: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(life)
    })
}
