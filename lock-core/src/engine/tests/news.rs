//! What a waiting acquisition makes of its answers and messages, in any order.

use std::sync::Arc;
use std::time::Duration;

use super::super::state::{Asker, Granted, Next, SentRequest, State};
use crate::base::error::Cause;
use crate::base::key::LockKey;
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::store::{Answer, Grant, QueuePlace, StoreError};

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

/// An acquisition that has asked on these terms, and has no answer yet.
struct Told(State);

impl Told {
    fn waiting() -> Self {
        let mut news = Self(State::new(terms()));
        news.asks(terms());
        news
    }

    fn asks(&mut self, terms: Terms) {
        self.0.asks(Asker::Waiter, T0, terms);
        self.0.asked(Asker::Waiter);
    }

    fn heard(&mut self, by: Asker, at: Moment, answer: &Result<Answer, StoreError>, now: Moment) {
        let terms = terms();
        self.0.requested();
        let _ = self.0.answered(SentRequest { at, terms, by }, answer, now);
    }

    fn placed(&mut self, by: Asker, sent_at: Moment, floor: u64) {
        let place = QueuePlace {
            remaining: terms().ttl(),
            last_fence: floor,
            holder: None,
            own_holder: None,
            is_foreign: false,
        };
        self.heard(by, sent_at, &Ok(Answer::Queued(place)), sent_at);
    }

    fn queued(&mut self, sent_at: Moment, floor: u64) {
        self.placed(Asker::Waiter, sent_at, floor);
    }

    fn refreshed(&mut self, sent_at: Moment, floor: u64) {
        self.placed(Asker::Refresh, sent_at, floor);
    }

    fn granted(&mut self, fence: u64, sent_at: Moment, now: Moment) {
        let answer = Answer::Granted { fence, reserve: 0 };
        self.heard(Asker::Waiter, sent_at, &Ok(answer), now);
    }

    fn failed(&mut self, now: Moment, error: StoreError) {
        self.heard(Asker::Refresh, now, &Err(error), now);
    }

    fn pushed(&mut self, grant: Grant) {
        let _ = self.0.pushed(grant);
    }

    fn next(&mut self, now: Moment, wanted: Terms) -> Next {
        self.0.next(now, wanted)
    }
}

fn grant(fence: u64) -> Grant {
    Grant {
        kind: LockKey::new("", "a").unwrap().kind(),
        order: fence,
        fence,
        reserve: 0,
        contended: false,
        ttl: terms().ttl(),
    }
}

fn taken(fence: u64, sent_at: Moment, pushed: bool) -> Next {
    Next::Take(Granted {
        fence,
        reserve: 0,
        sent_at,
        terms: terms(),
        pushed,
    })
}

#[test]
fn an_acquisition_without_a_request_is_requested() {
    assert_eq!(State::new(terms()).next(T0, terms()), Next::Ask);
    assert_eq!(Told::waiting().next(T0, terms()), Next::Wait);
}

#[test]
fn it_lasts_as_long_as_the_longest_that_was_asked_for() {
    let mut state = State::new(of(2));
    state.on(of(600));
    state.on(of(1));
    assert!(state.lasts() >= of(600).ttl() && state.lasts() <= of(600).ttl() * 2);
}

#[test]
fn a_grant_counts_from_the_last_call_that_was_answered_queued() {
    let mut news = Told::waiting();
    news.queued(T0, 10);
    news.queued(T0 + ms(500), 11);
    news.queued(T0 + ms(200), 10);
    news.pushed(grant(12));
    let granted = taken(12, T0 + ms(500), true);
    assert_eq!(news.next(T0 + ms(600), terms()), granted);
    assert_eq!(news.next(T0 + ms(600), terms()), Next::Wait);
}

#[test]
fn a_message_that_overtakes_the_answer_is_kept() {
    let mut news = Told::waiting();
    news.pushed(grant(12));
    assert_eq!(news.next(T0, terms()), Next::Wait);
    news.queued(T0, 11);
    assert!(matches!(news.next(T0, terms()), Next::Take(_)));
}

#[test]
fn a_message_older_than_the_answer_is_dropped() {
    // Granted, expired, queued again, and only then the message of the first grant arrives.
    let mut news = Told::waiting();
    news.queued(T0, 20);
    news.pushed(grant(12));
    assert_eq!(news.next(T0, terms()), Next::Wait);
}

#[test]
fn a_grant_after_a_long_wait_is_confirmed_first() {
    let mut news = Told::waiting();
    news.queued(T0, 10);
    news.pushed(grant(12));
    assert_eq!(news.next(T0 + ms(1001), terms()), Next::Ask);
}

