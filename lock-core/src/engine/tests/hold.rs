//! What an observer is told of a hold, and for how long an acquisition lasts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::hold::{HELD, Hold, HoldEnd, LOST, LockRequest};
use super::super::lease::loss_code;
use super::super::registry::Registry;
use crate::base::claim::{Claim, PLAIN};
use crate::base::error::LossReason;
use crate::base::key::LockKey;
use crate::base::observe::{AcquiredHow, Event, Observer, Observers, ReleasedHow};
use crate::base::owner::Owner;
use crate::base::terms::Terms;
use crate::base::time::Moment;

#[derive(Default)]
struct Record(Mutex<Vec<String>>);

impl Observer for Record {
    fn observe(&self, event: &Event<'_>) {
        let outcome = event.outcome().unwrap_or_default();
        self.0.lock().unwrap().push(outcome.to_owned());
    }
}

/// A guard may be dropped between the loss of its hold and the line of the log that says so.
#[test]
fn the_drop_of_a_guard_whose_hold_is_lost_is_observed_as_the_loss() {
    let record = Arc::new(Record::default());
    let ttl = Duration::from_secs(30);
    let terms = Terms::new(ttl, ttl, Duration::from_millis(2));
    let hold = Hold::new(LockRequest {
        observed: Observers::default().and(Arc::clone(&record)),
        ..LockRequest::plain(LockKey::new("", "a").unwrap(), terms)
    });
    assert!(hold.step(0, HELD));
    hold.observe_begin(|| Moment(0), ttl, AcquiredHow::Free);
    assert!(hold.step(HELD, LOST + loss_code(LossReason::Gone)));
    for _ in 0..2 {
        hold.observe_end(|| Moment(0), HoldEnd::Released(ReleasedHow::Unconfirmed));
    }
    assert_eq!(*record.0.lock().unwrap(), ["free", "gone"]);
}

#[test]
fn only_acquisitions_of_owners_count_with_the_longest_ttl_of_all() {
    let mut registry = Registry::default();
    let mut lasts = |claim: Claim, seconds| {
        let ttl = Duration::from_secs(seconds);
        let terms = Terms::new(ttl, ttl, Duration::from_millis(2));
        let request = LockRequest {
            claim,
            ..LockRequest::plain(LockKey::new("", "a").unwrap(), terms)
        };
        let acquisition = registry.acquisition(&request).unwrap();
        registry.lasts(&acquisition)
    };
    let of_owner = || Claim {
        owner: Some(Owner::new()),
        ..PLAIN.clone()
    };
    let named = |value: &str| Claim::named(value.to_owned());
    assert!(lasts(named("a"), 60) >= Duration::from_secs(60));
    assert!(lasts(named("b"), 1) < Duration::from_secs(60));
    assert_eq!(lasts(of_owner(), 50), Duration::from_secs(50));
    assert_eq!(lasts(of_owner(), 1), Duration::from_secs(50));
}
