//! The handle to a lock.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::engine::{Engine, Limit};
use crate::face::guard::LockGuard;
use crate::face::handle::LockHandle;
use crate::face::inspect::LockInfo;
use crate::face::options::{named, options};
use crate::face::verbs::{run_under, tried};

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
/// Waiters get the lock in FIFO order, across all processes.
///
/// # Common mistakes
///
/// Each of these compiles:
///
/// - `let _guard = lock.acquire();` without `.await?`: that is a future, and nothing is acquired until it is awaited. The compiler does
///   not warn, because the name begins with an underscore.
/// - `let _lock = locks.lock("order:42");` is a handle, which holds nothing. Write `let _guard = locks.lock("order:42").acquire().await?;`.
/// - `let _ = lock.acquire().await?;` drops the guard in the same line, and the work runs without the lock; the compiler even suggests
///   it for a guard that is not bound. Write `let _guard = ..`, with a name.
/// - `lock.try_acquire().await?;`, and `if lock.try_acquire().await?.is_some() { .. }`: the guard is dropped before the work.
///   Write `if let Some(_guard) = lock.try_acquire().await? { .. }`.
/// - Two guards of one lock in one task: the second `acquire` waits for the drop of the first guard, which never happens. After a
///   second, a warning names both places. Inside [`with`](Self::with), and inside a function under `#[distributed_lock]`, the
///   second `acquire` fails at once with [`Deadlock`](LockError::Deadlock). Pass the guard on, or use a
///   [`ReentrantLock`](crate::ReentrantLock).
/// - A task that is spawned under the lock, acquires it too, and is awaited there: both wait forever, and no warning is possible.
///   Give each wait a limit ([`default_wait`](crate::LockManagerBuilder::default_wait)).
/// - A [`Lock`] and a [`ReentrantLock`](crate::ReentrantLock) with the same key are two locks, which do not exclude each other.
/// - A guard that is dropped in the last lines of `main`: its release is queued, and the process ends before it is sent. The lock
///   then stays for its ttl. Call [`shutdown`](crate::LockManager::shutdown) at the end.
///
/// # What no lock can promise
///
/// A process that is paused (by the kernel, a debugger, a sleeping laptop) may continue after the end of its lease. The guard knows
/// this ([`is_held`](crate::LockView::is_held)), but a write that is already under way does not stop: only a resource that checks the
/// [`fencing_token`](crate::LockView::fencing_token) is safe. Also, a single master with asynchronous replication can lose a lock at a
/// failover.
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
#[must_use = "a handle is not the lock: call `acquire`, `try_acquire` or `with`"]
pub struct Lock {
    pub(crate) handle: LockHandle,
}

named!(Lock);

impl Lock {
    pub(crate) fn new(engine: Arc<Engine>, key: &str) -> Self {
        let checked = LockKey::new(engine.shared.config.prefix(), key);
        Self {
            handle: LockHandle::new(engine, key, checked),
        }
    }

