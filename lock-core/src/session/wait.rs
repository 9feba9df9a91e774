//! What one waiter knows: when it last asked, and what it was told since.

use std::time::Duration;

use crate::clock::Moment;
use crate::store::StoreError;

/// The state of one acquisition that waits. Fed by answers and messages, in any order; read by the caller.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    asked: Option<Asked>,
    pushed: Option<u64>,
    answered: Option<Granted>,
    ask_again: bool,
    /// The grant that is being answered or announced was taken back by force.
    revoked: bool,
    shut_down: bool,
    trouble: Option<Trouble>,
}

/// Refreshes that fail, one after the other.
#[derive(Debug)]
struct Trouble {
    last: StoreError,
    since: Moment,
}

/// The last call that was answered "queued".
#[derive(Debug, Clone, Copy)]
struct Asked {
    sent_at: Moment,
    /// Every grant made after that answer has a larger fencing token.
    floor: u64,
}

/// A grant and the instant that its lease counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) fence: u64,
    pub(crate) sent_at: Moment,
    /// It came as a message, so the lease is older than the grant.
    pub(crate) pushed: bool,
}

/// What the caller does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait,
    Take(Granted),
    AskAgain,
    ShutDown,
}

impl Wait {
    /// A call sent at `sent_at` was answered "queued". Answers may come out of order: the newest counts.
    pub(crate) fn queued(&mut self, sent_at: Moment, floor: u64) {
        self.trouble = None;
        if self.asked.is_none_or(|asked| asked.sent_at < sent_at) {
            self.asked = Some(Asked { sent_at, floor });
        }
    }

    /// Another waiter of this process and lock was answered "queued". Grants made after that answer have a larger
    /// fencing token, whomever they are for, so it serves us as well; unless a grant is already waiting to be taken.
    pub(crate) fn refreshed(&mut self, sent_at: Moment, floor: u64) {
        self.trouble = None;
        if self.asked.is_some() && self.pushed.is_none() {
            self.queued(sent_at, floor);
        }
    }

    /// A request is about to be sent: what was taken back or missed before it does not concern its answer.
    pub(crate) fn asking(&mut self) {
        self.revoked = false;
        self.ask_again = false;
    }

    /// A message says that the lock was taken from us by force, before we took it.
    pub(crate) fn revoked(&mut self) {
        self.pushed = None;
        self.answered = None;
        self.revoked = true;
        self.ask_again = true;
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// A message says that we were granted the lock.
    pub(crate) fn pushed(&mut self, fence: u64) {
        self.pushed = self.pushed.max(Some(fence));
    }

    /// A call sent at `sent_at` was answered "granted".
    pub(crate) fn answered(&mut self, sent_at: Moment, fence: u64) {
        self.trouble = None;
        self.answered = Some(Granted {
            fence,
            sent_at,
            pushed: false,
        });
    }

    /// Messages may have been missed.
    pub(crate) fn interrupted(&mut self) {
        self.ask_again = true;
    }

    pub(crate) fn shut_down(&mut self) {
        self.shut_down = true;
    }

    /// The refresh on our behalf failed.
    pub(crate) fn failed(&mut self, now: Moment, error: StoreError) {
        let since = self.trouble.as_ref().map_or(now, |trouble| trouble.since);
        self.trouble = Some(Trouble { last: error, since });
    }

    /// The error of the last refresh, if it failed.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        self.trouble.as_ref().map(|trouble| trouble.last.clone())
    }

    /// The error that makes waiting on pointless: one that does not go away by itself, or one that has lasted for
    /// `patience`.
    pub(crate) fn hopeless(&self, now: Moment, patience: Option<Duration>) -> Option<StoreError> {
        let trouble = self.trouble.as_ref()?;
        let lasted = patience.is_some_and(|patience| now > trouble.since + patience);
        (lasted || matches!(trouble.last, StoreError::Misconfigured(_)))
            .then(|| trouble.last.clone())
    }

