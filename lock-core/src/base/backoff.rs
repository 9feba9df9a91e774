//! The pauses between tries that fail.

use std::time::Duration;

/// Pauses that double with each failure. They are spread, so that clients that failed together do not try again together.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    /// With the maximum pause after the first failure, and after any number.
    pub(crate) const fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            failures: 0,
        }
    }

    /// Consecutive failures.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// A try has failed. Returns the pause before the next one: at least half of the maximum.
    pub(crate) fn failed(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        doubled.min(self.most).mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// A try has not failed.
    pub(crate) fn over(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_maximum_and_begin_anew_after_a_success() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(10), ms(50));
        for most in [10, 20, 40, 50, 50] {
            let pause = backoff.failed();
            assert!(ms(most) / 2 <= pause && pause <= ms(most), "{pause:?}");
        }
        assert_eq!(backoff.failures(), 5);
        for _ in 0..100 {
            assert!(backoff.failed() <= ms(50));
        }
        backoff.over();
        assert!(backoff.failed() <= ms(10));
    }
}
