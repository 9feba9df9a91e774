//! The handle to a semaphore.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::kind::Kind;
use crate::base::share::Share;
use crate::engine::{Engine, Limit};
use crate::face::guard::LockGuard;
use crate::face::handle::LockHandle;
use crate::face::inspect::LockInfo;
use crate::face::options::{named, options};
use crate::face::verbs::{acquires, operates};

/// A number of permits that holders in all processes share: at most `max` are held at a time.
///
/// For calls to a provider that allows eight at a time, or a pool of licences. A permit is a [`LockGuard`]: a drop releases it, its
/// lease is renewed, and it reports its loss. If a holder crashes, its permits come back after one [`ttl`](Self::ttl).
///
/// Waiters are served in FIFO order, over all processes, and a small request never overtakes a large one: while the first waiter waits
/// for four permits, no waiter behind it gets one.
///
/// The [`fencing_token`](crate::LockView::fencing_token) of a permit identifies it among all permits of the semaphore. It is no fence:
/// several holders work at a time, so a resource cannot refuse the lower of two numbers.
///
/// # The number of permits
///
/// The first handle that uses the semaphore sets its `max`, and each other handle must name the same number; otherwise the error
/// [`OtherMax`](LockError::OtherMax) names both. Change it with [`resize`](Self::resize). When no permit is held or waited for, the
/// next handle sets `max` anew.
///
/// # Cost
///
/// An acquisition and a release each take one round trip. Each waiter, also one of many in a process, has its own place in the queue
/// of the server, and repeats its request every few seconds. There is no local hand-over.
///
/// # Limits
///
/// Not over a quorum. A key belongs to one kind of lock: a [`Lock`](crate::Lock) and a semaphore with the same key refuse each other
/// ([`NotALock`](LockError::NotALock)). If several tasks each acquire two permits one by one, they may wait for each other for ever:
/// take the permits together, with [`permits`](Self::permits).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = lock_core::LockManager::connect("memory://").await?;
/// let calls = locks.semaphore("provider", 2);
/// let one = calls.acquire().await?;
/// let two = calls.acquire().await?;
/// assert!(calls.try_acquire().await?.is_none());
/// one.release().await?;
/// assert!(calls.try_acquire().await?.is_some());
/// # let _ = two; Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a handle is not the lock: call `acquire`, `try_acquire` or `with`"]
pub struct Semaphore {
    pub(crate) handle: LockHandle,
}

named!(Semaphore);

impl Semaphore {
    pub(crate) fn new(engine: Arc<Engine>, key: &str, max: u32) -> Self {
        let checked = LockKey::checked(engine.shared.config.prefix(), key, Kind::Semaphore);
        let mut handle = LockHandle::new(engine, key, checked);
        handle.claim.share = Share::of(max);
        Self { handle }
    }

    /// The number of permits that this handle names.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.handle.claim.share.max
    }

    /// The number of permits that each acquisition through this handle takes, all at once and in one guard. Default: 1.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let pool = lock_core::LockManager::connect("memory://").await?.semaphore("pool", 4);
    /// let three = pool.clone().permits(3).acquire().await?;
    /// assert!(pool.clone().permits(2).try_acquire().await?.is_none());
    /// # let _ = three; Ok(()) }
    /// ```
    pub fn permits(mut self, permits: u32) -> Self {
        self.handle.claim.share.weight = permits;
        self
    }

    options! { ttl, renew, max_hold ", for each permit", default_wait, unavailable_after, label }

    acquires! {
        LockGuard = |semaphore, limit, at| semaphore.handle.take(limit, None, at);
        /// Waits for a permit, in FIFO order.
        ///
        /// # Errors
        ///
        /// As [`Lock::acquire`](crate::Lock::acquire); [`OtherMax`](LockError::OtherMax) if the semaphore has another number of permits;
        /// [`TooManyPermits`](LockError::TooManyPermits) if it has fewer than the call needs. [`Deadlock`](LockError::Deadlock) if the
        /// enclosing scope leaves too few permits for this call.
        acquire,
        acquire_within,
        /// Takes a permit if one is free and there are no waiters; never waits. `None` otherwise.
        try_acquire,
        with
    }

    /// Changes the number of permits, for all processes. Permits that are held stay held: with fewer permits, none is granted until
    /// enough are released.
    ///
    /// The server also accepts a handle that names the number before the last change, so a new version of a program can be rolled out
    /// while the old one runs. It remembers the change of an idle semaphore for a day. This handle keeps its number: make the next
    /// change with a handle that names the new number.
    ///
    /// A resize never creates a semaphore. An idle semaphore that was not resized within a day is not on the server, which cannot tell
    /// it from a wrong key. Hold a permit to resize it.
    ///
    /// # Errors
    ///
    /// [`OtherMax`](LockError::OtherMax) if the semaphore has neither the number of this handle nor the new number, so a call can be
    /// repeated; [`Unavailable`](LockError::Unavailable): the change may have been made; [`NotALock`](LockError::NotALock);
    /// [`InvalidConfig`](LockError::InvalidConfig) if no permit is held and no change is remembered, and for zero or more than 2^30;
    /// [`ShutDown`](LockError::ShutDown).
    ///
    /// # Cancel safety
    ///
    /// A dropped future may or may not have changed the number.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let calls = lock_core::LockManager::connect("memory://").await?.semaphore("provider", 1);
    /// let one = calls.acquire().await?;
    /// calls.resize(2).await?;
    /// assert!(calls.try_acquire().await?.is_some());
    /// # let _ = one; Ok(()) }
    /// ```
    pub async fn resize(&self, max: u32) -> Result<(), LockError> {
        let (engine, from) = (&self.handle.engine, self.handle.claim.share.max);
        let key = self.handle.key()?;
        engine.resize(key, from, max).await
    }

    operates! {
        /// The state of the semaphore on the server at this moment: [`holders`](LockInfo::holders) with their permits, and the waiters.
        inspect,
        /// Takes all permits from their holders, and grants them to the next waiters. For operators; as
        /// [`Lock::force_release`](crate::Lock::force_release).
        force_release
    }
}

#[cfg(feature = "blocking")]
crate::face::blocking_face::blocking_face! {
    Semaphore:
    options { ttl, renew, max_hold, default_wait, unavailable_after, label }
    sets { permits(permits: u32) }
    takes { acquire acquire_within try_acquire -> LockGuard; }
    calls {
        fn resize(max: u32) -> ();
        fn inspect() -> LockInfo;
        fn force_release() -> bool;
    }
}
