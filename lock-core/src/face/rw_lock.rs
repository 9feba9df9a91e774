//! The handle to a read-write lock, and the guards of its readers and of its writer.

use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;

use crate::base::claim::Claim;
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::kind::{Kind, Reweigh};
use crate::base::share::Share;
use crate::engine::{Engine, Limit};
use crate::face::guard::{AnyGuard, LockGuard};
use crate::face::handle::LockHandle;
use crate::face::inspect::LockInfo;
use crate::face::options::{named, options};
use crate::face::verbs::{acquires, operates};

/// What the guards of readers and of a writer have in common.
macro_rules! guard {
    ($guard:ident) => {
        impl $guard {
            /// As [`LockGuard::release`].
            ///
            /// # Errors
            ///
            /// As [`LockGuard::release`].
            ///
            /// # Cancel safety
            ///
            /// If the future is dropped, the release continues in the background.
            pub async fn release(self) -> Result<(), LockError> {
                self.0.release().await
            }
        }

        impl AnyGuard for $guard {
            fn parts(&self) -> &[LockGuard] {
                std::slice::from_ref(&self.0)
            }
        }

        impl Deref for $guard {
            type Target = LockGuard;

            fn deref(&self) -> &LockGuard {
                &self.0
            }
        }
    };
}

/// A name that many readers, or one writer, can hold at a time, across all processes that use the same server.
///
/// Use it if reads take long, or if there are many at a time: a read costs a round trip, like a write. If reads are short, or if most
/// acquisitions write, a [`Lock`](crate::Lock) is simpler and faster.
///
/// The lock is fair: readers and writers are served in FIFO order, over all processes. A writer waits for the readers before it, and
/// the readers behind it wait for the writer. Readers that wait directly behind each other are served together.
///
/// # Fencing tokens
///
/// The [tokens](crate::LockView::fencing_token) order the holds that exclude each other: a writer has a larger token than all holders
/// before it. The readers of one phase, between two writers, share one token.
///
/// # Common mistakes
///
/// - A read inside the caller's own read: as soon as a writer waits between the two, each waits for the other. Inside
///   [`with_read`](Self::with_read), and inside a function under `#[distributed_lock]`, it fails at once with
///   [`Deadlock`](LockError::Deadlock). Pass the guard on.
/// - A write inside the caller's own read waits for itself: use [`ReadGuard::try_upgrade`].
/// - Readers and writers must use the same type of handle: a [`Lock`](crate::Lock) with the same key is refused
///   ([`NotALock`](LockError::NotALock)).
///
/// Not over a quorum.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = lock_core::LockManager::connect("memory://").await?;
/// let config = locks.rw_lock("config");
/// let (one, two) = (config.read().await?, config.read().await?);
/// assert!(config.try_write().await?.is_none());
/// drop((one, two));
/// let write = config.write().await?;
/// assert!(config.try_read().await?.is_none());
/// # let _ = write; Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a handle is not the lock: call `read` or `write`"]
pub struct RwLock {
    pub(crate) handle: LockHandle,
}

named!(RwLock);

impl RwLock {
    pub(crate) fn new(engine: Arc<Engine>, key: &str) -> Self {
        let checked = LockKey::checked(engine.shared.config.prefix(), key, Kind::ReadWrite);
        Self {
            handle: LockHandle::new(engine, key, checked),
        }
    }

    options! { ttl, renew, max_hold ", for each holder", default_wait, unavailable_after, label }

    acquires! {
        ReadGuard = |lock, limit, at| lock.handle.claiming(Claim::of(Share::READ)).take(limit, None, at).map_ok(ReadGuard);
        /// Waits until no writer holds the lock or waits for it, in FIFO order.
        ///
        /// # Errors
        ///
        /// As [`Lock::acquire`](crate::Lock::acquire). [`Deadlock`](LockError::Deadlock) inside the caller's own read or write.
        read,
        read_within,
        /// Reads if no writer holds the lock or waits for it; never waits. `None` otherwise.
        try_read,
        with_read
    }

    acquires! {
        WriteGuard = |lock, limit, at| lock.handle.claiming(Claim::of(Share::WRITE)).take(limit, None, at).map_ok(WriteGuard);
        /// Waits until no other holder has the lock, in FIFO order.
        ///
        /// # Errors
        ///
        /// As [`read`](Self::read).
        write,
        write_within,
        /// Writes if the lock is free and there are no waiters; never waits. `None` otherwise.
        try_write,
        with_write
    }