    /// Decides. A message may be old, so it counts only if its fencing token is newer than the last answer, and
    /// its lease counts from when that answer was asked for. Where that was too long ago (`patience`), asking
    /// again confirms the grant and starts a fresh lease.
    pub(crate) fn next(&mut self, now: Moment, patience: Duration) -> Next {
        if self.shut_down {
            return Next::ShutDown;
        }
        if let Some(granted) = self.answered.take() {
            return Next::Take(granted);
        }
        if let (Some(fence), Some(asked)) = (self.pushed, self.asked) {
            self.pushed = None;
            if fence > asked.floor {
                if now > asked.sent_at + patience {
                    return Next::AskAgain;
                }
                return Next::Take(Granted {
                    fence,
                    sent_at: asked.sent_at,
                    pushed: true,
                });
            }
        }
        if std::mem::take(&mut self.ask_again) {
            return Next::AskAgain;
        }
        Next::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Moment = Moment(1 << 50);
    const PATIENCE: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_grant_counts_from_the_last_call_that_was_answered_queued() {
        let mut wait = Wait::default();
        wait.queued(T0, 10);
        wait.queued(T0 + ms(500), 11);
        wait.queued(T0 + ms(200), 10);
        wait.pushed(12);
        let granted = Granted {
            fence: 12,
            sent_at: T0 + ms(500),
            pushed: true,
        };
        assert_eq!(wait.next(T0 + ms(600), PATIENCE), Next::Take(granted));
        assert_eq!(wait.next(T0 + ms(600), PATIENCE), Next::Wait);
    }

    #[test]
    fn a_message_that_overtakes_the_answer_is_kept() {
        let mut wait = Wait::default();
        wait.pushed(12);
        assert_eq!(wait.next(T0, PATIENCE), Next::Wait);
        wait.queued(T0, 11);
        assert!(matches!(wait.next(T0, PATIENCE), Next::Take(_)));
    }

    #[test]
    fn a_message_older_than_the_answer_is_dropped() {
        // Granted, expired, queued again, and only then the message of the first grant arrives.
        let mut wait = Wait::default();
        wait.queued(T0, 20);
        wait.pushed(12);
        assert_eq!(wait.next(T0, PATIENCE), Next::Wait);
    }

    #[test]
    fn a_grant_after_a_long_wait_is_confirmed_first() {
        let mut wait = Wait::default();
        wait.queued(T0, 10);
        wait.pushed(12);
        assert_eq!(wait.next(T0 + ms(1001), PATIENCE), Next::AskAgain);
    }

    #[test]
    fn a_neighbours_answer_serves_everybody_who_has_no_grant_to_take() {
        let mut wait = Wait::default();
        wait.queued(T0, 10);
        wait.refreshed(T0 + ms(900), 15);
        wait.pushed(16);
        let granted = Granted {
            fence: 16,
            sent_at: T0 + ms(900),
            pushed: true,
        };
        // A grant that waits to be taken keeps the floor it was judged by.
        wait.refreshed(T0 + ms(950), 20);
        assert_eq!(wait.next(T0 + ms(1500), PATIENCE), Next::Take(granted));
    }

    #[test]
    fn a_grant_that_was_taken_back_is_not_taken() {
        let mut wait = Wait::default();
        wait.queued(T0, 10);
        wait.pushed(12);
        wait.revoked();
        assert!(wait.is_revoked());
        assert_eq!(wait.next(T0, PATIENCE), Next::AskAgain);
        wait.asking();
        assert!(!wait.is_revoked());
    }

    #[test]
    fn trouble_is_hopeless_when_it_lasts_or_can_not_end() {
        let cause = || crate::error::Cause::new(std::sync::Arc::new(std::fmt::Error));
        let mut wait = Wait::default();
        wait.failed(T0, StoreError::NotNow(cause()));
        wait.failed(T0 + ms(900), StoreError::NotNow(cause()));
        assert!(wait.hopeless(T0 + ms(900), Some(PATIENCE)).is_none());
        assert!(wait.hopeless(T0 + ms(1001), Some(PATIENCE)).is_some());
        assert!(wait.hopeless(T0 + ms(1001), None).is_none());
        wait.refreshed(T0 + ms(1001), 1);
        assert!(wait.trouble().is_none());
        wait.failed(T0, StoreError::Misconfigured(String::new()));
        assert!(wait.hopeless(T0, None).is_some());
    }

    #[test]
    fn shut_down_goes_before_everything() {
        let mut wait = Wait::default();
        wait.answered(T0, 3);
        wait.shut_down();
        assert_eq!(wait.next(T0, PATIENCE), Next::ShutDown);
    }
}
