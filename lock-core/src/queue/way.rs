//! Giving way to other processes where the server keeps no queue.
//!
//! Whoever listens hears of a release and asks, and the fastest has the lock. The fastest would always be the process that let
//! go: the next in its own line can ask right behind the release. So a process whose turn is over stands back for a short
//! while, or until it hears that another one has let go. So does a task that is alone in its process and comes back at once.

use std::time::Duration;

use crate::time::Moment;

/// How long others have to ask for a lock that was let go: some round trips on a local network.
pub(crate) const PAUSE: Duration = Duration::from_millis(3);

/// Who listens may only look on, or be too far away. Where nobody took the lock, so many releases follow without a pause.
const IN_VAIN: u8 = 8;

#[derive(Debug, Clone, Default)]
pub(crate) struct Way {
    /// Whether others heard of our last release.
    wanted: bool,
    /// Releases to come without a pause.
    spared: u8,
    giving: Option<Giving>,
}

#[derive(Debug, Clone)]
struct Giving {
    /// The next announcement that we hear is our own.
    own: bool,
    /// Nobody seems to want the lock.
    until: Moment,
}

impl Way {
    /// So many connections were told of a release that nobody here expected to matter.
    pub(crate) fn wanted_by(connections: u64) -> Self {
        let mut way = Self::default();
        way.heard(connections, false);
        way
    }

    /// We are about to let go. `listening` is whether we hear announcements, and so our own.
    pub(super) fn give(&mut self, now: Moment, listening: bool) {
        let (own, until) = (listening, now + PAUSE);
        let gives = self.wanted && self.spared == 0;
        self.spared = self.spared.saturating_sub(1);
        self.giving = gives.then_some(Giving { own, until });
    }

    /// So many connections were told that we have let go. True if that ends it.
    pub(crate) fn heard(&mut self, connections: u64, listening: bool) -> bool {
        self.wanted = connections > u64::from(listening);
        !self.wanted && self.over()
    }

    /// Whether others want the lock too, as far as we know.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Somebody has let go.
    pub(super) fn announced(&mut self) {
        self.giving
            .take_if(|giving| !std::mem::take(&mut giving.own));
    }

    /// The lock is ours again. Where nothing was heard in between, nobody wanted it.
    pub(super) fn taken(&mut self) {
        if self.over() {
            self.spared = IN_VAIN;
        }
    }

    /// The lock was not let go, or nobody knows. True if that ends it.
    pub(super) fn over(&mut self) -> bool {
        self.giving.take().is_some()
    }

    /// Whether we wait for others, or did and have not asked since.
    pub(super) fn is_given(&self) -> bool {
        self.giving.is_some()
    }

    /// Whether a pause is over, and nobody has asked since.
    pub(super) fn is_overdue(&self, now: Moment) -> bool {
        self.giving.is_some() && self.pause(now).is_none()
    }

    /// For how long not to ask, if at all.
    pub(crate) fn pause(&self, now: Moment) -> Option<Duration> {
        let giving = self.giving.as_ref()?;
        (now < giving.until).then(|| now.until(giving.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Moment = Moment(1 << 50);

    #[test]
    fn nobody_gives_way_to_nobody() {
        let mut way = Way::default();
        way.give(T0, true);
        assert_eq!(way.pause(T0), None, "nobody is known to listen");
        assert!(!way.heard(1, true));
        way.give(T0, true);
        assert_eq!(way.pause(T0), None, "only we have heard it");
    }

    #[test]
    fn a_turn_comes_again_when_another_one_has_let_go() {
        let mut way = Way::default();
        way.heard(3, true);
        way.give(T0, true);
        way.announced();
        assert_eq!(way.pause(T0), Some(PAUSE), "that was our own");
        way.announced();
        assert_eq!(way.pause(T0), None);
    }

    #[test]
    fn who_does_not_listen_does_not_hear_itself() {
        let mut way = Way::default();
        way.heard(1, false);
        way.give(T0, false);
        assert_eq!(way.pause(T0), Some(PAUSE));
        way.announced();
        assert_eq!(way.pause(T0), None);
    }

    #[test]
    fn a_lock_that_nobody_takes_is_asked_for_after_a_pause() {
        let mut way = Way::default();
        way.heard(2, false);
        way.give(T0, false);
        assert_eq!(way.pause(T0 + PAUSE / 3), Some(PAUSE / 3 * 2));
        assert_eq!(way.pause(T0 + PAUSE), None);
    }

    #[test]
    fn after_a_pause_in_vain_some_releases_have_none() {
        let mut way = Way::default();
        way.heard(2, false);
        way.give(T0, false);
        way.taken();
        for _ in 0..IN_VAIN {
            way.give(T0, false);
            assert_eq!(way.pause(T0), None);
            way.taken();
        }
        way.give(T0, false);
        assert_eq!(way.pause(T0), Some(PAUSE));
        way.announced();
        way.taken();
        way.give(T0, false);
        assert_eq!(way.pause(T0), Some(PAUSE), "another one had it");
    }

    #[test]
    fn a_release_that_nobody_hears_any_more_ends_it() {
        let mut way = Way::default();
        way.heard(1, false);
        way.give(T0, false);
        assert!(way.heard(0, false));
        assert_eq!(way.pause(T0), None);
    }
}
