//! The handle to several exclusive locks that one guard holds.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use futures_util::future::join_all;

use crate::base::error::{LockError, LossReason};
use crate::base::fencing::FencingToken;
use crate::engine::Limit;
use crate::face::all::{acquire_all, first_lost};
use crate::face::guard::{AnyGuard, LockGuard};
use crate::face::handle::LockHandle;
use crate::face::options::options;
use crate::face::verbs::acquires;

/// Several exclusive locks, which one [`MultiGuard`] holds: all of them, or none.
///
/// For work on several things at once, such as a transfer between accounts, with a list of keys that is known at run time. Made by
/// [`LockManager::all`](crate::LockManager::all). Each of them is the [`Lock`](crate::Lock) of its key: while another caller holds
/// that lock alone, this one waits.
///
/// # How they are acquired
///
/// First the caller asks for all locks. On one server this is one script, which takes all or none: without contention, one round
/// trip. In a cluster it is one script for each hash slot, one after the other, so give keys that are often locked together one
/// `{tag}`. Over a quorum the locks are requested one by one.
///
/// If one of them is busy, the caller waits for one after the other, **in the order of their keys as text**, and holds the earlier
/// locks meanwhile. All callers wait in this order, in every process and version, so callers of `all` never deadlock. In the queue of
/// each lock the caller has a place like any other waiter. If it loses a lock while it waits for a later one, it releases its locks
/// and begins again.
///
/// # Common mistakes
///
/// - A caller that holds one lock and acquires others under it: two such callers may wait for each other. Name all keys in one call.
/// - A [`max_hold`](Self::max_hold), or a ttl without [renewal](Self::renew), that is shorter than the wait. It counts for each lock
///   from when that lock is taken, so the first locks are lost, and the wait begins again.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = lock_core::LockManager::connect("memory://").await?;
/// let (from, to) = ("account:7", "account:9");
/// let guard = locks.all([from, to]).acquire().await?;
/// assert!(locks.lock(to).try_acquire().await?.is_none());
/// // .. move the money ..
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a handle is not the lock: call `acquire`, `try_acquire` or `with`"]
pub struct MultiLock {
    /// Each key once.
    locks: Vec<LockHandle>,
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys().collect();
        f.debug_struct("MultiLock")
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

impl MultiLock {
    pub(crate) fn new(locks: Vec<LockHandle>) -> Self {
        Self { locks }
    }

    /// The same change for each lock.
    pub(crate) fn each(mut self, change: impl Fn(&mut LockHandle)) -> Self {
        self.locks.iter_mut().for_each(change);
        self
    }

    /// The keys as they were given, without repeats.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?.all(["b", "a", "b"]);
    /// assert!(locks.keys().eq(["b", "a"]));
    /// # Ok(()) }
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(LockHandle::name)
    }

    options! {
        ttl ", for each lock",
        renew ", for each lock",
        max_hold ", for each lock, from when that lock is taken",
        at_least ", for each lock. A lock that is given back before all are held is not kept",
        default_wait ", for all of them together",
        unavailable_after ", for the server of each lock",
        label ", for each lock"
    }

    acquires! {
        MultiGuard = |all, limit, at| all.take(limit, at);
        /// Waits for all of the locks: for the manager's [`default_wait`](crate::LockManagerBuilder::default_wait), or without limit.
        ///
        /// # Errors
        ///
        /// As [`Lock::acquire`](crate::Lock::acquire), for the lock that the error names; [`InvalidKey`](LockError::InvalidKey) for an
        /// empty list; [`Lost`](LockError::Lost) if one of the locks is lost before the last one is taken, and no time is left to begin
        /// again, or the leases are too short for that. After an error none of the locks is held.
        acquire,
        acquire_within,
        /// Takes the locks if all of them are free and no waiter queues for any; never waits for another holder. `None` otherwise. Each
        /// script is one try.
        try_acquire,
        with
    }

    /// The future owns what it needs: the handle may be gone. Boxed, because it holds the futures of several acquisitions.
    fn take(
        &self,
        limit: Limit,
        at: &'static Location<'static>,
    ) -> impl Future<Output = Result<MultiGuard, LockError>> + use<> {
        let acquiring = Box::pin(acquire_all(self.locks.clone(), None, limit, at));
        async {
            let guards = acquiring.await?;
            Ok(MultiGuard { guards })
        }
    }
}

