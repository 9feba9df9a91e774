//! What one contender knows: when it last asked, and what it was told since.

use std::time::Duration;

use super::lease::Terms;
use crate::clock::Moment;
use crate::store::{Grant, StoreError};

/// The state of one contender. Fed by answers and messages, in any order; read by whoever waits first in line.
#[derive(Debug)]
pub(crate) struct Wait {
    terms: Terms,
    asked: Option<Asked>,
    pushed: Option<Grant>,
    answered: Option<Granted>,
    ask_again: bool,
    /// The grant that is being answered or announced was taken back by force.
    revoked: bool,
    /// Another process is known to wait for what this contender has been granted.
    contended: bool,
    shut_down: bool,
    trouble: Option<Trouble>,
}

/// Requests that fail, one after the other.
#[derive(Debug)]
struct Trouble {
    last: StoreError,
    since: Moment,
}

/// The last call that was answered "queued".
#[derive(Debug, Clone, Copy)]
struct Asked {
    sent_at: Moment,
    terms: Terms,
    /// Every grant made after that answer has a larger fencing token.
    floor: u64,
}

/// A grant and the instant that its lease counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) fence: u64,
    /// How many fencing tokens after the first are ours to give out.
    pub(crate) spare: u64,
    /// Before the request was sent that the lease counts from, and the terms it asked for.
    pub(crate) sent_at: Moment,
    pub(crate) terms: Terms,
    /// It came as a message, so the lease is older than the grant.
    pub(crate) pushed: bool,
}

/// What the caller does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait,
    Take(Granted),
    AskAgain,
}

