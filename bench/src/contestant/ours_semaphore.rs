use anyhow::{Context, Result};
use lock_core::{LockGuard, LockManager};

use super::{Contestant, PERMITS, TTL, settings, url};

/// The semaphore of lock-core.
#[derive(Clone)]
pub(crate) struct OursSemaphore(LockManager);

impl OursSemaphore {
    pub(crate) async fn connect(urls: &[String]) -> Result<Self> {
        let server = urls.first().context("there is no server")?;
        Ok(Self(settings()?.connect(&url(server)).await?))
    }
}

impl Contestant for OursSemaphore {
    type Guard = LockGuard;

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        Ok(self.0.semaphore(key, PERMITS).ttl(TTL).acquire().await?)
    }

    async fn release(&self, guard: LockGuard) -> Result<()> {
        Ok(guard.release().await?)
    }
}
