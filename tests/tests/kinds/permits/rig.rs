//! What a case runs on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{LockInfo, LockManager, RwLock, Semaphore};
use lock_tests::{LIMIT, TestServer, eventually, servers};

/// Longer than any test: nothing happens because a lease ran out.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A store that several managers share, as processes do.
pub(crate) struct Rig {
    url: String,
    server: Option<TestServer>,
    /// The store in memory lives as long as a manager of it.
    _anchor: LockManager,
}

/// Runs a case in memory and on each server.
pub(crate) async fn everywhere(case: impl AsyncFn(&Rig)) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let url = format!("memory://permits-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    case(&Rig::new(url, None).await).await;
    on_servers(case).await;
}

/// Runs a case on each server.
pub(crate) async fn on_servers(case: impl AsyncFn(&Rig)) {
    for binary in servers() {
        let server = TestServer::builder().binary(binary.path()).start().await;
        case(&Rig::new(server.url(), Some(server)).await).await;
    }
}

impl Rig {
    async fn new(url: String, server: Option<TestServer>) -> Self {
        let anchor = LockManager::connect(&url).await.unwrap();
        Self {
            url,
            server,
            _anchor: anchor,
        }
    }

    /// A manager of its own: another process, as far as the store can tell.
    pub(crate) async fn manager(&self) -> LockManager {
        self.named("another").await
    }

    pub(crate) async fn named(&self, name: &str) -> LockManager {
        let builder = LockManager::builder()
            .client_name(name)
            .command_deadline(Duration::from_secs(10))
            .default_ttl(LONG);
        builder.connect(&self.url).await.unwrap()
    }

    pub(crate) async fn semaphore(&self, max: u32) -> Semaphore {
        self.manager().await.semaphore("s", max)
    }

    pub(crate) async fn rw_lock(&self) -> RwLock {
        self.manager().await.rw_lock("rw")
    }

    pub(crate) fn server(&self) -> &TestServer {
        self.server.as_ref().expect("this case needs a server")
    }

    /// Whether the store in memory is meant.
    pub(crate) fn is_memory(&self) -> bool {
        self.server.is_none()
    }
}

/// What both kinds of handles can tell.
pub(crate) trait Seen {
    async fn seen(&self) -> LockInfo;
}

impl Seen for Semaphore {
    async fn seen(&self) -> LockInfo {
        self.inspect().await.unwrap()
    }
}

impl Seen for RwLock {
    async fn seen(&self) -> LockInfo {
        self.inspect().await.unwrap()
    }
}

/// Waits until this number of waiters is queued.
pub(crate) async fn waiters(lock: &impl Seen, count: u64) {
    eventually(&format!("{count} are queued"), LIMIT, async || {
        lock.seen().await.waiters() == count
    })
    .await;
}

/// Waits until this number of permits is in use.
pub(crate) async fn used(lock: &impl Seen, count: u32) {
    eventually(&format!("{count} permits are in use"), LIMIT, async || {
        let permits = lock.seen().await.permits();
        permits.map_or(0, |(used, _)| used) == count
    })
    .await;
}

/// A task that waits, and is queued when this returns.
pub(crate) async fn queued<T: Send + 'static, E: std::fmt::Debug + Send + 'static>(
    lock: &impl Seen,
    waiting: impl Future<Output = Result<T, E>> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let before = lock.seen().await.waiters();
    let task = tokio::spawn(async move { waiting.await.unwrap() });
    waiters(lock, before + 1).await;
    task
}
