//! Whether an answer was so late that the master may have been replaced meanwhile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::store::redis::server::Server;

/// After this time an answer is late: it is shorter than any failover. Or after this number of round trips.
pub(super) const LATE: (Duration, u32) = (Duration::from_millis(100), 3);

/// Duration of a round trip, if there is a connection.
pub(super) fn round_trip(node: &Server) -> Option<Duration> {
    Some(node.current()?.silence.round_trip())
}

/// Whether another node may have taken its place while it did not answer: after an answer that took this long, or on a connection
/// that was made slowly. A master that was stopped and replaced answers what lies in its sockets before it learns of that.
pub(super) fn may_be_replaced(
    node: &Server,
    took: Duration,
    late: impl FnOnce() -> Duration,
) -> bool {
    let Some(connection) = node.current() else {
        return true;
    };
    // Almost never longer than this: the rest is looked at only then.
    if took.max(connection.made_in) <= LATE.0 {
        return false;
    }
    let late = late();
    let is_confirmed = connection.is_confirmed.load(Ordering::Relaxed);
    took > late || (connection.made_in > late && !is_confirmed)
}

/// Another node says that this one is a master.
pub(super) fn confirm(node: &Server) {
    if let Some(connection) = node.current() {
        connection.is_confirmed.store(true, Ordering::Relaxed);
    }
}
