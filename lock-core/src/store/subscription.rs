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
    announcer: Arc<dyn Announcer>,
    channel: Box<str>,
    lock: Box<str>,
}

impl Subscription {
    /// A subscriber that `announcer` has counted already.
    pub(crate) fn counted(announcer: Arc<dyn Announcer>, channel: &str, lock: &str) -> Self {
        Self {
            announcer,
            channel: channel.into(),
            lock: lock.into(),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.announcer.left(&self.channel, &self.lock);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}
