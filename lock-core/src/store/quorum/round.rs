//! One request to several nodes: what each is sent, the answers as they come, and the rest in the background.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::FutureExt;
use redis::Value;
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::ballot::{Ballot, Cast, is_unknown};
use super::causes::{late, reconnected, stale, unknown};
use super::leftovers::Busy;
use super::members::Members;
use super::node::Member;
use super::nodes::{MAXIMUM_NODES, Nodes};
use super::session::Admitted;
use super::tokens::Edition;
use crate::base::rt::before_send;
use crate::base::sync::lock;
use crate::base::timers::Sleep;
use crate::store::StoreError;

/// The answer of one node.
pub(super) type Answered = (usize, Result<Value, StoreError>);

/// What comes next of a round.
pub(super) enum Progress {
    Answered(Answered),
    TimeIsUp,
    Over,
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Only nodes that may vote are asked, for a vote of this edition. A waiter may get a place as well.
    Vote { edition: Edition, waits: bool },
    /// Only nodes that may vote are asked, for something else: to renew votes, or to raise their counters.
    Renew,
    /// Every node is asked, also a restarted one.
    Tell,
}

/// The request to all nodes.
struct Question {
    members: Arc<Members>,
    ballot: Arc<Ballot>,
    how: How,
    sent: Instant,
    /// Nothing more is sent: what has not been sent by now is not needed any more.
    closed: AtomicBool,
    /// For each node, the time from the start of the round until it read its clock, ms.
    took: [AtomicI64; MAXIMUM_NODES],
}

pub(super) struct Round<F: Future<Output = Answered> + Send + 'static> {
    question: Arc<Question>,
    pending: Pending<F>,
    /// The end of the wait for each node; `None` if there is nothing to wait for any more.
    until: [Option<Instant>; MAXIMUM_NODES],
    /// Nodes that were asked and have not answered, whether they are awaited or not.
    open: Nodes,
    /// Timer for the next node that times out. Made with the first wait.
    timer: Option<(Instant, Pin<Box<Sleep>>)>,
    /// Whether a task receives the remaining answers.
    is_left: bool,
}

/// Asks all nodes except those in `skip`, and waits for each at most `most`; for a vote only as long as its answers usually
/// take. The first poll sends every request that can be sent, without tokio's budget for a task: a request that the budget
/// holds back would arrive behind a later one.
pub(super) fn ask(
    members: &Arc<Members>,
    ballot: Arc<Ballot>,
    how: How,
    skip: Nodes,
    most: Duration,
) -> Round<impl Future<Output = Answered> + Send + 'static> {
    let sent = members.timers().now();
    let question = Arc::new(Question {
        members: Arc::clone(members),
        ballot,
        how,
        sent,
        closed: AtomicBool::new(false),
        took: [const { AtomicI64::new(0) }; MAXIMUM_NODES],
    });
    let mut pending = Pending::default();
    let (mut until, mut open) = ([None; MAXIMUM_NODES], Nodes::default());
    for node in members.all.iter().filter(|node| !skip.has(node.index)) {
        let limit = match how {
            How::Vote { .. } => node.rtt.limit(most.min(members.limit)),
            How::Renew | How::Tell => most,
        };
        until[node.index] = Some(sent + limit);
        open = open.with(node.index);
        pending.0[node.index] = Expected::Open(Box::pin(unconstrained(put(
            Arc::clone(&question),
            node.index,
        ))));
    }
    Round {
        question,
        pending,
        until,
        open,
        timer: None,
        is_left: false,
    }
}

/// Requests with outstanding answers. All are polled at each wake-up: they are few, and finding the right one would cost more. The
/// other requests are sent even if the first answers come at once: a lock with a bare majority of votes would be lost with one
/// more node.
struct Pending<F>([Expected<F>; MAXIMUM_NODES]);

/// The state of one node's answer.
#[derive(Default)]
enum Expected<F> {
    /// The node was not asked, or its answer was passed on.
    #[default]
    Nothing,
    Open(Pin<Box<F>>),
    Answered(Answered),
}

