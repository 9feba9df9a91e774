//! One question to several nodes: the answers as they come, and the rest in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;
use tokio::time::{sleep_until, timeout, timeout_at};

use super::causes::late;
use super::hints::Hints;
use super::peer::{Peer, Peers};
use crate::store::StoreError;
use crate::store::redis::Ballot;

/// What one node answered.
pub(super) type Answered = (usize, Result<Value, StoreError>);

/// How a question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Only nodes that may vote are asked.
    Vote,
    /// Every node is asked, also one that restarted.
    Tell,
}

pub(super) struct Round {
    peers: Arc<Peers>,
    pending: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// Until when the answer of each node is waited for; `None` where there is nothing to wait for any more.
    until: Vec<Option<Instant>>,
    /// Asked and not heard of, whether they are waited for or not.
    open: Nodes,
    limits: Vec<Duration>,
    /// The deadline for commands.
    end: tokio::time::Instant,
    /// Nothing is sent any more: what is not on its way by now would come behind a release.
    closed: Arc<AtomicBool>,
}

impl Round {
    /// Asks all nodes except those in `skip`, and waits for each at most for `most`: for a vote only as long as its answers
    /// usually take.
    /// Nothing is sent before the round is polled.
    pub(super) fn new(
        peers: &Arc<Peers>,
        ballot: &Arc<Ballot>,
        how: How,
        skip: Nodes,
        most: Duration,
    ) -> Self {
        let sent = Instant::now();
        let pending = FuturesUnordered::new();
        let count = peers.all.len();
        let mut open = Nodes::default();
        let closed = Arc::new(AtomicBool::new(false));
        let (mut until, mut limits) = (vec![None; count], vec![Duration::ZERO; count]);
        for peer in peers.all.iter().filter(|peer| !skip.has(peer.index)) {
            let index = peer.index;
            limits[index] = match how {
                How::Vote => peer.pulse.limit(most.min(peers.limit)),
                How::Tell => most,
            };
            until[index] = Some(sent + limits[index]);
            open = open.with(index);
            pending.push(ask(
                Arc::clone(peer),
                Arc::clone(peers),
                Arc::clone(ballot),
                how,
                (sent, Arc::clone(&closed)),
            ));
        }
        Self {
            peers: Arc::clone(peers),
            pending,
            until,
            open,
            limits,
            end: (sent + peers.limit).into(),
            closed,
        }
    }

    /// The next answer, or a node whose time is over. `None` when every node has been heard of. A node that was given up
    /// may answer all the same, while others are still waited for.
    pub(super) async fn next(&mut self) -> Option<Answered> {
        let waiting = self.until.iter().enumerate();
        let first = waiting.filter_map(|(n, until)| until.map(|until| (until, n)));
        let (until, node) = first.min()?;
        tokio::select! {
            biased;
            Some((index, answer)) = self.pending.next() => {
                self.heard_of(index);
                Some((index, answer))
            }
            () = sleep_until(until.into()) => {
                self.until[node] = None;
                self.peers.all[node].pulse.missed();
                Some((node, Err(late(self.limits[node]))))
            }
        }
    }

    /// Whether every node has answered or was given up.
    pub(super) fn is_over(&self) -> bool {
        self.until.iter().all(Option::is_none)
    }

    /// The next answer of a node that was given up.
    pub(super) async fn straggler(&mut self, end: tokio::time::Instant) -> Option<Answered> {
        let (index, answer) = timeout_at(end, self.pending.next()).await.ok()??;
        self.heard_of(index);
        Some((index, answer))
    }

    /// The next answer. Where those that came in time are not enough, also one that comes within the deadline for commands.
    pub(super) async fn next_or_late(&mut self, enough: bool) -> Option<Answered> {
        match self.next().await {
            None if !enough => self.straggler(self.end).await,
            next => next,
        }
    }

    /// Puts every request on its way that can be, without waiting for an answer.
    pub(super) fn send(&mut self) -> Vec<Answered> {
        let mut answers = Vec::new();
        while let Some(Some((index, answer))) = self.pending.next().now_or_never() {
            self.heard_of(index);
            answers.push((index, answer));
        }
        answers
    }

    /// As [`finish`](Self::finish), for requests that are on their way already; the others never leave.
    pub(super) fn finish_what_is_sent(self, hints: &Hints) {
        self.closed.store(true, Ordering::SeqCst);
        self.finish(hints, |_| ());
    }

    fn heard_of(&mut self, index: usize) {
        self.until[index] = None;
        self.open = self.open.without(index);
    }

    /// Lets the nodes that have not answered yet do so in the background, and shows each answer to `see`.
    pub(super) fn finish(mut self, hints: &Hints, mut see: impl FnMut(Answered) + Send + 'static) {
        if self.pending.is_empty() {
            return;
        }
        hints.spawn(async move {
            let limit = self.peers.limit;
            let drain = async {
                while let Some((index, answer)) = self.pending.next().await {
                    self.heard_of(index);
                    see((index, answer));
                }
            };
            if timeout(limit, drain).await.is_err() {
                let open = self.peers.all.iter().filter(|p| self.open.has(p.index));
                for peer in open {
                    peer.pulse.missed();
                    peer.node.went_silent();
                }
            }
        });
    }
}

fn ask(
    peer: Arc<Peer>,
    peers: Arc<Peers>,
    ballot: Arc<Ballot>,
    how: How,
    (sent, closed): (Instant, Arc<AtomicBool>),
) -> BoxFuture<'static, Answered> {
    Box::pin(async move {
        let index = peer.index;
        let answer = match how {
            How::Vote => peer.vote(&peers, &ballot, sent, &closed).await,
            How::Tell => peer.send(&ballot, sent).await,
        };
        (index, answer)
    })
}

/// A set of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Nodes(u16);

impl Nodes {
    pub(super) fn with(self, index: usize) -> Self {
        Self(self.0 | 1 << index)
    }

    pub(super) fn without(self, index: usize) -> Self {
        Self(self.0 & !(1 << index))
    }

    pub(super) fn has(self, index: usize) -> bool {
        self.0 & 1 << index != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}
