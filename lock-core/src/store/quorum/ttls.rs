//! The ttls in use: a node that may have forgotten votes waits for the longest of them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::sync::lock;
use crate::time::Moment;

/// Steps between one power of two and the next. Ttls that are nearly the same count as one, so that a node has few to know.
const STEPS: u64 = 8;

/// Ttls, and until when each is known to be in use, by a clock that counts suspended time, as the nodes do.
#[derive(Debug, Default)]
pub(super) struct Ttls(Mutex<BTreeMap<Duration, Moment>>);

/// The next step at or above a ttl: at most an eighth more.
pub(super) fn rounded(ttl: Duration) -> Duration {
    let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX / 2);
    let step = (ttl.max(1).next_power_of_two() / 2 / STEPS).max(1);
    Duration::from_millis(ttl.div_ceil(step) * step)
}

/// Time for which a ttl is announced to a node as in use. The announcement is repeated after half of it, while the ttl is used.
pub(super) fn told_for(ttl: Duration) -> Duration {
    ttl * 2
}

impl Ttls {
    /// This client takes locks for this [rounded] ttl.
    pub(super) fn uses(&self, ttl: Duration, now: Moment) {
        self.learn([(ttl, told_for(ttl))], now);
    }

    /// These ttls are known to be in use for that long from now.
    pub(super) fn learn(&self, pairs: impl IntoIterator<Item = (Duration, Duration)>, now: Moment) {
        let mut ttls = lock(&self.0);
        for (ttl, time) in pairs {
            let until = ttls.entry(ttl).or_insert(now);
            *until = (*until).max(now + time);
        }
    }

    /// The longest ttl in use.
    pub(super) fn longest(&self, now: Moment) -> Duration {
        let ttls = lock(&self.0);
        let used = ttls.iter().rev().find(|(_, until)| **until > now);
        used.map_or(Duration::ZERO, |(ttl, _)| *ttl)
    }

    /// The ttls in use, and how long each is known to be in use.
    pub(super) fn pairs(&self, now: Moment) -> Vec<(Duration, Duration)> {
        let mut ttls = lock(&self.0);
        ttls.retain(|_, until| *until > now);
        ttls.iter()
            .map(|(ttl, until)| (*ttl, now.until(*until)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Clock, SystemClock};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_ttl_is_rounded_up_by_at_most_an_eighth() {
        for ttl in (1..5_000).chain([30_000, 86_400_000]) {
            let rounded = rounded(MS * ttl);
            assert!(
                rounded >= MS * ttl && rounded <= MS * ttl * 9 / 8,
                "{ttl}: {rounded:?}"
            );
            assert_eq!(super::rounded(rounded), rounded, "{ttl}");
        }
    }

    #[test]
    fn an_unused_ttl_is_forgotten() {
        let (ttls, now) = (Ttls::default(), SystemClock.now());
        ttls.uses(MS * 8, now);
        ttls.learn([(MS * 1000, MS * 5)], now);
        ttls.learn([(MS * 1000, MS * 3)], now);
        assert_eq!(ttls.longest(now), MS * 1000);
        assert_eq!(ttls.longest(now + MS * 5), MS * 8);
        assert_eq!(ttls.pairs(now), [(MS * 8, MS * 16), (MS * 1000, MS * 5)]);
        assert_eq!(ttls.pairs(now + MS * 5), [(MS * 8, MS * 11)]);
        assert!(ttls.pairs(now + MS * 16).is_empty());
    }
}
