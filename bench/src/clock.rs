//! A clock that all processes of the machine share.

use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    lock_tests::monotonic_now().as_nanos() as u64
}

/// How long it is until that instant; zero if it has passed.
pub(crate) fn until(instant: u64) -> Duration {
    Duration::from_nanos(instant.saturating_sub(now()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_has_passed_is_not_ahead() {
        let start = super::now();
        while super::now() == start {}
        assert!(super::now() > start);
        assert!(super::until(start).is_zero());
    }
}
