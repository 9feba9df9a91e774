//! The clock that leases are measured with.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use crate::alarm::Alarm;

/// An instant of a [`Clock`], in nanoseconds since some fixed point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// How long it is until `later`; zero where that has passed.
    pub(crate) fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}

/// A length of time in half the room that a [`Duration`] takes, to the nanosecond; at most 584 years.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span(u64);

impl Span {
    pub(crate) const ENDLESS: Self = Self(u64::MAX);
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(nanos(duration))
    }
}

impl Add<Span> for Moment {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

/// Where leases read the time. One small trait, so that tests can drive it by hand.
pub(crate) trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Moment;

    /// An alarm of this clock. Called on a runtime with I/O.
    fn alarm(&self) -> Alarm {
        Alarm::Heartbeat
    }
}

/// The clock of the machine. On Linux it also counts the time in which the machine was suspended: the
/// server went on counting, and a clock that stops (`Instant` does) would believe in a dead lease.
#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[cfg(all(target_os = "linux", not(lock_sim)))]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Moment(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    #[cfg(not(any(target_os = "linux", lock_sim)))]
    fn now(&self) -> Moment {
        static START: once_cell::sync::Lazy<std::time::Instant> =
            once_cell::sync::Lazy::new(std::time::Instant::now);
        // Far enough from zero that subtracting a ttl does not saturate.
        Moment(1 << 60) + START.elapsed()
    }

    #[cfg(lock_sim)]
    fn now(&self) -> Moment {
        // Far enough from zero that subtracting a ttl does not saturate.
        Moment(1 << 60) + crate::sim::elapsed()
    }

    #[cfg(all(target_os = "linux", not(lock_sim)))]
    fn alarm(&self) -> Alarm {
        Alarm::of_system()
    }

    #[cfg(lock_sim)]
    fn alarm(&self) -> Alarm {
        Alarm::Virtual
    }
}

#[cfg(test)]
pub(crate) mod manual {
    use super::{Clock, Duration, Moment, nanos};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock that stands still until a test moves it.
    #[derive(Debug, Clone)]
    pub(crate) struct ManualClock(Arc<AtomicU64>);

    impl ManualClock {
        pub(crate) fn new() -> Self {
            Self(Arc::new(AtomicU64::new(1 << 40)))
        }

        pub(crate) fn advance(&self, by: Duration) {
            self.0.fetch_add(nanos(by), Ordering::SeqCst);
        }
    }

    impl Clock for ManualClock {
        fn now(&self) -> Moment {
            Moment(self.0.load(Ordering::SeqCst))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_never_goes_back_and_runs() {
        let first = SystemClock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(SystemClock.now() >= first + Duration::from_millis(2));
    }
}
