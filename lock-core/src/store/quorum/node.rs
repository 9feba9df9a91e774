//! A node of a quorum, and what is sent to it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use once_cell::sync::OnceCell;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::admission_state::Admission;
use super::ballot::Ballot;
use super::causes::{Failure, in_doubt, reconnected, unknown};
use super::leftovers::{Leftovers, UnderWay};
use super::master::Master;
use super::nodes::{MAXIMUM_NODES, Nodes, majority};
use super::rtt::RttEstimator;
use super::sent_on::NONE;
use super::tokens::Tokens;
use super::vote::is_unknown;
use crate::base::config::Config;
use crate::base::rt::{self, Handle};
use crate::base::token::Token;
use crate::store::StoreError;

pub(super) struct Node {
    pub(super) index: usize,
    /// Its name in the notes of the quorum.
    pub(super) label: String,
    pub(super) address: Arc<str>,
    pub(super) master: Master,
    pub(super) rtt: RttEstimator,
    pub(super) admission: Admission,
    pub(super) leftovers: Mutex<Leftovers>,
}

/// All nodes, and the state that they share.
pub(super) struct Members {
    pub(super) all: Vec<Arc<Node>>,
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
    pub(super) noted: Notify,
    /// How far the clock of a node may jump: the nodes keep votes that much longer than their ttl.
    pub(super) clock_skew: Duration,
    pub(super) runtime: OnceCell<Handle>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) under_way: Arc<UnderWay>,
    /// Dropped with the store: a task that pauses hears of it, and ends.
    pub(super) alive: watch::Sender<()>,
}

impl Members {
    pub(super) fn new(nodes: Vec<(String, Master)>, config: &Config) -> Self {
        let mut labels: Vec<_> = nodes.iter().map(|(label, _)| label.clone()).collect();
        labels.sort_unstable();
        let members = nodes.into_iter().enumerate().map(|(index, (label, node))| {
            Arc::new(Node {
                index,
                label,
                address: node.address(),
                master: node,
                rtt: RttEstimator::default(),
                admission: Admission::default(),
                leftovers: Mutex::default(),
            })
        });
        let all: Vec<_> = members.collect();
        Self {
            majority: majority(all.len()),
            all,
            limit: config.command_deadline,
            list: labels.join(","),
            wait: config.quorum_wait,
            minted: AtomicU64::new(0),
            noted: Notify::new(),
            clock_skew: config.clock_skew,
            runtime: OnceCell::new(),
            tokens: Arc::default(),
            under_way: Arc::default(),
            alive: watch::Sender::default(),
        }
    }

    /// Runs a task on the engine's runtime.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.runtime.get() {
            Some(runtime) => drop(runtime.spawn(task)),
            None => drop(rt::spawn(task)),
        }
    }

    /// For how long the nodes keep a vote for a lock of this ttl.
    pub(super) fn kept(&self, ttl: Duration) -> Duration {
        ttl.saturating_add(self.clock_skew)
    }

    /// The time of the slowest node of the fastest majority.
    pub(super) fn in_a_majority(&self, time: impl Fn(&Node) -> Duration) -> Duration {
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
}

impl Node {
    /// The answer of this node to a request for votes, or for their renewal. It does not count if the connection was replaced on the
    /// way. `token` is that of a request for a vote: an undo that may arrive behind it would remove the vote.
    pub(super) async fn vote(
        self: &Arc<Self>,
        members: &Arc<Members>,
        ballot: &Ballot,
        token: Option<&Token>,
        sent: Instant,
        closed: &AtomicBool,
        took: &AtomicI64,
    ) -> Result<redis::Value, StoreError> {
        let (before, counter) = members.admit(self).await?;
        if closed.load(Ordering::SeqCst) {
            return Err(reconnected());
        }
        if token.is_some_and(|token| !members.tokens.is_sent(token, self.index, before)) {
            return Err(in_doubt());
        }
        let asked = Instant::now();
        let value = self.send_while(ballot, Some(&counter), sent, || true);
        let value = value.await?;
        if self.master.generation() != Some(before) {
            return Err(reconnected());
        }
        // The node read its clock about halfway.
        let middle = (asked + asked.elapsed() / 2).saturating_duration_since(sent);
        took.store(middle.as_millis() as i64, Ordering::Relaxed);
        if is_unknown(&value) {
            self.is_unknown();
            return Err(unknown());
        }
        Ok(value)
    }

    /// Removes what an attempt for this token may have left. If another attempt goes on with the token when the undo would be sent,
    /// nothing is sent and the answer is nil.
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
        let wanted = || is_first.load(Ordering::Relaxed) || !members.tokens.is_claimed(token);
        let mut release = pin!(self.send_while(ballot, None, sent, wanted));
        // The first poll sends the request: the votes of a later attempt arrive after it.
        let first = poll_fn(|cx| {
            let ask = || {
                let before = self.master.generation();
                let first = release.as_mut().poll(cx);
                let after = self.master.generation();
                (before.filter(|_| before == after).unwrap_or(NONE), first)
            };
            Poll::Ready(members.tokens.send_undo(token, self.index, ask))
        });
        let first = first.await;
        is_first.store(false, Ordering::Relaxed);
        let Some((number, first)) = first else {
            return Ok(redis::Value::Nil);
        };
        let answer = match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => release.await,
        };
        if !matches!(answer, Err(StoreError::Ambiguous(_))) {
            members.tokens.undo_answered(token, self.index, number);
        }
        answer
    }

    pub(super) async fn send(
        &self,
        ballot: &Ballot,
        sent: Instant,
    ) -> Result<redis::Value, StoreError> {
        self.send_while(ballot, None, sent, || true).await
    }

    async fn send_while(
        &self,
        ballot: &Ballot,
        counter: Option<&str>,
        sent: Instant,
        wanted: impl Fn() -> bool,
    ) -> Result<redis::Value, StoreError> {
        let answer = self.master.send_while(ballot, counter, wanted).await;
        match &answer {
            // The connection may be missing: the next attempts are probes.
            Err(StoreError::NotNow(_) | StoreError::Ambiguous(_)) => self.rtt.missed(),
            Ok(_) | Err(StoreError::Misconfigured(_) | StoreError::NotYet(_)) => {
                self.rtt.answered(sent.elapsed());
            }
        }
        answer
    }

    /// Finds out whether a silent node answers again, and may vote.
    pub(super) async fn probe(self: &Arc<Self>, members: &Arc<Members>) {
        if self.vetted_run().is_none() && members.vetted(self).await.is_err() {
            return;
        }
        let sent = Instant::now();
        match timeout(members.limit, self.master.run()).await {
            Ok(Ok(_)) => self.rtt.answered(sent.elapsed()),
            Ok(Err(_)) => {}
            Err(_) => self.master.went_silent(),
        }
    }

    pub(super) fn failed(&self, error: StoreError) -> Failure {
        Failure {
            node: self.index,
            address: Arc::clone(&self.address),
            error,
        }
    }
}
