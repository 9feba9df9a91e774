//! A view of a hold, which does not keep the lock.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{LockError, LossReason};
use crate::base::fencing::FencingToken;
use crate::engine::{Engine, Hold, Lease, LockRequest, Status};

/// Observes a hold and does not decide when it ends: dropping a view releases nothing.
///
/// Made by [`LockGuard::view`](crate::LockGuard::view), and by [`LockGuard::current`](crate::LockGuard::current) inside a function
/// under `#[distributed_lock]`. A view may outlive its guard; then it shows the lock as not held.
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
    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> &str {
        self.hold.request.key.name()
    }

    /// As [`LockGuard::fencing_token`](crate::LockGuard::fencing_token).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.hold.fencing_token()
    }

    /// As [`LockGuard::hold_count`](crate::LockGuard::hold_count).
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        let lease = self.hold.lease();
        match self.status() {
            Status::Held => lease.map_or(0, Lease::users),
            _ => 0,
        }
    }

    /// As [`LockGuard::is_held`](crate::LockGuard::is_held); false once the guard is released or dropped.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.status() == Status::Held
    }

    /// As [`LockGuard::remaining`](crate::LockGuard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.status() {
            Status::Held => self.engine.shared.clock.now().until(self.hold.end()),
            _ => Duration::ZERO,
        }
    }

    /// As [`LockGuard::lost`](crate::LockGuard::lost). Never resolves once the guard is released or dropped: a released lock was
    /// not lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it only watches.
    pub async fn lost(&self) -> LossReason {
        let (hold, shared) = (&self.hold, &self.engine.shared);
        let Some(lease) = hold.lease() else {
            // A view belongs to a hold that has begun.
            return std::future::pending().await;
        };
        loop {
            let mut changed = pin!(lease.changed());
            changed.as_mut().enable();
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

    /// As [`LockGuard::cancellation`](crate::LockGuard::cancellation).
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

    /// The permits that this hold keeps from the request while it lasts: 0 for another lock, and for a lock that its owner enters again.
    pub(crate) fn kept_from(&self, engine: &Arc<Engine>, request: &LockRequest) -> u32 {
        let held = &self.hold.request;
        let enters_again = request.key.traits().has_owners && request.owner == held.owner;
        let keeps = Arc::ptr_eq(engine, &self.engine)
            && held.key.excludes(&request.key)
            && !enters_again
            // A task of a `LocalSet` that is driven inside the scope is not part of it.
            && held.place.is_in_task_of(request.place)
            && self.is_held();
        if keeps { held.share.weight } else { 0 }
    }

    fn status(&self) -> Status {
        self.hold.status(self.engine.shared.clock.now())
    }
}
