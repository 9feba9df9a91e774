//! A node as the others know it: whether it answers, and whether it may vote.

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
use super::claims::Claims;
use super::nodes::{Nodes, majority};
use super::pulse::Pulse;
use crate::rt::{self, Handle};
use crate::store::StoreError;
use crate::store::redis::{Ballot, Node, Run};
use crate::sync::lock;
use crate::token::Token;

/// No connection has this number.
pub(super) const NONE: u64 = u64::MAX;

pub(super) struct Peer {
    pub(super) index: usize,
    pub(super) address: Arc<str>,
    pub(super) node: Node,
    pub(super) pulse: Pulse,
    /// The connection on which the server was found to be the same as ever, or its restart was noted.
    vetted: AtomicU64,
    vetting: AtomicBool,
    /// A vetting is over.
    vetting_over: Notify,
    /// Why the last vetting came to nothing.
    refused: Mutex<Option<StoreError>>,
    /// The run of the server that was met last.
    known: Mutex<Option<Run>>,
    /// When the run of a server began that may have forgotten votes of an earlier one.
    restarted: Mutex<Option<Instant>>,
    /// Whether there is such a time.
    suspect: AtomicBool,
    /// The latest token that it was asked for.
    asked_for: AtomicU64,
}

/// All nodes, and what they have in common.
pub(super) struct Peers {
    pub(super) all: Vec<Arc<Peer>>,
    pub(super) majority: usize,
    pub(super) limit: Duration,
    /// Whether a node that has restarted is kept from voting.
    pub(super) quarantine: bool,
    /// The longest ttl that was asked for, in ms: so long a vote may last that a node has forgotten.
    longest: AtomicU64,
    pub(super) runtime: OnceCell<Handle>,
    pub(super) claims: Arc<Claims>,
}

