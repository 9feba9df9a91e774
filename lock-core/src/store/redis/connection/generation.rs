//! What counts of a connection that is not in use any more.
//!
//! It has **ended** if it broke, fell silent, or met a replica. The replies to requests under way still count then. Its messages do
//! not: its successor receives the same ones.
//!
//! It was **left** if its server was replaced: the new master may know nothing of a grant. So neither counts, nor what a sentinel says
//! over it, also if it had ended before. All exclusion in a failover rests on that, and this is the only place where it is decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One connection to a server, from its dial to its end.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct Generation {
    /// Of two connections to one server, the newer one has the larger number.
    pub(in crate::store::redis) number: u64,
    has_ended: AtomicBool,
    /// All below this number were left.
    left: Arc<AtomicU64>,
}

impl Generation {
    pub(in crate::store::redis) fn new(number: u64, left: &Arc<AtomicU64>) -> Self {
        Self {
            number,
            has_ended: AtomicBool::new(false),
            left: Arc::clone(left),
        }
    }

    pub(in crate::store::redis) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Whether its replies count, and what a sentinel says over it.
    pub(in crate::store::redis) fn replies_count(&self) -> bool {
        self.number >= self.left.load(Ordering::SeqCst)
    }

    pub(in crate::store::redis) fn messages_count(&self) -> bool {
        !self.has_ended.load(Ordering::SeqCst) && self.replies_count()
    }
}
