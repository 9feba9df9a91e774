use anyhow::{Context, Result};
use lock_core::{LockManager, MultiGuard};

use super::{Contestant, TTL, settings, some_of, url};

/// Several locks of lock-core in one guard.
#[derive(Clone)]
pub(crate) struct OursMulti(LockManager);

impl OursMulti {
    pub(crate) async fn connect(urls: &[String]) -> Result<Self> {
        let server = urls.first().context("there is no server")?;
        Ok(Self(settings()?.connect(&url(server)).await?))
    }
}

impl Contestant for OursMulti {
    type Guard = MultiGuard;

    async fn acquire(&self, key: &str) -> Result<MultiGuard> {
        Ok(self.0.all(some_of(key)).ttl(TTL).acquire().await?)
    }

    async fn release(&self, guard: MultiGuard) -> Result<()> {
        Ok(guard.release().await?)
    }
}
