//! One master of a cluster, and its messages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::slots::Address;
use super::{Cluster, LATE};
use crate::key::LockKey;
use crate::rt::Handle;
use crate::slot::slot_of;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::source::Source;
use crate::store::redis::target::Target;
use crate::store::{Concerned, EventSink, Events, Grant, StoreError};
use crate::token::ClientId;

/// A master.
pub(in crate::store::redis) struct Node {
    pub(in crate::store::redis) endpoint: Endpoint,
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
        events: NodeEvents,
    ) -> Self {
        Self {
            endpoint: Endpoint::open(Source::of_cluster(target, tag), limit),
            address,
            events: Arc::new(events),
            confirmed: AtomicU64::new(0),
        }
    }

    /// Waits for the connection.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        let ready = self.endpoint.ready().await;
        ready.map_err(|error| error.at(&self.endpoint.address()))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.endpoint.generation().is_some()
    }

    /// Duration of a round trip, if there is a connection.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let live = self.endpoint.link.current()?;
        Some(live.socket.silence.round_trip())
    }

    /// Whether another node may have taken its place while it did not answer: after an answer that took this long, or on a connection
    /// that was made slowly. A master that was stopped and replaced answers what lies in its sockets before it learns of that.
    pub(super) fn may_be_replaced(&self, took: Duration, late: impl FnOnce() -> Duration) -> bool {
        let Some((generation, made_in)) = self.endpoint.link.made_in() else {
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
        if let Some(generation) = self.endpoint.generation() {
            self.confirmed.fetch_max(generation + 1, Ordering::Relaxed);
        }
    }

    pub(super) fn attach(&self, client: &ClientId, runtime: Handle) {
        let sink = Arc::downgrade(&self.events);
        self.endpoint.link.attach(client, sink, runtime);
    }
}

/// Passes the messages of one master on to the engine, for the locks that it serves.
pub(super) struct NodeEvents {
    pub(super) cluster: Weak<Cluster>,
    pub(super) address: Address,
    pub(super) engine: EventSink,
}

impl NodeEvents {
    fn tell(&self, event: impl FnOnce(&dyn Events)) {
        if let Some(engine) = self.engine.upgrade() {
            event(&*engine);
        }
    }

    /// Whether the master serves this lock, as far as is known.
    fn serves(&self, lock: &str) -> bool {
        let cluster = self.cluster.upgrade();
        cluster.is_some_and(|cluster| cluster.is_served_by(slot_of(lock), &self.address))
    }
}

impl Events for NodeEvents {
    /// Every master receives each message and passes it on to its clients: one of the copies counts.
    fn granted(&self, token: &str, grant: Grant, lock: &str) {
        if self.serves(lock) {
            self.tell(|engine| engine.granted(token, grant, lock));
        }
    }

    fn contended(&self, token: &str) {
        self.tell(|engine| engine.contended(token));
    }

    fn revoked(&self, token: &str) {
        self.tell(|engine| engine.revoked(token));
    }

    fn freed(&self, token: &str) {
        self.tell(|engine| engine.freed(token));
    }

    fn unlocked(&self, lock: &str) {
        self.tell(|engine| engine.unlocked(lock));
    }

    fn interrupted(&self, of: Concerned<'_>) {
        let concerned = |key: &LockKey| of(key) && self.serves(key.lock());
        self.tell(|engine| engine.interrupted(&concerned));
        // The master may have failed.
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.refresh();
        }
    }

    fn reconnected(&self, of: Concerned<'_>) {
        let concerned = |key: &LockKey| of(key) && self.serves(key.lock());
        self.tell(|engine| engine.reconnected(&concerned));
    }

    fn is_in_use(&self) -> bool {
        self.engine
            .upgrade()
            .is_some_and(|engine| engine.is_in_use())
    }

    fn has_released_lately(&self) -> bool {
        self.engine
            .upgrade()
            .is_some_and(|engine| engine.has_released_lately())
    }

    fn largest_token(&self) -> u64 {
        self.engine
            .upgrade()
            .map_or(0, |engine| engine.largest_token())
    }
}
