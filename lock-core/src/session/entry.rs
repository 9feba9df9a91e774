//! One acquisition, from before its first request until its last trace is gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::REFRESH;
use super::lease::{Lease, Status, Terms};
use super::wait::{Granted, Wait};
use crate::LossReason;
use crate::clock::Moment;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::store::{Attempt, Mode};
use crate::token::Token;

/// What the user asked for.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) key: Arc<LockKey>,
    pub(crate) terms: Terms,
    /// Whether the watchdog renews the lease.
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Duration>,
    /// The lock is kept at least this long, however early it is let go.
    pub(crate) at_least: Duration,
}

/// What became of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Held,
    /// It came later than its lease lasts.
    TooLate,
    Revoked,
    ShutDown,
}

/// Registered with the session before the first request is sent, so that whatever the request leaves on the
/// server has somebody to clean it up.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) sequence: u64,
    pub(crate) token: Token,
    pub(crate) key: Arc<LockKey>,
    pub(crate) terms: Terms,
    pub(crate) lease: Lease,
    pub(crate) wait: Mutex<Wait>,
    /// Tells the one task that waits that `wait` has news.
    pub(crate) woken: Notify,
    renew: bool,
    max_hold: Option<Duration>,
    at_least: Duration,
    keep_until: AtomicU64,
    fence: AtomicU64,
    renew_at: AtomicU64,
    /// A request had no clear answer: it may still take effect.
    pub(crate) ambiguous: AtomicBool,
    /// Somebody is already releasing what this entry left on the server.
    pub(crate) undoing: AtomicBool,
    /// A refresh that was answered late has released, too: the holder's own release may come second and find nothing.
    pub(crate) released_by_refresh: AtomicBool,
    pub(crate) in_line: AtomicBool,
}

