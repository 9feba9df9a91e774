//! The handle to a reentrant lock.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::owner::Owner;
use crate::engine::{Engine, Limit};
use crate::face::guard::LockGuard;
use crate::face::handle::LockHandle;
use crate::face::inspect::LockInfo;
use crate::face::options::{named, options};
use crate::face::verbs::{acquires, operates, run_under};

/// A lock that its owner can acquire repeatedly, shared with Redisson's `RLock` of the same name.
///
/// The lock counts: every guard is one hold, and the release of the last guard releases the lock. While any guard lives, the lease is
/// renewed, once for all, and the [fencing token](crate::LockView::fencing_token) stays the same. The loss signal, the deadline, cancel
/// safety, release on drop and shutdown are as for a [`Lock`](crate::Lock).
///
/// # Who is the owner?
///
/// The owner is never a thread or a task. Give it with [`owner(&owner)`](Self::owner), or use the owner of the enclosing
/// [`Owner::scope`] or [`with`](Self::with). Without an owner the acquisition is refused, because a second acquisition could not
/// enter; [`InvalidConfig`](LockError::InvalidConfig) names both ways. Futures joined in one task share a lock only if they share an
/// owner.
///
/// # On the server
///
/// The lock is a hash with the owner's hold count, under its key, as in Redisson: Java and Rust services exclude and wake each other. The
/// manager's prefix does not apply, but its [namespace](crate::LockManagerBuilder::namespace) does. A second field, `lock-core:tenure`, belongs to lock-core, and Redisson never reads it. A waiter subscribes to
/// `redisson_lock__channel:{key}`. Inside this process the order of waiters is FIFO. Between processes the protocol has no order:
/// the first request after a release gets the lock. If other processes have received the release, the releasing process pauses for
/// up to 3 ms, so that its own tasks do not shut them out. Use [`Lock`](crate::Lock) if the order matters.
///
/// Redisson can hold a lock for the same owner if it has the owner's text. Its holds and the holds here count together, and
/// the fencing token stays the same until both have released. If Redisson acquires the lock again after the holds here have ended,
/// a release here leaves that lock unchanged, and the guard is lost. The protocol has two limits. First, a nested `lock(lease)` of
/// Redisson, or its partial unlock, sets the ttl of the whole lock. If that ttl is shorter than the ttl here, a guard keeps its own
/// deadline until its next renewal, up to a third of its ttl later, and another owner may acquire the lock before that. So if an
/// owner is shared, give Redisson no shorter lease than the ttl here. Second, the records of the holds here expire with their leases.
/// If Redisson keeps the lock for longer than all of them, the next guard here has a new fencing token, and a crashed hold is counted
/// until the lock ends. The same happens to all current holds if the server evicts or loses `lock-core:holds:{key}`: their guards
/// are lost at the next renewal, and their counts end with the lock's ttl. So a server that keeps locks needs
/// `maxmemory-policy noeviction`.
///
/// If a broken connection delivers a request more than a second after its caller has gone, the request adds a hold without a guard.
/// That hold ends with the leases of its process for this owner.
///
/// If the server refuses the subscription (an ACL), a warning is logged, and a waiter polls every
/// [`poll_interval`](crate::LockManagerBuilder::poll_interval).
///
/// # Examples
///
/// ```
/// use lock_core::{LockManager, Owner};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let me = Owner::new();
/// let account = locks.reentrant_lock("account:7").owner(&me);
/// let outer = account.acquire().await?;
/// let inner = account.acquire().await?;
/// assert_eq!(inner.hold_count(), 2);
/// assert_eq!(inner.fencing_token(), outer.fencing_token());
/// inner.release().await?;
/// assert!(outer.is_held());
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a handle is not the lock: call `acquire`, `try_acquire` or `with`"]
pub struct ReentrantLock {
    pub(crate) handle: LockHandle,
    owner: Option<Owner>,
}

named!(ReentrantLock);

