//! The clock that measures leases, and a timer that wakes a task at a moment of this clock, even if the machine was suspended.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A duration as texts show it: in whole milliseconds, so that tools that group equal texts find few groups.
pub(crate) fn in_millis(duration: Duration) -> Duration {
    let least = Duration::from_millis(u64::from(!duration.is_zero()));
    Duration::from_millis(duration.as_millis() as u64).max(least)
}

/// A duration as fields show it: in milliseconds, with their fractions.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

/// An instant of a [`Clock`], in nanoseconds since some fixed point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The time until `later`; zero if that has passed.
    pub(crate) fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}

/// A duration in nanoseconds, in half the size of a [`Duration`]; at most 584 years.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span(u64);

impl Span {
    pub(crate) const ENDLESS: Self = Self(u64::MAX);

    /// `None` if it is endless.
    pub(crate) fn limit(self) -> Option<Duration> {
        (self != Self::ENDLESS).then(|| Duration::from_nanos(self.0))
    }
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

pub(super) fn nanos(duration: Duration) -> u64 {
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

/// The source of time for leases. Tests set it by hand.
pub(crate) trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Moment;

    /// Whether it is the clock of one runtime.
    #[cfg(feature = "testing")]
    fn is_of_a_runtime(&self) -> bool {
        false
    }

    /// A timer of this clock, for a task of this runtime, which may have no I/O.
    fn timer(&self, _has_io: bool) -> BootTimer {
        BootTimer::Heartbeat
    }
}

/// The clock of the machine. On Linux it also counts the time in which the machine was suspended, as the server does. With a clock
/// that stops meanwhile (as `Instant`), a lease that has ended would still count as valid.
#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[cfg(all(target_os = "linux", not(lock_sim)))]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Moment(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    #[cfg(not(any(target_os = "linux", lock_sim)))]
    #[expect(clippy::disallowed_methods, reason = "not in the simulation")]
    fn now(&self) -> Moment {
        static START: once_cell::sync::Lazy<std::time::Instant> =
            once_cell::sync::Lazy::new(std::time::Instant::now);
        // Far enough from zero that subtracting a ttl does not saturate.
        Moment(1 << 60) + START.elapsed()
    }

    #[cfg(lock_sim)]
    fn now(&self) -> Moment {
        // Far enough from zero that subtracting a ttl does not saturate.
        Moment(1 << 60) + crate::base::sim::elapsed()
    }

    #[cfg(all(target_os = "linux", not(lock_sim)))]
    fn timer(&self, has_io: bool) -> BootTimer {
        if has_io {
            BootTimer::of_system()
        } else {
            BootTimer::Heartbeat
        }
    }

    #[cfg(lock_sim)]
    fn timer(&self, _: bool) -> BootTimer {
        BootTimer::Virtual
    }
}

/// Interval between two looks at a clock that has no timer: timers stop while the machine is suspended, and the lease clock does
/// not.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// Wakes one task at one moment.
#[derive(Debug)]
pub(crate) enum BootTimer {
    /// A timer of the system, on the clock of the leases.
    #[cfg(all(target_os = "linux", not(lock_sim)))]
    Timer(linux::Timer),
    Heartbeat,
    /// A timer of the runtime, whose clock is that of the leases.
    #[cfg(any(lock_sim, feature = "testing"))]
    Virtual,
    /// Goes off whenever the clock is turned.
    #[cfg(any(test, feature = "testing"))]
    Turned(tokio::sync::watch::Receiver<()>),
}

impl BootTimer {
    /// Resolves at `moment`, or earlier.
    ///
    /// Cancel-safe: a moment stays set until another one is set.
    pub(crate) async fn wait(&mut self, now: Moment, moment: Moment) {
        match self {
            #[cfg(all(target_os = "linux", not(lock_sim)))]
            Self::Timer(timer) => {
                if timer.wait(moment).await.is_err() {
                    *self = Self::Heartbeat;
                }
            }
            #[cfg(any(test, feature = "testing"))]
            Self::Turned(turned) => {
                if turned.changed().await.is_err() {
                    // No handle is left that could turn the clock.
                    std::future::pending::<()>().await;
                }
            }
            // The task is woken when something becomes due.
            _ if moment == Moment::NEVER => std::future::pending().await,
            Self::Heartbeat => tokio::time::sleep(now.until(moment).min(HEARTBEAT)).await,
            #[cfg(any(lock_sim, feature = "testing"))]
            Self::Virtual => tokio::time::sleep(now.until(moment)).await,
        }
    }
}

