//! A cluster: a master for each range of slots. A request goes to the master of its lock's slot, and follows the cluster's replies.
//!
//! All keys of a lock are in its slot. A grant is a message on the client's channel, as on one master: the client receives on the
//! connection to each master, and a master forwards each message to all others. So a waiter is told also when its slot has moved.

mod ask;
mod late;
mod masters;
mod redirect;
mod refresh;
mod rounds;
mod scan;
mod slots;
mod table;
mod urls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::{RedisError, Value};
use tokio::time::Instant;

use self::late::{confirm, may_be_replaced};
pub(super) use self::masters::Cluster;
use self::masters::no_slots;
use self::redirect::{NONE, NextStep, Redirections, Said};
use self::slots::Address;
use self::slots::fence_of;
use super::script::RAISE;
use super::server::Server;
use super::server::call::{Call, CallFailure, Purpose};
use super::wire::Arg;
use crate::base::error::Cause;
use crate::base::finding::Finding;
use crate::base::slot::slot_of;
use crate::base::sync::lock;
use crate::store::StoreError;

/// Where a request goes.
struct Destination {
    node: Arc<Server>,
    /// Whether the node got the slot from another one, and its counter may be behind the tokens of this client.
    is_behind: bool,
    /// Whether the node is only taking the slot over, so that the request follows an `ASKING`.
    asks: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("no node of the cluster serves the slot {0} of this lock")]
struct Unserved(usize);

#[derive(Debug, thiserror::Error)]
#[error("the slot of this lock is half moved to another node")]
struct HalfMoved;

impl Cluster {
    /// Learns the slots, and connects to the masters. Some of them may be away.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        self.refreshed(None).await?;
        let nodes = self.masters();
        let connected = nodes.iter().map(Server::ready);
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
        let examined = nodes.iter().map(Server::examine);
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
    async fn successor(&self, slot: usize, node: &Arc<Server>) -> Option<Arc<Server>> {
        // The node itself may not know it yet.
        let _ = self.refreshed(Some(node)).await;
        let table = lock(&self.table);
        let owner = table.owner(slot)?;
        (!Arc::ptr_eq(owner, node)).then(|| Arc::clone(owner))
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
                Some(address) => Destination {
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
                    Said::read(error, host_of(node), call.script.is_ours())
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
        Destination {
            node,
            is_behind,
            asks,
        }: &Destination,
        call: Call<'_>,
        end: Instant,
    ) -> Result<Value, CallFailure> {
        let sent = self.engine.timers().now();
        let left = end.saturating_duration_since(sent);
        let run = node.call(call, left, *asks);
        let answer = if *is_behind {
            Box::pin(join(self.raise(node, call.lock()), run)).await.1?
        } else {
            run.await?
        };
        let is_vital = call.purpose == Purpose::Grant && !*asks;
        if !is_vital || !may_be_replaced(node, self.engine.timers().elapsed(sent), || self.late()) {
            return Ok(answer);
        }
        let slot = slot_of(call.lock());
        match self.refreshed(Some(node)).await {
            Ok(()) if node.named().is_some_and(|at| self.is_served_by(slot, at)) => {
                confirm(node);
                Ok(answer)
            }
            _ => Err(CallFailure::Error(unconfirmed())),
        }
    }

    /// Raises the counter of a slot at its new master, which may have lost the last writes of the old one.
    async fn raise(&self, node: &Arc<Server>, lock_name: &str) {
        let engine = self.engine.events();
        let largest = engine.map_or(0, |engine| engine.largest_token());
        if largest > 0 {
            let raise = RAISE.by_text(
                &[fence_of(&self.seeds[0].namespace, lock_name)],
                &[Arg::Number(largest)],
            );
            // A server that refuses it mints nothing either, or its clock is the floor.
            let _ = node.ask(raise).await;
        }
    }

    async fn master_of(&self, slot: usize) -> Result<Destination, StoreError> {
        let known = || {
            let mut table = lock(&self.table);
            let node = table.owner(slot).cloned()?;
            Some(Destination {
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
}

fn unconfirmed() -> RedisError {
    io::Error::other("its answer was late, and no other node says that it is still the master")
        .into()
}

fn half_moved() -> StoreError {
    let cause = Cause::of(Arc::new(HalfMoved));
    StoreError::NotNow(cause.advised(Some("end that with `redis-cli --cluster fix`")))
}

fn unserved(slot: usize) -> StoreError {
    let cause = Cause::of(Arc::new(Unserved(slot)));
    StoreError::NotNow(cause.advised(Some("`redis-cli --cluster check` shows why")))
}

/// The host of a node, as the cluster names it.
fn host_of(node: &Server) -> &str {
    node.named().map_or("", |(host, _)| host)
}

fn failed(node: &Server, failure: CallFailure, limit: Duration) -> StoreError {
    let error = if failure.is_half_moved() {
        half_moved()
    } else {
        failure.into_error(limit)
    };
    error.at(&node.address())
}