#[test]
fn a_grant_on_other_terms_than_are_wanted_is_asked_for_again() {
    let wanted = of(9);
    let mut news = Told::waiting();
    news.queued(T0, 10);
    news.pushed(grant(12));
    assert_eq!(news.next(T0, wanted), Next::Ask);
    news.granted(13, T0, T0);
    assert_eq!(news.next(T0, wanted), Next::Ask);
}

#[test]
fn a_grant_left_for_a_third_of_the_ttl_is_confirmed_by_a_request() {
    let mut news = Told::waiting();
    news.granted(12, T0, T0 + ms(1001));
    // The answer was slow, and the waiter is quick.
    assert_eq!(news.next(T0 + ms(2000), terms()), taken(12, T0, false));
    news.granted(13, T0, T0);
    assert_eq!(news.next(T0 + ms(1001), terms()), Next::Ask);
}

#[test]
fn a_grant_is_on_the_terms_of_the_call_that_queued_for_it() {
    // A refresh is under way when the first waiter leaves. The next one asks for a longer ttl and gets no answer.
    let longer = of(9);
    let mut news = Told::waiting();
    news.asks(longer);
    news.refreshed(T0, 10);
    news.pushed(grant(12));
    assert_eq!(news.next(T0, longer), Next::Ask);
}

#[test]
fn a_grant_for_the_ttl_of_another_ask_is_asked_for_again() {
    // The first waiter leaves. The next one asks for 1 s, which the server stores, and leaves before the answer.
    let mut news = Told::waiting();
    news.queued(T0, 10);
    news.asks(of(1));
    news.0.interrupted();
    let shorter = Grant {
        ttl: of(1).ttl(),
        ..grant(12)
    };
    news.pushed(shorter);
    assert_eq!(news.next(T0, terms()), Next::Ask);
    // A lease longer than expected is no danger.
    news.pushed(Grant {
        ttl: of(9).ttl(),
        ..grant(12)
    });
    assert_eq!(news.next(T0, terms()), taken(12, T0, true));
}

#[test]
fn a_refresh_counts_unless_a_grant_waits_to_be_taken() {
    let mut news = Told::waiting();
    news.queued(T0, 10);
    news.refreshed(T0 + ms(900), 15);
    news.pushed(grant(16));
    let granted = taken(16, T0 + ms(900), true);
    // A grant that is not taken yet keeps the floor by which it was judged.
    news.refreshed(T0 + ms(950), 20);
    assert_eq!(news.next(T0 + ms(1500), terms()), granted);
}

#[test]
fn a_grant_that_was_taken_back_is_not_taken() {
    let mut news = Told::waiting();
    news.queued(T0, 10);
    news.pushed(grant(12));
    let revoked_at = T0 + ms(1);
    let _ = news.0.revoked(revoked_at);
    assert_eq!(news.next(revoked_at, terms()), Next::Ask);
    news.granted(13, T0 + ms(2), T0 + ms(2));
    assert_eq!(news.next(T0 + ms(2), terms()), Next::Ask, "no new request");
    news.asks(terms());
    // The answer to a request that was sent before is still under way.
    news.granted(12, T0, T0 + ms(2));
    assert_eq!(news.next(T0 + ms(2), terms()), Next::Ask);
    news.granted(14, T0 + ms(2), T0 + ms(3));
    let granted = taken(14, T0 + ms(2), false);
    assert_eq!(news.next(T0 + ms(3), terms()), granted);
}

#[test]
fn trouble_is_hopeless_when_it_lasts_or_cannot_end() {
    let cause = || Cause::of(Arc::new(std::fmt::Error));
    let mut news = Told::waiting();
    let hopeless = |news: &Told, at, patience| news.0.hopeless(|| at, patience).is_some();
    news.failed(T0, StoreError::NotNow(cause()));
    news.failed(T0 + ms(900), StoreError::NotNow(cause()));
    assert!(!hopeless(&news, T0 + ms(900), Some(PATIENCE)));
    assert!(hopeless(&news, T0 + ms(1001), Some(PATIENCE)));
    assert!(!hopeless(&news, T0 + ms(1001), None));
    assert!(news.0.trouble(T0 + ms(900)).is_some());
    assert!(news.0.trouble(T0 + ms(901)).is_none(), "an old one");
    news.refreshed(T0 + ms(1001), 1);
    assert!(news.0.trouble(T0).is_none());
    news.failed(T0, StoreError::Misconfigured("".into()));
    assert!(hopeless(&news, T0, None));
}

/// Readers that join a phase share the fencing token of its first.
#[test]
fn a_grant_is_newer_by_its_own_number_and_not_by_its_fencing_token() {
    let mut news = Told::waiting();
    news.queued(T0, 9);
    news.pushed(Grant {
        order: 9,
        ..grant(12)
    });
    assert_eq!(news.next(T0, terms()), Next::Wait);
    news.pushed(Grant {
        order: 10,
        ..grant(7)
    });
    assert_eq!(news.next(T0, terms()), taken(7, T0, true));
}
