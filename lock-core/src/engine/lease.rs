//! A lease: a grant of the server, judged by the local clock alone.
//!
//! A lease outlives the guards that use it: local hand-over passes it from guard to guard, and the guards of one owner share one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::phase::{Phase, Status};
use crate::LossReason;
use crate::sync::{lock, when_unlocked};
use crate::terms::Terms;
use crate::time::Moment;

/// The grant that starts a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// The moment before the request was sent, on the lease clock.
    pub(crate) sent_at: Moment,
    /// The grant came as a message, so the lease is older than the grant.
    pub(crate) pushed: bool,
    /// Whether the watchdog renews it.
    pub(crate) renew: bool,
    /// The fencing token, which an owner keeps for as long as it has the lock.
    pub(crate) fence: u64,
}

/// The effect of a grant on the lease that its owner has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    Shares,
    /// The lease is over. The times of the grant decide whether the grant is good.
    Over,
    /// The grant is older than the lease, and was over before the lease began: its client has not run since.
    Outdated,
}

#[derive(Debug)]
pub(crate) struct Lease {
    phase: Phase,
    /// The fencing token with which the lease began.
    fence: u64,
    /// End of the lease as confirmed by the server.
    deadline: AtomicU64,
    renew_at: AtomicU64,
    users: Mutex<Users>,
    /// The single renewal of a fixed lease that was granted by a message is still due.
    owed: AtomicBool,
    /// Made by the first watcher: few leases have one.
    changed: OnceLock<Arc<Notify>>,
}

/// The users of a lease.
#[derive(Debug)]
struct Users {
    all: u32,
    /// Number of users with renewal.
    renewing: u32,
    /// The longest terms that any user asked for.
    terms: Terms,
}

impl Lease {
    /// Begins a lease with its first user. Returns `None` if the grant came later than the lease lasts.
    pub(crate) fn begin(now: Moment, terms: Terms, start: Start) -> Option<Self> {
        let deadline = terms.deadline(start.sent_at);
        if deadline <= now {
            return None;
        }
        let renew_at = if start.renew {
            first_renewal(terms, start.sent_at)
        } else if start.pushed {
            // The lease began before the grant. One renewal gives the holder the ttl that was asked for.
            now
        } else {
            Moment::NEVER
        };
        Some(Self {
            phase: Phase::held(),
            fence: start.fence,
            deadline: AtomicU64::new(deadline.0),
            renew_at: AtomicU64::new(renew_at.0),
            users: Mutex::new(Users {
                all: 1,
                renewing: u32::from(start.renew),
                terms,
            }),
            owed: AtomicBool::new(start.pushed && !start.renew),
            changed: OnceLock::new(),
        })
    }

    /// Adds a user: the same owner has acquired again. This is not possible if the lease is over, or if the owner got a newer
    /// fencing token, and thus the lock anew.
    pub(crate) fn join(&self, now: Moment, terms: Terms, start: Start) -> Joined {
        let mut users = lock(&self.users);
        if start.fence < self.fence {
            return Joined::Outdated;
        }
        if start.fence > self.fence {
            self.lose(LossReason::Gone);
        }
        if self.status(now) != Status::Held {
            return Joined::Over;
        }
        users.all += 1;
        let longer = terms.ttl() > users.terms.ttl();
        if longer {
            users.terms = terms;
        }
        if start.renew {
            users.renewing += 1;
            if users.renewing == 1 || longer {
                self.renew_at
                    .fetch_min(first_renewal(terms, start.sent_at).0, Ordering::SeqCst);
            }
        }
        self.deadline
            .fetch_max(terms.deadline(start.sent_at).0, Ordering::SeqCst);
        Joined::Shares
    }

    /// Removes a user. Returns true if it was the last one: the lease is then over.
    pub(crate) fn leave(&self, renewing: bool) -> bool {
        let mut users = lock(&self.users);
        users.all = users.all.saturating_sub(1);
        users.renewing = users.renewing.saturating_sub(u32::from(renewing));
        if users.renewing == 0 {
            self.renew_at.store(Moment::NEVER.0, Ordering::SeqCst);
        }
        if users.all == 0 {
            self.phase.release();
        }
        users.all == 0
    }

    /// A confirmed renewal. It never shortens a lease and never revives one.
    fn prolong(&self, now: Moment, deadline: Moment) {
        if self.status(now) == Status::Held {
            self.deadline.fetch_max(deadline.0, Ordering::SeqCst);
        }
    }

