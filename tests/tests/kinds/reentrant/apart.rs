//! A reentrant lock that each acquisition takes for an owner of its own, unless one is named or its scope is open.

use std::time::Duration;

use lock_core::{LockError, LockGuard, LockInfo, LockManager, Owner, ReentrantLock};

pub(crate) trait Apart {
    /// As [`LockManager::reentrant_lock`], for callers that never enter again.
    fn lock_apart(&self, key: impl AsRef<str>) -> ApartLock;
}

impl Apart for LockManager {
    fn lock_apart(&self, key: impl AsRef<str>) -> ApartLock {
        ApartLock {
            lock: self.reentrant_lock(key),
            named: false,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ApartLock {
    lock: ReentrantLock,
    /// An owner was named.
    named: bool,
}

impl ApartLock {
    fn taken(&self) -> ReentrantLock {
        if self.named {
            return self.lock.clone();
        }
        let owner = Owner::current().unwrap_or_else(Owner::new);
        self.lock.clone().owner(&owner)
    }

    fn map(self, change: impl FnOnce(ReentrantLock) -> ReentrantLock) -> Self {
        let lock = change(self.lock);
        Self { lock, ..self }
    }

    pub(crate) fn owner(self, owner: &Owner) -> Self {
        let named = Self {
            named: true,
            ..self
        };
        named.map(|lock| lock.owner(owner))
    }

    pub(crate) fn ttl(self, ttl: Duration) -> Self {
        self.map(|lock| lock.ttl(ttl))
    }

    pub(crate) fn renew(self, renew: bool) -> Self {
        self.map(|lock| lock.renew(renew))
    }

    pub(crate) fn max_hold(self, most: Duration) -> Self {
        self.map(|lock| lock.max_hold(most))
    }

    pub(crate) async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.taken().acquire().await
    }

    pub(crate) async fn acquire_within(&self, limit: Duration) -> Result<LockGuard, LockError> {
        self.taken().acquire_within(limit).await
    }

    pub(crate) async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        self.taken().try_acquire().await
    }

    pub(crate) async fn with<T>(
        &self,
        body: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, LockError> {
        self.lock.with(body).await
    }

    pub(crate) async fn inspect(&self) -> Result<LockInfo, LockError> {
        self.lock.inspect().await
    }

    pub(crate) async fn force_release(&self) -> Result<bool, LockError> {
        self.lock.force_release().await
    }
}
