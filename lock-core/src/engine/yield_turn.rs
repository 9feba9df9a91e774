//! Yields the turn to other processes where the server keeps no queue.
//!
//! Every subscriber hears of a release and asks, and the fastest one gets the lock. The fastest would always be the process that
//! released: the next waiter of its own line can ask right behind the release. So a process whose turn is over pauses for a short
//! time, or until it hears of a release by another process. A task that is alone in its process and comes back at once does the
//! same.

use std::time::Duration;

use crate::base::time::Moment;

/// Pause in which other processes may ask for a released lock: some round trips on a local network.
pub(crate) const PAUSE: Duration = Duration::from_millis(3);

/// Number of releases without a pause after a pause in which no other process took the lock: a subscriber may only watch, or be
/// too far away.
const SKIPS_AFTER_NO_TAKER: u8 = 8;

#[derive(Debug, Clone, Default)]
pub(crate) struct YieldTurn {
    /// Whether other processes heard the last release of this one.
    wanted: bool,
    /// Number of coming releases without a pause.
    skips: u8,
    yielding: Option<Yielding>,
}

#[derive(Debug, Clone)]
struct Yielding {
    /// The next announcement that arrives is that of this process.
    own: bool,
    /// From this moment on, no other process seems to want the lock.
    until: Moment,
}

impl YieldTurn {
    /// The state after a release for which this process kept no such state. `connections` heard the release.
    pub(crate) fn wanted_by(connections: u64) -> Self {
        let mut yield_turn = Self::default();
        yield_turn.subscribers_heard(connections, false);
        yield_turn
    }

    /// The lock is about to be released. `listening` tells whether this process hears announcements, and so its own.
    pub(super) fn start(&mut self, now: Moment, listening: bool) {
        let (own, until) = (listening, now + PAUSE);
        let gives = self.wanted && self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        self.yielding = gives.then_some(Yielding { own, until });
    }

    /// `connections` heard the release. Returns true if this ends the yielding.
    pub(crate) fn subscribers_heard(&mut self, connections: u64, listening: bool) -> bool {
        self.wanted = connections > u64::from(listening);
        !self.wanted && self.cancel()
    }

    /// Whether other processes want the lock, too, as far as this process knows.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// A message says that the lock was released.
    pub(super) fn another_released(&mut self) {
        self.yielding
            .take_if(|yielding| !std::mem::take(&mut yielding.own));
    }

    /// This process has the lock again. If it heard of no release in between, no other process wanted the lock.
    pub(super) fn reacquired(&mut self) {
        if self.cancel() {
            self.skips = SKIPS_AFTER_NO_TAKER;
        }
    }

    /// The lock was not released, or the outcome is unknown. Returns true if this ends the yielding.
    pub(super) fn cancel(&mut self) -> bool {
        self.yielding.take().is_some()
    }

    /// Whether a pause is over and no request has followed.
    pub(super) fn is_overdue(&self, now: Moment) -> bool {
        self.yielding.is_some() && self.pause(now).is_none()
    }

    /// The remaining pause before the next request, if any.
    pub(crate) fn pause(&self, now: Moment) -> Option<Duration> {
        let yielding = self.yielding.as_ref()?;
        (now < yielding.until).then(|| now.until(yielding.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Moment = Moment(1 << 50);

    #[test]
    fn without_subscribers_no_turn_is_yielded() {
        let mut yield_turn = YieldTurn::default();
        yield_turn.start(T0, true);
        assert_eq!(yield_turn.pause(T0), None, "no subscriber is known");
        assert!(!yield_turn.subscribers_heard(1, true));
        yield_turn.start(T0, true);
        assert_eq!(yield_turn.pause(T0), None, "only we have heard it");
    }

    #[test]
    fn a_turn_comes_again_when_another_one_has_let_go() {
        let mut yield_turn = YieldTurn::default();
        yield_turn.subscribers_heard(3, true);
        yield_turn.start(T0, true);
        yield_turn.another_released();
        assert_eq!(yield_turn.pause(T0), Some(PAUSE), "that was our own");
        yield_turn.another_released();
        assert_eq!(yield_turn.pause(T0), None);
    }

    #[test]
    fn who_does_not_listen_does_not_hear_itself() {
        let mut yield_turn = YieldTurn::default();
        yield_turn.subscribers_heard(1, false);
        yield_turn.start(T0, false);
        assert_eq!(yield_turn.pause(T0), Some(PAUSE));
        yield_turn.another_released();
        assert_eq!(yield_turn.pause(T0), None);
    }

    #[test]
    fn a_lock_without_a_taker_is_requested_after_a_pause() {
        let mut yield_turn = YieldTurn::default();
        yield_turn.subscribers_heard(2, false);
        yield_turn.start(T0, false);
        assert_eq!(yield_turn.pause(T0 + PAUSE / 3), Some(PAUSE / 3 * 2));
        assert_eq!(yield_turn.pause(T0 + PAUSE), None);
    }

    #[test]
    fn after_a_pause_in_vain_some_releases_have_none() {
        let mut yield_turn = YieldTurn::default();
        yield_turn.subscribers_heard(2, false);
        yield_turn.start(T0, false);
        yield_turn.reacquired();
        for _ in 0..SKIPS_AFTER_NO_TAKER {
            yield_turn.start(T0, false);
            assert_eq!(yield_turn.pause(T0), None);
            yield_turn.reacquired();
        }
        yield_turn.start(T0, false);
        assert_eq!(yield_turn.pause(T0), Some(PAUSE));
        yield_turn.another_released();
        yield_turn.reacquired();
        yield_turn.start(T0, false);
        assert_eq!(yield_turn.pause(T0), Some(PAUSE), "another one had it");
    }

    #[test]
    fn a_release_without_subscribers_ends_it() {
        let mut yield_turn = YieldTurn::default();
        yield_turn.subscribers_heard(1, false);
        yield_turn.start(T0, false);
        assert!(yield_turn.subscribers_heard(0, false));
        assert_eq!(yield_turn.pause(T0), None);
    }
}
