//! A cluster: a master for each range of slots. A request goes to the master of its lock's slot, and follows the cluster's replies.
//!
//! All keys of a lock are in its slot. A grant is a message on the client's channel, as on one master: the client receives on the
//! connection to each master, and a master forwards each message to all others. So a waiter is told also when its slot has moved.

mod node;
mod redirect;
mod refresh;
mod slots;
mod url;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use once_cell::sync::OnceCell;
use redis::{Cmd, Value};
use tokio::time::{Instant, sleep};

pub(super) use self::node::Node;
use self::node::NodeEvents;
use self::redirect::{NextStep, Redirections, Said};
use self::refresh::Refresh;
pub(super) use self::slots::fence_of;
use self::slots::{Address, Range, tag_of};
pub(super) use self::url::seeds;
use super::endpoint::{Call, CallFailure, Endpoint};
use super::target::Target;
use crate::LockError;
use crate::config::{ClusterAddresses, Config};
use crate::error::Cause;
use crate::key::LockKey;
use crate::rt::Handle;
use crate::slot::{SLOTS, slot_of};
use crate::store::{EventSink, StoreError};
use crate::sync::lock;
use crate::token::ClientId;

/// The masters of a cluster.
pub(super) struct Cluster {
    me: Weak<Self>,
    /// The nodes of the URL.
    seeds: Vec<Target>,
    limit: Duration,
    /// Where the nodes are for this client.
    addresses: Option<ClusterAddresses>,
    table: Mutex<Table>,
    refresh: Refresh,
    attached: OnceCell<AttachedEngine>,
}

/// The engine that uses the cluster.
struct AttachedEngine {
    client: ClientId,
    sink: EventSink,
    runtime: Handle,
}

/// Which master serves which slot, as far as is known.
struct Table {
    owners: Vec<Option<Arc<Node>>>,
    nodes: HashMap<Address, Arc<Node>>,
    /// The ids of all nodes, as the last answer gave them.
    ids: HashSet<Box<str>>,
}

#[derive(Debug, thiserror::Error)]
#[error("no node of the cluster serves the slot {0} of this lock")]
struct Unserved(usize);

#[derive(Debug, thiserror::Error)]
#[error(
    "no node that answers serves any slot: the cluster has to be created, with `redis-cli --cluster create`"
)]
struct NoSlots;

#[derive(Debug, thiserror::Error)]
#[error(
    "the slot of this lock is half moved to another node: end that with `redis-cli --cluster fix`"
)]
struct HalfMoved;

