//! Leases by hand: deadlines, users, renewals and extensions.

use std::time::Duration;

use super::super::lease::{Joined, Lease, Start, Status};
use crate::base::error::Cause;
use crate::base::error::LossReason;
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::store::StoreError;

const T0: Moment = Moment(1_000_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn terms(seconds: u32) -> Terms {
    Terms::new(
        SECOND * seconds,
        SECOND * seconds,
        Duration::from_millis(12),
    )
}

fn start(sent_at: Moment) -> Start {
    Start {
        sent_at,
        pushed: false,
        renew: true,
        fence: 1,
    }
}

fn held_from(sent_at: Moment, now: Moment) -> Lease {
    Lease::begin(now, terms(1), start(sent_at)).unwrap()
}

/// Proves P2.
#[test]
fn the_deadline_counts_from_before_the_request() {
    // The reply took 900 ms: 88 ms are left.
    let now = T0 + Duration::from_millis(900);
    let lease = held_from(T0, now);
    assert_eq!(lease.end(), T0 + Duration::from_millis(988));
    assert_eq!(lease.status(now), Status::Held);
    assert_eq!(lease.status(T0 + Duration::from_millis(987)), Status::Held);
    assert_eq!(
        lease.status(T0 + Duration::from_millis(988)),
        Status::Lost(LossReason::Expired)
    );
}

#[test]
fn a_reply_later_than_the_lease_is_no_grant() {
    assert!(Lease::begin(T0 + SECOND, terms(1), start(T0)).is_none());
}

#[test]
fn a_late_renewal_does_not_revive() {
    let lease = held_from(T0, T0);
    let after = T0 + SECOND;
    // Sent in time, confirmed too late: in between the lease was seen to be over.
    assert_eq!(lease.status(after), Status::Lost(LossReason::Expired));
    lease.renewed(after, T0 + SECOND / 2, terms(1));
    assert_eq!(lease.status(after), Status::Lost(LossReason::Expired));
}

#[test]
fn a_late_renewal_does_not_revive_a_lease_without_a_watcher() {
    let lease = held_from(T0, T0);
    lease.renewed(T0 + SECOND, T0 + SECOND / 2, terms(1));
    assert_eq!(lease.status(T0 + SECOND), Status::Lost(LossReason::Expired));
}

#[test]
fn renewals_out_of_order_never_shorten() {
    let lease = held_from(T0, T0);
    lease.renewed(T0 + SECOND / 2, T0 + SECOND / 2, terms(1));
    lease.renewed(T0 + SECOND / 2, T0 + SECOND / 4, terms(1));
    assert_eq!(lease.end(), terms(1).deadline(T0 + SECOND / 2));
}

#[test]
fn the_first_renewal_is_due_a_third_into_the_lease() {
    let lease = Lease::begin(T0, terms(3), start(T0)).unwrap();
    let due = T0.until(lease.renew_at());
    assert!(due <= SECOND && due >= Duration::from_millis(899));
}

#[test]
fn a_fixed_lease_is_renewed_once_if_it_was_pushed_and_else_never() {
    let fixed = |pushed| {
        let start = Start {
            sent_at: T0,
            pushed,
            renew: false,
            fence: 1,
        };
        Lease::begin(T0, terms(3), start).unwrap()
    };
    assert_eq!(fixed(false).renew_at(), Moment::NEVER);
    let pushed = fixed(true);
    assert_eq!(pushed.renew_at(), T0);
    assert_eq!(pushed.renewed(T0, T0, terms(3)), Moment::NEVER);
}

#[test]
fn an_unconfirmed_renewal_moves_nothing() {
    let lease = held_from(T0, T0);
    let end = lease.end();
    lease.renewing(T0);
    lease.not_renewed(T0 + SECOND / 2);
    assert_eq!(lease.end(), end);
    assert_eq!(lease.status(end), Status::Lost(LossReason::Expired));
}

#[test]
fn a_lease_ends_with_its_last_user_and_is_renewed_for_the_longest_of_them() {
    let lease = Lease::begin(T0, terms(3), start(T0)).unwrap();
    assert_eq!(lease.join(T0, terms(1), start(T0)), Joined::Shares);
    assert_eq!(lease.terms(), terms(3), "a shorter one does not shorten it");
    assert_eq!(lease.end(), terms(3).deadline(T0));
    assert_eq!(lease.join(T0, terms(9), start(T0)), Joined::Shares);
    assert_eq!(lease.terms(), terms(9));
    assert!(!lease.leave(true) && !lease.leave(true));
    assert_eq!(lease.status(T0), Status::Held);
    assert!(lease.leave(true));
    assert_eq!(lease.status(T0), Status::Released);
    assert_eq!(lease.join(T0, terms(3), start(T0)), Joined::Over);
}

#[test]
fn a_newer_grant_to_its_owner_ends_a_lease_and_an_older_one_does_not() {
    let with = |fence| Start { fence, ..start(T0) };
    let lease = Lease::begin(T0, terms(3), with(5)).unwrap();
    assert_eq!(lease.join(T0, terms(3), with(4)), Joined::Outdated);
    assert_eq!(lease.status(T0), Status::Held);
    assert_eq!(lease.join(T0, terms(3), with(6)), Joined::Over);
    assert_eq!(lease.status(T0), Status::Lost(LossReason::Gone));
}

#[test]
fn only_users_who_want_it_keep_a_lease_renewed() {
    let lease = Lease::begin(T0, terms(3), start(T0)).unwrap();
    let fixed = Start {
        renew: false,
        ..start(T0)
    };
    assert_eq!(lease.join(T0, terms(3), fixed), Joined::Shares);
    assert_ne!(lease.renew_at(), Moment::NEVER);
    lease.leave(true);
    assert_eq!(lease.renew_at(), Moment::NEVER);
    assert_eq!(lease.renewed(T0, T0, terms(3)), Moment::NEVER);
}

/// Proves P2.
#[test]
fn a_shorter_extension_lowers_the_deadline_before_it_is_sent() {
    let lease = Lease::begin(T0, terms(30), start(T0)).unwrap();
    let later = T0 + SECOND * 4;
    let number = lease.extend(later, terms(2));
    assert!(lease.renew_at() <= later);
    assert_eq!(lease.end(), terms(30).deadline(T0), "nothing was sent");
    assert_eq!(lease.renewing(later), Some((terms(2), true)));
    assert_eq!(lease.end(), terms(2).deadline(later));
    assert!(lease.extended(number).is_none());
    // The reply is lost, and the server may have shortened the lease.
    let error = StoreError::Ambiguous(Cause::text(String::new()));
    lease.failed(later, &error);
    assert_eq!(lease.end(), terms(2).deadline(later));
    assert!(matches!(lease.extended(number), Some(Err(_))));
    assert_eq!(lease.renewing(later + SECOND), Some((terms(2), true)));
    let next = lease.renewed(later + SECOND, later + SECOND, terms(2));
    assert_eq!(next, later + SECOND + terms(2).third());
    assert!(matches!(lease.extended(number), Some(Ok(()))));
}

#[test]
fn an_extension_waits_for_the_renewals_that_are_under_way() {
    let lease = Lease::begin(T0, terms(30), start(T0)).unwrap();
    assert_eq!(lease.renewing(T0), Some((terms(30), true)));
    // A second one, because messages may have been missed.
    assert_eq!(lease.renewing(T0), Some((terms(30), true)));
    let number = lease.extend(T0, terms(2));
    assert_eq!(lease.renew_at(), Moment::NEVER);
    assert_eq!(lease.not_renewed(T0 + SECOND), lease.renew_at());
    assert!(lease.renew_at() > T0 + SECOND, "one is under way still");
    assert_eq!(lease.renewing(T0 + SECOND), None, "no third one before it");
    lease.renewed(T0 + SECOND, T0, terms(30));
    assert!(lease.extended(number).is_none(), "that was the old ttl");
    assert_eq!(lease.renew_at(), T0 + SECOND, "at once");
    assert_eq!(lease.renewing(T0 + SECOND), Some((terms(2), true)));
    lease.renewed(T0 + SECOND, T0 + SECOND, terms(2));
    assert!(matches!(lease.extended(number), Some(Ok(()))));
    assert_eq!(lease.end(), terms(2).deadline(T0 + SECOND));
}

#[test]
fn an_extension_prolongs_a_fixed_lease_once_and_shortens_no_shared_one() {
    let fixed = Start {
        renew: false,
        ..start(T0)
    };
    let lease = Lease::begin(T0, terms(3), fixed).unwrap();
    lease.extend(T0, terms(9));
    assert_eq!(lease.renewing(T0), Some((terms(9), true)));
    assert_eq!(lease.renewed(T0, T0, terms(9)), Moment::NEVER);
    assert_eq!(lease.end(), terms(9).deadline(T0));
    assert_eq!(lease.join(T0, terms(3), start(T0)), Joined::Shares);
    lease.extend(T0, terms(2));
    assert_eq!(
        lease.renewing(T0),
        Some((terms(9), true)),
        "another guard has it"
    );
}
