//! What this process knows of one token (see the table in `tokens`).

use std::time::Duration;

use tokio::time::Instant;

use super::editions::UNUSED;
use super::sent_on::SentOn;
use super::undone::Undone;
use crate::base::rt;

/// The state of one token.
#[derive(Debug, Default)]
pub(super) struct TokenState {
    /// Number of running attempts.
    pub(super) attempts: u32,
    /// The end of the lease that an attempt has won, or a renewal has prolonged, until the lock is released.
    pub(super) won: Option<Instant>,
    /// Where its votes were requested.
    pub(super) sent_on: SentOn,
    /// Where it may have a place in the queue.
    pub(super) places: SentOn,
    /// The time of its first attempt, µs since 1970: its place in the queues. A later time in some of them would put them in
    /// different orders, and their offers would go to different waiters.
    pub(super) ticket: Option<u64>,
    /// Number of running renewals.
    pub(super) renewals: u32,
    /// Whether it was released since a running renewal began.
    pub(super) released: bool,
    /// Number of nodes that have sent "free" since the last attempt.
    pub(super) freed: usize,
    /// The undos that may still arrive.
    pub(super) undone: Undone,
    /// When the last attempt began.
    pub(super) asked: Option<Instant>,
}

impl TokenState {
    /// An attempt begins. Returns the ticket: the given one, of an earlier edition, if there is none yet.
    pub(super) fn begins(&mut self, earlier: Option<u64>) -> u64 {
        self.attempts += 1;
        self.freed = 0;
        self.asked = Some(Instant::now());
        let now = || rt::unix_time().as_micros() as u64;
        let first = self.ticket.or(earlier).unwrap_or_else(now);
        *self.ticket.insert(first)
    }

    pub(super) fn is_over(&self) -> bool {
        let is_done = self.won.is_none() && self.undone.is_empty();
        is_done && self.is_asked_nowhere() && !self.is_used()
    }

    /// Whether no request of it is known that may have left a vote or a place.
    pub(super) fn is_asked_nowhere(&self) -> bool {
        self.sent_on.nodes().is_empty() && self.places.nodes().is_empty()
    }

    /// Where it may have a vote or a place.
    pub(super) fn take_asked(&mut self) -> SentOn {
        let (mut asked, places) = (
            std::mem::take(&mut self.sent_on),
            std::mem::take(&mut self.places),
        );
        asked.add(&places, places.nodes());
        asked
    }

    pub(super) fn is_won(&self, now: Instant) -> bool {
        self.won.is_some_and(|until| now < until)
    }

    pub(super) fn is_claimed(&self) -> bool {
        self.attempts > 0 || self.is_won(Instant::now())
    }

    pub(super) fn won(&mut self, lease: Duration) {
        // An end that the clock cannot represent is later than the end of any process.
        let until = Instant::now().checked_add(lease);
        self.won = until.max(self.won);
    }

    pub(super) fn is_used(&self) -> bool {
        self.attempts > 0 || self.renewals > 0 || self.freed > 0
    }

    pub(super) fn was_asked_for(&self, now: Instant) -> bool {
        self.asked.is_some_and(|asked| now < asked + UNUSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_attempts_of_a_token_and_its_later_editions_have_the_ticket_of_the_first() {
        let mut state = TokenState::default();
        assert_eq!(state.begins(Some(7)), 7);
        assert_eq!(state.begins(None), 7);
        assert_eq!(state.begins(Some(9)), 7);
    }
}
