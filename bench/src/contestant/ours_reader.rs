use anyhow::{Context, Result};
use lock_core::{LockManager, ReadGuard};

use super::{Contestant, TTL, settings, url};

/// A reader of the read-write lock of lock-core.
#[derive(Clone)]
pub(crate) struct OursReader(LockManager);

impl OursReader {
    pub(crate) async fn connect(urls: &[String]) -> Result<Self> {
        let server = urls.first().context("there is no server")?;
        Ok(Self(settings()?.connect(&url(server)).await?))
    }
}

impl Contestant for OursReader {
    type Guard = ReadGuard;

    async fn acquire(&self, key: &str) -> Result<ReadGuard> {
        Ok(self.0.rw_lock(key).ttl(TTL).read().await?)
    }

    async fn release(&self, guard: ReadGuard) -> Result<()> {
        Ok(guard.release().await?)
    }
}
