//! The proof that a lock is held.

use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::Span;
use tracing::field::Empty;

use crate::base::error::LockError;
use crate::base::kind::Reweigh;
use crate::base::time::{Moment, millis};
use crate::engine::{Engine, Hold, Status, confirmed, extend, reweigh};
use crate::face::scope::Scope;
use crate::face::view::LockView;

/// Proof that a lock is held, and the means to release it.
///
/// **Release on drop is not immediate.** A drop marks the guard and queues the release, and the manager's task sends it;
/// [`release`](Self::release) waits for the server's reply. At the end of `main`, call
/// [`LockManager::shutdown`](crate::LockManager::shutdown): otherwise the process may end before the release is sent, and the lock
/// stays for its ttl.
///
/// While the guard lives, the watchdog renews the lease (unless [`renew(false)`](crate::Lock::renew)). If the lease is not renewed
/// in time, the lock is lost: [`is_held`](LockView::is_held) turns false and [`lost`](LockView::lost) resolves *before* the server may
/// grant the lock to another holder.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
/// let guard = lock.acquire().await?;
/// tokio::select! {
///     () = async { /* the work */ } => guard.release().await?,
///     reason = guard.lost() => panic!("stop: {reason}"),
/// }
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped: bind it, `let _guard = ..` (not `let _ = ..`)"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    view: LockView,
    /// `Some` if the span of the hold is enabled. Boxed, because that is rare and there may be thousands of guards.
    traced: Option<Box<Traced>>,
}

/// A guard of any kind: the locks that it holds.
pub(crate) trait AnyGuard {
    fn parts(&self) -> &[LockGuard];
}

impl AnyGuard for LockGuard {
    fn parts(&self) -> &[LockGuard] {
        std::slice::from_ref(self)
    }
}

/// The span of a hold, and when it began.
struct Traced {
    span: Span,
    since: Moment,
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", &self.key())
            .field("fencing_token", &self.fencing_token())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl LockGuard {
    pub(crate) fn new(engine: Arc<Engine>, hold: Arc<Hold>) -> Self {
        let mut guard = Self::untraced(engine, hold);
        guard.trace();
        guard
    }

    /// A guard whose span has not begun.
    pub(crate) fn untraced(engine: Arc<Engine>, hold: Arc<Hold>) -> Self {
        Self {
            view: LockView { engine, hold },
            traced: None,
        }
    }

    /// Begins the span of the hold. Called on a guard: if a subscriber panics here, the drop of the guard releases the lock.
    pub(crate) fn trace(&mut self) {
        let span = tracing::debug_span!(
            target: "lock_core",
            "lock.hold",
            key = self.key(),
            label = self.view.hold.request.label,
            fencing_token = self.fencing_token().get(),
            outcome = Empty,
            held_ms = Empty
        );
        if !span.is_disabled() {
            let since = self.view.engine.shared.clock.now();
            self.traced = Some(Box::new(Traced { span, since }));
        }
    }

    /// The runtime of the manager's own thread, if it has one.
    #[cfg(all(feature = "blocking", feature = "macros"))]
    pub(crate) fn runtime(&self) -> Option<&crate::base::rt::Handle> {
        self.view.engine.shared.timers.runtime()
    }

    /// Notes whether this guard is one of several that are not all held yet. Until all are held, no work is done under it, and it is
    /// not kept for a minimum time.
    pub(crate) fn set_part(&self, is_part: bool) {
        self.view.hold.set_part(is_part);
    }

    /// A view of this hold, for code that observes the lock and does not decide when the hold ends. A guard has all methods of its view.
    #[must_use]
    pub fn view(&self) -> LockView {
        self.view.clone()
    }

    /// Inside a function under `#[distributed_lock]` or the body of [`Lock::with`](crate::Lock::with), the hold under which the
    /// code runs: the innermost one if such functions call each other. `None` elsewhere, and in tasks that the code spawns.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::LockGuard;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let here = lock.with(async |_| LockGuard::current()).await?;
    /// assert_eq!(here.expect("inside").key(), "a");
    /// assert!(LockGuard::current().is_none());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn current() -> Option<LockView> {
        Scope::current()
    }

    /// Resolves with the loss, as an error.
    pub(crate) async fn lost_error(&self) -> LockError {
        let reason = self.lost().await;
        self.view.lost_error(reason)
    }

    #[cfg(feature = "macros")]
    /// The owner of the hold, if the lock is reentrant.
    pub(crate) fn owner(&self) -> Option<&crate::Owner> {
        self.view.hold.request.claim.owner.as_ref()
    }

