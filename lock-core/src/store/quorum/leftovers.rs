//! The votes that abandoned tokens may have left on a node, and the count of the clean-ups under way. No I/O.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::ballot::Ballot;
use crate::base::signal::Signal;
use crate::base::token::Token;
use crate::store::StoreError;

/// Maximum delay of a request on a broken connection: after this time the server does not carry it out any more.
pub(super) const LATE: Duration = Duration::from_secs(1);

/// Maximum clean-ups that are sent at once.
const BATCH: usize = 64;

/// Maximum clean-ups of one node that are kept. The votes of any others end with their ttl.
const MAX_CLEAN_UPS: usize = 16_384;

/// The clean-ups that a node has not confirmed.
#[derive(Default)]
pub(super) struct Leftovers {
    entries: HashMap<u64, Leftover>,
    /// Whether a task sends the clean-ups.
    running: bool,
}

pub(super) struct Leftover {
    ballot: Arc<Ballot>,
    token: Token,
    /// The end of the vote, if the node has it.
    end: Instant,
    /// The connection on which the vote was sent.
    sent_on: u64,
    /// When that connection was found to have ended.
    ended_at: Option<Instant>,
    /// Whether the node has answered on another connection.
    answered: bool,
}

impl Leftovers {
    /// Returns whether a task has to begin to send the clean-ups.
    pub(super) fn add(&mut self, leftover: Leftover) -> bool {
        if self.entries.len() >= MAX_CLEAN_UPS {
            return false;
        }
        self.entries.insert(leftover.token.number(), leftover);
        !std::mem::replace(&mut self.running, true)
    }

    /// The clean-ups to send now on this connection. `None` if no clean-up is left: the task ends.
    pub(super) fn due(
        &mut self,
        connection: Option<u64>,
        now: Instant,
    ) -> Option<Vec<(Token, Arc<Ballot>)>> {
        self.entries.retain(|_, leftover| now < leftover.end);
        if self.entries.is_empty() {
            self.running = false;
            return None;
        }
        let entries = self.entries.values_mut().filter(|_| connection.is_some());
        let due = entries.filter_map(|it| {
            let is_due = it.is_due(connection, now);
            is_due.then(|| (it.token, Arc::clone(&it.ballot)))
        });
        Some(due.take(BATCH).collect())
    }

    /// As [`Leftover::note_answer`]. Forgets a clean-up that is over.
    pub(super) fn note_answer(
        &mut self,
        number: u64,
        answer: &Result<Value, StoreError>,
        connection: Option<u64>,
        asked: Instant,
    ) -> bool {
        let leftover = self.entries.get_mut(&number);
        let is_over = leftover.is_some_and(|it| it.note_answer(answer, connection, asked));
        if is_over {
            self.entries.remove(&number);
        }
        is_over
    }
}

impl Leftover {
    pub(super) fn new(ballot: Arc<Ballot>, token: Token, end: Instant, sent_on: u64) -> Self {
        Self {
            ballot,
            token,
            end,
            sent_on,
            ended_at: None,
            answered: false,
        }
    }

    /// Notes the node's answer on this connection to a request sent at `asked`, or its silence. Returns whether the clean-up is over:
    /// the node has confirmed it, or was not asked because another attempt goes on with the token.
    pub(super) fn note_answer(
        &mut self,
        answer: &Result<Value, StoreError>,
        connection: Option<u64>,
        asked: Instant,
    ) -> bool {
        self.answered |= answer.is_ok();
        let is_not_sent = matches!(answer, Ok(Value::Nil));
        is_not_sent || answer.is_ok() && self.is_confirmed_on(connection, asked)
    }

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
    over: Signal,
}

/// A clean-up under way.
pub(super) struct Busy(Arc<UnderWay>);

impl UnderWay {
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.count.fetch_add(1, Ordering::SeqCst);
        Busy(Arc::clone(self))
    }

    /// Waits until no clean-up is under way.
    pub(super) async fn until_over(&self) {
        let is_over = || self.count.load(Ordering::SeqCst) == 0;
        self.over.until(is_over).await;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.over.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::LockKey;
    use crate::base::token::ClientId;

    #[test]
    fn an_answer_confirms_on_the_same_connection_or_a_second_after_its_end() {
        let (key, token) = (
            LockKey::new("lock:", "a").unwrap(),
            ClientId::random("test").token(1),
        );
        let now = Instant::now();
        let ballot = Ballot::release(&key, &token, false);
        let mut leftover = Leftover::new(ballot, token, now + LATE * 60, 4);
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
