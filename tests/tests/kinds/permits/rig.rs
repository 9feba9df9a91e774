//! What the cases of permits have in common.

use lock_core::{LockInfo, LockManager, RwLock, Semaphore};
use lock_tests::{LIMIT, TestServer, eventually, servers};

use crate::rig::Rig;

/// Runs a case in memory and on each server.
pub(crate) async fn everywhere(case: impl AsyncFn(&Rig)) {
    case(&Rig::memory().await).await;
    on_servers(case).await;
}

/// Runs a case on each server.
pub(crate) async fn on_servers(case: impl AsyncFn(&Rig)) {
    for binary in servers() {
        case(&Rig::server_of(&binary).await).await;
    }
}

impl Rig {
    pub(super) async fn named(&self, name: &str) -> LockManager {
        self.manager_with(|builder| builder.client_name(name)).await
    }

    pub(super) async fn semaphore(&self, max: u32) -> Semaphore {
        self.named("another").await.semaphore("s", max)
    }

    pub(super) async fn rw_lock(&self) -> RwLock {
        self.named("another").await.rw_lock("rw")
    }

    pub(super) fn the_server(&self) -> &TestServer {
        match self {
            Self::Server(server) => server,
            _ => panic!("this case needs a server"),
        }
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