impl ReentrantLock {
    pub(crate) fn new(engine: Arc<Engine>, key: &str) -> Self {
        let checked = LockKey::reentrant(engine.shared.config.prefixed(""), key);
        Self {
            handle: LockHandle::new(engine, key, checked),
            owner: None,
        }
    }

    /// Acquires the lock for this owner, inside any scope. Default: the owner of the enclosing [`Owner::scope`] or
    /// [`with`](Self::with); outside of a scope, the acquisition is refused.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lock_core::Owner;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let (one, other) = (Owner::new(), Owner::new());
    /// let lock = locks.reentrant_lock("a");
    /// let _held = lock.clone().owner(&one).acquire().await?;
    /// assert!(lock.clone().owner(&one).try_acquire().await?.is_some());
    /// assert!(lock.owner(&other).try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    options! {
        ttl ". A nested hold with a shorter ttl does not shorten the lease of the others",
        renew ". The lease is renewed while at least one hold of the owner needs it",
        max_hold ", for this hold; other holds of the same owner continue",
        default_wait, unavailable_after, label
    }

    acquires! {
        LockGuard = |lock, limit, at| lock.clone().take(limit, at);
        /// Acquires the lock, also a second time for an owner that holds it; waits for any other owner as
        /// [`Lock::acquire`](crate::Lock::acquire).
        ///
        /// # Errors
        ///
        /// As [`Lock::acquire`](crate::Lock::acquire); [`InvalidConfig`](LockError::InvalidConfig) also if no owner is given and no
        /// scope is open.
        acquire,
        acquire_within,
        /// Takes the lock if it is free or the owner holds it; never waits for another owner. `None` if another owner holds it.
        try_acquire
    }

    async fn take(
        self,
        limit: Limit,
        at: &'static Location<'static>,
    ) -> Result<LockGuard, LockError> {
        let owner = Some(self.taker()?);
        self.handle.take(limit, owner, at).await
    }

    /// Runs `body` while holding the lock, as [`Lock::with`](crate::Lock::with) does, in the scope of the owner: an acquisition of
    /// this lock in the body is a further hold.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Lost`](LockError::Lost).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the hold in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.reentrant_lock("a");
    /// let count = lock
    ///     .with(async |_| lock.with(async |inner| inner.hold_count()).await)
    ///     .await??;
    /// assert_eq!(count, 2);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn with<T>(
        &self,
        body: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> impl Future<Output = Result<T, LockError>> {
        let at = Location::caller();
        async move {
            let named = self.owner.clone().or_else(Owner::current);
            let owner = named.unwrap_or_else(Owner::new);
            let taking = self.handle.take(Limit::Forever, Some(owner.clone()), at);
            owner.scope(run_under(taking, body)).await
        }
    }

    operates! {
        /// The state of the lock on the server at this moment, with its [`owner`](LockInfo::owner) and its number of
        /// [`holds`](LockInfo::holds).
        inspect,
        /// Takes the lock away from its owner, with all its holds, and wakes the waiters. For operators.
        ///
        /// Rust holders are notified at once ([`LossReason::ForceReleased`](crate::LossReason::ForceReleased)) if the server can push
        /// to them. A Redisson client learns of it at its next renewal, and so does a Rust holder if Redisson takes the lock away. True
        /// if the lock was held.
        force_release
    }

    /// The owner for the acquisition.
    fn taker(&self) -> Result<Owner, LockError> {
        let named = self.owner.clone().or_else(Owner::current);
        named.ok_or_else(|| {
            LockError::config(format!(
                "the reentrant lock `{}` has no owner here: give one with `.owner(&owner)` (`Owner::new()` makes one), or acquire inside `Owner::scope` or `with`",
                self.key()
            ))
        })
    }
}

#[cfg(feature = "blocking")]
crate::face::blocking_face::blocking_face! {
    ReentrantLock:
    options { ttl, renew, max_hold, default_wait, unavailable_after, label }
    sets { owner(owner: &Owner) }
    takes { acquire acquire_within try_acquire -> LockGuard; }
    calls {
        fn inspect() -> LockInfo;
        fn force_release() -> bool;
    }
}