    /// Changes the ttl of this hold: the lease is renewed for `ttl` at once, and all later renewals use it. The new ttl may be
    /// longer or shorter. From 10 ms to 24 days; fractions of a millisecond are cut off.
    ///
    /// A live holder does not need it, since the watchdog renews the lease. Use it for a step during which the program may stand
    /// still (a longer ttl), at the end of such a step (a shorter ttl, so that a crash blocks others for a shorter time), and for a
    /// lock with [`renew(false)`](crate::Lock::renew), whose lease it prolongs once. [`max_hold`](crate::Lock::max_hold) still ends
    /// the hold. Guards of one owner share a lease: while there are several, a shorter ttl has no effect. With a
    /// [reentrant lock](crate::ReentrantLock) a shorter ttl counts for this guard alone: on the server the lease keeps its end, since
    /// other processes of the owner may rely on it. With a [`Semaphore`](crate::Semaphore) and an [`RwLock`](crate::RwLock) the server
    /// also keeps the longer lease until it has run out, and the shorter ttl counts from then on.
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) if the lock is no longer held; [`Unavailable`](LockError::Unavailable) if the server has not
    /// answered, at the latest after three command deadlines. The watchdog then continues with the new ttl, and
    /// [`remaining`](LockView::remaining) shows the confirmed lease. [`InvalidConfig`](LockError::InvalidConfig) for a ttl out of
    /// range.
    ///
    /// # Cancel safety
    ///
    /// A dropped future does not undo the new ttl.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a").ttl(Duration::from_secs(5));
    /// let guard = lock.acquire().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// guard.extend(Duration::from_secs(5)).await?;
    /// assert!(guard.remaining() <= Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "renew")]
    #[doc(alias = "refresh")]
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        let LockView { engine, hold } = &self.view;
        let shared = &engine.shared;
        extend(shared, hold, shared.config.terms(ttl)?).await
    }

    /// Makes a reader the writer, or the writer a reader.
    pub(crate) async fn reweigh(&self, to: Reweigh) -> Result<bool, LockError> {
        let LockView { engine, hold } = &self.view;
        reweigh(&engine.shared, hold, to).await
    }

    /// Releases the lock and waits for the server's reply.
    ///
    /// If the server keeps a queue (an exclusive lock on one server), the next waiter, in any process, has the lock when this
    /// returns. Over a quorum, and for a reentrant lock, the waiters have been notified and request the lock. A lock with
    /// [`at_least`](crate::Lock::at_least) ends when that time has passed.
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) if the lock was no longer held: the work since then may have overlapped with another holder.
    /// [`Unavailable`](LockError::Unavailable) if the server does not answer, and [`InvalidConfig`](LockError::InvalidConfig) if it
    /// does not permit this user the release: the release is then repeated in the background until the ttl ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release continues in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// lock.acquire().await?.release().await?;
    /// assert!(!lock.inspect().await?.is_held());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "unlock")]
    pub async fn release(self) -> Result<(), LockError> {
        self.confirm_release().await
    }

    /// As [`release`](Self::release), for a guard that is part of another guard.
    pub(crate) async fn confirm_release(&self) -> Result<(), LockError> {
        self.release_in_place(3).await
    }

    async fn release_in_place(&self, most_tries: u32) -> Result<(), LockError> {
        use tracing::Instrument;
        let span = tracing::debug_span!(
            target: "lock_core",
            "lock.release",
            key = self.key(),
            label = self.view.hold.request.label,
            outcome = Empty
        );
        let LockView { engine, hold } = &self.view;
        // As in `acquire`: move the future only if the span is enabled.
        let result = if span.is_disabled() {
            confirmed(&engine.shared, hold, most_tries).await
        } else {
            let releasing = confirmed(&engine.shared, hold, most_tries);
            Box::pin(releasing).instrument(span.clone()).await
        };
        span.record(
            "outcome",
            match &result {
                Ok(()) => "released",
                Err(LockError::Lost { .. }) => "lost",
                Err(_) => "unconfirmed",
            },
        );
        result
    }

    /// Releases after the work is done, so a failure can only be logged. A server that does not answer must not delay the result:
    /// after one try the release continues in the background.
    pub(crate) async fn release_quietly(&self) {
        match self.release_in_place(1).await {
            // A loss has its own warning.
            Ok(()) | Err(LockError::Lost { .. }) => {}
            Err(error) => {
                tracing::warn!(key = self.key(), %error, "the lock was not released at once: trying again");
            }
        }
    }

    /// Runs a future until it ends or the lock is lost.
    pub(crate) async fn run_while_held<T>(
        &self,
        body: impl Future<Output = T>,
    ) -> Result<T, LockError> {
        let body = pin!(body);
        tokio::select! {
            // Poll the loss first: a body that is always ready must not hide it.
            biased;
            error = self.lost_error() => Err(error),
            value = body => Ok(value),
        }
    }

    /// Records the outcome in the span of the hold, and ends the span.
    fn end_trace(&mut self) {
        let Some(traced) = self.traced.take() else {
            return;
        };
        let Traced { span, since } = *traced;
        let LockView { engine, hold } = &self.view;
        let now = engine.shared.clock.now();
        span.record("held_ms", millis(since.until(now)));
        span.record(
            "outcome",
            match hold.status(now) {
                Status::Held => "dropped",
                Status::Lost(_) => "lost",
                Status::Pending | Status::Released => "released",
            },
        );
    }
}

impl Deref for LockGuard {
    type Target = LockView;

    fn deref(&self) -> &LockView {
        &self.view
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.end_trace();
        self.view.engine.shared.end(&self.view.hold);
    }
}
