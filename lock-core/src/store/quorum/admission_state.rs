//! Knowledge of the server of a node: whether it may vote, and whether its address still leads to it. No I/O.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::vetting::Run;
use crate::base::single_flight::SingleFlight;
use crate::base::time::{Clock, Moment, SystemClock};
use crate::store::StoreError;

/// Pause after a look that proved nothing.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The knowledge of the server of a node.
#[derive(Default)]
pub(super) struct Admission {
    pub(super) vetting: SingleFlight,
    pub(super) state: Mutex<AdmissionState>,
}

#[derive(Default)]
pub(super) struct AdmissionState {
    pub(super) vetted: Option<VettedOn>,
    /// The run of the server, and the connection on which it said so.
    pub(super) run_id: Option<(u64, String)>,
    /// The error of the last vetting, if it failed.
    pub(super) refused: Option<StoreError>,
    pub(super) note: Note,
    /// The boot that waits or has waited, and the end of its wait by the clock of this client. It only grows.
    wait: Option<(String, Moment)>,
    pub(super) looks: Looks,
}

/// A connection on which the server was vetted.
#[derive(Clone)]
pub(super) struct VettedOn {
    pub(super) generation: u64,
    pub(super) run: Run,
    /// The key of the node's counter.
    pub(super) counter: Arc<str>,
    /// Whether the wait of the node is over by its own clock.
    pub(super) votes: bool,
}

/// The answer of a node about its note.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Note {
    #[default]
    Unknown,
    /// At this time it had no note, or the note of a quorum that has not begun.
    New(Moment),
    Read,
}

/// The knowledge of the address of a node.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// The beginning of the last look that found the known server, by a clock that counts suspended time.
    seen_at: Option<Moment>,
    /// When to look again.
    look_at: Option<Instant>,
    /// When the server was last asked for a vote, or a renewal.
    used_at: Option<Moment>,
    /// Whether a task looks when it is time.
    watched: bool,
    /// Whether the user was warned of looks that prove nothing.
    warned: bool,
}

impl AdmissionState {
    /// The rest of the wait, if this client knows of one.
    pub(super) fn wait_left(&self, now: Moment) -> Duration {
        let until = self.wait.as_ref().map(|(_, until)| *until);
        until.map_or(Duration::ZERO, |until| now.until(until))
    }

    /// Notes that a node with this boot waits for `left`. Returns whether that is news.
    pub(super) fn waits(&mut self, boot: &str, left: Duration, now: Moment) -> bool {
        let known = self.wait.take().filter(|(known, _)| known == boot);
        let is_news = known.is_none() && !left.is_zero();
        let seen = known.map_or(now, |(_, until)| until);
        self.wait = Some((boot.to_owned(), seen.max(now + left)));
        is_news
    }
}

impl Looks {
    /// Notes that from this time on the address led to the known server.
    pub(super) fn seen(&mut self, at: Moment, wait: Duration) {
        self.seen_at = Some(at);
        let age = at.until(SystemClock.now());
        self.look_at = Some(Instant::now() + (wait / 4).saturating_sub(age));
        self.warned = false;
    }

    pub(super) fn is_fresh(&self, fresh_for: Duration, now: Moment) -> bool {
        self.seen_at.is_some_and(|at| at.until(now) < fresh_for)
    }

    /// Notes that the server is asked for a vote, or a renewal. Returns whether a task has to begin to look.
    pub(super) fn is_used(&mut self, now: Moment) -> bool {
        self.used_at = Some(now);
        !std::mem::replace(&mut self.watched, true)
    }

    /// The next look, unless each lease with a vote of the server has ended.
    pub(super) fn next(&mut self, now: Moment, wait: Duration) -> Option<Instant> {
        self.watched = self.used_at.is_some_and(|used| now < used + wait / 2);
        self.watched
            .then(|| self.look_at.unwrap_or_else(Instant::now))
    }

    /// Notes that a look that began at this time is over. If it proved nothing, the next look comes after a pause.
    pub(super) fn is_over(&mut self, began: Instant) {
        if self.look_at.is_none_or(|at| at <= began) {
            self.look_at = Some(began + LOOK_PAUSE);
        }
    }

    /// Notes that a look has proved nothing. Returns whether to warn the user.
    pub(super) fn warns(&mut self, wait: Duration, now: Moment) -> bool {
        !self.is_fresh(wait / 2, now) && !std::mem::replace(&mut self.warned, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(60);

    #[test]
    fn an_address_is_looked_at_until_the_last_lease_has_ended() {
        let (mut looks, now) = (Looks::default(), SystemClock.now());
        let second = Duration::from_secs(1);
        looks.look_at = Some(Instant::now() + second);
        assert!(looks.is_used(now));
        assert!(!looks.is_used(now + second), "one task is enough");
        assert_eq!(looks.next(now, WAIT), looks.look_at);
        assert!(looks.next(now + second * 30, WAIT).is_some());
        assert_eq!(looks.next(now + second * 31, WAIT), None);
        assert!(looks.is_used(now + second * 40), "another task begins");
    }

    #[test]
    fn a_look_is_fresh_from_its_beginning() {
        let (mut looks, now) = (Looks::default(), SystemClock.now());
        assert!(!looks.is_fresh(WAIT, now), "never seen");
        looks.seen(now, WAIT);
        assert!(looks.is_fresh(WAIT / 2, now + WAIT * 49 / 100));
        assert!(!looks.is_fresh(WAIT / 2, now + WAIT / 2));
    }

    #[test]
    fn a_wait_that_was_seen_only_grows_while_the_boot_is_the_same() {
        let (mut state, now) = (AdmissionState::default(), SystemClock.now());
        let second = Duration::from_secs(1);
        assert!(state.wait_left(now).is_zero());
        assert!(state.waits("one", second * 60, now));
        // The clock of the node has jumped.
        assert!(!state.waits("one", Duration::ZERO, now + second));
        assert_eq!(state.wait_left(now + second), second * 59);
        assert!(!state.waits("one", second * 60, now + second * 2));
        assert_eq!(state.wait_left(now + second * 2), second * 60);
        // Another boot has waited before this client came.
        assert!(!state.waits("two", Duration::ZERO, now + second * 3));
        assert!(state.wait_left(now + second * 3).is_zero());
    }
}
