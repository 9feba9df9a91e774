//! Whether a node may vote: its server is the one that was known, or any vote that it may have forgotten has ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::causes::{in_quarantine, late, reconnected};
use super::node::{Members, NONE, Node};
use crate::rt;
use crate::store::StoreError;
use crate::store::redis::Run;
use crate::sync::lock;

/// What is known of the server of a node.
pub(super) struct Admission {
    /// The connection on which the server was found to be unchanged, or its restart was noted.
    vetted: AtomicU64,
    vetting: AtomicBool,
    /// Notified when a vetting is over.
    vetting_over: Notify,
    state: Mutex<AdmissionState>,
    /// Whether `restarted` has a time.
    suspect: AtomicBool,
}

#[derive(Default)]
struct AdmissionState {
    /// The error of the last vetting, if it failed.
    refused: Option<StoreError>,
    /// The last known run of the server.
    known: Option<Run>,
    /// The start of a run of the server that may have forgotten votes of an earlier run.
    restarted: Option<Instant>,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            vetted: AtomicU64::new(NONE),
            vetting: AtomicBool::new(false),
            vetting_over: Notify::new(),
            state: Mutex::default(),
            suspect: AtomicBool::new(false),
        }
    }
}

impl Admission {
    /// Whether the server may have forgotten votes.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Acquire)
    }
}

impl Node {
    /// The connection, if the node may vote on it, or is in quarantine.
    pub(super) fn vetted_connection(&self) -> Option<u64> {
        let generation = self.master.generation()?;
        (generation == self.admission.vetted.load(Ordering::Acquire)).then_some(generation)
    }
}

impl Members {
    /// Whether this node may vote on its current connection. Returns the generation of that connection.
    pub(super) async fn admit(self: &Arc<Self>, node: &Arc<Node>) -> Result<u64, StoreError> {
        let generation = match node.vetted_connection() {
            Some(generation) => generation,
            None => self.vetted(node).await?,
        };
        let restarted = lock(&node.admission.state).restarted;
        if let Some(began) = restarted.filter(|_| self.quarantine) {
            let left = self.longest().saturating_sub(began.elapsed());
            if !left.is_zero() {
                return Err(in_quarantine(left));
            }
            // The counter catches up with the clock of the node once more: by now, this clock has passed the clocks that
            // were ahead of it.
            node.master.catch_up().await?;
            let mut state = lock(&node.admission.state);
            if state.restarted != restarted {
                // The node has restarted once more.
                return Err(reconnected());
            }
            state.restarted = None;
            node.admission.suspect.store(false, Ordering::Release);
        }
        Ok(generation)
    }

    /// Waits for the vetting of the connection. The vetting runs by itself: the caller may have its majority, and
    /// leave, long before.
    async fn vetted(self: &Arc<Self>, node: &Arc<Node>) -> Result<u64, StoreError> {
        let over = node.admission.vetting_over.notified();
        tokio::pin!(over);
        over.as_mut().enable();
        if !node.admission.vetting.swap(true, Ordering::SeqCst) {
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
                lock(&node.admission.state).refused = outcome.err();
                node.admission.vetting.store(false, Ordering::SeqCst);
                node.admission.vetting_over.notify_waiters();
            };
            match self.runtime.get() {
                Some(runtime) => drop(runtime.spawn(vetting)),
                None => drop(rt::spawn(vetting)),
            }
        }
        over.await;
        let refused = || lock(&node.admission.state).refused.clone();
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
        node.admission.vetted.store(generation, Ordering::Release);
        Ok(())
    }

    async fn identify(&self, node: &Arc<Node>) -> Result<(), StoreError> {
        let now = Instant::now();
        let run = node.master.run().await?;
        node.master.enlist().await?;
        let known = lock(&node.admission.state).known.clone();
        let same = known.map(|known| known.id == run.id);
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
            let mut state = lock(&node.admission.state);
            state.restarted = Some(now.checked_sub(run.uptime).unwrap_or(now));
            // Before the connection counts as vetted, so that a vote on a vetted connection finds this as well.
            node.admission.suspect.store(true, Ordering::Release);
        }
        lock(&node.admission.state).known = Some(run);
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