/// Proof that several locks are held, and the means to release them.
///
/// A drop releases all of them in the background, like the drop of a [`LockGuard`]; [`release`](Self::release) waits for the server's
/// reply. Each lock is renewed by itself. If one is lost, the guard is lost at once: [`is_held`](Self::is_held) turns false and
/// [`lost`](Self::lost) resolves, before the server may grant that lock to another holder. The guard keeps the other locks until the
/// release or the drop, so that the work can end in order.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = lock_core::LockManager::connect("memory://").await?;
/// let guard = locks.all(["a", "b"]).acquire().await?;
/// tokio::select! {
///     () = async { /* the work */ } => guard.release().await?,
///     reason = guard.lost() => panic!("stop: {reason}"),
/// }
/// # Ok(()) }
/// ```
#[must_use = "the locks are released as soon as the guard is dropped: bind it, `let _guard = ..` (not `let _ = ..`)"]
#[clippy::has_significant_drop]
pub struct MultiGuard {
    guards: Box<[LockGuard]>,
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiGuard")
            .field("guards", &self.guards)
            .finish_non_exhaustive()
    }
}

impl AnyGuard for MultiGuard {
    fn parts(&self) -> &[LockGuard] {
        &self.guards
    }
}

impl MultiGuard {
    /// The keys of the locks, in the order in which they were given, without repeats.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.guards.iter().map(|guard| guard.key())
    }

    /// A guard for each lock, in the order of [`keys`](Self::keys).
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The fencing token of the hold of this lock. `None` for any other key.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let guard = locks.all(["a", "b"]).acquire().await?;
    /// assert_eq!(guard.fencing_token("b"), Some(guard.guards()[1].fencing_token()));
    /// assert_eq!(guard.fencing_token("c"), None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fencing_token(&self, key: &str) -> Option<FencingToken> {
        let guard = self.guards.iter().find(|guard| guard.key() == key)?;
        Some(guard.fencing_token())
    }

    /// Whether all of the locks are certainly still held. As [`LockGuard::is_held`](crate::LockView::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(|guard| guard.is_held())
    }

    /// The rest of the confirmed lease that ends first; zero once a lock is lost. As [`LockGuard::remaining`](crate::LockView::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let rests = self.guards.iter().map(|guard| guard.remaining());
        rests.min().unwrap_or_default()
    }

    /// Resolves when the first of the locks is lost, with the reason, *before* the server may grant that lock to another holder. As
    /// [`LockGuard::lost`](crate::LockView::lost).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it only watches.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let guard = locks.all(["a", "b"]).acquire().await?;
    /// locks.lock("b").force_release().await?;
    /// assert_eq!(guard.lost().await, lock_core::LossReason::ForceReleased);
    /// assert!(guard.guards()[0].is_held(), "the other one is kept");
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> LossReason {
        first_lost(&self.guards).await.lost().await
    }

    /// Changes the ttl of each of the holds, all at once. As [`LockGuard::extend`].
    ///
    /// # Errors
    ///
    /// As [`LockGuard::extend`]: the first error in the order of the keys. Other locks may have the new ttl.
    ///
    /// # Cancel safety
    ///
    /// A dropped future does not undo the new ttl.
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        let extended = join_all(self.guards.iter().map(|guard| guard.extend(ttl))).await;
        extended.into_iter().collect()
    }

    /// Releases all of the locks at once, and waits for the server's replies.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`]: the first error in the order of the keys. The other locks are released all the same.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the releases continue in the background.
    pub async fn release(self) -> Result<(), LockError> {
        let released = join_all(self.guards.iter().map(LockGuard::confirm_release)).await;
        released.into_iter().collect()
    }
}

#[cfg(feature = "blocking")]
crate::face::blocking_face::blocking_face! {
    MultiLock:
    options { ttl, renew, max_hold, at_least, default_wait, unavailable_after, label }
    takes { acquire acquire_within try_acquire -> MultiGuard; }
    calls {}
}

#[cfg(feature = "blocking")]
crate::face::blocking_guard::blocking_guard! { MultiGuard, release }