impl Entry {
    pub(crate) fn new(sequence: u64, token: Token, request: Request) -> Self {
        Self {
            sequence,
            token,
            key: request.key,
            terms: request.terms,
            renew: request.renew,
            max_hold: request.max_hold,
            at_least: request.at_least,
            keep_until: AtomicU64::new(0),
            lease: Lease::new(),
            wait: Mutex::default(),
            woken: Notify::new(),
            fence: AtomicU64::new(0),
            renew_at: AtomicU64::new(Moment::NEVER.0),
            ambiguous: AtomicBool::new(false),
            undoing: AtomicBool::new(false),
            released_by_refresh: AtomicBool::new(false),
            in_line: AtomicBool::new(false),
        }
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.fence.load(Ordering::Relaxed))
    }

    /// Takes a grant, unless something that was said since forbids it.
    pub(crate) fn take(&self, now: Moment, granted: Granted) -> Taken {
        // Under the lock, so that a revocation is seen either here or by the lease.
        let wait = crate::sync::lock(&self.wait);
        if wait.is_shut_down() {
            Taken::ShutDown
        } else if wait.is_revoked() {
            Taken::Revoked
        } else if self.hold(now, granted) {
            Taken::Held
        } else {
            Taken::TooLate
        }
    }

    /// The lock was taken away by force. True if it was held.
    pub(crate) fn revoke(&self) -> bool {
        let mut wait = crate::sync::lock(&self.wait);
        if self.lease.lose(LossReason::ForceReleased) {
            return true;
        }
        wait.revoked();
        drop(wait);
        self.woken.notify_one();
        false
    }

    /// Begins the hold. False where the grant came too late to be of use.
    fn hold(&self, now: Moment, granted: Granted) -> bool {
        self.fence.store(granted.fence, Ordering::Relaxed);
        if !self.at_least.is_zero() {
            let keep_until = now + self.at_least;
            self.keep_until.store(keep_until.0, Ordering::Relaxed);
        }
        let renew_at = if self.renew {
            // Spread out, so that locks taken together are not renewed at one instant.
            let third = self.terms.third();
            granted.sent_at + third.mul_f64(0.9 + fastrand::f64() / 10.0)
        } else if granted.pushed {
            // The lease began before the grant. One renewal gives the holder the ttl that was asked for.
            now
        } else {
            Moment::NEVER
        };
        self.renew_at.store(renew_at.0, Ordering::Relaxed);
        self.lease
            .grant(now, self.terms.deadline(granted.sent_at), self.max_hold)
    }

    /// When the lease wants its next renewal.
    pub(crate) fn renew_at(&self) -> Moment {
        Moment(self.renew_at.load(Ordering::Relaxed))
    }

    /// When a lock that was lost is given back. The old holder has time to hear of its loss first: a release at once would
    /// let the next one in while the tasks that await `lost()` have yet to run.
    pub(crate) fn clean_up_at(&self) -> Moment {
        let drift = self.terms.drift;
        match self.lease.status(Moment(0)) {
            // The server ends it by then, if a renewal without an answer has not prolonged it.
            Status::Lost(LossReason::Expired) => self.lease.end() + drift,
            Status::Lost(LossReason::MaxHold) => {
                self.lease.end() + drift.min(Duration::from_secs(1))
            }
            // Somebody else has ended it already.
            _ => Moment(0),
        }
    }

    /// A renewal is on its way: the next one only after its answer.
    pub(crate) fn renewing(&self) {
        self.renew_at.store(Moment::NEVER.0, Ordering::Relaxed);
    }

    /// The server confirmed a renewal sent at `sent_at`. Returns when the next is due.
    pub(crate) fn renewed(&self, now: Moment, sent_at: Moment) -> Moment {
        self.lease.renew(now, self.terms.deadline(sent_at));
        let next = if self.renew {
            sent_at + self.terms.third()
        } else {
            Moment::NEVER
        };
        self.renew_at.store(next.0, Ordering::Relaxed);
        next
    }

    /// A renewal got no answer: it moved nothing, and is repeated soon.
    pub(crate) fn not_renewed(&self, now: Moment) -> Moment {
        let pause =
            (self.terms.ttl / 20).clamp(Duration::from_millis(5), Duration::from_millis(250));
        let next = now + pause.mul_f64(0.5 + fastrand::f64());
        self.renew_at.store(next.0, Ordering::Relaxed);
        next
    }

    /// One request for this acquisition.
    pub(crate) fn attempt(&self, mode: Mode) -> Attempt<'_> {
        // Three missed refreshes and a waiter counts as dead, but never so soon that a busy machine looks dead.
        let alive_for = (REFRESH.min(self.terms.third()) * 3).max(Duration::from_secs(5));
        Attempt {
            key: &self.key,
            token: &self.token,
            ttl: self.terms.ttl,
            mode,
            alive_for,
            owner: None,
        }
    }

    /// For how long the lock has still to be kept, though nobody needs it any more. In whole milliseconds.
    pub(crate) fn keep_for(&self, now: Moment) -> Option<Duration> {
        let left = now.until(Moment(self.keep_until.load(Ordering::Relaxed)));
        let left = Duration::from_millis(left.as_millis() as u64);
        (!left.is_zero()).then_some(left)
    }

    /// News for the waiting task: applies it, then wakes the task.
    pub(crate) fn tell(&self, news: impl FnOnce(&mut Wait)) {
        news(&mut crate::sync::lock(&self.wait));
        self.woken.notify_one();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::token::ClientId;

    const T0: Moment = Moment(1 << 50);

    fn request(key: &str, renew: bool) -> Request {
        Request {
            key: Arc::new(LockKey::new("lock:", key).unwrap()),
            terms: Terms {
                ttl: Duration::from_secs(3),
                drift: Duration::from_millis(32),
            },
            renew,
            max_hold: None,
            at_least: Duration::ZERO,
        }
    }

    pub(crate) fn entry(sequence: u64, key: &str) -> Arc<Entry> {
        let token = ClientId::random().token(sequence);
        Arc::new(Entry::new(sequence, token, request(key, true)))
    }

    fn granted(pushed: bool) -> Granted {
        Granted {
            fence: 1,
            sent_at: T0,
            pushed,
        }
    }

    #[test]
    fn the_first_renewal_is_due_a_third_into_the_lease() {
        let entry = entry(1, "a");
        assert!(entry.hold(T0, granted(false)));
        let due = T0.until(entry.renew_at());
        assert!(due <= Duration::from_secs(1) && due >= Duration::from_millis(899));
    }

    #[test]
    fn a_fixed_lease_is_renewed_once_if_it_was_pushed_and_else_never() {
        let fixed = || Entry::new(1, ClientId::random().token(1), request("a", false));
        let direct = fixed();
        direct.hold(T0, granted(false));
        assert_eq!(direct.renew_at(), Moment::NEVER);
        let pushed = fixed();
        pushed.hold(T0, granted(true));
        assert_eq!(pushed.renew_at(), T0);
        assert_eq!(pushed.renewed(T0, T0), Moment::NEVER);
    }

    #[test]
    fn an_unconfirmed_renewal_moves_nothing() {
        let entry = entry(1, "a");
        entry.hold(T0, granted(false));
        let end = entry.lease.end();
        entry.renewing();
        entry.not_renewed(T0 + Duration::from_secs(1));
        assert_eq!(entry.lease.end(), end);
        assert_eq!(entry.lease.status(end), Status::Lost(LossReason::Expired));
    }
}
