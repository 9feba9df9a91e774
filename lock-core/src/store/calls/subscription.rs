//! A subscription to the announcements of a lock, for as long as a waiter needs it.

use std::fmt;
use std::sync::Arc;

/// Keeps subscriptions, and ends each when its last subscriber has left.
pub(crate) trait Announcer: Send + Sync {
    /// Removes one subscriber. Called in `drop`: it does no I/O and never panics.
    fn left(&self, channel: &str, lock: &str);
}

/// One subscriber to the announcements of one lock. All subscribers share one subscription on the server, which ends with
/// the last of them.
pub(crate) struct Subscription {
    announcers: Vec<Arc<dyn Announcer>>,
    channel: Box<str>,
    lock: Box<str>,
}

impl Subscription {
    /// A subscriber that each of `announcers` has counted already.
    pub(crate) fn counted(announcers: Vec<Arc<dyn Announcer>>, channel: &str, lock: &str) -> Self {
        Self {
            announcers,
            channel: channel.into(),
            lock: lock.into(),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for announcer in &self.announcers {
            announcer.left(&self.channel, &self.lock);
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}
