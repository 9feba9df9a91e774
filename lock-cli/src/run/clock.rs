//! The clock of deadlines. It means the same in all processes of the machine, and it is the clock of the leases: on Linux it also
//! counts the time in which the machine was suspended.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A moment, as the time since a point that all processes share.
pub(super) type Moment = Duration;

pub(super) fn now() -> Moment {
    let time = clock_gettime(CLOCK);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
