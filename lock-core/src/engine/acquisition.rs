//! One token on the server, from before its first request until its last trace is gone.

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

/// Asks for a lock at least this often while waiting for it.
pub(super) const REFRESH: Duration = Duration::from_secs(3);

/// What became of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Held,
    /// It came later than its lease lasts.
    TooLate,
    Revoked,
    ShutDown,
    /// Whoever waited for it has left.
    Abandoned,
}

/// Asks for a lock on behalf of those in this process who wait for it, and holds it for them one after the other.
///
/// Registered with the engine before the first request is sent, so that whatever the request leaves on the
/// server has somebody to clean it up.
#[derive(Debug)]
pub(crate) struct Acquisition {
    /// What its token is made of.
    pub(crate) sequence: u64,
    pub(crate) key: Arc<LockKey>,
    /// Who takes the lock, where that is more than one acquisition.
    pub(crate) explicit_owner: Option<Owner>,
    lease: OnceLock<LeaseOf>,
    pub(crate) inbox: Mutex<Inbox>,
    serves: Mutex<Serves>,
    /// End of what the user allows the guard: `max_hold`.
    cap: AtomicU64,
    keep_until: AtomicU64,
    /// How many fencing tokens the first request asked for, where each must ask for as many.
    reserve: AtomicU32,
    /// A request was made, which may be on its way.
    asked: AtomicBool,
    /// Requests that had no clear answer: they may still take effect. No more are counted than fit: it matters whether there
    /// are none, one, or more.
    unanswered: AtomicU8,
    /// Guarded scripts that were sent with this token and had no answer: they may still run.
    scripts: AtomicU32,
    /// Another process is known to wait for what was granted. A message may say so right behind the grant, and so
    /// before anybody has taken that.
    pub(crate) contended: AtomicBool,
    /// Nobody here wants it any more: whatever an answer brings is given back.
    over: AtomicBool,
    /// Somebody is already releasing what it left on the server.
    pub(crate) undoing: AtomicBool,
    /// It was handed to a caller that may not have run since.
    handed: AtomicBool,
    /// Its guard had ended, and the caller had not released it, when the engine last looked at the leases.
    pub(crate) unreleased: AtomicBool,
    /// A refresh that was answered late has released, too: the holder's own release may come second and find nothing.
    pub(crate) released_by_refresh: AtomicBool,
}

/// For whom it asks and has the lock.
#[derive(Debug)]
struct Serves {
    line: Weak<Line>,
    /// The guard's part, while a guard has the lease.
    hold: Option<Arc<Hold>>,
}

