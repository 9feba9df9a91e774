//! The kinds of lock that the cases run on, behind one interface.

use std::ops::Deref;
use std::time::Duration;

use lock_core::{LockError, LockGuard, LockInfo, LockManager, RwLock, Semaphore, WriteGuard};

/// What the locks of a rig are. Each kind excludes as the others do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Exclusive,
    /// A semaphore of one permit.
    Semaphore,
    /// The writers of a read-write lock.
    Writer,
}

/// A manager whose locks are of one kind.
#[derive(Clone)]
pub(crate) struct Manager {
    of: Of,
    locks: LockManager,
}

#[derive(Clone)]
pub(crate) enum Lock {
    Exclusive(lock_core::Lock),
    Semaphore(Semaphore),
    Writer(RwLock),
}

#[derive(Debug)]
pub(crate) enum Guard {
    Lock(LockGuard),
    Writer(WriteGuard),
}

impl Manager {
    pub(crate) fn new(of: Of, locks: LockManager) -> Self {
        Self { of, locks }
    }

    pub(crate) fn lock(&self, key: impl AsRef<str>) -> Lock {
        match self.of {
            Of::Exclusive => Lock::Exclusive(self.locks.lock(key)),
            Of::Semaphore => Lock::Semaphore(self.locks.semaphore(key, 1)),
            Of::Writer => Lock::Writer(self.locks.rw_lock(key)),
        }
    }
}

impl Deref for Manager {
    type Target = LockManager;

    fn deref(&self) -> &LockManager {
        &self.locks
    }
}

/// The options that all kinds have.
macro_rules! options {
    ($($option:ident: $type:ty),+ $(,)?) => {
        $(pub(crate) fn $option(self, value: $type) -> Self {
            match self {
                Self::Exclusive(lock) => Self::Exclusive(lock.$option(value)),
                Self::Semaphore(lock) => Self::Semaphore(lock.$option(value)),
                Self::Writer(lock) => Self::Writer(lock.$option(value)),
            }
        })+
    };
}

impl Lock {
    options! { ttl: Duration, renew: bool, max_hold: Duration }

    pub(crate) fn at_least(self, least: Duration) -> Self {
        match self {
            Self::Exclusive(lock) => Self::Exclusive(lock.at_least(least)),
            Self::Semaphore(_) | Self::Writer(_) => panic!("this case needs an exclusive lock"),
        }
    }

    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Exclusive(lock) => lock.key(),
            Self::Semaphore(lock) => lock.key(),
            Self::Writer(lock) => lock.key(),
        }
    }

    pub(crate) fn acquire(&self) -> impl Future<Output = Result<Guard, LockError>> + use<> {
        let lock = self.clone();
        async move {
            Ok(match lock {
                Self::Exclusive(lock) => Guard::Lock(lock.acquire().await?),
                Self::Semaphore(lock) => Guard::Lock(lock.acquire().await?),
                Self::Writer(lock) => Guard::Writer(lock.write().await?),
            })
        }
    }

    pub(crate) async fn acquire_within(&self, limit: Duration) -> Result<Guard, LockError> {
        Ok(match self {
            Self::Exclusive(lock) => Guard::Lock(lock.acquire_within(limit).await?),
            Self::Semaphore(lock) => Guard::Lock(lock.acquire_within(limit).await?),
            Self::Writer(lock) => Guard::Writer(lock.write_within(limit).await?),
        })
    }

    pub(crate) async fn try_acquire(&self) -> Result<Option<Guard>, LockError> {
        Ok(match self {
            Self::Exclusive(lock) => lock.try_acquire().await?.map(Guard::Lock),
            Self::Semaphore(lock) => lock.try_acquire().await?.map(Guard::Lock),
            Self::Writer(lock) => lock.try_write().await?.map(Guard::Writer),
        })
    }

    pub(crate) async fn with<T>(
        &self,
        body: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, LockError> {
        // On the heap: the future has room for each kind.
        match self {
            Self::Exclusive(lock) => Box::pin(lock.with(body)).await,
            Self::Semaphore(lock) => Box::pin(lock.with(body)).await,
            Self::Writer(lock) => Box::pin(lock.with_write(body)).await,
        }
    }

    pub(crate) async fn inspect(&self) -> Result<LockInfo, LockError> {
        match self {
            Self::Exclusive(lock) => lock.inspect().await,
            Self::Semaphore(lock) => lock.inspect().await,
            Self::Writer(lock) => lock.inspect().await,
        }
    }

    pub(crate) async fn force_release(&self) -> Result<bool, LockError> {
        match self {
            Self::Exclusive(lock) => lock.force_release().await,
            Self::Semaphore(lock) => lock.force_release().await,
            Self::Writer(lock) => lock.force_release().await,
        }
    }
}

impl Guard {
    pub(crate) async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
        }
    }
}

impl Deref for Guard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        match self {
            Self::Lock(guard) => guard,
            Self::Writer(guard) => guard,
        }
    }
}
