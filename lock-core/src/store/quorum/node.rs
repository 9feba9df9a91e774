//! A node of a quorum: whether it answers, and whether it may vote.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use once_cell::sync::OnceCell;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::Rules;
use super::causes::{Failure, in_quarantine, late, reconnected};
use super::nodes::{Nodes, majority};
use super::rtt::RttEstimator;
use super::tokens::Tokens;
use crate::rt::{self, Handle};
use crate::store::StoreError;
use crate::store::redis::{Ballot, Master, Run};
use crate::sync::lock;
use crate::token::Token;

/// A generation that no connection has.
pub(super) const NONE: u64 = u64::MAX;

pub(super) struct Node {
    pub(super) index: usize,
    pub(super) address: Arc<str>,
    pub(super) master: Master,
    pub(super) rtt: RttEstimator,
    /// The connection on which the server was found to be unchanged, or its restart was noted.
    vetted: AtomicU64,
    vetting: AtomicBool,
    /// Notified when a vetting is over.
    vetting_over: Notify,
    /// The error of the last vetting, if it failed.
    refused: Mutex<Option<StoreError>>,
    /// The last known run of the server.
    known: Mutex<Option<Run>>,
    /// The start of a run of the server that may have forgotten votes of an earlier run.
    restarted: Mutex<Option<Instant>>,
    /// Whether `restarted` has a time.
    suspect: AtomicBool,
    /// The latest token that the node was asked for.
    asked_for: AtomicU64,
}

/// All nodes, and the state that they share.
pub(super) struct Members {
    pub(super) all: Vec<Arc<Node>>,
    pub(super) majority: usize,
    pub(super) limit: Duration,
    /// Whether a node that has restarted goes into quarantine: it does not vote.
    pub(super) quarantine: bool,
    /// The longest ttl of any request, in ms: a vote that a node has forgotten may last that long.
    longest: AtomicU64,
    pub(super) runtime: OnceCell<Handle>,
    pub(super) tokens: Arc<Tokens>,
}

impl Members {
    pub(super) fn new(nodes: Vec<Master>, rules: Rules, tokens: Arc<Tokens>) -> Self {
        let members = nodes.into_iter().enumerate().map(|(index, node)| {
            Arc::new(Node {
                index,
                address: node.address().into(),
                master: node,
                rtt: RttEstimator::default(),
                vetted: AtomicU64::new(NONE),
                vetting: AtomicBool::new(false),
                vetting_over: Notify::new(),
                refused: Mutex::default(),
                known: Mutex::default(),
                asked_for: AtomicU64::new(0),
                restarted: Mutex::default(),
                suspect: AtomicBool::new(false),
            })
        });
        let all: Vec<_> = members.collect();
        Self {
            majority: majority(all.len()),
            all,
            limit: rules.limit,
            quarantine: rules.quarantine,
            longest: AtomicU64::new(rules.ttl.as_millis() as u64),
            runtime: OnceCell::new(),
            tokens,
        }
    }

    /// A lock is requested with this ttl.
    pub(super) fn asked_for(&self, ttl: Duration) {
        let ttl = ttl.as_millis() as u64;
        if self.longest.load(Ordering::Relaxed) < ttl {
            self.longest.fetch_max(ttl, Ordering::Relaxed);
        }
    }

    fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }

    /// The nodes that cannot have anything of this token.
    pub(super) fn never_asked_for(&self, token: &Token) -> Nodes {
        let never = self.all.iter().filter(|node| {
            let latest = node.asked_for.load(Ordering::SeqCst);
            token.sequence().is_some_and(|sequence| sequence > latest)
        });
        never.fold(Nodes::default(), |nodes, node| nodes.with(node.index))
    }

    /// Whether this node may vote on its current connection. Returns the generation of that connection.
    pub(super) async fn admit(self: &Arc<Self>, node: &Arc<Node>) -> Result<u64, StoreError> {
        let generation = match node.vetted_connection() {
            Some(generation) => generation,
            None => self.vetted(node).await?,
        };
        let restarted = *lock(&node.restarted);
        if let Some(began) = restarted.filter(|_| self.quarantine) {
            let left = self.longest().saturating_sub(began.elapsed());
            if !left.is_zero() {
                return Err(in_quarantine(left));
            }
            // The counter catches up with the clock of the node once more: by now, this clock has passed the clocks that
            // were ahead of it.
            node.master.catch_up().await?;
            let mut known = lock(&node.restarted);
            if *known != restarted {
                // The node has restarted once more.
                return Err(reconnected());
            }
            *known = None;
            node.suspect.store(false, Ordering::Release);
        }
        Ok(generation)
    }

    /// Waits for the vetting of the connection. The vetting runs by itself: the caller may have its majority, and
    /// leave, long before.
    async fn vetted(self: &Arc<Self>, node: &Arc<Node>) -> Result<u64, StoreError> {
        let over = node.vetting_over.notified();
        tokio::pin!(over);
        over.as_mut().enable();
        if !node.vetting.swap(true, Ordering::SeqCst) {
            let (members, node) = (Arc::clone(self), Arc::clone(node));
            let vetting = async move {
                let limit = members.limit;
                let outcome = match timeout(limit * 2, members.vet(&node)).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(late(limit * 2)),
                };
                if outcome.is_err() {
                    node.rtt.missed();
                }
                *lock(&node.refused) = outcome.err();
                node.vetting.store(false, Ordering::SeqCst);
                node.vetting_over.notify_waiters();
            };
            match self.runtime.get() {
                Some(runtime) => drop(runtime.spawn(vetting)),
                None => drop(rt::spawn(vetting)),
            }
        }
        over.await;
        let refused = || lock(&node.refused).clone();
        let broken = || refused().unwrap_or_else(reconnected);
        node.vetted_connection().ok_or_else(broken)
    }

    /// Finds out whether the server behind a new connection may have forgotten anything, and loads the scripts. A call that had
    /// to be repeated because its script is missing could arrive behind a later one.
    async fn vet(&self, node: &Arc<Node>) -> Result<(), StoreError> {
        let generation = node.master.ready().await?;
        node.master.load().await?;
        if self.quarantine {
            self.identify(node).await?;
        }
        node.master.catch_up().await?;
        // If the connection was replaced meanwhile, the answers may be those of different servers.
        if node.master.generation() != Some(generation) {
            return Err(reconnected());
        }
        node.vetted.store(generation, Ordering::Release);
        Ok(())
    }

    async fn identify(&self, node: &Arc<Node>) -> Result<(), StoreError> {
        let now = Instant::now();
        let run = node.master.run().await?;
        node.master.enlist().await?;
        let same = lock(&node.known).as_ref().map(|known| known.id == run.id);
        let suspect = match same {
            Some(same) => !same,
            // The first run of this node that the client meets. If the quorum was in use before this run began, the node
            // has restarted.
            None => self.used_before(node, run.uptime).await,
        };
        if suspect {
            tracing::warn!(
                node = node.index,
                address = &*node.address,
                "a node of the quorum has restarted: it does not vote until any lock that it may have forgotten has ended"
            );
            let mut restarted = lock(&node.restarted);
            *restarted = Some(now.checked_sub(run.uptime).unwrap_or(now));
            // Before the connection counts as vetted, so that a vote on a vetted connection finds this as well.
            node.suspect.store(true, Ordering::Release);
        }
        *lock(&node.known) = Some(run);
        Ok(())
    }

    /// Whether any other node belonged to the quorum before this server started. Both times are whole seconds, so a quorum that
    /// is two seconds old or less looks like a new one. Nodes that do not answer prove nothing.
    async fn used_before(&self, node: &Arc<Node>, uptime: Duration) -> bool {
        let others = self.all.iter().filter(|other| other.index != node.index);
        let ages = join_all(others.map(async |other| {
            let age = timeout(self.limit / 4, other.master.enlisted()).await;
            age.ok().and_then(Result::ok)
        }));
        let ages = ages.await;
        let before = uptime + Duration::from_secs(1);
        ages.into_iter().flatten().any(|age| age > before)
    }
}

