//! Listening to a lock for as long as somebody waits for it.

use std::fmt;
use std::sync::Arc;

/// What keeps subscriptions, and ends one when its last listener has gone.
pub(crate) trait Announcer: Send + Sync {
    /// One listener less. Called in `drop`: it does no I/O and never panics.
    fn left(&self, channel: &str, lock: &str);
}

/// One listener to the announcements of one lock. Any number of them share one subscription on the server; it ends
/// with the last of them.
pub(crate) struct Subscription {
    announcer: Arc<dyn Announcer>,
    channel: Box<str>,
    lock: Box<str>,
}

impl Subscription {
    /// For a listener that `announcer` counts already.
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