impl Cluster {
    pub(super) fn new(seeds: Vec<Target>, config: &Config) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            seeds,
            limit: config.command_deadline,
            addresses: config.cluster_addresses.clone(),
            table: Mutex::new(Table {
                owners: vec![None; SLOTS],
                nodes: HashMap::new(),
                ids: HashSet::new(),
            }),
            refresh: Refresh::default(),
            attached: OnceCell::new(),
        })
    }

    pub(super) fn attach(&self, client: &ClientId, sink: EventSink, runtime: Handle) {
        let attached = AttachedEngine {
            client: client.clone(),
            sink,
            runtime,
        };
        let _ = self.attached.set(attached);
    }

    /// Learns the slots, and connects to the masters. Some of them may be away.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        self.refreshed().await?;
        let nodes = self.masters();
        let connected = nodes.iter().map(|node| self.connected(&node.endpoint));
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

    /// Waits for the connection to a master.
    pub(super) async fn connected(&self, endpoint: &Endpoint) -> Result<(), StoreError> {
        let connected = endpoint.ready().await;
        connected.map_err(|error| {
            self.refresh();
            error.at(&endpoint.link.address())
        })
    }

    /// The master of a lock, as far as is known.
    pub(super) fn owner(&self, lock_name: &str) -> Option<Arc<Node>> {
        lock(&self.table).owners[slot_of(lock_name)].clone()
    }

    fn is_served_by(&self, slot: usize, address: &Address) -> bool {
        let table = lock(&self.table);
        table.owners[slot]
            .as_ref()
            .is_some_and(|node| node.address == *address)
    }

    /// The masters that serve slots, always in the same order.
    fn masters(&self) -> Vec<Arc<Node>> {
        let table = lock(&self.table);
        let serves = |node: &&Arc<Node>| {
            table
                .owners
                .iter()
                .flatten()
                .any(|owner| Arc::ptr_eq(owner, node))
        };
        let mut masters: Vec<_> = table.nodes.values().filter(serves).cloned().collect();
        masters.sort_by(|one, other| one.address.cmp(&other.address));
        masters
    }

    /// The answer of the master with this number, and how many there are. `is_first` asks for the masters anew: one that is not
    /// known would be left out.
    pub(super) async fn ask_node(
        &self,
        number: usize,
        is_first: bool,
        command: Cmd,
    ) -> Result<(Value, usize), StoreError> {
        if is_first {
            self.refreshed().await?;
        }
        let masters = self.masters();
        let Some(node) = masters.get(number) else {
            // There were more of them a moment ago.
            let end = vec![Value::BulkString(b"0".to_vec()), Value::Array(Vec::new())];
            return Ok((Value::Array(end), 0));
        };
        let answer = node.endpoint.ask(command).await;
        let answer = answer.map_err(|error| error.at(&node.endpoint.link.address()))?;
        Ok((answer, masters.len()))
    }

    /// Runs a script at the master of its first key.
    pub(super) async fn run(&self, call: Call<'_>) -> Result<Value, StoreError> {
        self.refresh_if_old();
        let (slot, end) = (slot_of(call.keys[0].tail), Instant::now() + call.limit);
        let (mut redirections, mut asked) = (Redirections::default(), None);
        loop {
            let asks = asked.is_some();
            let node = match asked.take() {
                Some(address) => self.node(&address, slot)?,
                None => self.master_of(slot).await?,
            };
            let left = end.saturating_duration_since(Instant::now());
            let failure = match node.endpoint.run(call, left, asks).await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
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
                NextStep::Done => return Err(failed(&node, failure, call.limit)),
                NextStep::Ask(address) => {
                    asked = Some(address);
                    continue;
                }
                NextStep::Follow { to, after } => {
                    self.has_moved(slot, &to)?;
                    after
                }
                NextStep::Again { after } => after,
            };
            let pause = Duration::from_millis(fastrand::u64(pause));
            if Instant::now() + pause >= end {
                return Err(failed(&node, failure, call.limit));
            }
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
    }

    async fn master_of(&self, slot: usize) -> Result<Arc<Node>, StoreError> {
        let known = || lock(&self.table).owners[slot].clone();
        if let Some(node) = known() {
            return Ok(node);
        }
        self.refreshed().await?;
        known().ok_or_else(|| unserved(slot))
    }

    /// Where a node is for this client.
    fn target(&self, (host, port): &Address) -> Result<Target, StoreError> {
        let (host, port) = match &self.addresses {
            Some(addresses) => addresses.of(host, *port),
            None => (host.to_string(), *port),
        };
        self.seeds[0].at(&host, port).map_err(|error| match error {
            LockError::InvalidConfig { reason } => StoreError::Misconfigured(reason),
            other => StoreError::Misconfigured(other.to_string()),
        })
    }

    /// The node at this address, which serves this slot. Connects with the first request.
    fn node(&self, address: &Address, slot: usize) -> Result<Arc<Node>, StoreError> {
        let mut table = lock(&self.table);
        if let Some(node) = table.nodes.get(address) {
            return Ok(Arc::clone(node));
        }
        let target = self.target(address)?;
        let engine: EventSink = match self.attached.get() {
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
            events,
        ));
        if let Some(attached) = self.attached.get() {
            node.attach(&attached.client, attached.runtime.clone());
        }
        table.nodes.insert(address.clone(), Arc::clone(&node));
        Ok(node)
    }

    /// A node says that another one serves this slot.
    fn has_moved(&self, slot: usize, to: &Address) -> Result<(), StoreError> {
        let node = self.node(to, slot)?;
        let before = lock(&self.table).owners[slot].replace(node);
        if before.is_some_and(|before| before.address != *to) {
            self.have_moved(&|key| slot_of(key.lock()) == slot);
        }
        self.refresh_soon();
        Ok(())
    }

    /// Whether this is an answer of our cluster: a node may have been given to another one. It names nodes that are known.
    fn is_ours(&self, ranges: &[Range]) -> bool {
        let known = &lock(&self.table).ids;
        let named: HashSet<_> = ranges.iter().flat_map(|range| &range.ids).collect();
        let shared = named.iter().filter(|id| known.contains(**id)).count();
        shared >= known.len().min(2)
    }

    /// The slots are as in this answer. Returns whether that is news.
    fn apply(&self, ranges: &[Range]) -> Result<bool, StoreError> {
        let mut moved = vec![false; SLOTS];
        let mut owners = vec![None; SLOTS];
        for range in ranges {
            let node = self.node(&range.master, range.first)?;
            owners[range.first..=range.last].fill(Some(node));
        }
        let mut table = lock(&self.table);
        table.ids = ranges
            .iter()
            .flat_map(|range| range.ids.iter().cloned())
            .collect();
        for (slot, (before, now)) in table.owners.iter().zip(&mut owners).enumerate() {
            // A slot without a master will have one again.
            if now.is_none() {
                now.clone_from(before);
            }
            moved[slot] = match (before, now) {
                (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
                _ => false,
            };
        }
        // A node that serves nothing may be about to: it stays while it is asked.
        let goes = |address: &Address, node: &mut Arc<Node>| {
            let serves = ranges.iter().any(|range| range.master == *address);
            !serves && !node.endpoint.link.is_busy()
        };
        let gone: Vec<_> = table.nodes.extract_if(goes).collect();
        let before = std::mem::replace(&mut table.owners, owners);
        drop(table);
        for (_, node) in &gone {
            node.endpoint.link.retire();
        }
        // Without the lock: the end of a connection wakes its waiters.
        drop((gone, before));
        let is_news = moved.contains(&true);
        if is_news {
            self.have_moved(&|key| moved[slot_of(key.lock())]);
        }
        Ok(is_news)
    }

    /// These locks have another master. Its data may be older, and messages may be lost: their waiters ask, and their leases are
    /// confirmed.
    fn have_moved(&self, concerned: &dyn Fn(&LockKey) -> bool) {
        let attached = self.attached.get();
        if let Some(engine) = attached.and_then(|attached| attached.sink.upgrade()) {
            engine.interrupted(concerned);
            engine.reconnected(concerned);
        }
    }
}

fn no_slots() -> StoreError {
    StoreError::NotNow(Cause::new(Arc::new(NoSlots)))
}

fn unserved(slot: usize) -> StoreError {
    StoreError::NotNow(Cause::new(Arc::new(Unserved(slot))))
}

fn failed(node: &Node, failure: CallFailure, limit: Duration) -> StoreError {
    let error = if failure.is_half_moved() {
        StoreError::NotNow(Cause::new(Arc::new(HalfMoved)))
    } else {
        failure.into_error(limit)
    };
    error.at(&node.endpoint.link.address())
}
