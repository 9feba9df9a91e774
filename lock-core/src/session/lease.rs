//! The life of one lease, judged by the local clock alone.
//!
//! ```text
//! Pending --granted--> Held --released--> Released
//!    |                  |
//!    +----abandoned-----+--deadline, max_hold, told so--> Lost(reason)
//! ```
//! Nothing leads out of Lost or Released: a lease that was once not held is never held again.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::LossReason;
use crate::clock::Moment;

/// How long a lease is, and how much of it is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) drift: Duration,
}

impl Terms {
    /// Until when a lease granted by a request is believed. It counts from before the request was sent: the
    /// server's lease can only have begun later. Redis, "Distributed Locks": `ttl - elapsed - drift`.
    pub(crate) fn deadline(self, sent_at: Moment) -> Moment {
        sent_at + self.ttl.saturating_sub(self.drift)
    }

    /// A third of the ttl: when a lease wants renewal.
    pub(crate) fn third(self) -> Duration {
        self.ttl / 3
    }
}

/// What a lease is at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Pending,
    Held,
    Released,
    Lost(LossReason),
}

const PENDING: u8 = 0;
const HELD: u8 = 1;
const RELEASED: u8 = 2;
const REASONS: [(u8, LossReason); 5] = [
    (3, LossReason::Expired),
    (4, LossReason::Taken),
    (5, LossReason::ForceReleased),
    (6, LossReason::MaxHold),
    (7, LossReason::ShutDown),
];

/// Shared between the guard that relies on it and the session that keeps it alive.
#[derive(Debug)]
pub(crate) struct Lease {
    phase: AtomicU8,
    /// End of what the server has confirmed.
    deadline: AtomicU64,
    /// End of what the user allows: `max_hold`.
    cap: AtomicU64,
    changed: Notify,
}

impl Lease {
    pub(crate) fn new() -> Self {
        Self {
            phase: AtomicU8::new(PENDING),
            deadline: AtomicU64::new(0),
            cap: AtomicU64::new(Moment::NEVER.0),
            changed: Notify::new(),
        }
    }

    /// Begins the hold, unless the lease is already over. True if it is held now.
    pub(crate) fn grant(&self, now: Moment, deadline: Moment, max_hold: Option<Duration>) -> bool {
        if deadline <= now {
            return false;
        }
        self.deadline.store(deadline.0, Ordering::SeqCst);
        let cap = max_hold.map_or(Moment::NEVER, |most| now + most);
        self.cap.store(cap.0, Ordering::SeqCst);
        self.step(PENDING, HELD)
    }

    /// A confirmed renewal. It never shortens a lease and never revives one.
    pub(crate) fn renew(&self, now: Moment, deadline: Moment) {
        if self.status(now) == Status::Held {
            self.deadline.fetch_max(deadline.0, Ordering::SeqCst);
        }
    }

    /// The status at `now`. Seeing the end makes the loss final, whatever a renewal in flight brings.
    pub(crate) fn status(&self, now: Moment) -> Status {
        if self.phase.load(Ordering::SeqCst) == HELD && now >= self.end() {
            let capped = now.0 >= self.cap.load(Ordering::SeqCst);
            self.lose(if capped {
                LossReason::MaxHold
            } else {
                LossReason::Expired
            });
        }
        match self.phase.load(Ordering::SeqCst) {
            PENDING => Status::Pending,
            HELD => Status::Held,
            RELEASED => Status::Released,
            code => Status::Lost(
                REASONS
                    .iter()
                    .find(|(known, _)| *known == code)
                    .map_or(LossReason::Expired, |(_, reason)| *reason),
            ),
        }
    }

    /// When the hold ends if nothing more is heard from the server.
    pub(crate) fn end(&self) -> Moment {
        let deadline = self.deadline.load(Ordering::SeqCst);
        Moment(deadline.min(self.cap.load(Ordering::SeqCst)))
    }

    /// Ends a hold as lost. False if it was not held.
    pub(crate) fn lose(&self, reason: LossReason) -> bool {
        let code = REASONS
            .iter()
            .find(|(_, known)| *known == reason)
            .map_or(REASONS[0].0, |(code, _)| *code);
        let lost = self.step(HELD, code);
        if lost {
            self.changed.notify_waiters();
        }
        lost
    }

    /// The holder lets go, or gives up before it held. Returns the status before.
    pub(crate) fn release(&self, now: Moment) -> Status {
        let before = self.status(now);
        if !self.step(HELD, RELEASED) && !self.step(PENDING, RELEASED) {
            return self.status(now);
        }
        before
    }

    /// Resolves with the next loss that is announced. The deadline is for the caller to watch.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    fn step(&self, from: u8, to: u8) -> bool {
        self.phase
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Moment = Moment(1_000_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn terms() -> Terms {
        Terms {
            ttl: SECOND,
            drift: Duration::from_millis(12),
        }
    }

    fn held_from(sent_at: Moment, now: Moment) -> Lease {
        let lease = Lease::new();
        assert!(lease.grant(now, terms().deadline(sent_at), None));
        lease
    }

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
        let lease = Lease::new();
        assert!(!lease.grant(T0 + SECOND, terms().deadline(T0), None));
        assert_eq!(lease.status(T0 + SECOND), Status::Pending);
    }

    #[test]
    fn a_late_renewal_does_not_revive() {
        let lease = held_from(T0, T0);
        let after = T0 + SECOND;
        // Sent in time, confirmed too late: in between the lease was seen to be over.
        assert_eq!(lease.status(after), Status::Lost(LossReason::Expired));
        lease.renew(after, terms().deadline(T0 + SECOND / 2));
        assert_eq!(lease.status(after), Status::Lost(LossReason::Expired));
    }

    #[test]
    fn a_renewal_that_nobody_looked_before_does_not_revive_either() {
        let lease = held_from(T0, T0);
        lease.renew(T0 + SECOND, terms().deadline(T0 + SECOND / 2));
        assert_eq!(lease.status(T0 + SECOND), Status::Lost(LossReason::Expired));
    }

    #[test]
    fn renewals_out_of_order_never_shorten() {
        let lease = held_from(T0, T0);
        lease.renew(T0 + SECOND / 2, terms().deadline(T0 + SECOND / 2));
        lease.renew(T0 + SECOND / 2, terms().deadline(T0 + SECOND / 4));
        assert_eq!(lease.end(), terms().deadline(T0 + SECOND / 2));
    }

    #[test]
    fn max_hold_ends_a_hold_that_is_renewed() {
        let lease = Lease::new();
        assert!(lease.grant(T0, terms().deadline(T0), Some(SECOND / 2)));
        lease.renew(T0 + SECOND / 4, terms().deadline(T0 + SECOND / 4));
        assert_eq!(
            lease.status(T0 + SECOND / 2),
            Status::Lost(LossReason::MaxHold)
        );
    }

    #[test]
    fn what_is_lost_can_not_be_released_and_what_is_released_can_not_be_lost() {
        let lease = held_from(T0, T0);
        assert!(lease.lose(LossReason::Taken));
        assert_eq!(lease.release(T0), Status::Lost(LossReason::Taken));
        let lease = held_from(T0, T0);
        assert_eq!(lease.release(T0), Status::Held);
        assert!(!lease.lose(LossReason::Expired));
        assert_eq!(lease.status(T0 + SECOND * 9), Status::Released);
    }
}
