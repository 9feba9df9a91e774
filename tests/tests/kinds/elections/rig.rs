//! What a case runs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{Leader, Leaders, LockManager, LockManagerBuilder};
use lock_tests::{LIMIT, Sentinel, TestCluster, TestServer, in_time};

/// Longer than any test: nothing happens because a lease ran out.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A lease whose end is waited for.
pub(crate) const TTL: Duration = Duration::from_millis(1500);

/// A store that several managers share, as processes do.
pub(crate) struct Rig {
    store: Store,
    /// The cases share the cluster.
    prefix: String,
}

enum Store {
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
    Cluster(Arc<TestCluster>),
    Quorum(Vec<TestServer>),
}

pub(crate) async fn on(rig: Rig, case: impl AsyncFn(&Rig)) {
    // The limit only ends a case that hangs.
    tokio::time::timeout(LIMIT * 2, case(&rig))
        .await
        .expect("the case ends");
}

impl Rig {
    fn new(store: Store) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("case-{}:", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { store, prefix }
    }

    pub(crate) async fn memory() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let url = format!(
            "memory://elections-{}",
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let anchor = LockManager::connect(&url).await.unwrap();
        Self::new(Store::Memory(url, Box::new(anchor)))
    }

    pub(crate) async fn server() -> Self {
        Self::new(Store::Server(TestServer::start().await))
    }

    pub(crate) async fn connection() -> Self {
        Self::new(Store::Connection(TestServer::start().await))
    }

    pub(crate) async fn sentinel() -> Self {
        let master = TestServer::start().await;
        let sentinel = Sentinel::start("mymaster", master.addr()).await;
        Self::new(Store::Sentinel(sentinel, master))
    }

    pub(crate) async fn cluster() -> Self {
        Self::new(Store::Cluster(TestCluster::shared().await))
    }

    pub(crate) async fn quorum() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(TestServer::start().await);
        }
        let builder = LockManager::builder().quorum_wait(LONG * 4);
        let urls = nodes.iter().map(TestServer::url);
        builder.begin_quorum(urls).await.unwrap();
        Self::new(Store::Quorum(nodes))
    }

    /// Whether latches are refused.
    pub(crate) fn is_quorum(&self) -> bool {
        matches!(self.store, Store::Quorum(_))
    }

    /// A manager of its own: another process, as far as the store can tell.
    pub(crate) async fn manager(&self) -> LockManager {
        self.manager_with(|builder| builder).await
    }

    pub(crate) async fn manager_with(
        &self,
        tweak: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
    ) -> LockManager {
        let builder = LockManager::builder()
            .command_deadline(Duration::from_secs(10))
            .default_ttl(LONG)
            .quorum_wait(LONG * 4)
            .prefix(&self.prefix);
        let builder = tweak(builder);
        match &self.store {
            Store::Memory(url, _) => builder.connect(url).await.unwrap(),
            Store::Server(server) => builder.connect(&server.url()).await.unwrap(),
            Store::Connection(server) => {
                builder.from_connection(server.connection().await).unwrap()
            }
            Store::Sentinel(sentinel, _) => {
                let url = format!("redis+sentinel://{}/mymaster", sentinel.addr());
                builder.connect(&url).await.unwrap()
            }
            Store::Cluster(cluster) => builder.connect(&cluster.url()).await.unwrap(),
            Store::Quorum(nodes) => {
                let urls = nodes.iter().map(TestServer::url);
                builder.connect_quorum(urls).await.unwrap()
            }
        }
    }
}

/// Runs a future on a runtime that is gone, with its connections, when this returns: a process that dies.
pub(crate) fn in_a_process_that_dies<T>(life: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(life)
    })
}

/// The next leader that the stream shows, after any time without one.
pub(crate) async fn next_leader(leaders: &mut Leaders) -> Leader {
    in_time("the next leader", async {
        loop {
            if let Some(leader) = leaders.next().await.expect("the stream goes on") {
                return leader;
            }
        }
    })
    .await
}

/// Waits until the stream shows that there is no leader.
pub(crate) async fn no_leader(leaders: &mut Leaders) {
    in_time("the end of the leader", async {
        while leaders.next().await.expect("the stream goes on").is_some() {}
    })
    .await;
}
