//! A connection in use, and when an answer on it is late.

use std::time::Duration;

use super::socket::Socket;
use crate::time::Moment;

/// After this time an answer is late: minimum, and maximum where round trips are long. It is shorter than any failover.
const LATE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

#[derive(Clone)]
pub(super) struct Live {
    pub(super) generation: u64,
    /// The time before it was made, and how long that took.
    pub(super) dialled: Moment,
    pub(super) made_in: Duration,
    pub(super) socket: Socket,
}

impl Live {
    /// The time after which an answer is late.
    pub(super) fn late(&self) -> Duration {
        (self.socket.silence.round_trip() * 3).clamp(LATE.0, LATE.1)
    }

    pub(super) fn was_made_late(&self) -> bool {
        self.made_in > LATE.0
    }
}
