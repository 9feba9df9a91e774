//! The inbox of an acquisition: its last request, and the answers and messages since.

use std::time::Duration;

use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::store::{Grant, StoreError};

/// The state of one acquisition. Answers and messages feed it in any order; the first waiter reads it.
#[derive(Debug, Clone)]
pub(crate) struct Inbox {
    terms: Terms,
    /// `None` once the lock is held: there may be thousands of held locks.
    news: Option<Box<Received>>,
    ask_again: bool,
    acceptance: Acceptance,
    /// Longest ttl of any request, in milliseconds, as the exponent of the next power of two: one byte per lock.
    longest: u8,
}

/// Whether a grant may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acceptance {
    Open,
    /// The lock was released by force, and no request was made since.
    Revoked,
    ShutDown,
}

/// Answers and messages.
#[derive(Debug, Clone, Default)]
struct Received {
    asked: Option<Asked>,
    pushed: Option<Grant>,
    /// A grant by an answer, and when it was heard.
    answered: Option<(Granted, Moment)>,
    trouble: Option<Failures>,
    /// When the lock was last released by force. The answers to earlier requests may still be under way.
    revoked_at: Option<Moment>,
}

/// Consecutive failures of requests.
#[derive(Debug, Clone)]
struct Failures {
    last: StoreError,
    at: Moment,
    since: Moment,
}

/// The last request that was answered "queued".
#[derive(Debug, Clone, Copy)]
struct Asked {
    sent_at: Moment,
    terms: Terms,
    /// Every grant made after that answer has a larger fencing token.
    floor: u64,
}

/// A grant, and the moment from which its lease counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) fence: u64,
    /// Number of reserved tokens after the first token.
    pub(crate) reserve: u64,
    /// The moment before the request from which the lease counts, and the terms of that request.
    pub(crate) sent_at: Moment,
    pub(crate) terms: Terms,
    /// The grant came as a message, so the lease is older than the grant.
    pub(crate) pushed: bool,
}

impl Granted {
    /// The answer to a request that was sent at `sent_at`.
    pub(crate) fn by_answer(fence: u64, reserve: u64, sent_at: Moment, terms: Terms) -> Self {
        Self {
            fence,
            reserve,
            sent_at,
            terms,
            pushed: false,
        }
    }
}

/// The next step of the waiter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait,
    Take(Granted),
    AskAgain,
}

