//! Servers that do not renew leases, or do not answer waiters: when the log says so, and when it says that they answer again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::key::LockKey;
use crate::base::sync::lock;
use crate::base::time::Moment;

/// Minimum time between two warnings about one server.
const INTERVAL: Duration = Duration::from_secs(5);

/// Time of an outage that costs waiters only, before the first warning.
const SHORT: Duration = Duration::from_secs(1);

/// The outages of the servers that this client has locks on.
#[derive(Debug, Default)]
pub(super) struct Outages {
    all: Mutex<Vec<Outage>>,
    /// Number of outages: each answer asks for it, and mostly it is 0.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Outage {
    /// One of the server's locks. It still leads to the server that has the locks after a failover.
    key: Arc<LockKey>,
    since: Moment,
    /// When the log was last told of leases, and of waiters.
    warned_at: [Option<Moment>; 2],
    lost: u64,
    /// When the server has answered. The losses that it caused may not be known yet.
    over: Option<Moment>,
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

    /// Requests that were sent at `since` have failed: renewals, or those of a waiter. `is_there` tells whether another lock is on
    /// the same server. Returns whether a warning is due.
    pub(super) fn failed(
        &self,
        key: &Arc<LockKey>,
        is_there: impl Fn(&LockKey) -> bool,
        since: Moment,
        now: Moment,
        of_waiter: bool,
    ) -> bool {
        let mut all = lock(&self.all);
        let known = all.iter().position(|outage| is_there(&outage.key));
        let at = known.unwrap_or_else(|| {
            all.push(Outage {
                key: Arc::clone(key),
                since,
                warned_at: [None; 2],
                lost: 0,
                over: None,
            });
            self.count.store(all.len(), Ordering::Relaxed);
            all.len() - 1
        });
        let outage = &mut all[at];
        outage.over = None;
        let first = if of_waiter { outage.since + SHORT } else { now };
        let warned_at = &mut outage.warned_at[usize::from(of_waiter)];
        let is_due = warned_at.map_or(first, |at| at + INTERVAL) <= now;
        if is_due {
            *warned_at = Some(now);
        }
        is_due
    }

    /// Notes that a lease was lost.
    pub(super) fn lost(&self, is_there: impl Fn(&LockKey) -> bool) {
        let mut all = lock(&self.all);
        if let Some(outage) = all.iter_mut().find(|outage| is_there(&outage.key)) {
            outage.lost += 1;
        }
    }

    /// Notes that the server has answered, or that a connection to it was made. Returns whether that ends an outage.
    pub(super) fn answered(&self, is_there: impl Fn(&LockKey) -> bool, now: Moment) -> bool {
        let mut all = lock(&self.all);
        let goes_on = |it: &&mut Outage| it.over.is_none() && is_there(&it.key);
        let ended = all.iter_mut().filter(goes_on);
        ended.map(|outage| outage.over = Some(now)).count() > 0
    }

    /// The outages that have ended without a lease left in doubt, of those that the log was told of.
    pub(super) fn ended(&self, is_in_doubt: impl Fn(&LockKey) -> bool) -> Vec<PastOutage> {
        let mut all = lock(&self.all);
        let ended = all.extract_if(.., |outage| {
            outage.over.is_some() && !is_in_doubt(&outage.key)
        });
        let is_told = |outage: &Outage| outage.warned_at.iter().any(Option::is_some);
        let ended = ended.filter(is_told).map(|outage| PastOutage {
            lasted: outage.since.until(outage.over.unwrap_or(outage.since)),
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
        assert!(!outages.is_any() && !outages.answered(on_a, at(1)));
        assert!(outages.failed(&a, on_a, at(2), at(3), false));
        assert!(!outages.failed(&a, on_a, at(3), at(7), false));
        let on_b = |key: &LockKey| key.lock() == "b";
        assert!(!outages.failed(&b, on_b, at(7), at(7), true));
        assert!(outages.failed(&b, on_b, at(8), at(8), true));
        assert!(outages.failed(&a, on_a, at(7), at(8), false));
        assert!(outages.answered(on_a, at(10)) && !outages.answered(on_a, at(11)));
        assert!(outages.ended(on_a).is_empty(), "a lease is in doubt");
        outages.lost(on_a);
        let ended = PastOutage {
            key: a,
            lasted: Duration::from_secs(8),
            lost: 1,
        };
        assert_eq!(outages.ended(|_| false), [ended]);
        assert!(outages.is_any(), "the other one goes on");
    }
}
