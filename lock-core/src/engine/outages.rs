//! Servers that do not renew leases: when the log says so, and what it says when they answer again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::key::LockKey;
use crate::base::sync::lock;
use crate::base::time::Moment;

/// Minimum time between two warnings about one server.
const INTERVAL: Duration = Duration::from_secs(5);

/// The outages of the servers that this client has locks on.
#[derive(Debug, Default)]
pub(super) struct Outages {
    all: Mutex<Vec<Outage>>,
    /// Their number: each answer asks for it, and mostly there are none.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Outage {
    /// One of the server's locks. It still leads to the server that has the locks after a failover.
    key: Arc<LockKey>,
    since: Moment,
    warned_at: Moment,
    lost: u64,
}

/// An outage that is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PastOutage {
    pub(super) key: Arc<LockKey>,
    pub(super) lasted: Duration,
    pub(super) lost: u64,
}

impl Outages {
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Renewals that were sent at `since` have failed. `is_there` tells whether another lock is on the same server. Returns
    /// whether a warning is due.
    pub(super) fn failed(
        &self,
        key: &Arc<LockKey>,
        is_there: impl Fn(&LockKey) -> bool,
        since: Moment,
        now: Moment,
    ) -> bool {
        let mut all = lock(&self.all);
        if let Some(outage) = all.iter_mut().find(|outage| is_there(&outage.key)) {
            let is_due = outage.warned_at + INTERVAL <= now;
            if is_due {
                outage.warned_at = now;
            }
            return is_due;
        }
        all.push(Outage {
            key: Arc::clone(key),
            since,
            warned_at: now,
            lost: 0,
        });
        self.count.store(all.len(), Ordering::Relaxed);
        true
    }

    /// A lease was lost.
    pub(super) fn lost(&self, is_there: impl Fn(&LockKey) -> bool) {
        let mut all = lock(&self.all);
        if let Some(outage) = all.iter_mut().find(|outage| is_there(&outage.key)) {
            outage.lost += 1;
        }
    }

    /// The server has answered, or is connected to again.
    pub(super) fn ended(
        &self,
        is_there: impl Fn(&LockKey) -> bool,
        now: Moment,
    ) -> Vec<PastOutage> {
        let mut all = lock(&self.all);
        let ended = all.extract_if(.., |outage| is_there(&outage.key));
        let ended = ended.map(|outage| PastOutage {
            lasted: outage.since.until(now),
            lost: outage.lost,
            key: outage.key,
        });
        let ended = ended.collect();
        self.count.store(all.len(), Ordering::Relaxed);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Arc<LockKey> {
        Arc::new(LockKey::new("", name).unwrap())
    }

    fn at(seconds: u64) -> Moment {
        Moment(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn one_warning_in_five_seconds_and_one_end_for_each_server() {
        let (outages, a, b) = (Outages::default(), key("a"), key("b"));
        let on_a = |key: &LockKey| key.lock() == "a";
        assert!(!outages.is_any() && outages.ended(on_a, at(1)).is_empty());
        assert!(outages.failed(&a, on_a, at(2), at(3)));
        assert!(!outages.failed(&a, on_a, at(3), at(7)));
        assert!(outages.failed(&b, |key| key.lock() == "b", at(6), at(7)));
        assert!(outages.failed(&a, on_a, at(7), at(8)));
        outages.lost(on_a);
        let ended = PastOutage {
            key: a,
            lasted: Duration::from_secs(8),
            lost: 1,
        };
        assert_eq!(outages.ended(on_a, at(10)), [ended]);
        assert!(outages.ended(on_a, at(11)).is_empty());
        assert!(outages.is_any(), "the other one goes on");
    }
}
