//! Removal of what a token that was given up may have left on the nodes: one set for each node.
//!
//! A release, or an undo, is sent to every node that was asked for the token. A node that does not confirm it gets it again, until it
//! does, or until the vote has ended there by itself. An answer confirms it on the connection of the vote, since a vote on that
//! connection was carried out before. On another connection it does so [a second](LATE) after the connection of the vote has ended,
//! since that vote may arrive a little later. Nothing is sent while a later attempt goes on with the token: that attempt cleans up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::QuorumStore;
use super::ballot::Ballot;
use super::hints::Hints;
use super::node::{Members, Node};
use super::round::{Answered, How, ask};
use super::sent_on::SentOn;
use crate::base::sync::lock;
use crate::base::token::Token;
use crate::store::{Attempt, StoreError};

/// Maximum delay of a request on a broken connection: after this time it is not carried out any more.
const LATE: Duration = Duration::from_secs(1);

/// Pause before a clean-up is repeated: the first one, and the maximum.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), LATE);

/// Maximum clean-ups that are sent at once.
const BATCH: usize = 64;

/// Maximum clean-ups of one node that are kept. What is beyond ends with its ttl.
const MOST: usize = 16_384;

/// What a pass of the clean-up of one node came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Nothing is left.
    Over,
    /// Some of what is left was removed.
    Removed,
    Nothing,
}

impl Pass {
    /// The pause before the next pass.
    fn pause_after(self, pause: Duration) -> Duration {
        match self {
            Self::Over | Self::Removed => PAUSE.0,
            Self::Nothing => PAUSE.1.min(pause * 2),
        }
    }
}

/// The clean-ups that a node has not confirmed.
#[derive(Default)]
pub(super) struct Leftovers {
    entries: HashMap<u64, Leftover>,
    /// Whether a task sends them.
    running: bool,
}

struct Leftover {
    ballot: Arc<Ballot>,
    token: Token,
    /// The end of the vote, if the node has it.
    end: Instant,
    /// The connection that the vote was sent on.
    sent_on: u64,
    /// When it was found to have ended.
    ended_at: Option<Instant>,
    /// Whether the node has answered on another connection.
    answered: bool,
}

impl Leftover {
    /// Whether an answer on this connection confirms the clean-up.
    fn is_confirmed_on(&self, connection: Option<u64>, asked: Instant) -> bool {
        connection == Some(self.sent_on) || self.ended_at.is_some_and(|at| asked >= at + LATE)
    }

    fn is_due(&mut self, connection: Option<u64>, now: Instant) -> bool {
        if connection != Some(self.sent_on) {
            self.ended_at.get_or_insert(now);
        }
        !self.answered || self.is_confirmed_on(connection, now)
    }
}

/// The clean-ups under way, of all nodes.
#[derive(Default)]
pub(super) struct UnderWay {
    count: AtomicUsize,
    over: Notify,
}

/// One of them.
struct Busy(Arc<UnderWay>);

impl UnderWay {
    fn begin(self: &Arc<Self>) -> Busy {
        self.count.fetch_add(1, Ordering::SeqCst);
        Busy(Arc::clone(self))
    }

    /// Waits until there is none.
    pub(super) async fn until_over(&self) {
        loop {
            let over = self.over.notified();
            tokio::pin!(over);
            over.as_mut().enable();
            if self.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            over.await;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.over.notify_waiters();
        }
    }
}

/// A token that is given up.
pub(super) struct GivenUp {
    members: Arc<Members>,
    ballot: Arc<Ballot>,
    token: Token,
    ttl: Duration,
    sent_on: SentOn,
    _busy: Busy,
}

impl GivenUp {
    pub(super) fn new(
        members: &Arc<Members>,
        ballot: Arc<Ballot>,
        token: Token,
        sent_on: SentOn,
    ) -> Self {
        Self {
            members: Arc::clone(members),
            ballot,
            token,
            // No vote lasts longer.
            ttl: members.kept(members.wait / 2),
            sent_on,
            _busy: members.under_way.begin(),
        }
    }

    /// Removes the votes, without waiting for the answers.
    pub(super) fn undo(self, hints: &Hints) {
        let members = &self.members;
        let (others, how) = (
            members.nodes().but(self.sent_on.nodes()),
            How::Undo(self.token),
        );
        let mut round = ask(
            members,
            Arc::clone(&self.ballot),
            how,
            others,
            members.limit,
        );
        for answered in round.send() {
            self.heard(&answered);
        }
        round.finish(hints, move |answered| self.heard(&answered));
    }

    /// A node has answered, or has not done so in time.
    pub(super) fn heard(&self, (index, answer): &Answered) {
        let node = &self.members.all[*index];
        let leftover = Leftover {
            ballot: Arc::clone(&self.ballot),
            token: self.token,
            end: Instant::now() + self.ttl,
            sent_on: self.sent_on.on(*index),
            ended_at: None,
            answered: answer.is_ok(),
        };
        let is_confirmed =
            answer.is_ok() && leftover.is_confirmed_on(node.master.generation(), Instant::now());
        if !is_confirmed && !is_not_sent(answer) {
            self.members.remember(node, leftover);
        }
    }
}

