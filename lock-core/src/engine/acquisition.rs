//! An acquisition: one token, from before its first request until nothing of it is left on the server.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::hold::Hold;
use super::inbox::Granted;
use super::lease::{Joined, Lease, Start};
use super::phase::Status;
use super::state::{NotAdmitted, State, Swept};
use crate::base::error::LossReason;
use crate::base::key::LockKey;
use crate::base::owner::Owner;
use crate::base::place::Place;
use crate::base::sync::{Locked, lock};
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::base::token::Token;
use crate::store::{Attempt, Mode};

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
    life: Mutex<Life>,
}

/// The state of an acquisition, and the hold of the guard that has the lease, if any.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) state: State,
    hold: Option<Arc<Hold>>,
}

/// The lease of an acquisition.
#[derive(Debug)]
enum LeaseOf {
    Itself(Lease),
    /// The lease of an earlier acquisition of the same owner.
    Other(Arc<Acquisition>),
}

/// A guarded script without an answer. It counts for as long as the token lives, unless it is answered: a call whose future
/// was dropped or whose connection broke may reach the server at any time.
#[must_use = "the script may still run"]
pub(crate) struct OutstandingScript<'a>(&'a Acquisition);

impl OutstandingScript<'_> {
    /// The server has answered: the script has run, or never will.
    pub(crate) fn answered(self) {
        self.0.life().state.script_answered();
    }
}

impl Acquisition {
    pub(super) fn new(
        sequence: u64,
        key: Arc<LockKey>,
        terms: Terms,
        explicit_owner: Option<Owner>,
    ) -> Self {
        Self {
            sequence,
            key,
            explicit_owner,
            lease: OnceLock::new(),
            life: Mutex::new(Life {
                state: State::new(terms),
                hold: None,
            }),
        }
    }

    pub(super) fn life(&self) -> Locked<'_, Life> {
        lock(&self.life)
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
        // In one step, so that either this check or the lease sees a revocation.
        let mut life = self.life();
        match life.state.admit(granted.sent_at) {
            Ok(()) => {}
            Err(NotAdmitted::ShutDown) => return Taken::ShutDown,
            Err(NotAdmitted::Revoked) => return Taken::Revoked,
            Err(NotAdmitted::Over) => return Taken::Abandoned,
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
        if self.lease.set(lease).is_err() {
            return Taken::Abandoned;
        }
        if hold.begin(now, self, granted.fence) {
            life.state.taken(hold.cap());
            life.hold = Some(Arc::clone(hold));
            Taken::Held
        } else {
            self.end(&mut life);
            Taken::Abandoned
        }
    }

    /// Local hand-over: the waiter has the lock before it runs. Returns false if it has left.
    pub(super) fn hand_to(self: &Arc<Self>, now: Moment, hold: &Arc<Hold>, fence: u64) -> bool {
        let mut life = self.life();
        let begun = hold.begin(now, self, fence);
        if begun {
            life.state.handed_over(hold.cap());
            life.hold = Some(Arc::clone(hold));
        }
        begun
    }

    /// A renewal is due. Returns the hold if its waiter has not run for two renewals; the waiter cannot take it any more.
    pub(super) fn not_taken(&self) -> Option<Arc<Hold>> {
        let mut life = self.life();
        // There may be thousands of leases, and few were handed over since their last renewal.
        if !life.state.is_handed() {
            return None;
        }
        let hold = life.hold.clone()?;
        if hold.is_taken() {
            life.state.seen();
            return None;
        }
        hold.is_overdue().then_some(hold)
    }

    /// The hold has ended. Returns whether the next guard of this process may have the lease.
    pub(super) fn ended(&self, hold: &Hold, now: Moment) -> bool {
        let mut life = self.life();
        life.state.keep_until(hold.keep_until());
        life.state.may_be_handed_over(now)
    }

