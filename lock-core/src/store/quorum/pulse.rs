//! How fast a node answers, and whether it does at all.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// No node is given up sooner: a busy machine takes that long to look.
const FLOOR: Duration = Duration::from_millis(5);

/// Until a node has been measured.
const UNKNOWN: Duration = Duration::from_millis(100);

/// So many requests in a row without an answer, and a node is left out, except for a probe now and then.
const SILENT_AFTER: u32 = 3;

/// How often a silent node is asked.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// The round trips of one node: their mean and deviation, as TCP keeps them for its own timeout (RFC 6298).
#[derive(Debug, Default)]
pub(super) struct Pulse(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In seconds; `None` before the first answer.
    mean: Option<f64>,
    deviation: f64,
    /// Requests in a row that were not answered in time.
    missed: u32,
    probed: Option<Instant>,
}

impl Pulse {
    /// An answer came, in time or not.
    pub(super) fn answered(&self, after: Duration) {
        let mut state = lock(&self.0);
        let sample = after.as_secs_f64();
        state.missed = 0;
        match state.mean {
            None => {
                state.mean = Some(sample);
                state.deviation = sample / 2.0;
            }
            Some(mean) => {
                state.deviation += ((sample - mean).abs() - state.deviation) / 4.0;
                state.mean = Some(mean + (sample - mean) / 8.0);
            }
        }
    }

    /// No answer came in time, or the node can not be reached.
    pub(super) fn missed(&self) {
        let mut state = lock(&self.0);
        state.missed = state.missed.saturating_add(1);
    }

    /// How long to wait for this node: its usual round trip and four deviations, twice as long after each miss, and
    /// never more than `most`.
    pub(super) fn limit(&self, most: Duration) -> Duration {
        let state = lock(&self.0);
        let usual = state.mean.map_or(UNKNOWN, |mean| {
            Duration::from_secs_f64(mean + 4.0 * state.deviation).max(FLOOR)
        });
        (usual * 2_u32.pow(state.missed.min(7))).min(most)
    }

    /// The usual round trip.
    pub(super) fn usual(&self) -> Duration {
        Duration::from_secs_f64(lock(&self.0).mean.unwrap_or(0.0))
    }

    /// Whether to leave the node out now.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        let mut state = lock(&self.0);
        if state.missed < SILENT_AFTER {
            return false;
        }
        let due = state
            .probed
            .is_none_or(|at| now.saturating_duration_since(at) >= PROBE_EVERY);
        if due {
            state.probed = Some(now);
        }
        !due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_limit_follows_the_round_trips_between_floor_and_ceiling() {
        let pulse = Pulse::default();
        assert_eq!(pulse.limit(MS * 1000), UNKNOWN);
        for _ in 0..50 {
            pulse.answered(MS / 10);
        }
        assert_eq!(pulse.limit(MS * 1000), FLOOR);
        assert_eq!(pulse.limit(MS), MS);
        for _ in 0..50 {
            pulse.answered(MS * 40);
            pulse.answered(MS * 60);
        }
        let limit = pulse.limit(MS * 1000);
        assert!(limit > MS * 60 && limit < MS * 150, "{limit:?}");
    }

    #[test]
    fn a_node_that_misses_gets_more_time_and_is_then_only_probed() {
        let (pulse, start) = (Pulse::default(), Instant::now());
        pulse.answered(MS / 10);
        pulse.missed();
        assert_eq!(pulse.limit(MS * 1000), FLOOR * 2);
        pulse.missed();
        assert!(!pulse.is_silent(start));
        pulse.missed();
        assert!(!pulse.is_silent(start), "the first probe");
        assert!(pulse.is_silent(start + MS));
        assert!(!pulse.is_silent(start + PROBE_EVERY));
        pulse.answered(MS);
        assert!(!pulse.is_silent(start + PROBE_EVERY));
    }
}