    options! {
        /// The ttl of the lease: how long a crashed holder blocks others. From 10 ms to 24 days; fractions of a millisecond are cut off.
        /// Default: the manager's [`default_ttl`](crate::LockManagerBuilder::default_ttl).
        ///
        /// A live holder may hold the lock for longer: the watchdog renews the lease when a third of it has passed. A ttl that cannot
        /// be used is [`InvalidConfig`](LockError::InvalidConfig) when the lock is acquired.
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
        ttl

        /// Whether the watchdog renews the lease while the guard lives. Default: true. With `false` the lock is lost one ttl after it
        /// was acquired.
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
        renew

        /// Ends the hold after this time, even if its lease is renewed: a stuck task does not keep the lock forever. Default: the
        /// manager's [`max_hold`](crate::LockManagerBuilder::max_hold). Not zero.
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
        max_hold

        /// Keeps the lock on the server for at least this long after it was acquired, even if the guard is released or dropped earlier,
        /// or [`shutdown`](crate::LockManager::shutdown) ends the hold: the lock then keeps a ttl for the rest of that time. At most 24
        /// days, at most [`max_hold`](Self::max_hold), and at most the ttl if the lock is not [renewed](Self::renew). Default: zero.
        ///
        /// For short scheduled jobs: a machine whose clock is a little late finds the lock held, and does not run the job a second
        /// time.
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
        at_least

        /// The maximum wait of [`acquire`](Self::acquire) and [`with`](Self::with), instead of the manager's
        /// [`default_wait`](crate::LockManagerBuilder::default_wait). Unlike the manager's, it may be zero: one try, and
        /// [`Busy`](LockError::Busy) if the lock is held.
        ///
        /// # Examples
        ///
        /// ```
        /// # use std::time::Duration;
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
        /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a").default_wait(Duration::from_millis(20));
        /// let _held = lock.acquire().await?;
        /// let late = lock.clone().with(async |_| "the work").await;
        /// assert!(matches!(late, Err(lock_core::LockError::TimedOut { .. })));
        /// # Ok(()) }
        /// ```
        default_wait

        /// Gives up with [`Unavailable`](LockError::Unavailable) once the server has not answered for this long, even if the wait may last
        /// longer. Default: the manager's [`unavailable_after`](crate::LockManagerBuilder::unavailable_after). Not zero.
        ///
        /// # Examples
        ///
        /// ```
        /// # use std::time::Duration;
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
        /// let away = lock_core::LockManager::builder().connect_lazily("redis://127.0.0.1:1")?;
        /// let lock = away.lock("a").unavailable_after(Duration::from_millis(50));
        /// let answer = lock.acquire_within(Duration::from_secs(10)).await; // after 50 ms
        /// assert!(matches!(answer, Err(lock_core::LockError::Unavailable { .. })));
        /// # Ok(()) }
        /// ```
        unavailable_after

        /// The label of the lock in [metrics](crate::observe) and spans, because there may be millions of keys. Default: none.
        ///
        /// # Examples
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
        /// let locks = lock_core::LockManager::connect("memory://").await?;
        /// let order_id = 42;
        /// let guard = locks.lock(format!("order:{order_id}")).label("order").acquire().await?;
        /// # let _ = guard; Ok(()) }
        /// ```
        label
    }

    /// Waits for the lock, in FIFO order: without limit, or for the manager's
    /// [`default_wait`](crate::LockManagerBuilder::default_wait), if it has one.
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
    pub fn acquire(&self) -> impl Future<Output = Result<LockGuard, LockError>> + use<> {
        self.handle.take(Limit::Forever, None, Location::caller())
    }

    /// Waits for the lock, at most this long. Zero makes one try, and does not queue.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](LockError::TimedOut) if the server answered, and others held the lock or were before the caller
    /// ([`Busy`](LockError::Busy) for a wait of zero);
    /// [`Unavailable`](LockError::Unavailable) if the server did not answer. Both come at the limit, plus up to a tenth of a second
    /// for leaving the queue. A wait of zero ends with the answer to its one request, at the latest after twice the
    /// [`command_deadline`](crate::LockManagerBuilder::command_deadline). Otherwise as [`acquire`](Self::acquire).
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
    ) -> impl Future<Output = Result<LockGuard, LockError>> + use<> {
        let limit = Limit::of(Some(limit));
        self.handle.take(limit, None, Location::caller())
    }

    /// Takes the lock if it is free and no waiter queues for it; never waits for another holder.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). [`Unavailable`](LockError::Unavailable) comes after at most two command deadlines (three if this
    /// manager is just releasing the lock: the try waits for that first). If the lock is held, the result is
    /// `Ok(None)`, also inside the scope that holds it.
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
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<LockGuard>, LockError>> + use<> {
        tried(self.handle.take(Limit::Try, None, Location::caller()))
    }

    /// Runs `body` while holding the lock; releases it on every path.
    ///
    /// If the lock is lost, the body is cancelled at its next await, and the result is [`Lost`](LockError::Lost). If the release
    /// fails after the body completed, the error is logged, not returned: the work is done.
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
        let taking = self.handle.take(Limit::Forever, None, Location::caller());
        run_under(taking, body)
    }

    /// The state of the lock on the server at this moment.
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

    /// Takes the lock away from its holder, and gives it to the next waiter. For operators.
    ///
    /// The old holder is notified at once ([`LossReason::ForceReleased`](crate::LossReason::ForceReleased)), but it may be in the
    /// middle of its work: for that moment two holders may work. If the server cannot push to the holder (over
    /// [`from_connection`](crate::LockManager::from_connection), or with RESP2), the holder learns it at its next renewal. True if
    /// the lock was held.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect), and [`NotALock`](LockError::NotALock) if the name holds something else, which is left
    /// unchanged.
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

#[cfg(feature = "blocking")]
crate::face::blocking_face::blocking_face! {
    Lock:
    options { ttl, renew, max_hold, at_least, default_wait, unavailable_after, label }
    takes { acquire acquire_within try_acquire -> LockGuard; }
    calls {
        fn inspect() -> LockInfo;
        fn force_release() -> bool;
    }
}