#[cfg(all(target_os = "linux", not(lock_sim)))]
mod linux {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::BootTimer;
    use super::Moment;

    #[derive(Debug)]
    pub(crate) struct Timer {
        file: AsyncFd<OwnedFd>,
        set_to: Moment,
    }

    impl BootTimer {
        /// A timer of the clock that goes on while the machine is suspended. Panics outside a runtime with I/O.
        #[allow(
            deprecated,
            reason = "what comes after it is unsafe code, which this crate has none of; an owned descriptor that is never replaced is what it is sound for"
        )]
        pub(crate) fn of_system() -> Self {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Boottime, flags)
                .map_err(io::Error::from)
                .and_then(|file| AsyncFd::with_interest(file, Interest::READABLE));
            match timer {
                Ok(file) => Self::Timer(Timer {
                    file,
                    set_to: Moment::NEVER,
                }),
                // This happens, for example, if no file descriptor is left.
                Err(error) => {
                    tracing::warn!(%error, "no timer is available: polling the clock instead");
                    Self::Heartbeat
                }
            }
        }
    }

    fn timespec(duration: Duration) -> Timespec {
        Timespec {
            tv_sec: duration.as_secs().cast_signed(),
            tv_nsec: duration.subsec_nanos().into(),
        }
    }

    impl Timer {
        pub(super) async fn wait(&mut self, moment: Moment) -> io::Result<()> {
            if moment != self.set_to {
                self.set(moment)?;
            }
            let mut ready = self.file.readable().await?;
            // The timer stays readable until it is set again.
            ready.clear_ready();
            self.set_to = Moment::NEVER;
            Ok(())
        }

        fn set(&mut self, moment: Moment) -> io::Result<()> {
            let at = match moment {
                // All zero: the timer never goes off.
                Moment::NEVER => Duration::ZERO,
                Moment(at) => Duration::from_nanos(at.max(1)),
            };
            let value = Itimerspec {
                it_interval: timespec(Duration::ZERO),
                it_value: timespec(at),
            };
            timerfd_settime(&self.file, TimerfdTimerFlags::ABSTIME, &value)?;
            self.set_to = moment;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn the_system_clock_never_goes_back_and_runs() {
        let first = SystemClock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(SystemClock.now() >= first + Duration::from_millis(2));
    }

    async fn goes_off(timer: &mut BootTimer, moment: Moment) {
        let now = SystemClock.now();
        tokio::time::timeout(PATIENCE, timer.wait(now, moment))
            .await
            .expect("it goes off");
    }

    async fn stays_quiet(timer: &mut BootTimer, moment: Moment) {
        let now = SystemClock.now();
        let quiet = tokio::time::timeout(Duration::from_millis(20), timer.wait(now, moment));
        assert!(quiet.await.is_err(), "it goes off early");
    }

    #[tokio::test]
    async fn it_goes_off_at_its_moment_each_time_and_at_once_where_that_has_passed() {
        let mut timer = SystemClock.timer(true);
        for _ in 0..3 {
            let moment = SystemClock.now() + Duration::from_millis(5);
            goes_off(&mut timer, moment).await;
            assert!(SystemClock.now() >= moment);
            goes_off(&mut timer, Moment(0)).await;
            goes_off(&mut timer, SystemClock.now()).await;
        }
    }

    #[tokio::test]
    async fn what_it_was_set_to_before_does_not_count() {
        let mut timer = SystemClock.timer(true);
        let far = SystemClock.now() + PATIENCE * 10;
        let soon = SystemClock.now() + Duration::from_millis(50);
        stays_quiet(&mut timer, soon).await;
        stays_quiet(&mut timer, far).await;
        tokio::time::sleep(SystemClock.now().until(soon)).await;
        stays_quiet(&mut timer, Moment::NEVER).await;
        goes_off(&mut timer, SystemClock.now() + Duration::from_millis(1)).await;
    }
}