/// The lease of an acquisition.
#[derive(Debug)]
enum LeaseOf {
    Itself(Lease),
    /// That of another acquisition, which came first: both are of one owner.
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

/// What an acquisition is made for.
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
            unanswered: AtomicU8::new(0),
            scripts: AtomicU32::new(0),
            contended: AtomicBool::new(false),
            over: AtomicBool::new(false),
            undoing: AtomicBool::new(false),
            handed: AtomicBool::new(false),
            unreleased: AtomicBool::new(false),
            released_by_refresh: AtomicBool::new(false),
        }
    }

    /// The lease, once there was a grant that somebody took.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match self.lease.get()? {
            LeaseOf::Itself(lease) => Some(lease),
            LeaseOf::Other(first) => first.lease(),
        }
    }

    /// Another user of the lease that `first` has, or else a lease of its own. `None` where the grant is over.
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
                // Not a chain: whose lease it is goes as soon as nobody shares it any more.
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

    /// It has the lock for this line from now on, or for none.
    pub(crate) fn stands_for(&self, line: Weak<Line>) {
        lock(&self.serves).line = line;
    }

    /// The same owner may have a lease several times over.
    pub(crate) fn shares_lease_with(&self, other: &Self) -> bool {
        let leases = self.lease().zip(other.lease());
        leases.is_some_and(|(one, other)| std::ptr::eq(one, other))
    }

    /// Whether this owner takes the lock with it.
    pub(crate) fn is_for(&self, owner: &Owner) -> bool {
        self.explicit_owner.as_ref() == Some(owner)
    }

    pub(crate) fn is_lease_over(&self) -> bool {
        self.lease().is_none_or(Lease::is_over)
    }

    /// Takes a grant for a hold, unless something that was said since forbids it. `owners` has a lease of the same owner
    /// in this process.
    pub(crate) fn take(
        self: &Arc<Self>,
        now: Moment,
        granted: Granted,
        hold: &Arc<Hold>,
        owners: Option<&Arc<Self>>,
    ) -> Taken {
        // Under the lock, so that a revocation is seen either here or by the lease.
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

    /// The lease is this hold's from now on. False if nobody wants it any more.
    pub(crate) fn serve(self: &Arc<Self>, now: Moment, hold: &Arc<Hold>, fence: u64) -> bool {
        let mut serves = lock(&self.serves);
        let begun = hold.begin(now, self, fence);
        if begun {
            self.cap.store(hold.cap().0, Ordering::SeqCst);
            serves.hold = Some(Arc::clone(hold));
        }
        begun
    }

    /// Handed over inside the process: the caller has the lock before it runs.
    pub(crate) fn hand_to(self: &Arc<Self>, now: Moment, hold: &Arc<Hold>, fence: u64) -> bool {
        let begun = self.serve(now, hold, fence);
        self.handed.store(begun, Ordering::SeqCst);
        begun
    }

    /// A renewal is due. The hold, where its caller has not run for two renewals: it cannot be taken any more.
    pub(crate) fn not_taken(&self) -> Option<Arc<Hold>> {
        // There may be thousands of leases: few were handed over since their last renewal.
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

    /// When `max_hold` ends the guard's part.
    pub(crate) fn cap(&self) -> Moment {
        Moment(self.cap.load(Ordering::SeqCst))
    }

    /// The hold has ended. Until when the lock has to be kept for it is remembered.
    pub(crate) fn keep_as_asked(&self, hold: &Hold) {
        self.keep_until
            .store(hold.keep_until().0, Ordering::Relaxed);
    }

    /// The guard's part, while a guard has the lease.
    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        lock(&self.serves).hold.clone()
    }

    /// No guard will have this lease any more.
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

    /// The status of the lease; Pending before there is one.
    pub(crate) fn status(&self, now: Moment) -> Status {
        match self.lease() {
            _ if self.is_over() => Status::Released,
            Some(lease) => lease.status(now),
            None => Status::Pending,
        }
    }

    /// The lock was taken away by force. True if it was held.
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

    /// When a lock that was lost is given back. The old holder has time to hear of its loss first: a release at once would
    /// let the next one in while the tasks that await `lost()` have yet to run.
    pub(crate) fn clean_up_at(&self, now: Moment) -> Moment {
        let drift = self.terms().drift();
        let hold = self.hold().map(|hold| hold.status(now));
        match (self.status(now), hold) {
            // The server ends it by then, if a renewal without an answer has not prolonged it.
            (Status::Lost(LossReason::Expired), _) => {
                self.lease().map_or(now, |lease| lease.end() + drift)
            }
            (_, Some(Status::Lost(LossReason::MaxHold))) => {
                self.cap() + drift.min(Duration::from_secs(1))
            }
            // Somebody else has ended it already.
            _ => Moment(0),
        }
    }

    /// How many reserved tokens to ask for, where `wanted` would be of use. A reentrant lock has one fencing token for a tenure,
    /// so a request that is repeated must ask for as many; and an owner gives out none.
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
        // Three missed refreshes and a waiter counts as dead, but never so soon that a busy machine looks dead.
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

    /// A request had no clear answer.
    pub(crate) fn request_unanswered(&self) {
        let (relaxed, one_more) = (Ordering::Relaxed, |count: u8| count.checked_add(1));
        let _ = self.unanswered.fetch_update(relaxed, relaxed, one_more);
    }

    /// Whether requests had no clear answer.
    pub(crate) fn has_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    /// How many requests had no clear answer, to be watched by the caller from now on.
    pub(crate) fn take_unanswered(&self) -> u8 {
        self.unanswered.swap(0, Ordering::Relaxed)
    }

    /// Whether anything of it may be on the server.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whom the server counts it for, where that is more than one acquisition.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.explicit_owner.as_ref().map(Owner::as_str)
    }

    /// For how long the lock has still to be kept, though nobody needs it any more. In whole milliseconds.
    pub(crate) fn keep_for(&self, now: Moment) -> Option<Duration> {
        let left = now.until(Moment(self.keep_until.load(Ordering::Relaxed)));
        let left = Duration::from_millis(left.as_millis() as u64);
        (!left.is_zero()).then_some(left)
    }

    /// A guarded script is about to be sent.
    pub(crate) fn script_sent(&self) -> OutstandingScript<'_> {
        self.scripts.fetch_add(1, Ordering::SeqCst);
        OutstandingScript(self)
    }

    /// Whether a guarded script may still run. The server tells guards apart by this token alone, so no other guard may
    /// have it then.
    pub(crate) fn may_run_scripts(&self) -> bool {
        self.scripts.load(Ordering::SeqCst) > 0
    }

    /// News: applies it, then wakes whoever waits for it.
    pub(crate) fn tell(&self, news: impl FnOnce(&mut Inbox)) {
        news(&mut lock(&self.inbox));
        self.wake();
    }

    /// Wakes the waiter that is first in the line.
    pub(crate) fn wake(&self) {
        if let Some(line) = self.line() {
            line.wake_first();
        }
    }
}
