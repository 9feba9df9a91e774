//! An acquisition: one token, from before its first request until nothing of it is left on the server.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use super::hold::Hold;
use super::inbox::{Granted, Inbox};
use super::lease::{Joined, Lease, Start};
use super::line::Line;
use super::phase::Status;
use crate::LossReason;
use crate::key::{Kind, LockKey};
use crate::owner::Owner;
use crate::store::{Attempt, Mode};
use crate::sync::lock;
use crate::terms::Terms;
use crate::time::Moment;
use crate::token::Token;

/// Maximum interval between two requests for a lock during a wait.
pub(super) const REFRESH: Duration = Duration::from_secs(3);

/// The outcome of taking a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Held,
    /// The grant came later than its lease lasts.
    TooLate,
    Revoked,
    ShutDown,
    /// The waiter has left.
    Abandoned,
}

/// Asks for a lock on behalf of the waiters of this process, and holds it for them one after the other.
///
/// The engine registers it before the first request is sent, so that it can clean up whatever the request leaves on the server.
#[derive(Debug)]
pub(crate) struct Acquisition {
    /// The number from which its token is made.
    pub(crate) sequence: u64,
    pub(crate) key: Arc<LockKey>,
    /// The owner that takes the lock, if the owner spans several acquisitions.
    pub(crate) explicit_owner: Option<Owner>,
    lease: OnceLock<LeaseOf>,
    pub(crate) inbox: Mutex<Inbox>,
    serves: Mutex<Serves>,
    /// End of the guard's hold as limited by `max_hold`.
    cap: AtomicU64,
    keep_until: AtomicU64,
    /// Number of fencing tokens that the first request asked for, if each request must ask for as many.
    reserve: AtomicU32,
    /// A request was made and may be under way.
    asked: AtomicBool,
    /// Number of requests without a clear answer, which may still take effect. The count stops at its maximum: it only matters
    /// whether there are none, one, or more.
    outstanding: AtomicU8,
    /// Number of guarded scripts that were sent with this token and got no answer: they may still run.
    scripts: AtomicU32,
    /// Another process is known to wait for the granted lock. A message may say so right after the grant, before a waiter takes
    /// the grant.
    pub(crate) contended: AtomicBool,
    /// No client of this process needs it any more: whatever an answer brings is released.
    over: AtomicBool,
    /// A release of what it left on the server is under way already.
    pub(crate) undoing: AtomicBool,
    /// A local hand-over gave it to a waiter that may not have run since.
    handed: AtomicBool,
    /// Its guard had ended, and the client had not released it, at the last sweep of the leases.
    pub(crate) unreleased: AtomicBool,
    /// The engine has released it, too, for example after a late refresh: the holder's own release may come second and find
    /// nothing.
    pub(crate) released_by_refresh: AtomicBool,
}

/// The line and the guard that an acquisition serves.
#[derive(Debug)]
struct Serves {
    line: Weak<Line>,
    /// The hold of the guard that has the lease, if any.
    hold: Option<Arc<Hold>>,
}

/// The lease of an acquisition.
#[derive(Debug)]
enum LeaseOf {
    Itself(Lease),
    /// The lease of an earlier acquisition of the same owner.
    Other(Arc<Acquisition>),
}

/// No request has asked for fencing tokens so far.
const UNASKED: u32 = u32::MAX;

/// A guarded script without an answer. It counts for as long as the token lives, unless it is answered: a call whose future
/// was dropped or whose connection broke may reach the server at any time.
#[must_use = "the script may still run"]
pub(crate) struct OutstandingScript<'a>(&'a Acquisition);

