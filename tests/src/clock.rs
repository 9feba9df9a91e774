//! Clocks whose readings two processes of one machine can compare.
//!
//! `std::time::Instant` hides its number, so it cannot cross a pipe.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Time since boot, including the time the machine was suspended.
#[must_use]
pub fn boottime_now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    since_boot(clock_gettime(clock))
}

/// Time on the clock behind `std::time::Instant`.
#[must_use]
pub fn monotonic_now() -> Duration {
    since_boot(clock_gettime(ClockId::Monotonic))
}

fn since_boot(time: Timespec) -> Duration {
    // Neither clock starts below zero, and nanoseconds stay below 10^9.
    Duration::new(
        time.tv_sec.try_into().unwrap_or_default(),
        time.tv_nsec.try_into().unwrap_or_default(),
    )
}