impl Inbox {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            news: None,
            // No request has been made yet.
            ask_again: true,
            acceptance: Acceptance::Open,
            longest: exponent(terms),
        }
    }

    /// The terms of the last request.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Upper bound of the time for which the server may keep the lock: it may know an earlier request than the last one.
    pub(crate) fn lasts(&self) -> Duration {
        Duration::from_millis(1 << self.longest)
    }

    /// A request on these terms, sent at `sent_at`, was answered "queued". Answers may come out of order: the newest request
    /// counts.
    pub(crate) fn queued(&mut self, sent_at: Moment, terms: Terms, floor: u64) {
        let news = self.news();
        news.trouble = None;
        if news.asked.is_none_or(|asked| asked.sent_at < sent_at) {
            news.asked = Some(Asked {
                sent_at,
                terms,
                floor,
            });
        }
    }

    /// A refresh was answered "queued". A grant that is not taken yet keeps the floor by which it was judged.
    pub(crate) fn refreshed(&mut self, sent_at: Moment, terms: Terms, floor: u64) {
        self.news().trouble = None;
        if self.news().pushed.is_none() {
            self.queued(sent_at, terms, floor);
        }
    }

    /// A request was answered "busy" where the server keeps no queue: the waiter waits for a message or for the end of the lease.
    pub(crate) fn parked(&mut self) {
        self.news().trouble = None;
    }

    /// Whether there is a grant that is not taken yet.
    pub(crate) fn has_grant(&self) -> bool {
        let news = self.news.as_ref();
        news.is_some_and(|news| news.answered.is_some() || news.pushed.is_some())
    }

    /// A request is about to be sent. Earlier revocations and missed messages do not concern its answer.
    pub(crate) fn asking(&mut self, terms: Terms) {
        self.terms = terms;
        self.longest = self.longest.max(exponent(terms));
        if self.acceptance == Acceptance::Revoked {
            self.acceptance = Acceptance::Open;
        }
        self.ask_again = false;
    }

    /// A message says that the lock was released by force before a waiter took it.
    pub(crate) fn revoked(&mut self, now: Moment) {
        let news = self.news();
        news.pushed = None;
        news.answered = None;
        news.revoked_at = Some(now);
        if self.acceptance == Acceptance::Open {
            self.acceptance = Acceptance::Revoked;
        }
        self.ask_again = true;
    }

    /// Whether a grant whose lease counts from `sent_at` may have been revoked by force.
    pub(crate) fn is_revoked(&self, sent_at: Moment) -> bool {
        let revoked_at = self.news.as_ref().and_then(|news| news.revoked_at);
        self.acceptance == Acceptance::Revoked
            || revoked_at.is_some_and(|revoked_at| sent_at < revoked_at)
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.acceptance == Acceptance::ShutDown
    }

    /// A message says that the lock was granted to this acquisition.
    pub(crate) fn pushed(&mut self, grant: Grant) {
        let news = self.news();
        if news.pushed.is_none_or(|known| known.fence < grant.fence) {
            news.pushed = Some(grant);
        }
    }

    /// A request was answered "granted".
    pub(crate) fn answered(&mut self, granted: Granted, now: Moment) {
        let news = self.news();
        news.trouble = None;
        news.answered = Some((granted, now));
    }

    /// Messages may have been missed, or a request came to nothing.
    pub(crate) fn interrupted(&mut self) {
        self.ask_again = true;
    }

    pub(crate) fn shut_down(&mut self) {
        self.acceptance = Acceptance::ShutDown;
    }

    /// A request for this acquisition failed.
    pub(crate) fn failed(&mut self, now: Moment, error: StoreError) {
        let news = self.news();
        let since = match (&error, &news.trouble) {
            (StoreError::NotYet(_), _) | (_, None) => now,
            (_, Some(trouble)) => trouble.since,
        };
        news.trouble = Some(Failures {
            last: error,
            at: now,
            since,
        });
    }

    /// The error of the last request, if it failed at `since` or later. A waiter that has not asked again since then does not
    /// run, and knows nothing of the server.
    pub(crate) fn trouble(&self, since: Moment) -> Option<StoreError> {
        let trouble = self.news.as_ref()?.trouble.as_ref()?;
        (trouble.at >= since).then(|| trouble.last.clone())
    }

    /// The error that makes further waiting pointless: a permanent one, or one that has lasted for `patience`.
    pub(crate) fn hopeless(&self, now: Moment, patience: Option<Duration>) -> Option<StoreError> {
        let trouble = self.news.as_ref()?.trouble.as_ref()?;
        let lasted = patience.is_some_and(|patience| now > trouble.since + patience);
        (lasted || matches!(trouble.last, StoreError::Misconfigured(_)))
            .then(|| trouble.last.clone())
    }

    /// Decides the next step. A message may be old: it counts only if its fencing token is newer than the last answer, and its
    /// lease counts from the request of that answer. If that request is older than a third of the ttl, or the lease has other
    /// terms than wanted, another request confirms the grant and starts a fresh lease. So it is with an answer that lay for a third
    /// of the ttl: the waiter for which it came did not run, and the lease may be nearly over.
    pub(crate) fn next(&mut self, now: Moment, wanted: Terms) -> Next {
        if let Some(news) = &mut self.news {
            if let Some((granted, heard_at)) = news.answered.take() {
                let lay = now > heard_at + wanted.third();
                return if !lay && granted.terms.serve(wanted) {
                    Next::Take(granted)
                } else {
                    Next::AskAgain
                };
            }
            if let (Some(grant), Some(asked)) = (news.pushed, news.asked) {
                news.pushed = None;
                if grant.fence > asked.floor {
                    // The ttl of the grant is that of the request that the server knew: perhaps an earlier one, or one whose
                    // answer was lost.
                    let shorter = grant.ttl < asked.terms.ttl();
                    let old = now > asked.sent_at + wanted.third();
                    if old || shorter || !asked.terms.serve(wanted) {
                        return Next::AskAgain;
                    }
                    return Next::Take(Granted {
                        fence: grant.fence,
                        reserve: grant.reserve,
                        sent_at: asked.sent_at,
                        terms: asked.terms,
                        pushed: true,
                    });
                }
            }
        }
        if self.ask_again {
            return Next::AskAgain;
        }
        Next::Wait
    }

    /// The lock is held: earlier news is not needed any more.
    pub(crate) fn clear(&mut self) {
        self.news = None;
    }

    fn news(&mut self) -> &mut Received {
        self.news.get_or_insert_default()
    }
}