    /// The lock was taken from its guard, which is told, and is kept for as long as was asked.
    pub(super) fn keep_as_asked(&self, now: Moment) {
        let mut life = self.life();
        if let Some(hold) = life.hold.clone() {
            hold.status(now);
            life.state.keep_until(hold.keep_until());
        }
    }

    /// Abandons the acquisition: no guard will have its lease any more.
    pub(super) fn let_go(&self) {
        self.end(&mut self.life());
    }

    fn end(&self, life: &mut Life) {
        let hold = life.hold.take();
        if life.state.let_go()
            && let Some(lease) = self.lease()
        {
            lease.leave(hold.is_some_and(|hold| hold.request.renew));
        }
    }

    /// The call to which the guard belongs that has the lease now, if its caller has taken it.
    pub(super) fn held_at(&self) -> Option<Place> {
        let life = self.life();
        let hold = life.hold.as_ref().filter(|hold| hold.is_taken())?;
        Some(hold.request.place)
    }

    /// The hold that has the lease now.
    pub(super) fn hold(&self) -> Option<Arc<Hold>> {
        self.life().hold.clone()
    }

    pub(super) fn is_over(&self) -> bool {
        self.life().state.is_over()
    }

    /// The terms of the last request.
    pub(crate) fn terms(&self) -> Terms {
        self.life().state.terms()
    }

    /// The status of the lease, or `Pending` before there is one.
    pub(super) fn status(&self, now: Moment) -> Status {
        match self.lease() {
            _ if self.is_over() => Status::Released,
            Some(lease) => lease.status(now),
            None => Status::Pending,
        }
    }

    /// The finding of a sweep of the leases. A lost lock is released after its holder has learned of the loss: after a release at
    /// once, the next holder would start while the tasks that await `lost()` have yet to run.
    pub(super) fn swept(&self, now: Moment) -> Swept {
        let Some(lease) = self.lease() else {
            return Swept::Nothing;
        };
        let mut life = self.life();
        if life.state.is_over() {
            return life.state.found_unreleased();
        }
        let cap = life.state.cap();
        let drift = life.state.terms().drift();
        let status = lease.status(now);
        if matches!(status, Status::Lost(_))
            && let Some(hold) = &life.hold
        {
            // The loss is reported now, also if no task looks at the guard.
            hold.status(now);
        }
        let clean_up_at = match status {
            // The server ends the lease by then, unless a renewal without an answer has prolonged it.
            Status::Lost(LossReason::Expired) => lease.end() + drift,
            // The lease was ended from outside: by another holder, by force, or by a shutdown.
            Status::Lost(_) => Moment(0),
            // There may be thousands of leases: a hold is checked only after its cap.
            Status::Held if now < cap => return Swept::Held { cap },
            _ => match life.hold.as_ref().map(|hold| hold.status(now)) {
                Some(Status::Lost(LossReason::MaxHold)) => cap + drift.min(Duration::from_secs(1)),
                Some(Status::Lost(_)) => Moment(0),
                _ => return Swept::Held { cap },
            },
        };
        if life.state.is_cleaned_up_by_task() {
            return Swept::Nothing;
        }
        Swept::Lost { clean_up_at }
    }

    /// Number of reserved tokens to ask for, if `wanted` would be of use. An owner has one fencing token for its tenure.
    pub(crate) fn reserve(&self, wanted: u64) -> u64 {
        if self.key.traits().hands_over {
            wanted
        } else {
            0
        }
    }

    /// One request for this acquisition, for a lease with `reserve` fencing tokens beside the first.
    pub(crate) fn attempt<'a>(&'a self, token: &'a Token, mode: Mode, reserve: u64) -> Attempt<'a> {
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

    /// The owner that the server counts it for, if the owner spans several acquisitions.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.explicit_owner.as_ref().map(Owner::as_str)
    }

    /// Counts a guarded script that is about to be sent.
    pub(crate) fn script_sent(&self) -> OutstandingScript<'_> {
        self.life().state.script_sent();
        OutstandingScript(self)
    }
}