impl Node {
    /// The node is about to be asked for this token.
    pub(super) fn asked_for(&self, token: &Token) {
        let sequence = token.sequence().unwrap_or(u64::MAX);
        self.asked_for.fetch_max(sequence, Ordering::SeqCst);
    }

    fn vetted_connection(&self) -> Option<u64> {
        let generation = self.master.generation()?;
        (generation == self.vetted.load(Ordering::Acquire)).then_some(generation)
    }

    /// The vote of this node. It does not count if the connection was replaced on the way.
    pub(super) async fn vote(
        self: &Arc<Self>,
        members: &Arc<Members>,
        ballot: &Ballot,
        sent: Instant,
        closed: &AtomicBool,
        sent_on: &AtomicU64,
    ) -> Result<redis::Value, StoreError> {
        let before = match self.vetted_connection() {
            Some(generation) if !self.suspect.load(Ordering::Acquire) => generation,
            // Boxed because it is large and rare.
            _ => Box::pin(members.admit(self)).await?,
        };
        if closed.load(Ordering::SeqCst) {
            return Err(reconnected());
        }
        sent_on.store(before, Ordering::Relaxed);
        let vote = self.send(ballot, sent).await?;
        if self.master.generation() != Some(before) {
            return Err(reconnected());
        }
        Ok(vote)
    }

    /// Takes back what an attempt for this token may have left. If another attempt goes on with the token when the undo would
    /// be sent, nothing is sent and the answer is nil.
    pub(super) async fn undo(
        &self,
        members: &Members,
        ballot: &Ballot,
        sent: Instant,
        token: &Token,
    ) -> Result<redis::Value, StoreError> {
        if self.master.generation().is_none() {
            Box::pin(self.master.ready()).await?;
        }
        // The first poll has been checked already. It runs under the lock of the tokens, so it must not check again.
        let is_first = AtomicBool::new(true);
        let wanted = || {
            let unclaimed = || members.tokens.unless_claimed(token, || ()).is_some();
            is_first.load(Ordering::Relaxed) || unclaimed()
        };
        let mut release = pin!(self.send_while(ballot, sent, wanted));
        // The first poll puts the request on its way: an attempt that begins later comes behind it.
        let first = poll_fn(|cx| {
            let tokens = &members.tokens;
            Poll::Ready(tokens.unless_claimed(token, || release.as_mut().poll(cx)))
        });
        let first = first.await;
        is_first.store(false, Ordering::Relaxed);
        match first {
            Some(Poll::Ready(answer)) => answer,
            Some(Poll::Pending) => release.await,
            None => Ok(redis::Value::Nil),
        }
    }

    pub(super) async fn send(
        &self,
        ballot: &Ballot,
        sent: Instant,
    ) -> Result<redis::Value, StoreError> {
        self.send_while(ballot, sent, || true).await
    }

    async fn send_while(
        &self,
        ballot: &Ballot,
        sent: Instant,
        wanted: impl Fn() -> bool,
    ) -> Result<redis::Value, StoreError> {
        let answer = self.master.send_while(ballot, wanted).await;
        match &answer {
            // There may not even be a connection: the next attempts are probes.
            Err(StoreError::NotNow(_) | StoreError::Ambiguous(_)) => self.rtt.missed(),
            Ok(_) | Err(StoreError::Misconfigured(_)) => self.rtt.answered(sent.elapsed()),
        }
        answer
    }

    pub(super) fn failed(&self, error: StoreError) -> Failure {
        Failure {
            node: self.index,
            address: Arc::clone(&self.address),
            error,
        }
    }
}
