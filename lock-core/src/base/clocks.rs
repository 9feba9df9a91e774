//! Clocks for tests: that of tokio, which a test may have paused, and one that a test turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
#[cfg(feature = "testing")]
use tokio::time::Instant;

#[cfg(feature = "testing")]
use crate::base::rt::Handle;
use crate::base::time::{BootTimer, Clock, Moment, nanos};

/// A clock that stands still until a test turns it: for tests that decide when a lease is renewed, and when it ends.
///
/// Clones are one clock. After each turn a manager renews what is due, so that a lease ends if the clock is turned by a whole ttl at
/// once, as if the machine had been suspended. The limits of waits are not on this clock, but on that of tokio.
///
/// # Examples
///
/// ```
/// use lock_core::LossReason;
/// use lock_core::testing::{ManualClock, MemoryServer};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let clock = ManualClock::new();
/// let locks = MemoryServer::with_clock(&clock).manager()?;
/// let guard = locks.lock("a").ttl(Duration::from_secs(30)).acquire().await?;
/// clock.advance(Duration::from_secs(31));
/// assert!(!guard.is_held());
/// assert_eq!(guard.lost().await, LossReason::Expired);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Turned>);

#[derive(Debug)]
struct Turned {
    now: AtomicU64,
    turned: watch::Sender<()>,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl ManualClock {
    /// A clock that stands still.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Turned {
            // Far enough from zero that subtracting a ttl does not saturate.
            now: AtomicU64::new(1 << 60),
            turned: watch::Sender::new(()),
        }))
    }

    /// Turns the clock. From then on leases that end within this time are over. Renewals and notifications follow while the test awaits
    /// something.
    pub fn advance(&self, by: Duration) {
        let order = Ordering::SeqCst;
        let turn = |now: u64| Some(now.saturating_add(nanos(by)).min(Moment::NEVER.0 - 1));
        let _ = self.0.now.fetch_update(order, order, turn);
        self.0.turned.send_replace(());
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.0.now.load(Ordering::SeqCst))
    }

    fn timer(&self, _: bool) -> BootTimer {
        BootTimer::Turned(self.0.turned.subscribe())
    }
}

/// The clock of the runtime in which it is made.
#[cfg(feature = "testing")]
#[derive(Debug)]
pub(crate) struct TokioClock {
    began: Instant,
    runtime: Option<Handle>,
    /// The last time that was read.
    last: AtomicU64,
}

#[cfg(feature = "testing")]
impl TokioClock {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            runtime: Handle::try_current().ok(),
            last: AtomicU64::new(1 << 60),
        }
    }
}

#[cfg(feature = "testing")]
impl Clock for TokioClock {
    fn now(&self) -> Moment {
        // A guard may be dropped while its thread ends, where no runtime can be entered any more.
        let ends = Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        if ends {
            return Moment(self.last.load(Ordering::Relaxed));
        }
        // It may be a thread of no runtime.
        let _entered = self.runtime.as_ref().map(Handle::enter);
        let now = Moment(1 << 60) + self.began.elapsed();
        self.last.fetch_max(now.0, Ordering::Relaxed);
        now
    }

    fn is_of_a_runtime(&self) -> bool {
        true
    }

    fn timer(&self, _: bool) -> BootTimer {
        BootTimer::Virtual
    }
}