impl<F> Default for Pending<F> {
    fn default() -> Self {
        Self([const { Expected::Nothing }; MAXIMUM_NODES])
    }
}

impl<F: Future<Output = Answered>> Pending<F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Answered> {
        for expected in &mut self.0 {
            if let Expected::Open(request) = expected
                && let Poll::Ready(answered) = request.as_mut().poll(cx)
            {
                *expected = Expected::Answered(answered);
            }
        }
        let is_answered = |expected: &&mut _| matches!(expected, Expected::Answered(_));
        let answered = self.0.iter_mut().find(is_answered);
        match answered.map(std::mem::take) {
            Some(Expected::Answered(answered)) => Poll::Ready(answered),
            _ => Poll::Pending,
        }
    }

    /// The next answer. Never returns if there is none to come.
    async fn next(&mut self) -> Answered {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn is_empty(&self) -> bool {
        self.0
            .iter()
            .all(|expected| matches!(expected, Expected::Nothing))
    }
}

async fn put(question: Arc<Question>, index: usize) -> Answered {
    let Question {
        members,
        ballot,
        how,
        sent,
        ..
    } = &*question;
    let node = &members.all[index];
    let answer = match how {
        How::Vote { .. } | How::Renew => question.vote(index).await,
        How::Tell => {
            before_send().await;
            node.send_while(ballot, None, *sent, &|| true).await
        }
    };
    question.was_asked(node, &answer);
    (index, answer)
}

impl Question {
    /// A node has answered, or has not.
    fn was_asked(&self, node: &Member, answer: &Result<Value, StoreError>) {
        if matches!(self.how, How::Vote { .. } | How::Renew) {
            self.members.was_asked(node, answer);
        }
    }

    /// A node has been asked for a vote. If that may be there, and its edition was given up meanwhile, it is taken back, unless what
    /// took the others back has followed it.
    fn was_cast(
        &self,
        edition: Edition,
        index: usize,
        answer: &Result<Value, StoreError>,
        is_ahead: bool,
    ) {
        let members = &self.members;
        match answer.as_ref().map(Cast::read) {
            Ok(Cast::Refused) => members.tokens.is_refused(edition, index),
            Err(StoreError::NotNow(_) | StoreError::NotYet(_) | StoreError::Misconfigured(_)) => {
                members.tokens.is_refused(edition, index);
            }
            cast @ (Ok(Cast::Given) | Err(StoreError::Ambiguous(_))) => {
                if cast.is_err() {
                    let node = &members.all[index];
                    lock(&node.leftovers).is_unanswered(Instant::now());
                }
                let counts = members.tokens.is_cast(edition, index, cast.is_ok());
                if !counts && (cast.is_err() || !is_ahead) {
                    let on = Nodes::default().with(index);
                    members.take_back(self.ballot.undone(), edition, on);
                }
            }
        }
    }

    /// The answer of a node to a request for votes, or for their renewal.
    async fn vote(&self, index: usize) -> Result<Value, StoreError> {
        let (members, node) = (&self.members, &self.members.all[index]);
        let admitted = members.admit(node).await?;
        if self.closed.load(Ordering::SeqCst) {
            return Err(reconnected());
        }
        let asked = members.timers().now();
        let send = |wanted| node.send_while(&self.ballot, Some(&admitted), self.sent, wanted);
        let value = match self.how {
            How::Vote { edition, waits } => {
                if !members.tokens.asks(edition, index, waits) {
                    return Err(stale());
                }
                before_send().await;
                let has_room = admitted.connection.has_room();
                let is_repeated = AtomicBool::new(false);
                let wanted = || {
                    is_repeated.store(true, Ordering::Relaxed);
                    members.tokens.is_open(edition)
                };
                let mut reply = pin!(send(&wanted));
                // This puts it on its way.
                let first = poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx))).await;
                let is_in_order = has_room && members.tokens.is_open(edition);
                let value = match first {
                    Poll::Ready(value) => value,
                    Poll::Pending => reply.await,
                };
                // What takes it back went out behind it, on the same connection.
                let is_ahead = is_in_order
                    && !is_repeated.load(Ordering::Relaxed)
                    && !admitted.connection.has_ended();
                self.was_cast(edition, index, &value, is_ahead);
                value?
            }
            How::Renew | How::Tell => send(&|| true).await?,
        };
        // The node read its clock about halfway.
        let middle = asked + members.timers().elapsed(asked) / 2;
        let middle = middle.saturating_duration_since(self.sent);
        self.took[index].store(middle.as_millis() as i64, Ordering::Relaxed);
        if is_unknown(&value) {
            node.sessions.is_unknown();
            return Err(unknown());
        }
        Ok(value)
    }
}

