//! The handle to a lock.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::LockError;
use crate::engine::Engine;
use crate::engine::Limit;
use crate::guard::LockGuard;
use crate::handle::LockHandle;
use crate::inspect::LockInfo;
use crate::key::LockKey;

/// A name that one holder at a time can hold, across all processes that use the same server.
///
/// A `Lock` is a cheap handle: making, cloning or dropping it does no I/O. The [`LockGuard`] it gives is the proof that
/// the lock is held.
///
/// # Which method?
///
/// | you want | use |
/// |---|---|
/// | to wait as long as it takes | [`acquire`](Self::acquire) |
/// | to wait, but not for ever | [`acquire_within`](Self::acquire_within) |
/// | to do something else when it is busy | [`try_acquire`](Self::try_acquire) |
/// | a scope that is cancelled when the lock is lost | [`with`](Self::with) |
///
/// Waiters get the lock in the order in which they asked, over all processes.
///
/// # Common mistakes
///
/// All of them compile:
///
/// - `let _ = lock.acquire().await?;` drops the guard in the same line, and the work runs without the lock. Write
///   `let _guard = ..`, with a name.
/// - `lock.try_acquire().await?;`, and `if lock.try_acquire().await?.is_some() { .. }`: the guard is dropped before the work begins.
///   Write `if let Some(_guard) = lock.try_acquire().await? { .. }`.
/// - Two guards of one lock in one task: the second `acquire` waits until the first guard is dropped, which it never is. A warning
///   names both places after a second. Inside [`with`](Self::with), and inside a function under `#[distributed_lock]`, the same is
///   [`Deadlock`](LockError::Deadlock) at once. Pass the guard on, or use a [`ReentrantLock`](crate::ReentrantLock).
/// - A task that is spawned under the lock, takes it as well, and is awaited there: both wait for ever, and nothing can warn of it.
///   Give each wait a limit ([`default_wait`](crate::LockManagerBuilder::default_wait)).
/// - [`Lock`] and [`ReentrantLock`](crate::ReentrantLock) of one key: these are two locks, which do not exclude each other.
/// - A guard that is dropped in the last lines of `main`: its release is queued, and the process ends before it is sent. The lock
///   then stays for its ttl. Call [`shutdown`](crate::LockManager::shutdown) at the end.
///
/// # What no lock can promise
///
/// A process that is paused (by the kernel, a debugger, a sleeping laptop) may go on after its lease. The guard knows
/// it ([`LockGuard::is_held`]), but a write that was already under way does not: only a resource that checks the
/// [`fencing_token`](LockGuard::fencing_token) is safe. And a single master with asynchronous replication can lose a
/// lock at failover.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = lock_core::LockManager::connect("memory://").await?;
/// let lock = locks.lock("stock:42").ttl(Duration::from_secs(10));
/// let guard = lock.acquire_within(Duration::from_secs(2)).await?;
/// assert!(guard.is_held());
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a handle holds nothing: call `acquire`, `try_acquire` or `with`"]
pub struct Lock {
    handle: LockHandle,
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.describe("Lock", f)
    }
}

impl Lock {
    /// Host and port of its server, where there is one and it is known.
    pub(crate) fn server(&self) -> Option<Arc<str>> {
        self.handle.engine.shared.store.server()
    }

    pub(crate) fn new(engine: Arc<Engine>, key: &str) -> Self {
        let checked = LockKey::new(&engine.shared.config.prefix, key);
        Self {
            handle: LockHandle::new(engine, key, checked),
        }
    }

