use std::time::Duration;

use anyhow::Result;
use rslock::{LockGuard, LockManager};

use super::{Contestant, TTL};

/// `rslock`.
#[derive(Clone)]
pub(crate) struct Rslock(LockManager);

impl Rslock {
    /// As it comes, or asking again after a random time up to `retry`.
    pub(crate) fn new(urls: &[String], retry: Option<Duration>) -> Self {
        let mut manager = LockManager::new(urls.to_vec());
        if let Some(retry) = retry {
            // After its last retry it starts over at once, which would cost it another command.
            manager.set_retry(u32::MAX, retry);
        }
        Self(manager)
    }
}

impl Contestant for Rslock {
    type Guard = LockGuard;

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        Ok(self.0.acquire(key, TTL).await?)
    }

    async fn release(&self, guard: LockGuard) -> Result<()> {
        guard.release().await;
        Ok(())
    }
}