impl Member {
    async fn send_while(
        &self,
        ballot: &Ballot,
        admitted: Option<&Admitted>,
        sent: Instant,
        wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Value, StoreError> {
        let answer = self.send(ballot, admitted, wanted).await;
        match &answer {
            // The connection may be missing: the next attempts are probes.
            Err(StoreError::NotNow(_) | StoreError::Ambiguous(_)) => self.rtt.missed(),
            Ok(_) | Err(StoreError::Misconfigured(_) | StoreError::NotYet(_)) => {
                self.rtt.answered(sent.elapsed());
            }
        }
        answer
    }
}

impl<F: Future<Output = Answered> + Send + 'static> Round<F> {
    /// The next answer, or a node that has timed out. `None` when every node has answered or timed out. A node that timed out
    /// may still answer while others are awaited.
    pub(super) async fn next(&mut self) -> Option<Answered> {
        match self.next_until(None).await {
            Progress::Answered(answered) => Some(answered),
            Progress::TimeIsUp | Progress::Over => None,
        }
    }

    /// As [`next`](Self::next), at most until `end`.
    pub(super) async fn next_until(&mut self, end: Option<Instant>) -> Progress {
        let Some((until, node)) = self.next_time_out() else {
            return Progress::Over;
        };
        let end = end.filter(|end| *end < until);
        if let Some((index, answer)) = self.answer_until(end.unwrap_or(until)).await {
            self.close(index);
            return Progress::Answered((index, answer));
        }
        if end.is_some() {
            return Progress::TimeIsUp;
        }
        self.times_out(node);
        Progress::Answered((node, Err(late(until - self.question.sent))))
    }

    /// The node whose time ends first, and when.
    fn next_time_out(&self) -> Option<(Instant, usize)> {
        let waiting = self.until.iter().enumerate();
        let ends = waiting.filter_map(|(node, until)| until.map(|until| (until, node)));
        ends.min()
    }

    fn times_out(&mut self, node: usize) {
        self.until[node] = None;
        self.question.members.all[node].rtt.missed();
    }

    /// The next answer that comes before `until`.
    async fn answer_until(&mut self, until: Instant) -> Option<Answered> {
        let timers = self.question.members.timers();
        let Self { pending, timer, .. } = self;
        poll_fn(|cx| {
            if let Poll::Ready(answered) = pending.poll_next(cx) {
                return Poll::Ready(Some(answered));
            }
            let sleep = || timers.sleep_until(until);
            let (end, timer) = timer.get_or_insert_with(|| (until, Box::pin(sleep())));
            if *end != until {
                *end = until;
                timer.set(sleep());
            }
            timer.as_mut().poll(cx).map(|()| None)
        })
        .await
    }

    /// Whether every node has answered or timed out.
    pub(super) fn is_over(&self) -> bool {
        self.until.iter().all(Option::is_none)
    }

    /// The next answer of a node that timed out.
    pub(super) async fn straggler(&mut self, end: Instant) -> Option<Answered> {
        if self.pending.is_empty() {
            return None;
        }
        let timers = self.question.members.timers();
        let answered = timers.timeout_at(end, self.pending.next()).await;
        let (index, answer) = answered.ok()?;
        self.close(index);
        Some((index, answer))
    }

    /// The next answer. If the answers in time are not `enough`, also a later answer within the command deadline.
    pub(super) async fn next_or_late(&mut self, enough: bool) -> Option<Answered> {
        match self.next().await {
            None if !enough => {
                let Question { members, sent, .. } = &*self.question;
                let end = *sent + members.limit;
                self.straggler(end).await
            }
            next => next,
        }
    }

