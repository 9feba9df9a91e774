//! The keys that were found contended a moment ago: a request in its brief form would be answered with nil.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::key::LockKey;
use crate::base::time::{Clock, Moment, SystemClock};

/// How long a key counts as contended.
const LASTS: Duration = Duration::from_secs(1);

/// Two keys may share a place. Then a request has its full form without need.
#[derive(Debug)]
pub(super) struct Lately([AtomicU64; 256]);

impl Default for Lately {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; 256])
    }
}

impl Lately {
    pub(super) fn found(&self, key: &LockKey) {
        let until = SystemClock.now() + LASTS;
        self.0[key.place()].store(until.0, Ordering::Relaxed);
    }

    pub(super) fn has_found(&self, key: &LockKey) -> bool {
        let until = Moment(self.0[key.place()].load(Ordering::Relaxed));
        SystemClock.now() < until
    }
}