    operates! {
        /// The state of the lock on the server at this moment: its [`holders`](LockInfo::holders), and the waiters.
        inspect,
        /// Takes the lock from all holders, and grants it to the next waiters. For operators; as
        /// [`Lock::force_release`](crate::Lock::force_release).
        force_release
    }
}

/// Proof that a read-write lock is held for reading: a [`LockGuard`], beside the guards of other readers.
///
/// All readers of this phase share its [fencing token](crate::LockView::fencing_token), which is larger than the token of the writer
/// before.
#[must_use = "the lock is released as soon as the guard is dropped: bind it, `let _guard = ..` (not `let _ = ..`)"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct ReadGuard(LockGuard);

guard!(ReadGuard);

/// Proof that a read-write lock is held for writing: a [`LockGuard`] that excludes all others.
///
/// Its [fencing token](crate::LockView::fencing_token) is larger than the tokens of all holders before it.
#[must_use = "the lock is released as soon as the guard is dropped: bind it, `let _guard = ..` (not `let _ = ..`)"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct WriteGuard(LockGuard);

guard!(WriteGuard);

impl ReadGuard {
    /// Becomes the writer, if this is the only reader and there are no waiters. Never waits: two readers that wait for each other's end
    /// would wait for ever.
    ///
    /// # Errors
    ///
    /// The reader, and why it is not the writer: [`Busy`](LockError::Busy) if there are other readers or waiters;
    /// [`Unavailable`](LockError::Unavailable), [`Lost`](LockError::Lost) and [`InvalidConfig`](LockError::InvalidConfig), as
    /// [`LockGuard::release`]. If the server did not answer, the reader may be the writer all the same: others then wait until it is
    /// released, and a second call finds that out.
    ///
    /// # Cancel safety
    ///
    /// A dropped future releases the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.rw_lock("config");
    /// let read = lock.read().await?;
    /// let phase = read.fencing_token();
    /// match read.try_upgrade().await {
    ///     Ok(write) => assert!(write.fencing_token() > phase),
    ///     Err((read, why)) if why.is_contention() => read.release().await?, // then `write`
    ///     Err((_read, why)) => return Err(why),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_upgrade(self) -> Result<WriteGuard, (Self, LockError)> {
        let why = match self.0.reweigh(Reweigh::ToWriter).await {
            Ok(true) => return Ok(WriteGuard(self.0)),
            Ok(false) => LockError::Busy {
                key: self.key().to_owned(),
                retry_after: None,
                holder: None,
            },
            Err(error) => error,
        };
        Err((self, why))
    }
}

impl WriteGuard {
    /// Becomes a reader. At no moment can another writer hold the lock. The readers that wait before the next writer get the lock at
    /// once. The fencing token stays the same.
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost), [`Unavailable`](LockError::Unavailable) and [`InvalidConfig`](LockError::InvalidConfig), as
    /// [`LockGuard::release`]. The lock is released in the background.
    ///
    /// # Cancel safety
    ///
    /// A dropped future releases the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.rw_lock("config");
    /// let read = lock.write().await?.downgrade().await?;
    /// assert!(lock.try_read().await?.is_some());
    /// # let _ = read; Ok(()) }
    /// ```
    pub async fn downgrade(self) -> Result<ReadGuard, LockError> {
        self.0.reweigh(Reweigh::ToReader).await?;
        Ok(ReadGuard(self.0))
    }
}

#[cfg(feature = "blocking")]
crate::face::blocking_face::blocking_face! {
    RwLock:
    options { ttl, renew, max_hold, default_wait, unavailable_after, label }
    takes {
        read read_within try_read -> ReadGuard;
        write write_within try_write -> WriteGuard;
    }
    calls {
        fn inspect() -> LockInfo;
        fn force_release() -> bool;
    }
}

#[cfg(feature = "blocking")]
crate::face::blocking_guard::blocking_guard! { ReadGuard, release, try_upgrade -> WriteGuard or (Self, LockError) }

#[cfg(feature = "blocking")]
crate::face::blocking_guard::blocking_guard! { WriteGuard, release, downgrade -> ReadGuard or LockError }