impl OutstandingScript<'_> {
    /// The server has answered: the script has run, or never will.
    pub(crate) fn answered(self) {
        self.0.scripts.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The parameters of a new acquisition.
#[derive(Debug)]
pub(crate) struct Purpose {
    pub(crate) key: Arc<LockKey>,
    pub(crate) terms: Terms,
    pub(crate) owner: Option<Owner>,
    pub(crate) line: Option<Weak<Line>>,
}

impl Acquisition {
    pub(crate) fn new(sequence: u64, purpose: Purpose) -> Self {
        Self {
            sequence,
            key: purpose.key,
            explicit_owner: purpose.owner,
            lease: OnceLock::new(),
            inbox: Mutex::new(Inbox::new(purpose.terms)),
            serves: Mutex::new(Serves {
                line: purpose.line.unwrap_or_default(),
                hold: None,
            }),
            cap: AtomicU64::new(Moment::NEVER.0),
            keep_until: AtomicU64::new(0),
            reserve: AtomicU32::new(UNASKED),
            asked: AtomicBool::new(false),
            outstanding: AtomicU8::new(0),
            scripts: AtomicU32::new(0),
            contended: AtomicBool::new(false),
            over: AtomicBool::new(false),
            undoing: AtomicBool::new(false),
            handed: AtomicBool::new(false),
            unreleased: AtomicBool::new(false),
            released_by_refresh: AtomicBool::new(false),
        }
    }

    /// The lease, once a grant was taken.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match self.lease.get()? {
            LeaseOf::Itself(lease) => Some(lease),
            LeaseOf::Other(first) => first.lease(),
        }
    }

    /// Shares the lease of `first`, or begins a lease of its own. Returns `None` if the grant is over.
    fn lease_of(
        first: Option<&Arc<Self>>,
        now: Moment,
        terms: Terms,
        start: Start,
    ) -> Option<LeaseOf> {
        if let Some(first) = first
            && let Some(lease) = first.lease()
        {
            match lease.join(now, terms, start) {
                // Refer to the acquisition that has the lease, not to a chain: that one goes as soon as no other shares its
                // lease.
                Joined::Shares => {
                    return Some(LeaseOf::Other(match first.lease.get()? {
                        LeaseOf::Itself(_) => Arc::clone(first),
                        LeaseOf::Other(first) => Arc::clone(first),
                    }));
                }
                Joined::Outdated => return None,
                Joined::Over => {}
            }
        }
        Lease::begin(now, terms, start).map(LeaseOf::Itself)
    }

    pub(crate) fn line(&self) -> Option<Arc<Line>> {
        lock(&self.serves).line.upgrade()
    }

    /// Sets the line for which it has the lock from now on, if any.
    pub(crate) fn stands_for(&self, line: Weak<Line>) {
        lock(&self.serves).line = line;
    }

    /// Whether both acquisitions share one lease, as those of one owner may.
    pub(crate) fn shares_lease_with(&self, other: &Self) -> bool {
        let leases = self.lease().zip(other.lease());
        leases.is_some_and(|(one, other)| std::ptr::eq(one, other))
    }

    /// Whether it takes the lock for this owner.
    pub(crate) fn is_for(&self, owner: &Owner) -> bool {
        self.explicit_owner.as_ref() == Some(owner)
    }

    pub(crate) fn is_lease_over(&self) -> bool {
        self.lease().is_none_or(Lease::is_over)
    }

    /// Takes a grant for a hold, unless later news forbids it. `owners` has a lease of the same owner in this process.
    pub(crate) fn take(
        self: &Arc<Self>,
        now: Moment,
        granted: Granted,
        hold: &Arc<Hold>,
        owners: Option<&Arc<Self>>,
    ) -> Taken {
        // Under the lock of the inbox, so that either this check or the lease sees a revocation.
        let mut wait = lock(&self.inbox);
        if wait.is_shut_down() {
            return Taken::ShutDown;
        }
        if wait.is_revoked() {
            return Taken::Revoked;
        }
        let start = Start {
            sent_at: granted.sent_at,
            pushed: granted.pushed,
            renew: hold.request.renew,
            fence: granted.fence,
        };
        let Some(lease) = Self::lease_of(owners, now, granted.terms, start) else {
            return Taken::TooLate;
        };
        if self.is_over() || self.lease.set(lease).is_err() {
            return Taken::Abandoned;
        }
        if self.serve(now, hold, granted.fence) {
            wait.over();
            Taken::Held
        } else {
            self.let_go();
            Taken::Abandoned
        }
    }

    /// Gives the lease to this hold. Returns false if the hold was abandoned.
    pub(crate) fn serve(self: &Arc<Self>, now: Moment, hold: &Arc<Hold>, fence: u64) -> bool {
        let mut serves = lock(&self.serves);
        let begun = hold.begin(now, self, fence);
        if begun {
            self.cap.store(hold.cap().0, Ordering::SeqCst);
            serves.hold = Some(Arc::clone(hold));
        }
        begun
    }

    /// Local hand-over: the waiter has the lock before it runs.
    pub(crate) fn hand_to(self: &Arc<Self>, now: Moment, hold: &Arc<Hold>, fence: u64) -> bool {
        let begun = self.serve(now, hold, fence);
        self.handed.store(begun, Ordering::SeqCst);
        begun
    }

    /// A renewal is due. Returns the hold if its waiter has not run for two renewals; the waiter cannot take it any more.
    pub(crate) fn not_taken(&self) -> Option<Arc<Hold>> {
        // There may be thousands of leases, and few were handed over since their last renewal.
        if !self.handed.swap(false, Ordering::SeqCst) {
            return None;
        }
        let hold = self.hold()?;
        if hold.is_taken() {
            return None;
        }
        self.handed.store(true, Ordering::SeqCst);
        hold.is_overdue().then_some(hold)
    }

    /// When `max_hold` ends the guard's hold.
    pub(crate) fn cap(&self) -> Moment {
        Moment(self.cap.load(Ordering::SeqCst))
    }

    /// The hold has ended: stores the moment until which the lock must be kept for it.
    pub(crate) fn keep_as_asked(&self, hold: &Hold) {
        self.keep_until
            .store(hold.keep_until().0, Ordering::Relaxed);
    }

    /// The hold of the guard that has the lease, if any.
    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        lock(&self.serves).hold.clone()
    }

    /// Abandons the acquisition: no guard will have its lease any more.
    pub(crate) fn let_go(&self) {
        if !self.over.swap(true, Ordering::SeqCst)
            && let Some(lease) = self.lease()
        {
            let hold = self.hold();
            lease.leave(hold.is_some_and(|hold| hold.request.renew));
        }
        lock(&self.serves).hold = None;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// The terms of the last request.
    pub(crate) fn terms(&self) -> Terms {
        lock(&self.inbox).terms()
    }

    /// The status of the lease, or `Pending` before there is one.
    pub(crate) fn status(&self, now: Moment) -> Status {
        match self.lease() {
            _ if self.is_over() => Status::Released,
            Some(lease) => lease.status(now),
            None => Status::Pending,
        }
    }

    /// The lock was released by force. Returns true if it was held.
    pub(crate) fn revoke(&self) -> bool {
        let mut wait = lock(&self.inbox);
        if let Some(lease) = self.lease() {
            return lease.lose(LossReason::ForceReleased);
        }
        wait.revoked();
        drop(wait);
        self.wake();
        false
    }

    /// When a lost lock is released. The old holder learns of its loss first: after a release at once, the next holder would
    /// start while the tasks that await `lost()` have yet to run.
    pub(crate) fn clean_up_at(&self, now: Moment) -> Moment {
        let drift = self.terms().drift();
        let hold = self.hold().map(|hold| hold.status(now));
        match (self.status(now), hold) {
            // The server ends the lease by then, unless a renewal without an answer has prolonged it.
            (Status::Lost(LossReason::Expired), _) => {
                self.lease().map_or(now, |lease| lease.end() + drift)
            }
            (_, Some(Status::Lost(LossReason::MaxHold))) => {
                self.cap() + drift.min(Duration::from_secs(1))
            }
            // The lease was ended from outside already: by another holder, by force, or by a shutdown.
            _ => Moment(0),
        }
    }

    /// Number of reserved tokens to ask for, if `wanted` would be of use. A reentrant lock has one fencing token for a tenure, so
    /// a repeated request must ask for as many; an acquisition with an owner gives out none.
    pub(crate) fn reserve(&self, wanted: u64) -> u64 {
        match self.key.kind() {
            Kind::Exclusive => wanted,
            Kind::Reentrant if self.explicit_owner.is_some() => 0,
            Kind::Reentrant => {
                let wanted = u32::try_from(wanted).unwrap_or(UNASKED - 1);
                let relaxed = Ordering::Relaxed;
                let first = self
                    .reserve
                    .compare_exchange(UNASKED, wanted, relaxed, relaxed);
                u64::from(first.map_or_else(|asked| asked, |_| wanted))
            }
        }
    }

    /// One request for this acquisition, for a lease with `reserve` fencing tokens beside the first.
    pub(crate) fn attempt<'a>(&'a self, token: &'a Token, mode: Mode, reserve: u64) -> Attempt<'a> {
        self.asked.store(true, Ordering::Relaxed);
        let terms = self.terms();
        // A waiter counts as dead after three missed refreshes, but never so soon that a busy machine looks dead.
        let alive_for = (REFRESH.min(terms.third()) * 3).max(Duration::from_secs(5));
        Attempt {
            key: &self.key,
            token,
            ttl: terms.ttl(),
            mode,
            alive_for,
            owner: self.owner(),
            reserve,
        }
    }

    /// Counts a request without a clear answer.
    pub(crate) fn count_outstanding(&self) {
        let (relaxed, one_more) = (Ordering::Relaxed, |count: u8| count.checked_add(1));
        let _ = self.outstanding.fetch_update(relaxed, relaxed, one_more);
    }

    /// Whether any request had no clear answer.
    pub(crate) fn has_outstanding(&self) -> bool {
        self.outstanding.load(Ordering::Relaxed) > 0
    }

    /// Takes the number of requests without a clear answer; the caller watches them from now on.
    pub(crate) fn take_outstanding(&self) -> u8 {
        self.outstanding.swap(0, Ordering::Relaxed)
    }

    /// Whether the server may have anything of it.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// The owner that the server counts it for, if the owner spans several acquisitions.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.explicit_owner.as_ref().map(Owner::as_str)
    }

    /// Time for which the lock must still be kept although no client needs it, in whole milliseconds.
    pub(crate) fn keep_for(&self, now: Moment) -> Option<Duration> {
        let left = now.until(Moment(self.keep_until.load(Ordering::Relaxed)));
        let left = Duration::from_millis(left.as_millis() as u64);
        (!left.is_zero()).then_some(left)
    }

    /// Counts a guarded script that is about to be sent.
    pub(crate) fn script_sent(&self) -> OutstandingScript<'_> {
        self.scripts.fetch_add(1, Ordering::SeqCst);
        OutstandingScript(self)
    }

    /// Whether a guarded script may still run. The server tells guards apart by this token alone, so no other guard may have the
    /// token until then.
    pub(crate) fn may_run_scripts(&self) -> bool {
        self.scripts.load(Ordering::SeqCst) > 0
    }

    /// Applies news to the inbox, then wakes the first waiter.
    pub(crate) fn tell(&self, news: impl FnOnce(&mut Inbox)) {
        news(&mut lock(&self.inbox));
        self.wake();
    }

    /// Wakes the first waiter of the line.
    pub(crate) fn wake(&self) {
        if let Some(line) = self.line() {
            line.wake_first();
        }
    }
}
