use anyhow::Result;
use lock_core::{LockGuard, LockManager};

use super::{Contestant, TTL};

/// lock-core.
#[derive(Clone)]
pub(crate) struct Ours(LockManager);

/// The variable that tells the workers of a server and of the URL through which our locks find it.
pub(crate) const BEHIND_SENTINEL: &str = "LOCK_BENCH_SENTINEL";

/// The variable that tells the workers the URL of the cluster.
pub(crate) const OF_CLUSTER: &str = "LOCK_BENCH_CLUSTER";

/// The URL of our locks for this server.
pub(crate) fn url(server: &str) -> String {
    let behind = std::env::var(BEHIND_SENTINEL).unwrap_or_default();
    match behind.split_once(' ') {
        Some((known, url)) if known == server => url.to_owned(),
        _ => server.to_owned(),
    }
}

impl Ours {
    pub(crate) async fn connect(urls: &[String], handover_limit: Option<u32>) -> Result<Self> {
        let mut builder = LockManager::builder();
        if let Some(limit) = handover_limit {
            builder = builder.handover_limit(limit);
        }
        Ok(Self(match urls {
            [server] => builder.connect(&url(server)).await?,
            urls => builder.connect_quorum(urls).await?,
        }))
    }
}

impl Ours {
    pub(crate) async fn on_cluster() -> Result<Self> {
        let url = std::env::var(OF_CLUSTER)?;
        Ok(Self(LockManager::connect(&url).await?))
    }
}

impl Contestant for Ours {
    type Guard = LockGuard;

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        Ok(self.0.lock(key).ttl(TTL).acquire().await?)
    }

    async fn release(&self, guard: LockGuard) -> Result<()> {
        Ok(guard.release().await?)
    }
}
