//! The masters of a cluster, as far as they are known, and the locks that each serves.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::late::{LATE, round_trip};
use super::rounds::{Refresh, RefreshState};
use super::slots::{Range, fence_of, tag_of};
use super::table::Table;
use crate::base::error::{Cause, LockError};
use crate::base::key::LockKey;
use crate::base::slot::slot_of;
use crate::base::sync::lock;
use crate::store::calls::Part;
use crate::store::redis::connection::cluster_settings::Address;
use crate::store::redis::connection::cluster_settings::ClusterAddresses;
use crate::store::redis::connection::settings::RedisConfig;
use crate::store::redis::connection::target::Target;
use crate::store::redis::server::Server;
use crate::store::redis::server::source::{InCluster, Source};
use crate::store::redis::wire::Name;
use crate::store::{Attached, EngineRef, StoreError};

/// The masters of a cluster.
pub(in crate::store::redis) struct Cluster {
    pub(super) me: Weak<Self>,
    /// The nodes of the URL.
    pub(super) seeds: Vec<Target>,
    pub(super) limit: Duration,
    /// Where the nodes are for this client.
    addresses: Option<ClusterAddresses>,
    pub(super) table: Mutex<Table>,
    pub(super) refresh: Arc<Refresh>,
    pub(super) engine: EngineRef,
}

#[derive(Debug, thiserror::Error)]
#[error("no node that answers serves any slot")]
struct NoSlots;

impl Cluster {
    pub(super) fn new(seeds: Vec<Target>, config: &RedisConfig, limit: Duration) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            seeds,
            limit,
            addresses: config.cluster_addresses.clone(),
            table: Mutex::new(Table::new()),
            refresh: Arc::default(),
            engine: EngineRef::default(),
        })
    }

    pub(in crate::store::redis) fn attach(&self, engine: Attached) {
        self.engine.attach(engine);
    }

    /// The key of the counter of fencing tokens of a lock.
    #[expect(clippy::unused_self, reason = "only a cluster has one in each slot")]
    pub(in crate::store::redis) fn fence<'a>(&self, namespace: &'a str, lock: &str) -> Name<'a> {
        fence_of(namespace, lock)
    }

    /// The master of a lock, as far as is known.
    pub(in crate::store::redis) fn owner(&self, lock_name: &str) -> Option<Arc<Server>> {
        lock(&self.table).owner(slot_of(lock_name)).cloned()
    }

    pub(super) fn is_served_by(&self, slot: usize, address: &Address) -> bool {
        lock(&self.table).is_served_by(slot, address)
    }

    pub(super) fn masters(&self) -> Vec<Arc<Server>> {
        lock(&self.table).masters().to_vec()
    }

    /// Whether the engine holds or waits for a lock, or has released one that a new master may still have.
    pub(super) fn is_in_use(&self) -> bool {
        let engine = self.engine.events();
        engine.is_some_and(|engine| engine.is_in_use() || engine.has_released_lately())
    }

    /// The time after which an answer is late. The node with the shortest round trip counts: another one may have been stopped when its
    /// connection was made.
    pub(super) fn late(&self) -> Duration {
        let masters = self.masters();
        let round_trips = masters.iter().filter_map(|node| round_trip(node));
        let round_trips = round_trips.filter(|round_trip| !round_trip.is_zero());
        let round_trip = round_trips.min().unwrap_or_default();
        LATE.0.max(round_trip * LATE.1)
    }

    /// Where a node is for this client.
    pub(super) fn target(&self, (host, port): &Address) -> Result<Target, StoreError> {
        let (host, port) = match &self.addresses {
            Some(addresses) => addresses.of(host, *port),
            None => (host.to_string(), *port),
        };
        self.seeds[0].at(&host, port).map_err(|error| match error {
            LockError::InvalidConfig { reason } => StoreError::Misconfigured(reason.into()),
            other => StoreError::Misconfigured(other.to_string().into()),
        })
    }

    /// The node at this address, which serves this slot. Connects with the first request.
    pub(super) fn node(&self, address: &Address, slot: usize) -> Result<Arc<Server>, StoreError> {
        let mut table = lock(&self.table);
        if let Some(node) = table.nodes.get(address) {
            return Ok(Arc::clone(node));
        }
        let in_cluster = InCluster {
            address: address.clone(),
            tag: tag_of(slot),
        };
        let source = Source::of_cluster(self.target(address)?, in_cluster);
        let node = Server::open(source, self.limit);
        if let Some(engine) = self.engine.get() {
            let part = Arc::new(OfNode {
                cluster: Weak::clone(&self.me),
                address: address.clone(),
            });
            node.attach(&engine.for_part(part));
        }
        table.nodes.insert(address.clone(), Arc::clone(&node));
        Ok(node)
    }

    /// The slots are as in this answer. Returns whether that is news.
    pub(super) fn apply(&self, ranges: &[Range]) -> Result<bool, StoreError> {
        let nodes = ranges
            .iter()
            .map(|range| self.node(&range.master, range.first));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        let applied = lock(&self.table).apply(ranges, &nodes, Instant::now());
        for node in &applied.gone {
            node.retire();
        }
        if applied.is_news() {
            self.have_moved(&|key| applied.moved[slot_of(key.lock())]);
        }
        Ok(applied.is_news())
    }

    /// These locks have another master. Its data may be older, and messages may be lost: their waiters ask, and their leases are
    /// confirmed.
    pub(super) fn have_moved(&self, concerned: &dyn Fn(&LockKey) -> bool) {
        if let Some(engine) = self.engine.events() {
            engine.interrupted(concerned);
            engine.reconnected(concerned);
        }
    }
}

pub(super) fn no_slots() -> StoreError {
    let cause = Cause::of(Arc::new(NoSlots));
    let create = "create the cluster with `redis-cli --cluster create`";
    StoreError::NotNow(cause.advised(Some(create)))
}

/// The locks of one master.
struct OfNode {
    cluster: Weak<Cluster>,
    address: Address,
}

impl Part for OfNode {
    /// Every master receives each message and passes it on to its clients: one of the copies counts.
    fn serves(&self, lock: &str) -> bool {
        let cluster = self.cluster.upgrade();
        cluster.is_some_and(|cluster| cluster.is_served_by(slot_of(lock), &self.address))
    }

    fn is_in_doubt(&self) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.refresh.hurries(RefreshState::wants_another);
        }
    }
}