impl Wait {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            asked: None,
            pushed: None,
            answered: None,
            // Nobody has asked yet.
            ask_again: true,
            revoked: false,
            contended: false,
            shut_down: false,
            trouble: None,
        }
    }

    /// The terms of the last request.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// A call on these terms, sent at `sent_at`, was answered "queued". Answers may come out of order: the newest counts.
    pub(crate) fn queued(&mut self, sent_at: Moment, terms: Terms, floor: u64) {
        self.trouble = None;
        if self.asked.is_none_or(|asked| asked.sent_at < sent_at) {
            self.asked = Some(Asked {
                sent_at,
                terms,
                floor,
            });
        }
    }

    /// A refresh was answered "queued". A grant that waits to be taken keeps the floor that it was judged by.
    pub(crate) fn refreshed(&mut self, sent_at: Moment, terms: Terms, floor: u64) {
        self.trouble = None;
        if self.pushed.is_none() {
            self.queued(sent_at, terms, floor);
        }
    }

    /// A call was answered "busy" where nothing is queued on the server: we wait for a message or for the end of the lease.
    pub(crate) fn parked(&mut self) {
        self.trouble = None;
    }

    /// A request is about to be sent: what was taken back or missed before it does not concern its answer.
    pub(crate) fn asking(&mut self, terms: Terms) {
        self.terms = terms;
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

    /// The server knows of our place in its queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.asked.is_some()
    }

    /// A message says that another process waits. It may come right behind the grant, and so before anybody took that.
    pub(crate) fn contended(&mut self) {
        self.contended = true;
    }

    pub(crate) fn is_contended(&self) -> bool {
        self.contended
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// A message says that we were granted the lock.
    pub(crate) fn pushed(&mut self, grant: Grant) {
        self.contended |= grant.contended;
        if self.pushed.is_none_or(|known| known.fence < grant.fence) {
            self.pushed = Some(grant);
        }
    }

    /// A call was answered "granted".
    pub(crate) fn answered(&mut self, granted: Granted) {
        self.trouble = None;
        self.answered = Some(granted);
    }

    /// Messages may have been missed, or a call has come to nothing.
    pub(crate) fn interrupted(&mut self) {
        self.ask_again = true;
    }

    pub(crate) fn shut_down(&mut self) {
        self.shut_down = true;
    }

    /// A request on our behalf failed.
    pub(crate) fn failed(&mut self, now: Moment, error: StoreError) {
        let since = self.trouble.as_ref().map_or(now, |trouble| trouble.since);
        self.trouble = Some(Trouble { last: error, since });
    }

    /// The error of the last request, if it failed.
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
    /// its lease counts from when that answer was asked for. Where that was more than a third of the ttl ago, asking
    /// again confirms the grant and starts a fresh lease. So it does where the lease has other terms than are wanted.
    pub(crate) fn next(&mut self, now: Moment, wanted: Terms) -> Next {
        if let Some(granted) = self.answered.take() {
            return if granted.terms.serve(wanted) {
                Next::Take(granted)
            } else {
                Next::AskAgain
            };
        }
        if let (Some(grant), Some(asked)) = (self.pushed, self.asked) {
            self.pushed = None;
            if grant.fence > asked.floor {
                if now > asked.sent_at + wanted.third() || !asked.terms.serve(wanted) {
                    return Next::AskAgain;
                }
                return Next::Take(Granted {
                    fence: grant.fence,
                    spare: grant.spare,
                    sent_at: asked.sent_at,
                    terms: asked.terms,
                    pushed: true,
                });
            }
        }
        if self.ask_again {
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
    const TERMS: Terms = Terms {
        ttl: Duration::from_secs(3),
        asked: Duration::from_secs(3),
        drift: Duration::from_millis(32),
    };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A contender that has asked, and has no answer yet.
    fn waiting() -> Wait {
        let mut wait = Wait::new(TERMS);
        wait.asking(TERMS);
        wait
    }

    fn grant(fence: u64) -> Grant {
        Grant {
            fence,
            spare: 0,
            contended: false,
        }
    }

    fn pushed(fence: u64, sent_at: Moment) -> Granted {
        Granted {
            fence,
            spare: 0,
            sent_at,
            terms: TERMS,
            pushed: true,
        }
    }

    #[test]
    fn a_contender_that_nobody_asked_for_yet_is_asked_for() {
        assert_eq!(Wait::new(TERMS).next(T0, TERMS), Next::AskAgain);
        assert_eq!(waiting().next(T0, TERMS), Next::Wait);
    }

    #[test]
    fn a_grant_counts_from_the_last_call_that_was_answered_queued() {
        let mut wait = waiting();
        wait.queued(T0, TERMS, 10);
        wait.queued(T0 + ms(500), TERMS, 11);
        wait.queued(T0 + ms(200), TERMS, 10);
        wait.pushed(grant(12));
        let granted = pushed(12, T0 + ms(500));
        assert_eq!(wait.next(T0 + ms(600), TERMS), Next::Take(granted));
        assert_eq!(wait.next(T0 + ms(600), TERMS), Next::Wait);
    }

    #[test]
    fn a_message_that_overtakes_the_answer_is_kept() {
        let mut wait = waiting();
        wait.pushed(grant(12));
        assert_eq!(wait.next(T0, TERMS), Next::Wait);
        wait.queued(T0, TERMS, 11);
        assert!(matches!(wait.next(T0, TERMS), Next::Take(_)));
    }

    #[test]
    fn a_message_older_than_the_answer_is_dropped() {
        // Granted, expired, queued again, and only then the message of the first grant arrives.
        let mut wait = waiting();
        wait.queued(T0, TERMS, 20);
        wait.pushed(grant(12));
        assert_eq!(wait.next(T0, TERMS), Next::Wait);
    }

    #[test]
    fn a_grant_after_a_long_wait_is_confirmed_first() {
        let mut wait = waiting();
        wait.queued(T0, TERMS, 10);
        wait.pushed(grant(12));
        assert_eq!(wait.next(T0 + ms(1001), TERMS), Next::AskAgain);
    }

    #[test]
    fn a_grant_on_other_terms_than_are_wanted_is_asked_for_again() {
        let wanted = Terms {
            asked: Duration::from_secs(9),
            ..TERMS
        };
        let mut wait = waiting();
        wait.queued(T0, TERMS, 10);
        wait.pushed(grant(12));
        assert_eq!(wait.next(T0, wanted), Next::AskAgain);
        wait.answered(pushed(13, T0));
        assert_eq!(wait.next(T0, wanted), Next::AskAgain);
    }

    #[test]
    fn a_grant_is_on_the_terms_of_the_call_that_queued_for_it() {
        // A refresh is under way when the first in line leaves; the next one asks for longer, and gets no answer.
        let longer = Terms {
            ttl: Duration::from_secs(9),
            asked: Duration::from_secs(9),
            ..TERMS
        };
        let mut wait = waiting();
        wait.asking(longer);
        wait.refreshed(T0, TERMS, 10);
        wait.pushed(grant(12));
        assert_eq!(wait.next(T0, longer), Next::AskAgain);
    }

    #[test]
    fn a_refresh_counts_unless_a_grant_waits_to_be_taken() {
        let mut wait = waiting();
        wait.queued(T0, TERMS, 10);
        wait.refreshed(T0 + ms(900), TERMS, 15);
        wait.pushed(grant(16));
        let granted = pushed(16, T0 + ms(900));
        // A grant that waits to be taken keeps the floor it was judged by.
        wait.refreshed(T0 + ms(950), TERMS, 20);
        assert_eq!(wait.next(T0 + ms(1500), TERMS), Next::Take(granted));
    }

    #[test]
    fn a_grant_that_was_taken_back_is_not_taken() {
        let mut wait = waiting();
        wait.queued(T0, TERMS, 10);
        wait.pushed(grant(12));
        wait.revoked();
        assert!(wait.is_revoked());
        assert_eq!(wait.next(T0, TERMS), Next::AskAgain);
        wait.asking(TERMS);
        assert!(!wait.is_revoked());
    }

    #[test]
    fn whoever_waits_elsewhere_is_remembered_until_the_grant_is_taken() {
        let mut wait = waiting();
        assert!(!wait.is_contended());
        wait.contended();
        assert!(wait.is_contended(), "said before the answer came");
        let mut wait = waiting();
        wait.queued(T0, TERMS, 10);
        wait.pushed(Grant {
            contended: true,
            ..grant(12)
        });
        assert_eq!(wait.next(T0 + ms(1001), TERMS), Next::AskAgain);
        assert!(wait.is_contended(), "though the grant was asked for again");
    }

    #[test]
    fn trouble_is_hopeless_when_it_lasts_or_can_not_end() {
        let cause = || crate::error::Cause::new(std::sync::Arc::new(std::fmt::Error));
        let mut wait = waiting();
        wait.failed(T0, StoreError::NotNow(cause()));
        wait.failed(T0 + ms(900), StoreError::NotNow(cause()));
        assert!(wait.hopeless(T0 + ms(900), Some(PATIENCE)).is_none());
        assert!(wait.hopeless(T0 + ms(1001), Some(PATIENCE)).is_some());
        assert!(wait.hopeless(T0 + ms(1001), None).is_none());
        wait.refreshed(T0 + ms(1001), TERMS, 1);
        assert!(wait.trouble().is_none());
        wait.failed(T0, StoreError::Misconfigured(String::new()));
        assert!(wait.hopeless(T0, None).is_some());
    }
}
