//! The handle to a reentrant lock.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::owner::Owner;
use crate::engine::Engine;
use crate::engine::Limit;
use crate::face::guard::LockGuard;
use crate::face::handle::LockHandle;
use crate::face::inspect::LockInfo;

/// A lock that its owner can acquire repeatedly, shared with Redisson's `RLock` of the same name.
///
/// The lock counts: every guard is one hold, and the release of the last guard releases the lock. While any guard lives, the lease is
/// renewed, once for all, and the [fencing token](LockGuard::fencing_token) stays the same. The loss signal, the deadline, cancel
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
/// The lock is a hash with the owner's hold count, under the key without a prefix, as in Redisson: Java and Rust services exclude and
/// wake each other. A second field, `lock-core:tenure`, belongs to lock-core, and Redisson never reads it. A waiter subscribes to
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

impl fmt::Debug for ReentrantLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.describe("ReentrantLock", f)
    }
}

impl ReentrantLock {
    pub(crate) fn new(engine: Arc<Engine>, key: &str) -> Self {
        let checked = LockKey::reentrant(engine.shared.config.prefixed(""), key);
        Self {
            handle: LockHandle::new(engine, key, checked),
            owner: None,
        }
    }

    /// The key as it was given, without the prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        self.handle.name()
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

    /// The prefix of the key on the server. Default: none, so that the key is the same as in Java: the manager's prefix does not
    /// apply, but its [namespace](crate::LockManagerBuilder::namespace) does. At most 255 bytes together with the namespace.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let (me, you) = (lock_core::Owner::new(), lock_core::Owner::new());
    /// let _one = locks.reentrant_lock("a").owner(&me).acquire().await?;
    /// let other = locks.reentrant_lock("a").prefix("other:").owner(&you);
    /// assert!(other.try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn prefix(mut self, prefix: &str) -> Self {
        let prefix = self.handle.engine.shared.config.prefixed(prefix);
        let key = prefix
            .check()
            .and_then(|()| LockKey::reentrant(prefix, self.handle.name()));
        self.handle.rename(key);
        self
    }

    /// As [`Lock::ttl`](crate::Lock::ttl). A nested hold with a shorter ttl does not shorten the lease of the others.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.handle.ttl = Some(ttl);
        self
    }

    /// As [`Lock::renew`](crate::Lock::renew). The lease is renewed while at least one hold of the owner needs it.
    pub fn renew(mut self, renew: bool) -> Self {
        self.handle.renew = renew;
        self
    }

    /// As [`Lock::max_hold`](crate::Lock::max_hold), for this hold; other holds of the same owner continue.
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

    /// Acquires the lock, also a second time for an owner that holds it; waits for any other owner as
    /// [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`](crate::Lock::acquire); [`InvalidConfig`](LockError::InvalidConfig) also if no owner is given and no
    /// scope is open.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: drop the future to stop waiting. A hold that the server has counted by then is released in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let lock = locks.reentrant_lock("a").owner(&lock_core::Owner::new());
    /// let guard = lock.acquire().await?;
    /// assert_eq!(guard.hold_count(), 1);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "lock")]
    #[track_caller]
    pub fn acquire(&self) -> impl Future<Output = Result<LockGuard, LockError>> + use<> {
        self.acquire_at(None, Location::caller())
    }

    /// As [`acquire`](Self::acquire), with an optional limit and the place of the call.
    pub(crate) fn acquire_at(
        &self,
        limit: Option<Duration>,
        at: &'static Location<'static>,
    ) -> impl Future<Output = Result<LockGuard, LockError>> + use<> {
        let lock = self.clone();
        async move {
            let owner = Some(lock.taker()?);
            lock.handle.take(Limit::of(limit), owner, at).await
        }
    }

    /// As [`acquire`](Self::acquire), waiting at most this long. Zero makes one try.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire_within`](crate::Lock::acquire_within).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe, as [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let (me, you) = (lock_core::Owner::new(), lock_core::Owner::new());
    /// let _guard = locks.reentrant_lock("a").owner(&me).acquire().await?;
    /// let lock = locks.reentrant_lock("a").owner(&you);
    /// assert!(lock.acquire_within(Duration::from_millis(10)).await.is_err());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "acquire_timeout")]
    #[doc(alias = "lock_timeout")]
    #[track_caller]
    pub fn acquire_within(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<LockGuard, LockError>> + use<> {
        self.acquire_at(Some(limit), Location::caller())
    }

    /// Takes the lock if it is free or the owner holds it; never waits for another owner.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`](crate::Lock::try_acquire). If another owner holds the lock, the result is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe, as [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let (me, you) = (lock_core::Owner::new(), lock_core::Owner::new());
    /// let lock = locks.reentrant_lock("a");
    /// let _guard = lock.clone().owner(&me).try_acquire().await?.expect("free");
    /// assert!(lock.owner(&you).try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "try_lock")]
    #[track_caller]
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<LockGuard>, LockError>> + use<> {
        let (lock, at) = (self.clone(), Location::caller());
        async move {
            let owner = Some(lock.taker()?);
            lock.handle.try_acquire(owner, at).await
        }
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
            let run = self.handle.with(Some(owner.clone()), at, body);
            owner.scope(run).await
        }
    }

    /// The state of the lock on the server at this moment, with its owner and its number of holds.
    ///
    /// # Errors
    ///
    /// As [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let me = lock_core::Owner::new();
    /// let lock = lock_core::LockManager::connect("memory://").await?.reentrant_lock("a").owner(&me);
    /// let _guard = lock.acquire().await?;
    /// let info = lock.inspect().await?;
    /// assert_eq!((info.holds(), info.owner()), (1, Some(&*me.to_string())));
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self) -> Result<LockInfo, LockError> {
        self.handle.inspect().await
    }

    /// Takes the lock away from its owner, with all its holds, and wakes the waiters. For operators.
    ///
    /// Rust holders are notified at once ([`LossReason::ForceReleased`](crate::LossReason::ForceReleased)) if the server can push
    /// to them. A Redisson client learns of it at its next renewal, and so does a Rust holder if Redisson takes the lock away. True if
    /// the lock was held.
    ///
    /// # Errors
    ///
    /// As [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Cancel safety
    ///
    /// A dropped future may or may not have taken the lock away.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let lock = locks.reentrant_lock("a").owner(&lock_core::Owner::new());
    /// let stuck = lock.acquire().await?;
    /// assert!(lock.force_release().await?);
    /// assert!(!stuck.is_held());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "force_unlock")]
    pub async fn force_release(&self) -> Result<bool, LockError> {
        self.handle.force_release().await
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
