//! A view of a hold, which does not keep the lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{LockError, LossReason};
use crate::base::fencing::FencingToken;
use crate::engine::{Engine, Hold, Lease, LockRequest, Status};

/// Observes a hold and does not decide when it ends: dropping a view releases nothing. A [`LockGuard`](crate::LockGuard) has all of
/// its methods.
///
/// Made by [`LockGuard::view`](crate::LockGuard::view), and by [`LockGuard::current`](crate::LockGuard::current) inside a function
/// under `#[distributed_lock]`. A view, and each clone of it, may outlive its guard; then it shows the lock as not held.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let guard = lock_core::LockManager::connect("memory://").await?.lock("a").acquire().await?;
/// let view = guard.view();
/// assert_eq!(view.fencing_token(), guard.fencing_token());
/// guard.release().await?;
/// assert!(!view.is_held());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockView {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Arc<Hold>,
}

impl fmt::Debug for LockView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockView")
            .field("key", &self.key())
            .field("fencing_token", &self.fencing_token())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl LockView {
    /// The key of the lock, without the prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        self.hold.request.key.name()
    }

    /// The number of this hold, larger than that of every earlier hold of this lock. See [`FencingToken`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let guard = lock.acquire().await?;
    /// let first = guard.fencing_token();
    /// guard.release().await?;
    /// assert!(lock.acquire().await?.fencing_token() > first);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.hold.fencing_token()
    }

    /// The number of guards of the same owner that hold the lock in this process at this moment, including this one. 1 for a
    /// [`Lock`](crate::Lock), which has one guard at a time; 0 once the lock is lost or released.
    ///
    /// If an owner holds a [`ReentrantLock`](crate::ReentrantLock) in several processes, [`inspect`](crate::ReentrantLock::inspect)
    /// counts all of its holds.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let me = lock_core::Owner::new();
    /// let lock = lock_core::LockManager::connect("memory://").await?.reentrant_lock("a").owner(&me);
    /// let outer = lock.acquire().await?;
    /// let inner = lock.acquire().await?;
    /// assert_eq!(outer.hold_count(), 2);
    /// drop(inner);
    /// assert_eq!(outer.hold_count(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        let lease = self.hold.lease();
        match self.status() {
            Status::Held => lease.map_or(0, Lease::users),
            _ => 0,
        }
    }

    /// Whether the lock is certainly still held. Local, no I/O. The lease is measured from before the request that granted or last
    /// renewed it, minus the drift, so this is never true after the lease may have ended on the server. False once the
    /// guard is released or dropped. Once false, always false.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let guard = lock.ttl(Duration::from_millis(300)).renew(false).acquire().await?;
    /// assert!(guard.is_held());
    /// tokio::time::sleep(Duration::from_millis(300)).await;
    /// assert!(!guard.is_held());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.status() == Status::Held
    }

    /// How long the lock stays held if no renewal succeeds from now on; zero once it is lost. Local, no I/O.
    ///
    /// The watchdog renews the lease when a third of it has passed, so a live holder may hold the lock for longer.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let guard = locks.lock("a").ttl(Duration::from_secs(10)).acquire().await?;
    /// let left = guard.remaining();
    /// assert!(left > Duration::ZERO && left < Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.status() {
            Status::Held => self.engine.shared.clock.now().until(self.hold.end()),
            _ => Duration::ZERO,
        }
    }

    /// Resolves when the lock is lost, with the reason, *before* the server may grant the lock to another holder. Never resolves
    /// while the lock is held, and once the guard is released or dropped: a released lock was not lost.
    ///
    /// It follows the local deadline, not the result of a renewal, so a server that hangs, a network that loses replies, or a
    /// starved renewal task cannot delay it.
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
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let guard = lock.ttl(Duration::from_millis(20)).renew(false).acquire().await?;
    /// assert_eq!(guard.lost().await, lock_core::LossReason::Expired);
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> LossReason {
        let (hold, shared) = (&self.hold, &self.engine.shared);
        let Some(lease) = hold.lease() else {
            // A view belongs to a hold that has begun.
            return std::future::pending().await;
        };
        loop {
            let changed = lease.changed();
            let now = shared.clock.now();
            match hold.status(now) {
                Status::Lost(reason) => return reason,
                Status::Held => {
                    let left = now.until(hold.end());
                    let _ = shared.timers.timeout(left, changed).await;
                    if hold.watcher_runs() {
                        lease.confirm_at(now);
                        shared.lease_due_at(now);
                    }
                }
                Status::Pending | Status::Released => std::future::pending().await,
            }
        }
    }

    /// A token that is cancelled when the lock is lost, and when the guard is released or dropped: for tasks that work under the
    /// lock and must not continue without it. Each call returns a new token; cancelling it stops only the work that uses it.
    ///
    /// Needs the feature `tokio-util`. Like [`lost`](Self::lost), it is cancelled *before* the server may grant the lock to another
    /// holder, if the runtime of the manager runs.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let guard = lock.acquire().await?;
    /// let token = guard.cancellation();
    /// let part = tokio::spawn(token.clone().run_until_cancelled_owned(std::future::pending::<()>()));
    /// lock.force_release().await?;
    /// assert_eq!(part.await.unwrap(), None, "it was stopped");
    /// assert!(token.is_cancelled());
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tokio-util")]
    #[must_use]
    pub fn cancellation(&self) -> tokio_util::sync::CancellationToken {
        self.hold.cancellation(self.engine.shared.clock.now())
    }

    /// The token of this hold on the server, for a simulation.
    #[cfg(lock_sim)]
    #[doc(hidden)]
    #[must_use]
    pub fn token(&self) -> Option<String> {
        let token = self.engine.shared.token(self.hold.acquisition()?);
        Some(token.as_str().to_owned())
    }

    pub(crate) fn lost_error(&self, reason: LossReason) -> LockError {
        LockError::Lost {
            key: self.key().to_owned(),
            reason,
        }
    }

    /// What this hold keeps from the request while it lasts: 0 for another lock, and for a lock that its owner enters again.
    pub(crate) fn kept_from(&self, engine: &Arc<Engine>, request: &LockRequest) -> u32 {
        let held = &self.hold.request;
        let enters_again =
            request.key.traits().has_owners && request.claim.owner == held.claim.owner;
        let keeps = Arc::ptr_eq(engine, &self.engine)
            && held.key.excludes(&request.key)
            && !enters_again
            // A task of a `LocalSet` that is driven inside the scope is not part of it.
            && held.place.is_in_task_of(request.place)
            && self.is_held();
        if keeps { held.claim.keeps() } else { 0 }
    }

    fn status(&self) -> Status {
        self.hold.status(self.engine.shared.clock.now())
    }
}