    /// Sends every request that can be sent, and returns the answers that are there already.
    pub(super) fn send(&mut self) -> Vec<Answered> {
        let mut answers = Vec::new();
        while let Some((index, answer)) = self.pending.next().now_or_never() {
            self.close(index);
            answers.push((index, answer));
        }
        answers
    }

    /// From the start of the round until a node that has voted read its clock, ms.
    pub(super) fn took(&self, node: usize) -> i64 {
        self.question.took[node].load(Ordering::Relaxed)
    }

    fn close(&mut self, index: usize) {
        self.until[index] = None;
        self.open = self.open.without(index);
    }

    /// Whether a node has not answered yet: it may have timed out.
    pub(super) fn is_open(&self, node: usize) -> bool {
        self.open.has(node)
    }

    /// Receives the remaining answers in the background, and passes each to `see`, and an error for each node without one.
    pub(super) fn finish(self, see: impl FnMut(Answered) + Send + 'static) {
        if self.pending.is_empty() {
            return;
        }
        let members = Arc::clone(&self.question.members);
        members.engine.spawn(self.rest(see));
    }

    /// As [`finish`](Self::finish), in a task of the engine.
    pub(super) fn rest(
        mut self,
        mut see: impl FnMut(Answered) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        // The timer belongs to the caller's runtime, which may end before the engine's runtime.
        (self.timer, self.is_left) = (None, true);
        let members = Arc::clone(&self.question.members);
        let end = Instant::now() + members.limit;
        let how = self.question.how;
        let busy = matches!(how, How::Vote { .. }).then(|| members.under_way.begin());
        async move {
            let _busy: Option<Busy> = busy;
            while !self.pending.is_empty() {
                let time_out = self.next_time_out();
                let until = time_out.map_or(end, |(until, _)| until.min(end));
                match (self.answer_until(until).await, time_out) {
                    (Some((index, answer)), _) => {
                        self.close(index);
                        see((index, answer));
                    }
                    (None, Some((_, node))) => self.times_out(node),
                    (None, None) => break,
                }
            }
            let members = &self.question.members.all;
            for node in members.iter().filter(|node| self.open.has(node.index)) {
                node.rtt.missed();
                node.went_silent();
                let answer = Err(late(self.question.members.limit));
                self.question.was_asked(node, &answer);
                if let How::Vote { edition, .. } = how {
                    self.question.was_cast(edition, node.index, &answer, false);
                }
                see((node.index, answer));
            }
        }
    }

    /// Whether no answer is outstanding.
    pub(super) fn is_answered(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn ballot(&self) -> Arc<Ballot> {
        Arc::clone(&self.question.ballot)
    }
}

/// What has not been sent is not sent any more. A vote that is on its way may have to be taken back.
impl<F: Future<Output = Answered> + Send + 'static> Drop for Round<F> {
    fn drop(&mut self) {
        if self.is_left || !matches!(self.question.how, How::Vote { .. }) {
            return;
        }
        self.question.closed.store(true, Ordering::SeqCst);
        let rest = Self {
            question: Arc::clone(&self.question),
            pending: std::mem::take(&mut self.pending),
            until: self.until,
            open: self.open,
            timer: None,
            is_left: true,
        };
        rest.finish(|_| ());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn an_answer_that_comes_at_once_keeps_no_request_from_being_sent() {
        let sent = Arc::new(AtomicU64::new(0));
        let mut pending = Pending::default();
        for node in 0..3 {
            let sent = Arc::clone(&sent);
            pending.0[node] = Expected::Open(Box::pin(async move {
                sent.fetch_add(1, Ordering::Relaxed);
                (node, Ok(Value::Okay))
            }));
        }
        for node in 0..3 {
            let (index, _) = pending.next().now_or_never().unwrap();
            assert_eq!((index, sent.load(Ordering::Relaxed)), (node, 3));
        }
        assert!(pending.is_empty());
    }
}