    /// The key as it was given, without the prefix.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// assert_eq!(locks.lock("order:42").key(), "order:42");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn key(&self) -> &str {
        self.handle.name()
    }

    /// The lease: how long a crashed holder blocks others. From 10 ms to 24 days, in whole milliseconds; the
    /// manager's default if not set.
    ///
    /// A live holder may hold for longer: the watchdog renews the lease when a third of it has passed. A ttl that can
    /// not be used is [`InvalidConfig`](LockError::InvalidConfig) when the lock is acquired.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let guard = locks.lock("a").ttl(Duration::from_secs(5)).acquire().await?;
    /// assert!(guard.remaining() <= Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.handle.ttl = Some(ttl);
        self
    }

    /// Whether the watchdog renews the lease while the guard lives. True by default; with `false` the lock is lost
    /// one ttl after it was acquired.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let lock = locks.lock("a").ttl(Duration::from_millis(30)).renew(false);
    /// let guard = lock.acquire().await?;
    /// assert_eq!(guard.lost().await, lock_core::LossReason::Expired);
    /// # Ok(()) }
    /// ```
    pub fn renew(mut self, renew: bool) -> Self {
        self.handle.renew = renew;
        self
    }

    /// Ends the hold after this time, however well it is renewed: a task that is stuck does not keep the lock for
    /// ever. The manager's [`max_hold`](crate::LockManagerBuilder::max_hold) if not set; not zero.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let lock = locks.lock("a").max_hold(Duration::from_millis(30));
    /// let guard = lock.acquire().await?;
    /// assert_eq!(guard.lost().await, lock_core::LossReason::MaxHold);
    /// # Ok(()) }
    /// ```
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.handle.max_hold = Some(most);
        self
    }

    /// Keeps the lock on the server for at least this long after it was acquired, also when the guard is released or
    /// dropped earlier, and when [`shutdown`](crate::LockManager::shutdown) takes it: the lock is then left with a ttl that
    /// covers the rest. At most 24 days, at most [`max_hold`](Self::max_hold), and at most the ttl of a lock that is not
    /// [renewed](Self::renew); zero by default.
    ///
    /// For scheduled jobs that are quick: a machine whose clock is a little late finds the lock taken, and does not run
    /// the job a second time.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let nightly = lock_core::LockManager::connect("memory://").await?.lock("nightly").at_least(Duration::from_secs(60));
    /// nightly.acquire().await?.release().await?;
    /// assert!(nightly.try_acquire().await?.is_none(), "kept for the rest of the minute");
    /// # Ok(()) }
    /// ```
    pub fn at_least(mut self, least: Duration) -> Self {
        self.handle.at_least = least;
        self
    }

    /// Waits for the lock, in FIFO order: without limit, or for the manager's
    /// [`default_wait`](crate::LockManagerBuilder::default_wait) where it has one.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable) once the server has not answered for one ttl,
    /// [`Deadlock`](LockError::Deadlock) inside the scope that holds the lock, [`InvalidKey`](LockError::InvalidKey),
    /// [`InvalidConfig`](LockError::InvalidConfig), [`NotALock`](LockError::NotALock), [`ShutDown`](LockError::ShutDown);
    /// [`TimedOut`](LockError::TimedOut) after a `default_wait`.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: drop the future to stop waiting. Its place in the queue, or a lock that was granted at that
    /// moment, is released in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let guard = lock.acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "lock")]
    #[track_caller]
    pub fn acquire(&self) -> impl Future<Output = Result<LockGuard, LockError>> {
        self.acquire_at(None, Location::caller())
    }

    /// Without a limit, or with one, for a call at this place.
    pub(crate) fn acquire_at(
        &self,
        limit: Option<Duration>,
        at: &'static Location<'static>,
    ) -> impl Future<Output = Result<LockGuard, LockError>> {
        self.handle.take(Limit::of(limit), None, at)
    }

    /// Waits for the lock, at most this long. Zero asks once, and does not queue.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](LockError::TimedOut) where others held it all the time ([`Busy`](LockError::Busy) for a wait of
    /// zero); [`Unavailable`](LockError::Unavailable) where the server did not answer. Both by the time given, and up to a
    /// tenth of a second for leaving the queue; a wait of zero, for the answer to its one request, by the
    /// [`command_deadline`](crate::LockManagerBuilder::command_deadline). Else as [`acquire`](Self::acquire).
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
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let _guard = lock.acquire_within(Duration::from_secs(1)).await?;
    /// assert!(lock.acquire_within(Duration::from_millis(10)).await.is_err());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "acquire_timeout")]
    #[doc(alias = "lock_timeout")]
    #[track_caller]
    pub fn acquire_within(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<LockGuard, LockError>> {
        self.acquire_at(Some(limit), Location::caller())
    }

    /// Takes the lock if it is free and nobody queues for it; never waits for another holder.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), with [`Unavailable`](LockError::Unavailable) after at most two command deadlines, or three where a
    /// release of this lock by this manager is under way, which the try lets go first. A lock that another holds is `Ok(None)`, also
    /// inside the scope that holds it.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe, as [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let guard = lock.try_acquire().await?;
    /// assert!(guard.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "try_lock")]
    #[track_caller]
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<LockGuard>, LockError>> {
        self.try_acquire_at(Location::caller())
    }

    /// For a call at this place.
    pub(crate) fn try_acquire_at(
        &self,
        at: &'static Location<'static>,
    ) -> impl Future<Output = Result<Option<LockGuard>, LockError>> {
        self.handle.try_acquire(None, at)
    }

    /// Runs `body` while holding the lock; releases it on every path.
    ///
    /// When the lock is lost the body is cancelled at its next await and the result is [`Lost`](LockError::Lost). A
    /// release that fails after the body completed is traced, not returned: the work is done.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Lost`](LockError::Lost).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the lock in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let fence = lock.with(async |guard| guard.fencing_token()).await?;
    /// assert!(fence.get() > 0);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn with<T>(
        &self,
        body: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> impl Future<Output = Result<T, LockError>> {
        self.handle.with(None, Location::caller(), body)
    }

    /// What the lock looks like on the server at this moment.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable), [`InvalidKey`](LockError::InvalidKey), [`InvalidConfig`](LockError::InvalidConfig).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// assert!(!lock.inspect().await?.is_held());
    /// let _guard = lock.acquire().await?;
    /// assert!(lock.inspect().await?.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self) -> Result<LockInfo, LockError> {
        self.handle.inspect().await
    }

    /// Takes the lock away from whoever holds it, and gives it to the next waiter. For operators.
    ///
    /// The old holder is told at once ([`LossReason::ForceReleased`](crate::LossReason::ForceReleased)), but it may be in the middle of
    /// something: for that moment two may work. A holder to which the server cannot push (over
    /// [`from_connection`](crate::LockManager::from_connection), or with RESP2) hears of it with its next renewal. True if somebody held it.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect), and [`NotALock`](LockError::NotALock) where the name holds something else, which is left alone.
    ///
    /// # Cancel safety
    ///
    /// A dropped future may or may not have taken the lock away.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let stuck = lock.acquire().await?;
    /// assert!(lock.force_release().await?);
    /// assert!(!stuck.is_held());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "force_unlock")]
    pub async fn force_release(&self) -> Result<bool, LockError> {
        self.handle.force_release().await
    }
}
