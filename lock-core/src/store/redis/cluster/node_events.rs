//! The messages of one master, for the locks that it serves.

use std::sync::{Arc, Weak};

use super::Cluster;
use super::node::Node;
use super::slots::{Address, tag_of};
use crate::base::key::LockKey;
use crate::base::observe::Event;
use crate::base::slot::slot_of;
use crate::base::sync::lock;
use crate::store::{Concerned, EventSink, Events, Grant, StoreError};

impl Cluster {
    /// The node at this address, which serves this slot. Connects with the first request.
    pub(super) fn node(&self, address: &Address, slot: usize) -> Result<Arc<Node>, StoreError> {
        let mut table = lock(&self.table);
        if let Some(node) = table.nodes.get(address) {
            return Ok(Arc::clone(node));
        }
        let target = self.target(address)?;
        let attached = self.engine.get();
        let engine: EventSink = match attached {
            Some(attached) => Weak::clone(&attached.sink),
            None => Weak::<NodeEvents>::new(),
        };
        let events = NodeEvents {
            cluster: Weak::clone(&self.me),
            address: address.clone(),
            engine,
        };
        let node = Arc::new(Node::new(
            address.clone(),
            target,
            tag_of(slot),
            self.limit,
            Arc::new(events),
        ));
        if let Some(attached) = attached {
            node.attach(attached.clone());
        }
        table.nodes.insert(address.clone(), Arc::clone(&node));
        Ok(node)
    }
}

/// Passes the messages of one master on to the engine, for the locks that it serves.
struct NodeEvents {
    cluster: Weak<Cluster>,
    address: Address,
    engine: EventSink,
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

    fn observed(&self, event: &Event<'_>) {
        self.tell(|engine| engine.observed(event));
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
