//! The handle to a read-write lock, and the guards of its readers and of its writer.

use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::kind::{Kind, Reweigh, Share};
use crate::engine::{Engine, Limit};
use crate::face::guard::LockGuard;
use crate::face::handle::LockHandle;
use crate::face::inspect::LockInfo;

/// The methods that acquire the lock for readers, or for a writer.
macro_rules! side {
    (
        $(#[$acquires:meta])* $acquire:ident, $within:ident,
        $(#[$tries:meta])* $try:ident, $with:ident -> $guard:ident, $share:expr
    ) => {
        $(#[$acquires])*
        ///
        /// # Errors
        ///
        /// As [`Lock::acquire`](crate::Lock::acquire). [`Deadlock`](LockError::Deadlock) inside the caller's own read or write.
        ///
        /// # Cancel safety
        ///
        /// Cancel-safe: drop the future to stop waiting. Its place in the queue, or a lock that was granted at that moment, is released
        /// in the background.
        #[track_caller]
        pub fn $acquire(&self) -> impl Future<Output = Result<$guard, LockError>> + use<> {
            let taking = self.handle.of($share).take(Limit::Forever, None, Location::caller());
            async { taking.await.map($guard) }
        }

        #[doc = concat!("As [`", stringify!($acquire), "`](Self::", stringify!($acquire), "), waiting at most this long. Zero makes one try.")]
        ///
        /// # Errors
        ///
        /// As [`Lock::acquire_within`](crate::Lock::acquire_within).
        ///
        /// # Cancel safety
        ///
        /// Cancel-safe, as without a limit.
        #[track_caller]
        pub fn $within(
            &self,
            limit: Duration,
        ) -> impl Future<Output = Result<$guard, LockError>> + use<> {
            let limit = Limit::of(Some(limit));
            let taking = self.handle.of($share).take(limit, None, Location::caller());
            async { taking.await.map($guard) }
        }

        $(#[$tries])*
        ///
        /// # Errors
        ///
        /// As [`Lock::try_acquire`](crate::Lock::try_acquire).
        ///
        /// # Cancel safety
        ///
        /// Cancel-safe, as with a wait.
        #[track_caller]
        pub fn $try(&self) -> impl Future<Output = Result<Option<$guard>, LockError>> + use<> {
            let taking = self.handle.of($share).try_acquire(None, Location::caller());
            async { Ok(taking.await?.map($guard)) }
        }

        #[doc = concat!("Runs `body` under the lock, as [`", stringify!($acquire), "`](Self::", stringify!($acquire), ") takes it; otherwise as [`Lock::with`](crate::Lock::with).")]
        ///
        /// # Errors
        ///
        /// As for an acquisition without a body, and [`Lost`](LockError::Lost).
        ///
        /// # Cancel safety
        ///
        /// Dropping the future drops the body and releases the lock in the background.
        #[track_caller]
        pub fn $with<T>(
            &self,
            body: impl AsyncFnOnce(&LockGuard) -> T,
        ) -> impl Future<Output = Result<T, LockError>> {
            let (handle, at) = (self.handle.of($share), Location::caller());
            async move { handle.with(None, at, body).await }
        }
    };
}

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
/// The [tokens](LockGuard::fencing_token) order the holds that exclude each other: a writer has a larger token than all holders before
/// it. The readers of one phase, between two writers, share one token.
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

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.describe("RwLock", f)
    }
}

impl RwLock {
    pub(crate) fn new(engine: Arc<Engine>, key: &str) -> Self {
        let checked = LockKey::checked(engine.shared.config.prefix(), key, Kind::ReadWrite);
        Self {
            handle: LockHandle::new(engine, key, checked),
        }
    }

    /// The key as it was given, without the prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        self.handle.name()
    }

    /// As [`Lock::ttl`](crate::Lock::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.handle.ttl = Some(ttl);
        self
    }

    /// As [`Lock::renew`](crate::Lock::renew).
    pub fn renew(mut self, renew: bool) -> Self {
        self.handle.renew = renew;
        self
    }

    /// As [`Lock::max_hold`](crate::Lock::max_hold), for each holder.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.handle.max_hold = Some(most);
        self
    }

    /// As [`Lock::default_wait`](crate::Lock::default_wait).
    pub fn default_wait(mut self, limit: Duration) -> Self {
        self.handle.default_wait = Some(limit);
        self
    }

    /// As [`Lock::unavailable_after`](crate::Lock::unavailable_after).
    pub fn unavailable_after(mut self, after: Duration) -> Self {
        self.handle.unavailable_after = Some(after);
        self
    }

    /// As [`Lock::label`](crate::Lock::label).
    pub fn label(mut self, label: &'static str) -> Self {
        self.handle.label = label;
        self
    }

    side! {
        /// Waits until no writer holds the lock or waits for it, in FIFO order.
        read, read_within,
        /// Reads if no writer holds the lock or waits for it; never waits. `None` otherwise.
        try_read, with_read -> ReadGuard, Share::READ
    }

    side! {
        /// Waits until no other holder has the lock, in FIFO order.
        write, write_within,
        /// Writes if the lock is free and there are no waiters; never waits. `None` otherwise.
        try_write, with_write -> WriteGuard, Share::WRITE
    }

    /// The state of the lock on the server at this moment: its [`holders`](LockInfo::holders), and the waiters.
    ///
    /// # Errors
    ///
    /// As [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it changes nothing.
    pub async fn inspect(&self) -> Result<LockInfo, LockError> {
        self.handle.inspect().await
    }

    /// Takes the lock from all holders, and grants it to the next waiters. For operators; as
    /// [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Errors
    ///
    /// As [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Cancel safety
    ///
    /// A dropped future may or may not have taken the lock away.
    pub async fn force_release(&self) -> Result<bool, LockError> {
        self.handle.force_release().await
    }
}

/// Proof that a read-write lock is held for reading: a [`LockGuard`], beside the guards of other readers.
///
/// All readers of this phase share its [fencing token](LockGuard::fencing_token), which is larger than the token of the writer before.
#[must_use = "the lock is released as soon as the guard is dropped: bind it, `let _guard = ..` (not `let _ = ..`)"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct ReadGuard(LockGuard);

guard!(ReadGuard);

/// Proof that a read-write lock is held for writing: a [`LockGuard`] that excludes all others.
///
/// Its [fencing token](LockGuard::fencing_token) is larger than the tokens of all holders before it.
#[must_use = "the lock is released as soon as the guard is dropped: bind it, `let _guard = ..` (not `let _ = ..`)"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct WriteGuard(LockGuard);

guard!(WriteGuard);

impl ReadGuard {
    /// Becomes the writer, if this is the only reader and there are no waiters. Otherwise gives the reader back, also if the server does
    /// not answer or the lock is lost. Never waits: two readers that wait for each other's end would wait for ever.
    ///
    /// If the server did not answer, this may be the writer all the same: others then wait until the reader is released, and a second
    /// call finds that out.
    ///
    /// # Errors
    ///
    /// The reader, which is unchanged.
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
    /// let write = read.try_upgrade().await.expect("alone");
    /// assert!(write.fencing_token() > phase);
    /// # Ok(()) }
    /// ```
    pub async fn try_upgrade(self) -> Result<WriteGuard, Self> {
        match self.0.reweigh(Reweigh::ToWriter).await {
            Ok(true) => Ok(WriteGuard(self.0)),
            Ok(false) => Err(self),
            Err(error) => {
                tracing::debug!(key = self.key(), %error, "the reader could not become the writer");
                Err(self)
            }
        }
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
