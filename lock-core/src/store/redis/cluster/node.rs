//! One master of a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::slots::Address;
use crate::store::redis::link::Link;
use crate::store::redis::source::Source;
use crate::store::redis::target::Target;
use crate::store::{Attached, Events, StoreError};

/// After this time an answer is late: it is shorter than any failover. Or after this number of round trips.
pub(super) const LATE: (Duration, u32) = (Duration::from_millis(100), 3);

/// A master.
pub(in crate::store::redis) struct Node {
    pub(in crate::store::redis) link: Arc<Link>,
    /// As the cluster names it.
    pub(super) address: Address,
    /// Keeps the receiver of its messages.
    events: Arc<dyn Events>,
    /// Connections below this generation were made quickly, or other nodes have confirmed since that this one is a master.
    confirmed: AtomicU64,
}

impl Node {
    pub(super) fn new(
        address: Address,
        target: Target,
        tag: &'static str,
        limit: Duration,
        events: Arc<dyn Events>,
    ) -> Self {
        Self {
            link: Link::open(Source::of_cluster(target, tag), limit),
            address,
            events,
            confirmed: AtomicU64::new(0),
        }
    }

    /// Waits for the connection.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        self.link.ready().await
    }

    pub(super) fn is_connected(&self) -> bool {
        self.link.generation().is_some()
    }

    /// Duration of a round trip, if there is a connection.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let live = self.link.current()?;
        Some(live.socket.silence.round_trip())
    }

    /// Whether another node may have taken its place while it did not answer: after an answer that took this long, or on a connection
    /// that was made slowly. A master that was stopped and replaced answers what lies in its sockets before it learns of that.
    pub(super) fn may_be_replaced(&self, took: Duration, late: impl FnOnce() -> Duration) -> bool {
        let Some((generation, made_in)) = self.link.made_in() else {
            return true;
        };
        // Almost never longer than this: the rest is looked at only then.
        if took.max(made_in) <= LATE.0 {
            return false;
        }
        let late = late();
        let is_confirmed = generation < self.confirmed.load(Ordering::Relaxed);
        took > late || (made_in > late && !is_confirmed)
    }

    /// Another node says that this one is a master.
    pub(super) fn is_confirmed(&self) {
        if let Some(generation) = self.link.generation() {
            self.confirmed.fetch_max(generation + 1, Ordering::Relaxed);
        }
    }

    pub(super) fn attach(&self, mut engine: Attached) {
        engine.sink = Arc::downgrade(&self.events);
        self.link.attach(&engine);
    }
}
