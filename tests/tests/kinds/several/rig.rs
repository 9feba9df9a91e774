//! What a case runs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{LockInfo, LockManager, LockManagerBuilder, MultiLock};
use lock_tests::{LIMIT, Sentinel, TestCluster, TestServer, eventually};
use redis::aio::ConnectionManagerConfig;

/// Longer than any test: nothing happens because a lease ran out.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// Two of them are in one slot of a cluster. Not in the order in which they are waited for.
pub(crate) const KEYS: [&str; 3] = ["{t}c", "b", "{t}a"];

/// A store that several managers share, as processes do.
pub(crate) enum Rig {
    Memory(String),
    Server(TestServer),
    Connection(TestServer),
    Sentinel(Sentinel),
    /// The cases share the cluster.
    Cluster(Arc<TestCluster>, String),
    Quorum(Vec<TestServer>),
}

/// Runs a case on each kind of store.
pub(crate) async fn everywhere(case: impl AsyncFn(&Rig)) {
    for_one_script(&case).await;
    let prefix = format!("several-{}:", next());
    case(&Rig::Cluster(TestCluster::shared().await, prefix)).await;
    let nodes = vec![
        TestServer::start().await,
        TestServer::start().await,
        TestServer::start().await,
    ];
    let builder = builder().quorum_wait(LONG).default_ttl(LONG / 2);
    let urls = nodes.iter().map(TestServer::url);
    builder.begin_quorum(urls).await.unwrap();
    case(&Rig::Quorum(nodes)).await;
}

/// Runs a case on each store where one script takes all.
pub(crate) async fn for_one_script(case: &impl AsyncFn(&Rig)) {
    let url = format!("memory://several-{}", next());
    // The store lives as long as a manager of it.
    let _anchor = LockManager::connect(&url).await.unwrap();
    case(&Rig::Memory(url)).await;
    case(&Rig::Server(TestServer::start().await)).await;
    case(&Rig::Connection(TestServer::start().await)).await;
    let master = TestServer::start().await;
    let sentinel = Sentinel::start("mymaster", master.addr()).await;
    case(&Rig::Sentinel(sentinel)).await;
}

fn next() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn builder() -> LockManagerBuilder {
    let builder = LockManager::builder().default_ttl(LONG);
    builder.command_deadline(LIMIT)
}

impl Rig {
    /// A manager of its own: another process, as far as the store can tell.
    pub(crate) async fn manager(&self) -> LockManager {
        let builder = builder();
        match self {
            Self::Memory(url) => builder.connect(url).await,
            Self::Server(server) => builder.connect(&server.url()).await,
            Self::Connection(server) => {
                let client = redis::Client::open(server.url()).unwrap();
                let config = ConnectionManagerConfig::new().set_response_timeout(Some(LIMIT));
                let connection = client.get_connection_manager_with_config(config).await;
                let builder = builder.poll_interval(Duration::from_millis(20));
                builder.from_connection(connection.unwrap())
            }
            Self::Sentinel(sentinel) => {
                let url = format!("redis+sentinel://{}/mymaster", sentinel.addr());
                builder.connect(&url).await
            }
            Self::Cluster(cluster, prefix) => builder.prefix(prefix).connect(&cluster.url()).await,
            Self::Quorum(nodes) => {
                let builder = builder.quorum_wait(LONG).default_ttl(LONG / 2);
                builder
                    .connect_quorum(nodes.iter().map(TestServer::url))
                    .await
            }
        }
        .unwrap()
    }

    pub(crate) async fn all(&self) -> MultiLock {
        self.manager().await.all(KEYS)
    }
}

pub(crate) async fn seen(locks: &LockManager, key: &str) -> LockInfo {
    locks.lock(key).inspect().await.unwrap()
}

/// Waits until this number of waiters is queued.
pub(crate) async fn waiters(locks: &LockManager, key: &str, count: u64) {
    eventually(&format!("{count} wait for {key}"), LIMIT, async || {
        seen(locks, key).await.waiters() == count
    })
    .await;
}

/// Waits until this lock is held, or free.
pub(crate) async fn held(locks: &LockManager, key: &str, is_held: bool) {
    eventually(&format!("{key} is held: {is_held}"), LIMIT, async || {
        seen(locks, key).await.is_held() == is_held
    })
    .await;
}
