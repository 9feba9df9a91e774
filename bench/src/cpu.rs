//! How much this process has worked.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of work that all threads of this process have done.
pub(crate) fn worked() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds: u64 = time.tv_sec.try_into().unwrap_or_default();
    let nanos: u64 = time.tv_nsec.try_into().unwrap_or_default();
    seconds * 1_000_000_000 + nanos
}

#[cfg(test)]
mod tests {
    #[test]
    fn work_adds_up() {
        let start = super::worked();
        while super::worked() == start {}
        assert!(super::worked() > start);
    }
}
