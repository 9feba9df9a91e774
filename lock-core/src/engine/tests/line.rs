//! The waiting line by hand.

use std::sync::Arc;
use std::time::Duration;

use super::super::acquisition::Acquisition;
use super::super::hold::{Hold, LockRequest};
use super::super::line::{Limits, Line, PlaceInLine, Step};
use super::super::state::Asker;
use super::super::yield_turn::{PAUSE, YieldTurn};
use crate::base::key::LockKey;
use crate::base::terms::Terms;
use crate::base::time::{Clock, Moment};

const T0: Moment = Moment(1 << 50);

/// A clock that stands still.
#[derive(Debug)]
struct At(Moment);

impl Clock for At {
    fn now(&self) -> Moment {
        self.0
    }
}

const LIMITS: Limits = Limits {
    handovers: 1000,
    time: Duration::from_secs(1),
    always: false,
};

fn waiter() -> Arc<Hold> {
    let ttl = Duration::from_secs(30);
    let terms = Terms::new(ttl, ttl, Duration::from_millis(302));
    let key = LockKey::new("", "a").unwrap();
    Arc::new(Hold::new(LockRequest::plain(key, terms)))
}

/// A line with two waiters, and the acquisition that asks for them.
fn of_two(yield_turn: YieldTurn) -> (Arc<Line>, Arc<Acquisition>, [Arc<Hold>; 2]) {
    let holds = [waiter(), waiter()];
    let line = Line::new(Arc::clone(&holds[0].request.key), Some(yield_turn));
    let new = |request: &LockRequest| {
        let key = Arc::clone(&request.key);
        Some(Arc::new(Acquisition::new(
            1,
            key,
            request.terms,
            request.claim.clone(),
        )))
    };
    let PlaceInLine::Leads(acquisition) = line.join(&holds[0], new) else {
        panic!("nothing asks for it")
    };
    assert!(matches!(line.join(&holds[1], new), PlaceInLine::Behind(_)));
    (line, acquisition, holds)
}

#[test]
fn a_waiter_that_does_not_run_after_it_yielded_the_turn_is_passed_over() {
    let mut yield_turn = YieldTurn::wanted_by(2);
    yield_turn.start(T0, true);
    let (line, acquisition, [first, next]) = of_two(yield_turn);
    let step = |hold, now| line.step(hold, &At(now), LIMITS);
    assert!(matches!(step(&first, T0), Step::Yield { .. }));
    let checked = |now| {
        if line.is_overdue(now) {
            acquisition.wake();
        }
        acquisition.stalled_caller(now, Duration::from_secs(5))
    };
    assert_eq!(checked(T0 + PAUSE / 2), None, "it yields");
    assert_eq!(checked(T0 + PAUSE), None);
    assert_eq!(checked(T0 + PAUSE * 2), Some(Asker::Waiter));
    assert!(matches!(line.pass_over(&acquisition), Some((_, None))));
    assert!(matches!(step(&first, T0 + PAUSE * 2), Step::Again));
    assert!(matches!(step(&next, T0 + PAUSE * 2), Step::Ask { .. }));
    assert!(line.pass_over(&acquisition).is_none(), "it is the last");
}

#[test]
fn a_waiter_whose_request_is_late_is_passed_over() {
    let (line, acquisition, [first, next]) = of_two(YieldTurn::default());
    let step = |hold, now| line.step(hold, &At(now), LIMITS);
    assert!(matches!(step(&first, T0), Step::Ask { .. }));
    assert!(matches!(step(&next, T0), Step::Wait));
    let limit = Duration::from_secs(5);
    assert_eq!(acquisition.stalled_caller(T0 + limit, limit), None);
    let late = T0 + limit + Duration::from_millis(1);
    assert_eq!(acquisition.stalled_caller(late, limit), Some(Asker::Waiter));
    assert!(matches!(line.pass_over(&acquisition), Some((_, None))));
    assert!(matches!(step(&next, late), Step::Ask { .. }));
    // The first one reads its answer only now: that does not end the request of the next one.
    acquisition.asked_for(&first);
    assert!(matches!(step(&next, late), Step::Wait));
    acquisition.asked_for(&next);
    assert!(matches!(step(&next, late), Step::Wait), "no reason to ask");
}

#[test]
fn a_waiter_behind_others_leaves_it_to_them_to_make_an_acquisition() {
    let (line, acquisition, _holds) = of_two(YieldTurn::default());
    line.gone(&acquisition);
    let new = |_: &LockRequest| -> Option<Arc<Acquisition>> {
        panic!("the first one would not be woken")
    };
    let place = line.join(&waiter(), new);
    assert!(matches!(place, PlaceInLine::BehindHolder));
}
