//! The rounds in which the slots are asked for: which have begun, which are wanted. Data only.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::base::backoff::Backoff;
use crate::base::signal::Signal;
use crate::base::single_flight::SingleFlight;
use crate::base::sync::lock;
use crate::store::StoreError;
use crate::store::redis::server::Server;

/// Maximum pause after a round: the first, and after rounds that brought no news.
const PAUSE: (Duration, Duration) = (Duration::from_millis(150), Duration::from_millis(250));

#[derive(Default)]
pub(super) struct Refresh {
    pub(super) state: Mutex<RefreshState>,
    pub(super) task: SingleFlight,
    /// Notified when a round is over.
    pub(super) over: Signal,
    /// Notified when a round is wanted.
    pub(super) hurry: Notify,
}

pub(super) struct RefreshState {
    /// Whether the task found the engine idle.
    pub(super) idle: bool,
    /// Numbers of rounds: the last one that has begun, that is over, and that is wanted.
    pub(super) begun: u64,
    pub(super) over: u64,
    pub(super) wanted: u64,
    /// The last round that a caller waits for.
    pub(super) awaited: u64,
    /// Since when a master is in doubt.
    pub(super) in_doubt: Option<Instant>,
    /// Nodes that are not asked in the next round, because their own word is in doubt.
    pub(super) doubted: Vec<Arc<Server>>,
    pub(super) last: Option<Instant>,
    pub(super) backoff: Backoff,
    pub(super) pause: Duration,
    pub(super) error: Option<StoreError>,
}

impl Refresh {
    /// A round is wanted of the task, if it runs.
    pub(super) fn hurries(&self, what: impl FnOnce(&mut RefreshState)) {
        what(&mut lock(&self.state));
        self.hurry.notify_one();
    }
}

impl RefreshState {
    pub(super) fn wants_another(&mut self) {
        self.wanted = self.wanted.max(self.begun + 1);
    }

    /// The next round may begin after a pause.
    pub(super) fn rest(&mut self) {
        self.pause = self.backoff.failed();
    }
}

impl Default for RefreshState {
    fn default() -> Self {
        Self {
            idle: false,
            begun: 0,
            over: 0,
            wanted: 0,
            awaited: 0,
            in_doubt: None,
            doubted: Vec::new(),
            last: None,
            backoff: Backoff::new(PAUSE.0, PAUSE.1),
            pause: Duration::ZERO,
            error: None,
        }
    }
}
