//! Undo of the votes that a lost attempt may have left.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::QuorumStore;
use super::hints::Hints;
use super::node::{Members, NONE};
use super::nodes::{MAXIMUM_NODES, Nodes};
use super::round::{Answered, How, Round, ask};
use crate::store::Attempt;
use crate::store::redis::Ballot;
use crate::token::Token;

/// Maximum delay of a request on a broken connection: after this time it is not carried out any more.
const LATE: Duration = Duration::from_secs(1);

/// Pause before an undo without an answer is repeated: the first one, and the maximum.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), LATE);

impl QuorumStore {
    /// Removes all that a former token of the acquisition has left, on all nodes.
    pub(super) fn give_up(&self, attempt: Attempt<'_>, former: &Token) {
        let attempt = Attempt {
            token: former,
            ..attempt
        };
        let nodes = (0..self.members.all.len()).fold(Nodes::default(), Nodes::with);
        self.undo(attempt, nodes, [NONE; MAXIMUM_NODES]);
    }

    /// Removes votes, after the requests for them, without waiting for the answers. If another attempt for the token has begun
    /// meanwhile, it keeps the votes.
    pub(super) fn undo(&self, attempt: Attempt<'_>, left: Nodes, sent_on: [u64; MAXIMUM_NODES]) {
        let Some(ballot) = Ballot::release(attempt.key, attempt.token, false) else {
            return;
        };
        self.members.tokens.undo(attempt.token);
        let mut undo = Undo {
            members: Arc::clone(&self.members),
            hints: Arc::clone(&self.hints),
            ballot,
            token: *attempt.token,
            ttl: attempt.ttl,
            began: Instant::now(),
            sent_on,
            failed: left,
            doubtful: Nodes::default(),
        };
        let mut round = undo.ask(left);
        for answered in round.send() {
            undo.heard(&answered, false);
        }
        self.hints.spawn(undo.until_confirmed(round));
    }
}

/// The removal of votes, repeated until the nodes have confirmed it, or until the ttl has passed.
struct Undo {
    members: Arc<Members>,
    hints: Arc<Hints>,
    ballot: Arc<Ballot>,
    token: Token,
    ttl: Duration,
    began: Instant,
    /// The connections that the votes were sent on.
    sent_on: [u64; MAXIMUM_NODES],
    /// Nodes that have not confirmed the undo.
    failed: Nodes,
    /// Nodes that have confirmed it on another connection: the vote may arrive after it.
    doubtful: Nodes,
}

impl Undo {
    fn ask(&self, nodes: Nodes) -> Round<impl Future<Output = Answered> + Send + 'static> {
        let members = &self.members;
        let others = (0..members.all.len()).filter(|node| !nodes.has(*node));
        let skip = others.fold(Nodes::default(), Nodes::with);
        let how = How::Undo(self.token);
        ask(members, Arc::clone(&self.ballot), how, skip, members.limit)
    }

    /// `late`: the undo was sent so late that no vote arrives after it.
    fn heard(&mut self, (node, answer): &Answered, late: bool) {
        let Ok(value) = answer else { return };
        self.failed = self.failed.without(*node);
        self.doubtful = self.doubtful.without(*node);
        let same = self.members.all[*node].master.generation() == Some(self.sent_on[*node]);
        // Nil: nothing was sent, because another attempt goes on with the token.
        if !(late || same || *value == redis::Value::Nil) {
            self.doubtful = self.doubtful.with(*node);
        }
    }

    async fn hear<F>(&mut self, mut round: Round<F>, late: bool)
    where
        F: Future<Output = Answered> + Send + 'static,
    {
        while let Some(answered) = round.next().await {
            self.heard(&answered, late);
        }
        round.finish(&self.hints, |_| ());
    }

    async fn until_confirmed<F>(mut self, first: Round<F>)
    where
        F: Future<Output = Answered> + Send + 'static,
    {
        let (mut pause, longest) = PAUSE;
        self.hear(first, false).await;
        loop {
            let passed = self.began.elapsed();
            if self.failed.and(self.doubtful).is_empty() || passed >= self.ttl {
                return;
            }
            let again = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
            sleep(if self.failed.is_empty() {
                again.max(LATE.saturating_sub(passed))
            } else {
                again
            })
            .await;
            pause = longest.min(pause * 2);
            let late = self.began.elapsed() >= LATE;
            let doubtful = if late {
                self.doubtful
            } else {
                Nodes::default()
            };
            self.hear(self.ask(self.failed.and(doubtful)), late).await;
        }
    }
}
