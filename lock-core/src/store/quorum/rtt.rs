//! The RTT estimator of a node: how fast the node answers, and whether it answers at all.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::base::sync::lock;

/// Minimum wait for a node: a busy machine may need that long to read an answer.
const FLOOR: Duration = Duration::from_millis(5);

/// The wait for a node that has not been measured yet.
const UNKNOWN: Duration = Duration::from_millis(100);

/// Minimum consecutive requests without an answer before a node is silent: it is skipped, and probed in the background.
const SILENT_AFTER: u32 = 3;

/// Interval between the probes of a silent node, for each consecutive miss, up to ten.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// Maximum number of times that the wait for a node is doubled. A slower node is still measured: its late answers count, and so do
/// its answers to probes.
const DOUBLED: u32 = 2;

/// The round trips of one node: their mean and deviation, as TCP keeps them for its own timeout (RFC 6298).
///
/// The results are kept outside the lock: they are read more often than they change.
#[derive(Debug)]
pub(super) struct RttEstimator {
    state: Mutex<RttState>,
    /// The wait for this node, in nanoseconds.
    limit: AtomicU64,
    /// The mean, in nanoseconds.
    usual: AtomicU64,
    /// Consecutive requests without an answer in time.
    missed: AtomicU32,
}

#[derive(Debug, Default)]
struct RttState {
    /// In nanoseconds; `None` before the first answer.
    mean: Option<i64>,
    deviation: i64,
    /// The start of the last probe.
    probed: Option<Instant>,
    probing: bool,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            limit: AtomicU64::new(UNKNOWN.as_nanos() as u64),
            usual: AtomicU64::new(0),
            missed: AtomicU32::new(0),
        }
    }
}

impl RttEstimator {
    /// An answer came, in time or late.
    pub(super) fn answered(&self, after: Duration) {
        let mut state = lock(&self.state);
        let sample = i64::try_from(after.as_nanos()).unwrap_or(i64::MAX / 8);
        let mean = match state.mean {
            None => {
                state.deviation = sample / 2;
                sample
            }
            Some(mean) => {
                state.deviation += ((sample - mean).abs() - state.deviation) / 4;
                mean + (sample - mean) / 8
            }
        };
        state.mean = Some(mean);
        let limit = (mean + 4 * state.deviation).max(FLOOR.as_nanos() as i64);
        self.usual.store(mean as u64, Ordering::Relaxed);
        self.limit.store(limit as u64, Ordering::Relaxed);
        self.missed.store(0, Ordering::Relaxed);
    }

    /// No answer came in time, or the node cannot be reached.
    pub(super) fn missed(&self) {
        let _locked = lock(&self.state);
        let missed = self.missed.load(Ordering::Relaxed);
        self.missed
            .store(missed.saturating_add(1), Ordering::Relaxed);
    }

    /// The node was given more time than the others needed, and did not answer.
    pub(super) fn is_late(&self) {
        let _locked = lock(&self.state);
        self.missed.store(SILENT_AFTER, Ordering::Relaxed);
    }

    /// The wait for this node: its usual round trip plus four deviations, doubled with the first misses, and at most `most`.
    pub(super) fn limit(&self, most: Duration) -> Duration {
        let limit = Duration::from_nanos(self.limit.load(Ordering::Relaxed));
        let missed = self.missed.load(Ordering::Relaxed);
        (limit * (1 << missed.min(DOUBLED))).min(most)
    }

    /// The usual round trip.
    pub(super) fn usual(&self) -> Duration {
        Duration::from_nanos(self.usual.load(Ordering::Relaxed))
    }

    /// Whether the node has not answered recently.
    pub(super) fn is_silent(&self) -> bool {
        self.missed.load(Ordering::Relaxed) >= SILENT_AFTER
    }

    /// Whether a silent node is to be probed now. True once in an interval, and not while a probe is under way.
    pub(super) fn begin_probe(&self, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let interval = PROBE_EVERY * self.missed.load(Ordering::Relaxed).clamp(1, 10);
        let due = state.probed;
        let due = due.is_none_or(|at| now.saturating_duration_since(at) >= interval);
        let begins = due && !state.probing;
        if begins {
            state.probing = true;
            state.probed = Some(now);
        }
        begins
    }

    pub(super) fn end_probe(&self) {
        lock(&self.state).probing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_limit_follows_the_round_trips_between_floor_and_ceiling() {
        let rtt = RttEstimator::default();
        assert_eq!(rtt.limit(MS * 1000), UNKNOWN);
        for _ in 0..50 {
            rtt.answered(MS / 10);
        }
        assert_eq!(rtt.limit(MS * 1000), FLOOR);
        assert_eq!(rtt.limit(MS), MS);
        for _ in 0..50 {
            rtt.answered(MS * 40);
            rtt.answered(MS * 60);
        }
        let limit = rtt.limit(MS * 1000);
        assert!(limit > MS * 60 && limit < MS * 150, "{limit:?}");
    }

    #[test]
    fn a_node_that_misses_gets_more_time_and_is_then_silent() {
        let rtt = RttEstimator::default();
        rtt.answered(MS / 10);
        rtt.missed();
        assert_eq!(rtt.limit(MS * 1000), FLOOR * 2);
        rtt.missed();
        assert!(!rtt.is_silent());
        rtt.missed();
        assert!(rtt.is_silent());
        assert_eq!(rtt.limit(MS * 1000), FLOOR * 4);
        rtt.answered(MS);
        assert!(!rtt.is_silent());
    }

    #[test]
    fn one_probe_at_a_time_and_not_too_often() {
        let (rtt, start) = (RttEstimator::default(), Instant::now());
        assert!(rtt.begin_probe(start));
        assert!(!rtt.begin_probe(start + PROBE_EVERY), "under way");
        rtt.end_probe();
        assert!(!rtt.begin_probe(start + MS), "too soon");
        (0..3).for_each(|_| rtt.missed());
        assert!(!rtt.begin_probe(start + PROBE_EVERY), "with backoff");
        assert!(rtt.begin_probe(start + PROBE_EVERY * 3));
    }
}
