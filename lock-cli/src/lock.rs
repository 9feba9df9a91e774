//! One lock of any kind.

use lock_core::{LockError, LockInfo, LockManager, ReentrantLock, RwLock, Semaphore};

use crate::options::{OfLock, Server};
use crate::shown;

/// A lock, by the handle of its kind.
pub(crate) enum Handle {
    Exclusive(lock_core::Lock),
    Reentrant(ReentrantLock),
    Semaphore(Semaphore),
    ReadWrite(RwLock),
}

impl Handle {
    /// The lock with this key, of the kind that a list names.
    pub(crate) fn listed(locks: &LockManager, kind: &str, key: &str) -> Self {
        match kind {
            "reentrant" => Self::Reentrant(locks.reentrant_lock(key)),
            "semaphore" => Self::semaphore(locks, key),
            "read-write" => Self::ReadWrite(locks.rw_lock(key)),
            _ => Self::Exclusive(locks.lock(key)),
        }
    }

    /// A look at a semaphore, and its forced release, do not depend on the number of permits that the handle names.
    fn semaphore(locks: &LockManager, key: &str) -> Self {
        Self::Semaphore(locks.semaphore(key, 1))
    }

    /// The word of lists and metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Exclusive(_) => "exclusive",
            Self::Reentrant(_) => "reentrant",
            Self::Semaphore(_) => "semaphore",
            Self::ReadWrite(_) => "read-write",
        }
    }

    pub(crate) async fn inspect(&self) -> Result<LockInfo, LockError> {
        match self {
            Self::Exclusive(lock) => lock.inspect().await,
            Self::Reentrant(lock) => lock.inspect().await,
            Self::Semaphore(lock) => lock.inspect().await,
            Self::ReadWrite(lock) => lock.inspect().await,
        }
    }

    pub(crate) async fn force_release(&self) -> Result<bool, LockError> {
        match self {
            Self::Exclusive(lock) => lock.force_release().await,
            Self::Reentrant(lock) => lock.force_release().await,
            Self::Semaphore(lock) => lock.force_release().await,
            Self::ReadWrite(lock) => lock.force_release().await,
        }
    }
}

/// What all commands do with a lock of any kind.
impl OfLock {
    /// The key for people.
    pub(crate) fn shown(&self) -> String {
        shown::plain(&self.key)
    }

    /// Says on stderr if the key looks like the name on the server.
    pub(crate) fn hint(&self, server: &Server) {
        let (key, prefix) = (self.shown(), &server.prefix);
        if !self.reentrant && !prefix.is_empty() && self.key.starts_with(prefix.as_str()) {
            shown::warn(format_args!(
                "the key is stated without the prefix: this is the lock `{prefix}{key}` on the server"
            ));
        }
    }

    /// Looks at the lock. The server tells its kind: to a look at an exclusive lock it answers that the key is a hash, and to a look
    /// at a semaphore that it is a read-write lock. A free lock counts as exclusive.
    pub(crate) async fn look(&self, locks: &LockManager) -> Result<(Handle, LockInfo), LockError> {
        let key = &self.key;
        if self.reentrant {
            return looked(Handle::Reentrant(locks.reentrant_lock(key))).await;
        }
        let exclusive = looked(Handle::Exclusive(locks.lock(key))).await?;
        // A quorum has exclusive locks only.
        if exclusive.1.foreign() != Some("hash") || !exclusive.1.nodes().is_empty() {
            return Ok(exclusive);
        }
        let semaphore = looked(Handle::semaphore(locks, key)).await?;
        match semaphore.1.foreign() {
            None => Ok(semaphore),
            Some("read-write") => looked(Handle::ReadWrite(locks.rw_lock(key))).await,
            Some(_) => Ok(exclusive),
        }
    }
}

async fn looked(lock: Handle) -> Result<(Handle, LockInfo), LockError> {
    let info = lock.inspect().await?;
    Ok((lock, info))
}
