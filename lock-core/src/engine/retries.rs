//! Repetition of failed requests.

use std::time::Duration;

use tokio::time::Instant;

/// A series of failed requests.
pub(super) struct Retries {
    since: Option<Instant>,
    pub(super) count: u32,
}

impl Retries {
    pub(super) fn new() -> Self {
        Self {
            since: None,
            count: 0,
        }
    }

    pub(super) fn over(&mut self) {
        self.count = 0;
    }

    /// Time since the first failure of the series.
    pub(super) fn lasted(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The pause before the next attempt: 5 to 10 ms after the first failure, then doubling to half a second.
    pub(super) fn again(&mut self) -> Duration {
        if self.count == 0 {
            self.since = Some(Instant::now());
        }
        self.count += 1;
        let most = Duration::from_millis(10) * 2_u32.pow(self.count.min(7) - 1);
        most.min(Duration::from_millis(500))
            .mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}
