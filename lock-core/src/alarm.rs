//! Waking up at a moment of the lease clock, also where the machine was suspended in between.

use std::time::Duration;

use crate::clock::Moment;

/// How often to look at a clock that has no alarm: timers stand still while the machine is suspended, and the lease clock
/// does not.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// Wakes one task at one moment.
#[derive(Debug)]
pub(crate) enum Alarm {
    /// A timer of the system that counts what the lease clock counts.
    #[cfg(all(target_os = "linux", not(lock_sim)))]
    Timer(linux::Timer),
    Heartbeat,
    /// A timer of the runtime, where that is the lease clock.
    #[cfg(lock_sim)]
    Virtual,
}

impl Alarm {
    /// Resolves at `moment`, or earlier.
    ///
    /// Cancel-safe: what was set stays set until something else is.
    pub(crate) async fn wait(&mut self, now: Moment, moment: Moment) {
        match self {
            #[cfg(all(target_os = "linux", not(lock_sim)))]
            Self::Timer(timer) => {
                if timer.wait(moment).await.is_err() {
                    *self = Self::Heartbeat;
                }
            }
            // Whoever changes that nothing is due wakes the task.
            _ if moment == Moment::NEVER => std::future::pending().await,
            Self::Heartbeat => tokio::time::sleep(now.until(moment).min(HEARTBEAT)).await,
            #[cfg(lock_sim)]
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

    use super::Alarm;
    use crate::clock::Moment;

    #[derive(Debug)]
    pub(crate) struct Timer {
        file: AsyncFd<OwnedFd>,
        set_to: Moment,
    }

    impl Alarm {
        /// An alarm of the clock that goes on while the machine is suspended. Panics where there is no runtime with I/O around it.
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
                // As where file descriptors have run out.
                Err(error) => {
                    tracing::warn!(%error, "no timer to be had: looking at the clock instead");
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
            // It stays readable until it is set anew.
            ready.clear_ready();
            self.set_to = Moment::NEVER;
            Ok(())
        }

        fn set(&mut self, moment: Moment) -> io::Result<()> {
            let at = match moment {
                // All zero: it never goes off.
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
    use crate::clock::{Clock, SystemClock};

    const PATIENCE: Duration = Duration::from_secs(30);

    async fn goes_off(alarm: &mut Alarm, moment: Moment) {
        let now = SystemClock.now();
        tokio::time::timeout(PATIENCE, alarm.wait(now, moment))
            .await
            .expect("it goes off");
    }

    async fn stays_quiet(alarm: &mut Alarm, moment: Moment) {
        let now = SystemClock.now();
        let quiet = tokio::time::timeout(Duration::from_millis(20), alarm.wait(now, moment));
        assert!(quiet.await.is_err(), "it goes off early");
    }

    #[tokio::test]
    async fn it_goes_off_at_its_moment_each_time_and_at_once_where_that_has_passed() {
        let mut alarm = SystemClock.alarm();
        for _ in 0..3 {
            let moment = SystemClock.now() + Duration::from_millis(5);
            goes_off(&mut alarm, moment).await;
            assert!(SystemClock.now() >= moment);
            goes_off(&mut alarm, Moment(0)).await;
            goes_off(&mut alarm, SystemClock.now()).await;
        }
    }

    #[tokio::test]
    async fn what_it_was_set_to_before_does_not_count() {
        let mut alarm = SystemClock.alarm();
        let far = SystemClock.now() + PATIENCE * 10;
        let soon = SystemClock.now() + Duration::from_millis(50);
        stays_quiet(&mut alarm, soon).await;
        stays_quiet(&mut alarm, far).await;
        tokio::time::sleep(SystemClock.now().until(soon)).await;
        stays_quiet(&mut alarm, Moment::NEVER).await;
        goes_off(&mut alarm, SystemClock.now() + Duration::from_millis(1)).await;
    }
}
