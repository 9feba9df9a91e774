//! A cluster: a master for each range of slots. A request goes to the master of its lock's slot, and follows the cluster's replies.
//!
//! All keys of a lock are in its slot. A grant is a message on the client's channel, as on one master: the client receives on the
//! connection to each master, and a master forwards each message to all others. So a waiter is told also when its slot has moved.

mod ask;
mod node;
mod node_events;
mod redirect;
mod refresh;
mod rounds;
mod scan;
mod slots;
mod table;

use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::{RedisError, Value};
use tokio::time::Instant;

use self::node::LATE;
pub(super) use self::node::Node;
use self::redirect::{NONE, NextStep, Redirections, Said};
use self::rounds::Refresh;
pub(super) use self::slots::fence_of;
use self::slots::{Address, Range};
use self::table::Table;
use super::call::{Call, CallFailure, Purpose};
use super::script::RAISE;
use super::settings::{ClusterAddresses, RedisConfig};
use super::target::Target;
use super::wire::Arg;
use crate::base::error::Cause;
use crate::base::error::LockError;
use crate::base::finding::Finding;
use crate::base::key::LockKey;
use crate::base::slot::slot_of;
use crate::base::sync::lock;
use crate::store::{EngineRef, StoreError};

/// The masters of a cluster.
pub(super) struct Cluster {
    me: Weak<Self>,
    /// The nodes of the URL.
    seeds: Vec<Target>,
    limit: Duration,
    /// Where the nodes are for this client.
    addresses: Option<ClusterAddresses>,
    table: Mutex<Table>,
    refresh: Arc<Refresh>,
    pub(super) engine: EngineRef,
}

/// Where a request goes.
struct Route {
    node: Arc<Node>,
    /// Whether the node got the slot from another one, and its counter may be behind the tokens of this client.
    is_behind: bool,
    /// Whether the node is only taking the slot over, so that the request follows an `ASKING`.
    asks: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("no node of the cluster serves the slot {0} of this lock")]
struct Unserved(usize);

#[derive(Debug, thiserror::Error)]
#[error("no node that answers serves any slot")]
struct NoSlots;