fn exponent(terms: Terms) -> u8 {
    let millis = terms.ttl().as_millis() as u64;
    millis.next_power_of_two().trailing_zeros() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Moment = Moment(1 << 50);
    const PATIENCE: Duration = Duration::from_secs(1);

    fn terms() -> Terms {
        of(3)
    }

    fn of(seconds: u64) -> Terms {
        let ttl = Duration::from_secs(seconds);
        Terms::new(ttl, ttl, Duration::from_millis(32))
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// An acquisition that has asked and has no answer yet.
    fn waiting() -> Inbox {
        let mut inbox = Inbox::new(terms());
        inbox.asking(terms());
        inbox
    }

    fn grant(fence: u64) -> Grant {
        Grant {
            kind: crate::base::key::LockKey::new("", "a").unwrap().kind(),
            fence,
            reserve: 0,
            contended: false,
            ttl: terms().ttl(),
        }
    }

    fn pushed(fence: u64, sent_at: Moment) -> Granted {
        Granted {
            fence,
            reserve: 0,
            sent_at,
            terms: terms(),
            pushed: true,
        }
    }

    #[test]
    fn an_acquisition_without_a_request_is_requested() {
        assert_eq!(Inbox::new(terms()).next(T0, terms()), Next::AskAgain);
        assert_eq!(waiting().next(T0, terms()), Next::Wait);
    }

    #[test]
    fn it_lasts_as_long_as_the_longest_that_was_asked_for() {
        let mut inbox = Inbox::new(of(2));
        inbox.asking(of(600));
        inbox.asking(of(1));
        assert!(inbox.lasts() >= of(600).ttl() && inbox.lasts() <= of(600).ttl() * 2);
    }

    #[test]
    fn a_grant_counts_from_the_last_call_that_was_answered_queued() {
        let mut inbox = waiting();
        inbox.queued(T0, terms(), 10);
        inbox.queued(T0 + ms(500), terms(), 11);
        inbox.queued(T0 + ms(200), terms(), 10);
        inbox.pushed(grant(12));
        let granted = pushed(12, T0 + ms(500));
        assert_eq!(inbox.next(T0 + ms(600), terms()), Next::Take(granted));
        assert_eq!(inbox.next(T0 + ms(600), terms()), Next::Wait);
    }

    #[test]
    fn a_message_that_overtakes_the_answer_is_kept() {
        let mut inbox = waiting();
        inbox.pushed(grant(12));
        assert_eq!(inbox.next(T0, terms()), Next::Wait);
        inbox.queued(T0, terms(), 11);
        assert!(matches!(inbox.next(T0, terms()), Next::Take(_)));
    }

    #[test]
    fn a_message_older_than_the_answer_is_dropped() {
        // Granted, expired, queued again, and only then the message of the first grant arrives.
        let mut inbox = waiting();
        inbox.queued(T0, terms(), 20);
        inbox.pushed(grant(12));
        assert_eq!(inbox.next(T0, terms()), Next::Wait);
    }

    #[test]
    fn a_grant_after_a_long_wait_is_confirmed_first() {
        let mut inbox = waiting();
        inbox.queued(T0, terms(), 10);
        inbox.pushed(grant(12));
        assert_eq!(inbox.next(T0 + ms(1001), terms()), Next::AskAgain);
    }

    #[test]
    fn a_grant_on_other_terms_than_are_wanted_is_asked_for_again() {
        let wanted = of(9);
        let mut inbox = waiting();
        inbox.queued(T0, terms(), 10);
        inbox.pushed(grant(12));
        assert_eq!(inbox.next(T0, wanted), Next::AskAgain);
        inbox.answered(pushed(13, T0), T0);
        assert_eq!(inbox.next(T0, wanted), Next::AskAgain);
    }

    #[test]
    fn a_grant_left_for_a_third_of_the_ttl_is_confirmed_by_a_request() {
        let mut inbox = waiting();
        inbox.answered(pushed(12, T0), T0 + ms(1001));
        // The answer was slow, and the waiter is quick.
        let taken = Next::Take(pushed(12, T0));
        assert_eq!(inbox.next(T0 + ms(2000), terms()), taken);
        inbox.answered(pushed(13, T0), T0);
        assert_eq!(inbox.next(T0 + ms(1001), terms()), Next::AskAgain);
    }

    #[test]
    fn a_grant_is_on_the_terms_of_the_call_that_queued_for_it() {
        // A refresh is under way when the first waiter leaves. The next one asks for a longer ttl and gets no answer.
        let longer = of(9);
        let mut inbox = waiting();
        inbox.asking(longer);
        inbox.refreshed(T0, terms(), 10);
        inbox.pushed(grant(12));
        assert_eq!(inbox.next(T0, longer), Next::AskAgain);
    }

    #[test]
    fn a_grant_for_the_ttl_of_another_ask_is_asked_for_again() {
        // The first waiter leaves. The next one asks for 1 s, which the server stores, and leaves before the answer.
        let mut inbox = waiting();
        inbox.queued(T0, terms(), 10);
        inbox.asking(of(1));
        inbox.interrupted();
        let shorter = Grant {
            ttl: of(1).ttl(),
            ..grant(12)
        };
        inbox.pushed(shorter);
        assert_eq!(inbox.next(T0, terms()), Next::AskAgain);
        // A lease longer than expected is no danger.
        inbox.pushed(Grant {
            ttl: of(9).ttl(),
            ..grant(12)
        });
        assert_eq!(inbox.next(T0, terms()), Next::Take(pushed(12, T0)));
    }

    #[test]
    fn a_refresh_counts_unless_a_grant_waits_to_be_taken() {
        let mut inbox = waiting();
        inbox.queued(T0, terms(), 10);
        inbox.refreshed(T0 + ms(900), terms(), 15);
        inbox.pushed(grant(16));
        let granted = pushed(16, T0 + ms(900));
        // A grant that is not taken yet keeps the floor by which it was judged.
        inbox.refreshed(T0 + ms(950), terms(), 20);
        assert_eq!(inbox.next(T0 + ms(1500), terms()), Next::Take(granted));
    }

    #[test]
    fn a_grant_that_was_taken_back_is_not_taken() {
        let mut inbox = waiting();
        inbox.queued(T0, terms(), 10);
        inbox.pushed(grant(12));
        inbox.revoked(T0 + ms(1));
        assert!(inbox.is_revoked(T0));
        assert_eq!(inbox.next(T0 + ms(1), terms()), Next::AskAgain);
        inbox.asking(terms());
        assert!(!inbox.is_revoked(T0 + ms(2)));
        // The answer to a request that was sent before is still under way.
        assert!(inbox.is_revoked(T0));
    }

    #[test]
    fn trouble_is_hopeless_when_it_lasts_or_cannot_end() {
        let cause = || crate::base::error::Cause::new(std::sync::Arc::new(std::fmt::Error));
        let mut inbox = waiting();
        inbox.failed(T0, StoreError::NotNow(cause()));
        inbox.failed(T0 + ms(900), StoreError::NotNow(cause()));
        assert!(inbox.hopeless(T0 + ms(900), Some(PATIENCE)).is_none());
        assert!(inbox.hopeless(T0 + ms(1001), Some(PATIENCE)).is_some());
        assert!(inbox.hopeless(T0 + ms(1001), None).is_none());
        assert!(inbox.trouble(T0 + ms(900)).is_some());
        assert!(inbox.trouble(T0 + ms(901)).is_none(), "an old one");
        inbox.refreshed(T0 + ms(1001), terms(), 1);
        assert!(inbox.trouble(T0).is_none());
        inbox.failed(T0, StoreError::Misconfigured("".into()));
        assert!(inbox.hopeless(T0, None).is_some());
    }
}
