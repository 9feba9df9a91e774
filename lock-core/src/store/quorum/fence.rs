//! Proposing fencing tokens, so that all nodes mint the same and no counter has to be raised afterwards.
//!
//! Safety does not rest on it: a node mints above its own counter whatever is proposed, and where nodes disagree their
//! counters are raised before the lock is given. A good proposal saves that second round trip.

use std::sync::Mutex;
use std::time::Duration;

use crate::clock::Moment;
use crate::sync::lock;

/// How long what the nodes' clocks showed is built on: clocks do not run at the same speed.
const FRESH: Duration = Duration::from_secs(60);

/// How far a proposal is ahead of the nodes' clocks, beside the time that it travels.
const AHEAD: Duration = Duration::from_millis(5);

/// What is known about the nodes' counters. No client's clock has a part in it: only how long ago it was that a node
/// showed its own, by a clock that goes on while the machine is suspended.
#[derive(Debug, Default)]
pub(super) struct Proposals(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// A token that a node's clock decided, and when we learned of it.
    clock: Option<(u64, Moment)>,
    /// The largest token that any node is known to have promised.
    last: u64,
}

impl Proposals {
    /// A token that is likely to be the largest on every node when it arrives there within `travel`. 0 where nothing is
    /// known.
    pub(super) fn next(&self, now: Moment, travel: Duration) -> u64 {
        let known = lock(&self.0);
        let Some((token, at)) = known.clock else {
            return 0;
        };
        let since = at.until(now);
        if since > FRESH {
            return 0;
        }
        let clock = token + (since + travel + AHEAD).as_micros() as u64;
        clock.max(known.last + 1)
    }

    /// The nodes minted up to `minted`, and keep the tokens up to `last` for us.
    pub(super) fn learn(&self, now: Moment, proposed: u64, minted: u64, last: u64) {
        let mut known = lock(&self.0);
        known.last = known.last.max(last);
        // More than was proposed: a clock is ahead of what we thought, or another client was.
        if minted > proposed {
            known.clock = Some((minted, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_above_what_is_known_and_ahead_of_the_clock_as_it_was_seen() {
        let (proposals, start) = (Proposals::default(), Moment(1 << 50));
        assert_eq!(proposals.next(start, Duration::ZERO), 0);
        proposals.learn(start, 0, 1_000, 1_063);
        assert_eq!(proposals.next(start, Duration::ZERO), 6_000);
        let later = start + Duration::from_secs(1);
        assert_eq!(proposals.next(later, Duration::from_millis(1)), 1_007_000);
        // A block of tokens that outran the clock.
        proposals.learn(later, 1_007_000, 1_007_000, 9_000_000);
        assert_eq!(proposals.next(later, Duration::ZERO), 9_000_001);
    }

    #[test]
    fn proposals_that_come_true_do_not_run_away_from_the_clock() {
        let (proposals, start) = (Proposals::default(), Moment(1 << 50));
        proposals.learn(start, 0, 1_000, 1_000);
        for _ in 0..100 {
            let proposed = proposals.next(start, Duration::ZERO);
            proposals.learn(start, proposed, proposed, proposed);
        }
        assert_eq!(proposals.next(start, Duration::ZERO), 6_100);
        let stale = start + FRESH + Duration::from_millis(1);
        assert_eq!(proposals.next(stale, Duration::ZERO), 0);
    }
}
