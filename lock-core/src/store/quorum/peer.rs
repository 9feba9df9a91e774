//! A node as the others know it: whether it answers, and whether it may vote.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::Rules;
use super::causes::{Failure, in_quarantine, reconnected};
use super::pulse::Pulse;
use crate::store::StoreError;
use crate::store::redis::{Ballot, Node, Run};
use crate::sync::lock;

/// No connection has this number.
const NONE: u64 = u64::MAX;

pub(super) struct Peer {
    pub(super) index: usize,
    pub(super) address: Arc<str>,
    pub(super) node: Node,
    pub(super) pulse: Pulse,
    /// The connection on which the server was found to be the same as ever, or its restart was noted.
    vetted: AtomicU64,
    vetting: tokio::sync::Mutex<Option<Run>>,
    /// When the run of a server began that may have forgotten votes of an earlier one.
    restarted: Mutex<Option<Instant>>,
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
                vetting: tokio::sync::Mutex::default(),
                restarted: Mutex::default(),
            })
        });
        let all: Vec<_> = peers.collect();
        Self {
            majority: super::majority(all.len()),
            all,
            limit: rules.limit,
            quarantine: rules.quarantine,
            longest: AtomicU64::new(rules.ttl.as_millis() as u64),
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

    /// Whether this node may vote on the connection that it has, whose number is returned.
    pub(super) async fn admit(&self, peer: &Arc<Peer>) -> Result<u64, StoreError> {
        let vetted = peer.vetted.load(Ordering::Acquire);
        let generation = match peer.node.generation() {
            Some(generation) if generation == vetted => generation,
            _ => self.vet(peer).await?,
        };
        let restarted = *lock(&peer.restarted);
        if let Some(began) = restarted {
            let left = self.longest().saturating_sub(began.elapsed());
            if !left.is_zero() {
                return Err(in_quarantine(left));
            }
            *lock(&peer.restarted) = None;
        }
        Ok(generation)
    }

    /// Finds out whether the server behind a new connection may have forgotten anything.
    async fn vet(&self, peer: &Arc<Peer>) -> Result<u64, StoreError> {
        let mut known = peer.vetting.lock().await;
        let ready = peer.node.ready().await;
        let generation = ready.inspect_err(|_| peer.pulse.missed())?;
        if peer.vetted.load(Ordering::Acquire) == generation {
            return Ok(generation);
        }
        let now = Instant::now();
        let run = peer.node.run().await?;
        peer.node.enlist().await?;
        let same = known.as_ref().map(|known| known.id == run.id);
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
            *lock(&peer.restarted) = Some(now.checked_sub(run.uptime).unwrap_or(now));
        }
        *known = Some(run);
        // A connection that broke meanwhile was to the server that answered, or to none.
        if peer.node.generation() != Some(generation) {
            return Err(reconnected());
        }
        peer.vetted.store(generation, Ordering::Release);
        Ok(generation)
    }

    /// Whether any other node belonged to the quorum before this server began to run. Both times are whole seconds.
    async fn used_before(&self, peer: &Arc<Peer>, uptime: Duration) -> bool {
        let others = self.all.iter().filter(|other| other.index != peer.index);
        let ages = join_all(others.map(async |other| {
            let age = tokio::time::timeout(self.limit, other.node.enlisted()).await;
            age.ok().and_then(Result::ok)
        }));
        let ages = ages.await;
        let before = uptime + Duration::from_secs(1);
        ages.into_iter().flatten().any(|age| age > before)
    }
}

impl Peer {
    /// The vote of this node, which does not count where the server was exchanged on the way.
    pub(super) async fn vote(
        self: &Arc<Self>,
        peers: &Peers,
        ballot: &Ballot,
        sent: Instant,
    ) -> Result<redis::Value, StoreError> {
        if !peers.quarantine {
            return self.send(ballot, sent).await;
        }
        let before = peers.admit(self).await?;
        let vote = self.send(ballot, sent).await?;
        if self.node.generation() != Some(before) {
            return Err(reconnected());
        }
        Ok(vote)
    }

    pub(super) async fn send(
        &self,
        ballot: &Ballot,
        sent: Instant,
    ) -> Result<redis::Value, StoreError> {
        let answer = self.node.send(ballot).await;
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
