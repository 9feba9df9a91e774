//! A node of a quorum, and what is sent to it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use once_cell::sync::OnceCell;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::Rules;
use super::admission::Admission;
use super::causes::{Failure, in_doubt, in_quarantine, reconnected, unknown};
use super::nodes::{Nodes, majority};
use super::round::Way;
use super::rtt::RttEstimator;
use super::tokens::Tokens;
use super::ttls::{Ttls, rounded};
use crate::rt::{self, Handle};
use crate::store::StoreError;
use crate::store::redis::{Abstention, Ballot, Master};
use crate::time::{Clock, SystemClock};
use crate::token::Token;

/// A generation that no connection has.
pub(super) const NONE: u64 = u64::MAX;

pub(super) struct Node {
    pub(super) index: usize,
    pub(super) address: Arc<str>,
    pub(super) master: Master,
    pub(super) rtt: RttEstimator,
    pub(super) admission: Admission,
    /// Whether a ttl is being announced to the node.
    pub(super) telling: AtomicBool,
    /// The latest token that the node was asked for.
    asked_for: AtomicU64,
}

/// All nodes, and the state that they share.
pub(super) struct Members {
    pub(super) all: Vec<Arc<Node>>,
    pub(super) majority: usize,
    pub(super) limit: Duration,
    /// Whether a node that may have forgotten votes goes into quarantine.
    pub(super) quarantine: bool,
    /// A vote that a node has forgotten may last as long as the longest of them.
    pub(super) ttls: Ttls,
    /// How far the clock of a node may jump: the nodes keep votes that much longer than their ttl.
    pub(super) clock_skew: Duration,
    pub(super) runtime: OnceCell<Handle>,
    /// Notified when the announcement of a ttl to a node has succeeded or failed.
    pub(super) telling_over: Notify,
    pub(super) tokens: Arc<Tokens>,
}

impl Members {
    pub(super) fn new(nodes: Vec<Master>, rules: Rules, tokens: Arc<Tokens>) -> Self {
        let members = nodes.into_iter().enumerate().map(|(index, node)| {
            Arc::new(Node {
                index,
                address: node.address(),
                master: node,
                rtt: RttEstimator::default(),
                admission: Admission::default(),
                telling: AtomicBool::new(false),
                asked_for: AtomicU64::new(0),
            })
        });
        let all: Vec<_> = members.collect();
        let ttls = Ttls::default();
        ttls.uses(rounded(rules.ttl + rules.clock_skew), SystemClock.now());
        Self {
            majority: majority(all.len()),
            all,
            limit: rules.limit,
            quarantine: rules.quarantine,
            clock_skew: rules.clock_skew,
            ttls,
            runtime: OnceCell::new(),
            telling_over: Notify::new(),
            tokens,
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

    /// The nodes that cannot have anything of this token.
    pub(super) fn never_asked_for(&self, token: &Token) -> Nodes {
        let never = self.all.iter().filter(|node| {
            let latest = node.asked_for.load(Ordering::SeqCst);
            token.sequence() > latest
        });
        never.fold(Nodes::default(), |nodes, node| nodes.with(node.index))
    }
}

impl Node {
    /// The node is about to be asked for this token.
    pub(super) fn asked_for(&self, token: &Token) {
        self.asked_for.fetch_max(token.sequence(), Ordering::SeqCst);
    }

    /// The vote of this node, which it keeps for this rounded time. It does not count if the connection was replaced on the way.
    pub(super) async fn vote(
        self: &Arc<Self>,
        members: &Arc<Members>,
        ballot: &Ballot,
        (token, ttl): (&Token, Duration),
        sent: Instant,
        closed: &AtomicBool,
        way: &Way,
    ) -> Result<redis::Value, StoreError> {
        let before = members.admit(self, ttl).await?;
        if members.tokens.undo_may_follow(token, self.index, before) {
            return Err(in_doubt());
        }
        if closed.load(Ordering::SeqCst) {
            return Err(reconnected());
        }
        way.sent_on.store(before, Ordering::Relaxed);
        let asked = Instant::now();
        let value = self.send(ballot, sent).await?;
        if self.master.generation() != Some(before) {
            // Another run of the server may have answered. It may have forgotten the vote of another client.
            members.tokens.is_void(token, self.index);
            return Err(reconnected());
        }
        // The node read its clock about halfway.
        let middle = (asked + asked.elapsed() / 2).saturating_duration_since(sent);
        way.took.store(middle.as_millis() as i64, Ordering::Relaxed);
        match Abstention::read(&value)? {
            None => {
                self.heard_of();
                Ok(value)
            }
            Some(Abstention::Waits { left }) => {
                self.waits_for(left);
                Err(in_quarantine(left))
            }
            Some(Abstention::Unknown) => {
                self.is_unknown();
                Err(unknown())
            }
        }
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
        let mut release = pin!(self.send_while(ballot, sent, wanted));
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
            // The connection may be missing: the next attempts are probes.
            Err(StoreError::NotNow(_) | StoreError::Ambiguous(_)) => self.rtt.missed(),
            Ok(_) | Err(StoreError::Misconfigured(_)) => {
                self.rtt.answered(sent.elapsed());
            }
        }
        answer
    }

    /// Finds out whether a silent node answers again, and may vote.
    pub(super) async fn probe(self: &Arc<Self>, members: &Arc<Members>) {
        if self.vetted_connection().is_none() && members.vetted(self).await.is_err() {
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