    /// The status at `now`. The first call after the end makes the loss final, whatever a renewal in flight brings.
    pub(crate) fn status(&self, now: Moment) -> Status {
        if now >= self.end() && self.phase.get() == Status::Held {
            self.lose(LossReason::Expired);
        }
        self.phase.get()
    }

    /// Whether the lease was released, or a loss was seen.
    pub(crate) fn is_over(&self) -> bool {
        self.phase.get() != Status::Held
    }

    /// End of the lease if the server confirms nothing more.
    pub(crate) fn end(&self) -> Moment {
        Moment(self.deadline.load(Ordering::SeqCst))
    }

    /// Ends the lease as lost, for all its users. Returns false if it was over already.
    pub(crate) fn lose(&self, reason: LossReason) -> bool {
        let lost = self.phase.lose(reason);
        if lost {
            self.announce();
        }
        lost
    }

    /// Wakes all watchers of the lease and of its holds.
    pub(crate) fn announce(&self) {
        // Either this thread sees the watcher, or the watcher sees the announced state when it looks.
        fence(Ordering::SeqCst);
        if let Some(changed) = self.changed.get() {
            let changed = Arc::clone(changed);
            when_unlocked(move || changed.notify_waiters());
        }
    }

    /// Resolves with the next loss that is announced. The caller must watch the deadline itself. It must also look for an earlier
    /// announcement, after the future has been polled or enabled.
    pub(crate) fn changed(&self) -> Notified<'_> {
        let changed = self.changed.get_or_init(Arc::default);
        fence(Ordering::SeqCst);
        changed.notified()
    }

    /// Number of users.
    pub(crate) fn users(&self) -> u32 {
        lock(&self.users).all
    }

    pub(crate) fn terms(&self) -> Terms {
        lock(&self.users).terms
    }

    /// Moment of the next renewal.
    pub(crate) fn renew_at(&self) -> Moment {
        Moment(self.renew_at.load(Ordering::SeqCst))
    }

    /// Messages may have been missed: by `moment` the task asks the server whether it still has the lease.
    pub(crate) fn confirm_at(&self, moment: Moment) {
        self.renew_at.fetch_min(moment.0, Ordering::SeqCst);
    }

    /// A renewal is under way: the next one starts only after its answer. Returns false if a fixed lease is confirmed, not
    /// prolonged.
    pub(crate) fn renewing(&self) -> bool {
        let users = lock(&self.users);
        self.renew_at.store(Moment::NEVER.0, Ordering::SeqCst);
        users.renewing > 0 || self.owed.load(Ordering::SeqCst)
    }

    /// The server confirmed a renewal for `terms`, sent at `sent_at`. Returns the moment of the next renewal.
    pub(crate) fn renewed(&self, now: Moment, sent_at: Moment, terms: Terms) -> Moment {
        self.prolong(now, terms.deadline(sent_at));
        self.owed.store(false, Ordering::SeqCst);
        self.next_renewal(sent_at + terms.third())
    }

    /// A renewal got no answer: it changes no deadline, and is repeated soon.
    pub(crate) fn not_renewed(&self, now: Moment) -> Moment {
        let pause = self.terms().ttl() / 20;
        self.again_after(
            now,
            pause.clamp(Duration::from_millis(5), Duration::from_millis(250)),
        )
    }

    /// The server refused a renewal. The refusal lasts until an operator changes the rights, so the repetitions are few.
    pub(crate) fn refused(&self, now: Moment) -> Moment {
        self.again_after(now, self.terms().ttl() / 6)
    }

    fn again_after(&self, now: Moment, pause: Duration) -> Moment {
        let next = now + pause.mul_f64(0.5 + fastrand::f64());
        // A fixed lease that was granted by a message repeats its single renewal, too.
        self.renew_at.store(next.0, Ordering::SeqCst);
        next
    }

    fn next_renewal(&self, at: Moment) -> Moment {
        let users = lock(&self.users);
        let next = if users.renewing > 0 {
            at
        } else {
            Moment::NEVER
        };
        self.renew_at.store(next.0, Ordering::SeqCst);
        next
    }
}

/// Spreads the first renewals, so that locks acquired together are not renewed at one instant.
fn first_renewal(terms: Terms, sent_at: Moment) -> Moment {
    let third = terms.third().as_nanos() as u64;
    sent_at + Duration::from_nanos(third - fastrand::u64(..=third / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_renewal_that_nobody_looked_before_does_not_revive_either() {
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
        lease.renewing();
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
}
