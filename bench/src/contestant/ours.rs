use anyhow::Result;
use lock_core::{LockGuard, LockManager};

use super::{Contestant, TTL};

/// lock-core.
#[derive(Clone)]
pub(crate) struct Ours(LockManager);

impl Ours {
    pub(crate) async fn connect(urls: &[String], handover_limit: Option<u32>) -> Result<Self> {
        let mut builder = LockManager::builder();
        if let Some(limit) = handover_limit {
            builder = builder.handover_limit(limit);
        }
        Ok(Self(match urls {
            [url] => builder.connect(url).await?,
            urls => builder.connect_quorum(urls).await?,
        }))
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
