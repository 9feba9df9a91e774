//! All nodes of a quorum, and what they share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::watch;

use super::leftovers::UnderWay;
use super::node::Member;
use super::nodes::{MAXIMUM_NODES, Nodes, majority};
use super::tokens::Tokens;
use crate::base::observe::Event;
use crate::base::quorum_config::QuorumConfig;
use crate::base::signal::Signal;
use crate::base::timers::Timers;
use crate::store::redis::Server;
use crate::store::{EngineRef, StoreError};

/// All nodes.
pub(super) struct Members {
    pub(super) all: Vec<Arc<Member>>,
    pub(super) majority: usize,
    /// Maximum wait for a reply. A reply that takes longer is an error.
    pub(super) limit: Duration,
    /// The labels of the nodes, sorted: the name of the quorum.
    pub(super) list: String,
    /// The wait of a node that may have forgotten votes.
    pub(super) wait: Duration,
    /// The largest counter of a node that this client knows of.
    pub(super) minted: AtomicU64,
    /// Notified when a node has said something of its note.
    pub(super) noted: Signal,
    /// How far the clock of a node may jump: the nodes keep votes that much longer than their ttl.
    pub(super) clock_skew: Duration,
    pub(super) engine: EngineRef,
    pub(super) tokens: Arc<Tokens>,
    pub(super) under_way: Arc<UnderWay>,
    /// Dropped with the store: a task that pauses hears of it, and ends.
    pub(super) alive: watch::Sender<()>,
}

impl Members {
    pub(super) fn new(
        nodes: Vec<(String, Arc<Server>)>,
        config: &QuorumConfig,
        namespace: &Arc<str>,
        limit: Duration,
    ) -> Self {
        let mut labels: Vec<_> = nodes.iter().map(|(label, _)| label.clone()).collect();
        labels.sort_unstable();
        let members = nodes
            .into_iter()
            .enumerate()
            .map(|(index, (label, server))| Arc::new(Member::new(index, label, server, namespace)));
        let all: Vec<_> = members.collect();
        Self {
            majority: majority(all.len()),
            all,
            limit,
            list: labels.join(","),
            wait: config.wait,
            minted: AtomicU64::new(0),
            noted: Signal::default(),
            clock_skew: config.clock_skew,
            engine: EngineRef::default(),
            tokens: Arc::default(),
            under_way: Arc::default(),
            alive: watch::Sender::default(),
        }
    }

    pub(super) fn timers(&self) -> &Timers {
        self.engine.timers()
    }

    /// For how long the nodes keep a vote for a lock of this ttl.
    pub(super) fn kept(&self, ttl: Duration) -> Duration {
        ttl.saturating_add(self.clock_skew)
    }

    /// The time of the slowest node of the fastest majority.
    pub(super) fn in_a_majority(&self, time: impl Fn(&Member) -> Duration) -> Duration {
        let mut times = [Duration::MAX; MAXIMUM_NODES];
        for (known, node) in times.iter_mut().zip(&self.all) {
            *known = time(node);
        }
        times.sort_unstable();
        times[self.majority - 1]
    }

    pub(super) fn nodes(&self) -> Nodes {
        Nodes::all(self.all.len())
    }

    /// A node was asked for a vote, or for its renewal: the log and the observer are told whether it votes.
    pub(super) fn was_asked<T>(&self, node: &Member, answer: &Result<T, StoreError>) {
        let address = &*node.address;
        match answer {
            Ok(_) => {
                if let Some(away) = node.presence.voted() {
                    let away_ms = away.as_millis() as u64;
                    tracing::info!(address, away_ms, "a node of the quorum votes again");
                    self.observe(&Event::NodeReturned {
                        node: address,
                        away,
                    });
                }
            }
            // Its admission says until when.
            Err(StoreError::NotYet(_)) => {}
            Err(error) => {
                if node.presence.gave_none() {
                    let absent = self
                        .all
                        .iter()
                        .filter(|node| node.presence.is_said_to_be_absent());
                    let voting = self.all.len() - absent.count();
                    let needed = self.majority;
                    tracing::warn!(address, voting, needed, %error, "a node of the quorum does not vote");
                    self.observe(&Event::NodeLeft {
                        node: address,
                        voting,
                        needed,
                    });
                }
            }
        }
    }

    fn observe(&self, event: &Event<'_>) {
        if let Some(engine) = self.engine.events() {
            engine.observed(event);
        }
    }
}
