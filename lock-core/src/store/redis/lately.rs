//! The keys that were found contended a moment ago: a request in its brief form would not be enough.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::key::LockKey;
use crate::base::time::Moment;

/// How long a key counts as contended.
const LASTS: Duration = Duration::from_secs(1);

/// Two keys may share a place. Then a request has its full form without need.
#[derive(Debug)]
pub(super) struct Lately(Box<[AtomicU64; 256]>);

impl Default for Lately {
    fn default() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; 256]))
    }
}

impl Lately {
    pub(super) fn found(&self, key: &LockKey, now: Moment) {
        let until = now + LASTS;
        self.0[key.place()].store(until.0, Ordering::Relaxed);
    }

    pub(super) fn has_found(&self, key: &LockKey, now: Moment) -> bool {
        let until = Moment(self.0[key.place()].load(Ordering::Relaxed));
        now < until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_counts_as_contended_for_a_second() {
        let (lately, now) = (Lately::default(), Moment(1));
        let key = LockKey::new("", "a").unwrap();
        assert!(!lately.has_found(&key, now));
        lately.found(&key, now);
        assert!(lately.has_found(&key, now + LASTS / 2));
        assert!(!lately.has_found(&key, now + Duration::from_secs(1)));
    }
}
