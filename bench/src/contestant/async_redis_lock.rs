use std::sync::Arc;

use anyhow::Result;
use async_redis_lock::{Lock, Locker, Options};

use super::{Contestant, TTL};

/// `async-redis-lock`, waiting without limit as the others do; everything else as it comes.
#[derive(Clone)]
pub(crate) struct AsyncRedisLock(Arc<(Locker, Options)>);

impl AsyncRedisLock {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let locker = Locker::from_redis_url(url).await?;
        let options = Options::new().ttl(TTL).extend(TTL / 3).timeout(None);
        Ok(Self(Arc::new((locker, options))))
    }
}

impl Contestant for AsyncRedisLock {
    type Guard = Lock;

    async fn acquire(&self, key: &str) -> Result<Lock> {
        let (locker, options) = &*self.0;
        Ok(locker.acquire_with_options(options, key).await?)
    }

    async fn release(&self, guard: Lock) -> Result<()> {
        Ok(guard.release().await?)
    }

    async fn leave(&self, guard: Lock) -> Result<()> {
        drop(guard);
        Ok(())
    }
}
