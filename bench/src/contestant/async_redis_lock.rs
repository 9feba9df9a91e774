use anyhow::Result;
use async_redis_lock::{Lock, Locker, Options};

use super::{Contestant, TTL};

/// `async-redis-lock`, waiting without limit as the others do; everything else as it comes.
#[derive(Clone)]
pub(crate) struct AsyncRedisLock {
    locker: Locker,
    options: Options,
}

impl AsyncRedisLock {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self {
            locker: Locker::from_redis_url(url).await?,
            options: Options::new().ttl(TTL).extend(TTL / 3).timeout(None),
        })
    }
}

impl Contestant for AsyncRedisLock {
    type Guard = Lock;

    async fn acquire(&self, key: &str) -> Result<Lock> {
        let lock = self.locker.acquire_with_options(&self.options, key);
        Ok(lock.await?)
    }

    async fn release(&self, guard: Lock) -> Result<()> {
        Ok(guard.release().await?)
    }
}