#[derive(Debug, thiserror::Error)]
#[error("the slot of this lock is half moved to another node")]
struct HalfMoved;

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

    /// Learns the slots, and connects to the masters. Some of them may be away.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        self.refreshed(None).await?;
        let nodes = self.masters();
        let connected = nodes.iter().map(|node| node.ready());
        let mut failures = Vec::new();
        for connected in join_all(connected).await {
            match connected {
                Err(error @ StoreError::Misconfigured(_)) => return Err(error),
                Err(error) => failures.push(error),
                Ok(()) => {}
            }
        }
        if failures.len() < nodes.len() {
            return Ok(());
        }
        Err(failures.pop().unwrap_or_else(no_slots))
    }

    /// Examines each master.
    pub(super) async fn examine(&self) -> Vec<Finding> {
        let nodes = self.masters();
        let examined = nodes.iter().map(|node| node.link.examine());
        join_all(examined).await.into_iter().flatten().collect()
    }

    /// A tag in a slot of each master, if each slot has one.
    pub(super) async fn parts(&self) -> Result<Vec<&'static str>, StoreError> {
        if let Ok(tags) = lock(&self.table).tags() {
            return Ok(tags);
        }
        self.refreshed(None).await?;
        lock(&self.table).tags().map_err(unserved)
    }

    /// Waits for the connection to the master of a lock. If that one is away, another one may have taken its place.
    pub(super) async fn connected(&self, lock_name: &str) -> Result<(), StoreError> {
        let Some(node) = self.owner(lock_name) else {
            // The request itself asks for the slots.
            return Ok(());
        };
        let Err(error) = node.ready().await else {
            return Ok(());
        };
        match self.successor(slot_of(lock_name), &node).await {
            Some(node) => node.ready().await,
            None => Err(error),
        }
    }

    /// The master that has taken the place of this one, if any.
    async fn successor(&self, slot: usize, node: &Arc<Node>) -> Option<Arc<Node>> {
        // The node itself may not know it yet.
        let _ = self.refreshed(Some(node)).await;
        let table = lock(&self.table);
        let owner = table.owner(slot)?;
        (!Arc::ptr_eq(owner, node)).then(|| Arc::clone(owner))
    }

    /// The master of a lock, as far as is known.
    pub(super) fn owner(&self, lock_name: &str) -> Option<Arc<Node>> {
        lock(&self.table).owner(slot_of(lock_name)).cloned()
    }

    fn is_served_by(&self, slot: usize, address: &Address) -> bool {
        lock(&self.table).is_served_by(slot, address)
    }

    fn masters(&self) -> Vec<Arc<Node>> {
        lock(&self.table).masters().to_vec()
    }

    /// Whether the engine holds or waits for a lock, or has released one that a new master may still have.
    fn is_in_use(&self) -> bool {
        let engine = self.engine.events();
        engine.is_some_and(|engine| engine.is_in_use() || engine.has_released_lately())
    }

    /// Runs a script at the master of its first key.
    pub(super) async fn run(&self, call: Call<'_>) -> Result<Value, StoreError> {
        self.is_used();
        let (slot, timers) = (slot_of(call.lock()), self.engine.timers());
        let end = timers.now() + call.limit;
        let (mut redirections, mut asked) = (Redirections::default(), None);
        let mut tries = self.admitted(slot, end).await?;
        loop {
            let route = match asked.take() {
                Some(address) => Route {
                    node: self.node(&address, slot)?,
                    is_behind: false,
                    asks: true,
                },
                None => self.master_of(slot).await?,
            };
            let node = &route.node;
            let failure = match self.run_at(&route, call, end).await {
                Ok(value) if tries => {
                    lock(&self.table).is_settled(slot);
                    return Ok(value);
                }
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            if failure.was_not_sent()
                && let Ok(Some(_)) = timers.timeout_at(end, self.successor(slot, node)).await
            {
                continue;
            }
            let said = match &failure {
                CallFailure::Error(error) => {
                    Said::read(error, &node.address.0, call.script.is_ours())
                }
                CallFailure::Silence => Said::Other,
            };
            if said == Said::Down || failure.is_broken() {
                self.refresh();
            }
            let pause = match redirections.next(said) {
                NextStep::Done => return Err(failed(node, failure, call.limit)),
                NextStep::Ask(address) => {
                    asked = Some(address);
                    continue;
                }
                NextStep::Follow { to, after } if self.has_moved(slot, &to)? => after,
                NextStep::Follow { .. } => {
                    tries = self.admitted(slot, end).await?;
                    NONE
                }
                NextStep::Again { after } => after,
            };
            let pause = Duration::from_millis(fastrand::u64(pause));
            if timers.now() + pause >= end {
                return Err(failed(node, failure, call.limit));
            }
            if !pause.is_zero() {
                timers.sleep(pause).await;
            }
        }
    }

    /// Waits until a request for this slot may be sent. True if nodes disagree about it: the answer settles that.
    async fn admitted(&self, slot: usize, end: Instant) -> Result<bool, StoreError> {
        loop {
            let admitted = lock(&self.table).admits(slot, self.engine.timers().now());
            match admitted {
                Ok(tries) => return Ok(tries),
                Err(at) if at < end => self.engine.timers().sleep_until(at).await,
                Err(_) => return Err(half_moved()),
            }
        }
    }

    /// Runs a script at this node. A grant of a node that may not be the master of the slot any more is not believed.
    async fn run_at(
        &self,
        Route {
            node,
            is_behind,
            asks,
        }: &Route,
        call: Call<'_>,
        end: Instant,
    ) -> Result<Value, CallFailure> {
        let sent = self.engine.timers().now();
        let left = end.saturating_duration_since(sent);
        let run = node.link.call(call, left, *asks);
        let answer = if *is_behind {
            Box::pin(join(self.raise(node, call.lock()), run)).await.1?
        } else {
            run.await?
        };
        let is_vital = call.purpose == Purpose::Grant && !*asks;
        if !is_vital || !node.may_be_replaced(self.engine.timers().elapsed(sent), || self.late()) {
            return Ok(answer);
        }
        let slot = slot_of(call.lock());
        match self.refreshed(Some(node)).await {
            Ok(()) if self.is_served_by(slot, &node.address) => {
                node.is_confirmed();
                Ok(answer)
            }
            _ => Err(CallFailure::Error(unconfirmed())),
        }
    }

    /// The time after which an answer is late. The node with the shortest round trip counts: another one may have been stopped when its
    /// connection was made.
    fn late(&self) -> Duration {
        let masters = self.masters();
        let round_trips = masters.iter().filter_map(|node| node.round_trip());
        let round_trips = round_trips.filter(|round_trip| !round_trip.is_zero());
        let round_trip = round_trips.min().unwrap_or_default();
        LATE.0.max(round_trip * LATE.1)
    }

    /// Raises the counter of a slot at its new master, which may have lost the last writes of the old one.
    async fn raise(&self, node: &Node, lock_name: &str) {
        let engine = self.engine.events();
        let largest = engine.map_or(0, |engine| engine.largest_token());
        if largest > 0 {
            let raise = RAISE.by_text(
                &[fence_of(&self.seeds[0].namespace, lock_name)],
                &[Arg::Number(largest)],
            );
            // A server that refuses it mints nothing either, or its clock is the floor.
            let _ = node.link.ask(raise).await;
        }
    }

    async fn master_of(&self, slot: usize) -> Result<Route, StoreError> {
        let known = || {
            let mut table = lock(&self.table);
            let node = table.owner(slot).cloned()?;
            Some(Route {
                node,
                is_behind: table.is_behind(slot),
                asks: false,
            })
        };
        if let Some(route) = known() {
            return Ok(route);
        }
        self.refreshed(None).await?;
        known().ok_or_else(|| unserved(slot))
    }

    /// Where a node is for this client.
    fn target(&self, (host, port): &Address) -> Result<Target, StoreError> {
        let (host, port) = match &self.addresses {
            Some(addresses) => addresses.of(host, *port),
            None => (host.to_string(), *port),
        };
        self.seeds[0].at(&host, port).map_err(|error| match error {
            LockError::InvalidConfig { reason } => StoreError::Misconfigured(reason.into()),
            other => StoreError::Misconfigured(other.to_string().into()),
        })
    }

    /// A node says that another one serves this slot. False if the nodes disagree about it for a while: then the slot stays where it
    /// is.
    fn has_moved(&self, slot: usize, to: &Address) -> Result<bool, StoreError> {
        let node = self.node(to, slot)?;
        let news = lock(&self.table).moves(slot, &node, self.engine.timers().now());
        match news {
            Some(true) => {
                self.have_moved(&|key| slot_of(key.lock()) == slot);
                self.refresh_soon();
            }
            Some(false) => {}
            None => self.refresh(),
        }
        Ok(news.is_some())
    }

    /// The slots are as in this answer. Returns whether that is news.
    fn apply(&self, ranges: &[Range]) -> Result<bool, StoreError> {
        let nodes = ranges
            .iter()
            .map(|range| self.node(&range.master, range.first));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        let applied = lock(&self.table).apply(ranges, &nodes, Instant::now());
        for node in &applied.gone {
            node.link.retire();
        }
        if applied.is_news() {
            self.have_moved(&|key| applied.moved[slot_of(key.lock())]);
        }
        Ok(applied.is_news())
    }

    /// These locks have another master. Its data may be older, and messages may be lost: their waiters ask, and their leases are
    /// confirmed.
    fn have_moved(&self, concerned: &dyn Fn(&LockKey) -> bool) {
        if let Some(engine) = self.engine.events() {
            engine.interrupted(concerned);
            engine.reconnected(concerned);
        }
    }
}

fn unconfirmed() -> RedisError {
    io::Error::other("its answer was late, and no other node says that it is still the master")
        .into()
}

fn no_slots() -> StoreError {
    let cause = Cause::of(Arc::new(NoSlots));
    let create = "create the cluster with `redis-cli --cluster create`";
    StoreError::NotNow(cause.advised(Some(create)))
}

fn half_moved() -> StoreError {
    let cause = Cause::of(Arc::new(HalfMoved));
    StoreError::NotNow(cause.advised(Some("end that with `redis-cli --cluster fix`")))
}

fn unserved(slot: usize) -> StoreError {
    let cause = Cause::of(Arc::new(Unserved(slot)));
    StoreError::NotNow(cause.advised(Some("`redis-cli --cluster check` shows why")))
}

fn failed(node: &Node, failure: CallFailure, limit: Duration) -> StoreError {
    let error = if failure.is_half_moved() {
        half_moved()
    } else {
        failure.into_error(limit)
    };
    error.at(&node.link.address())
}