/// Another attempt goes on with the token.
fn is_not_sent(answer: &Result<Value, StoreError>) -> bool {
    matches!(answer, Ok(Value::Nil))
}

impl QuorumStore {
    /// Removes all that a former token of the acquisition has left, on all nodes.
    pub(super) fn give_up(&self, attempt: Attempt<'_>, former: &Token) {
        let attempt = Attempt {
            token: former,
            ..attempt
        };
        self.undo(attempt, SentOn::unknown(self.members.all.len()));
    }

    /// Removes votes, after the requests for them, without waiting for the answers. If another attempt for the token has begun
    /// meanwhile, it keeps the votes.
    pub(super) fn undo(&self, attempt: Attempt<'_>, sent_on: SentOn) {
        let (members, token) = (&self.members, *attempt.token);
        let ballot = Ballot::release(attempt.key, &token, false);
        members.tokens.undo(&token);
        let given_up = GivenUp::new(members, ballot, token, sent_on);
        given_up.undo(&self.hints);
    }
}

impl Members {
    fn remember(self: &Arc<Self>, node: &Node, leftover: Leftover) {
        let mut left = lock(&node.leftovers);
        if left.entries.len() >= MOST {
            return;
        }
        left.entries.insert(leftover.token.number(), leftover);
        if !std::mem::replace(&mut left.running, true) {
            let busy = self.under_way.begin();
            let alive = self.alive.subscribe();
            self.spawn(clean_up_on(Arc::downgrade(self), alive, node.index, busy));
        }
    }

    /// Sends what is due.
    async fn clean_up(self: &Arc<Self>, node: &Arc<Node>) -> Pass {
        let connected = timeout(self.limit, node.master.ready()).await;
        let connection = connected.ok().and_then(Result::ok);
        let asked = Instant::now();
        let due: Vec<_> = {
            let mut left = lock(&node.leftovers);
            left.entries.retain(|_, leftover| asked < leftover.end);
            if left.entries.is_empty() {
                left.running = false;
                return Pass::Over;
            }
            if connection.is_none() {
                return Pass::Nothing;
            }
            let due = left.entries.values_mut();
            let due = due.filter_map(|it| {
                let is_due = it.is_due(connection, asked);
                is_due.then(|| (it.token, Arc::clone(&it.ballot)))
            });
            due.take(BATCH).collect()
        };
        let answers = due.iter().map(async |(token, ballot)| {
            let undo = node.undo(self, ballot, asked, token);
            (token.number(), timeout(self.limit, undo).await)
        });
        let answers = join_all(answers).await;
        let now_on = node.master.generation();
        let mut left = lock(&node.leftovers);
        let before = left.entries.len();
        for (number, answer) in answers {
            let (Ok(answer), Some(leftover)) = (answer, left.entries.get_mut(&number)) else {
                continue;
            };
            leftover.answered |= answer.is_ok();
            let is_confirmed = answer.is_ok() && leftover.is_confirmed_on(now_on, asked);
            if is_confirmed || is_not_sent(&answer) {
                left.entries.remove(&number);
            }
        }
        if left.entries.len() < before {
            Pass::Removed
        } else {
            Pass::Nothing
        }
    }
}

/// Cleans up on a node until nothing is left. Does not keep the store alive.
async fn clean_up_on(
    members: Weak<Members>,
    mut alive: watch::Receiver<()>,
    index: usize,
    _busy: Busy,
) {
    let mut pause = PAUSE.0;
    loop {
        let spread = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        let _ = timeout(spread, alive.changed()).await;
        let Some(members) = members.upgrade() else {
            return;
        };
        match members.clean_up(&members.all[index]).await {
            Pass::Over => return,
            pass => pause = pass.pause_after(pause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::LockKey;
    use crate::base::token::ClientId;

    #[test]
    fn a_pass_that_removes_something_is_followed_by_the_next_one_soon() {
        let mut pause = PAUSE.0;
        for _ in 0..20 {
            pause = Pass::Nothing.pause_after(pause);
        }
        assert_eq!(pause, PAUSE.1);
        assert_eq!(Pass::Removed.pause_after(pause), PAUSE.0);
    }

    #[test]
    fn an_answer_confirms_on_the_connection_of_the_vote_or_a_second_after_its_end() {
        let (key, token) = (
            LockKey::new("lock:", "a").unwrap(),
            ClientId::random("test").token(1),
        );
        let now = Instant::now();
        let mut leftover = Leftover {
            ballot: Ballot::release(&key, &token, false),
            token,
            end: now + LATE * 60,
            sent_on: 4,
            ended_at: None,
            answered: false,
        };
        assert!(leftover.is_due(Some(4), now) && leftover.is_confirmed_on(Some(4), now));
        assert!(leftover.is_due(Some(5), now), "the vote is removed soon");
        assert!(!leftover.is_confirmed_on(Some(5), now));
        leftover.answered = true;
        assert!(!leftover.is_due(Some(5), now + LATE / 2));
        assert!(leftover.is_due(Some(5), now + LATE));
        assert!(leftover.is_confirmed_on(Some(5), now + LATE));
        assert!(!leftover.is_confirmed_on(Some(5), now + LATE / 2));
    }
}