impl Peers {
    pub(super) fn new(nodes: Vec<Node>, rules: Rules) -> Self {
        let peers = nodes.into_iter().enumerate().map(|(index, node)| {
            Arc::new(Peer {
                index,
                address: node.address().into(),
                node,
                pulse: Pulse::default(),
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
        let all: Vec<_> = peers.collect();
        Self {
            majority: majority(all.len()),
            all,
            limit: rules.limit,
            quarantine: rules.quarantine,
            longest: AtomicU64::new(rules.ttl.as_millis() as u64),
            runtime: OnceCell::new(),
            claims: Arc::default(),
        }
    }

    /// A lock is asked for with this ttl.
    pub(super) fn asked_for(&self, ttl: Duration) {
        let ttl = ttl.as_millis() as u64;
        if self.longest.load(Ordering::Relaxed) < ttl {
            self.longest.fetch_max(ttl, Ordering::Relaxed);
        }
    }

    fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }

    /// The nodes on which nothing of this token can be.
    pub(super) fn never_asked_for(&self, token: &Token) -> Nodes {
        let never = self.all.iter().filter(|peer| {
            let latest = peer.asked_for.load(Ordering::SeqCst);
            token.sequence().is_some_and(|sequence| sequence > latest)
        });
        never.fold(Nodes::default(), |nodes, peer| nodes.with(peer.index))
    }

    /// Whether this node may vote on the connection that it has, whose number is returned.
    pub(super) async fn admit(self: &Arc<Self>, peer: &Arc<Peer>) -> Result<u64, StoreError> {
        let generation = match peer.vetted_connection() {
            Some(generation) => generation,
            None => self.vetted(peer).await?,
        };
        let restarted = *lock(&peer.restarted);
        if let Some(began) = restarted.filter(|_| self.quarantine) {
            let left = self.longest().saturating_sub(began.elapsed());
            if !left.is_zero() {
                return Err(in_quarantine(left));
            }
            // Its counter catches up with its clock once more: by now that is ahead of those that were ahead of it.
            peer.node.catch_up().await?;
            let mut known = lock(&peer.restarted);
            if *known != restarted {
                // And has restarted once more.
                return Err(reconnected());
            }
            *known = None;
            peer.suspect.store(false, Ordering::Release);
        }
        Ok(generation)
    }

    /// Waits for the vetting of the connection. It runs by itself: whoever asks may have its majority, and go, long before.
    async fn vetted(self: &Arc<Self>, peer: &Arc<Peer>) -> Result<u64, StoreError> {
        let over = peer.vetting_over.notified();
        tokio::pin!(over);
        over.as_mut().enable();
        if !peer.vetting.swap(true, Ordering::SeqCst) {
            let (peers, peer) = (Arc::clone(self), Arc::clone(peer));
            let vetting = async move {
                let limit = peers.limit;
                let outcome = match timeout(limit * 2, peers.vet(&peer)).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(late(limit * 2)),
                };
                if outcome.is_err() {
                    peer.pulse.missed();
                }
                *lock(&peer.refused) = outcome.err();
                peer.vetting.store(false, Ordering::SeqCst);
                peer.vetting_over.notify_waiters();
            };
            match self.runtime.get() {
                Some(runtime) => drop(runtime.spawn(vetting)),
                None => drop(rt::spawn(vetting)),
            }
        }
        over.await;
        let refused = || lock(&peer.refused).clone();
        let broken = || refused().unwrap_or_else(reconnected);
        peer.vetted_connection().ok_or_else(broken)
    }

    /// Finds out whether the server behind a new connection may have forgotten anything, and gives it the scripts: a call
    /// that had to be repeated for want of them could come behind a later one.
    async fn vet(&self, peer: &Arc<Peer>) -> Result<(), StoreError> {
        let generation = peer.node.ready().await?;
        peer.node.load().await?;
        if self.quarantine {
            self.identify(peer).await?;
        }
        peer.node.catch_up().await?;
        // A connection that broke meanwhile was to the server that answered, or to none.
        if peer.node.generation() != Some(generation) {
            return Err(reconnected());
        }
        peer.vetted.store(generation, Ordering::Release);
        Ok(())
    }

    async fn identify(&self, peer: &Arc<Peer>) -> Result<(), StoreError> {
        let now = Instant::now();
        let run = peer.node.run().await?;
        peer.node.enlist().await?;
        let same = lock(&peer.known).as_ref().map(|known| known.id == run.id);
        let suspect = match same {
            Some(same) => !same,
            // We meet it for the first time. If the quorum was in use before the server began, it has restarted.
            None => self.used_before(peer, run.uptime).await,
        };
        if suspect {
            tracing::warn!(
                node = peer.index,
                address = &*peer.address,
                "a node of the quorum has restarted: it does not vote until any lock that it may have forgotten has ended"
            );
            let mut restarted = lock(&peer.restarted);
            *restarted = Some(now.checked_sub(run.uptime).unwrap_or(now));
            // Before the connection counts as vetted, so whoever finds it so finds this, too.
            peer.suspect.store(true, Ordering::Release);
        }
        *lock(&peer.known) = Some(run);
        Ok(())
    }

    /// Whether any other node belonged to the quorum before this server began to run. Both times are whole seconds, so a
    /// quorum that is two seconds old or less looks like a new one. Nodes that do not answer say nothing.
    async fn used_before(&self, peer: &Arc<Peer>, uptime: Duration) -> bool {
        let others = self.all.iter().filter(|other| other.index != peer.index);
        let ages = join_all(others.map(async |other| {
            let age = timeout(self.limit / 4, other.node.enlisted()).await;
            age.ok().and_then(Result::ok)
        }));
        let ages = ages.await;
        let before = uptime + Duration::from_secs(1);
        ages.into_iter().flatten().any(|age| age > before)
    }
}

impl Peer {
    /// This node is about to be asked for a token.
    pub(super) fn asked_for(&self, token: &Token) {
        let sequence = token.sequence().unwrap_or(u64::MAX);
        self.asked_for.fetch_max(sequence, Ordering::SeqCst);
    }

    fn vetted_connection(&self) -> Option<u64> {
        let generation = self.node.generation()?;
        (generation == self.vetted.load(Ordering::Acquire)).then_some(generation)
    }

    /// The vote of this node, which does not count where the server was exchanged on the way.
    pub(super) async fn vote(
        self: &Arc<Self>,
        peers: &Arc<Peers>,
        ballot: &Ballot,
        sent: Instant,
        closed: &AtomicBool,
        sent_on: &AtomicU64,
    ) -> Result<redis::Value, StoreError> {
        let before = match self.vetted_connection() {
            Some(generation) if !self.suspect.load(Ordering::Acquire) => generation,
            // Boxed, because it is large and rare.
            _ => Box::pin(peers.admit(self)).await?,
        };
        if closed.load(Ordering::SeqCst) {
            return Err(reconnected());
        }
        sent_on.store(before, Ordering::Relaxed);
        let vote = self.send(ballot, sent).await?;
        if self.node.generation() != Some(before) {
            return Err(reconnected());
        }
        Ok(vote)
    }

    /// Takes back what an attempt for this token may have left, where no other attempt goes on with it when it leaves: then
    /// the answer is nothing.
    pub(super) async fn undo(
        &self,
        peers: &Peers,
        ballot: &Ballot,
        sent: Instant,
        token: &Token,
    ) -> Result<redis::Value, StoreError> {
        if self.node.generation().is_none() {
            Box::pin(self.node.ready()).await?;
        }
        // The first turn has looked already, and may not look again while it is under the lock.
        let is_first = AtomicBool::new(true);
        let wanted = || {
            let unclaimed = || peers.claims.unless_claimed(token, || ()).is_some();
            is_first.load(Ordering::Relaxed) || unclaimed()
        };
        let mut release = pin!(self.send_while(ballot, sent, wanted));
        // With the first turn it is on its way: whoever begins after that comes behind it.
        let first = poll_fn(|cx| {
            let claims = &peers.claims;
            Poll::Ready(claims.unless_claimed(token, || release.as_mut().poll(cx)))
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
        let answer = self.node.send_while(ballot, wanted).await;
        match &answer {
            // Not even a connection: the next tries are probes.
            Err(StoreError::NotNow(_) | StoreError::Ambiguous(_)) => self.pulse.missed(),
            Ok(_) | Err(StoreError::Misconfigured(_)) => self.pulse.answered(sent.elapsed()),
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
