//! An acquisition: one token, from before its first request until nothing of it is left on the server.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::hold::Hold;
use super::lease::{Joined, Lease, Start, Status};
use super::state::{Asker, Next, REFRESH, State, Swept};
use crate::base::claim::Claim;
use crate::base::error::LossReason;
use crate::base::key::LockKey;
use crate::base::owner::Owner;
use crate::base::place::Place;
use crate::base::sync::lock;
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::base::token::Token;
use crate::store::{Attempt, Mode};

/// Asks for a lock, and holds it. An acquisition serves one waiter, and wakes it. If the waiters of a process form a line, it asks
/// for the first of them, and holds the lock for them one after the other.
///
/// The engine registers it before the first request is sent, so that the engine can clean up whatever the request leaves.
#[derive(Debug)]
pub(crate) struct Acquisition {
    /// The number from which its token is made.
    pub(crate) sequence: u64,
    pub(crate) key: Arc<LockKey>,
    pub(crate) claim: Claim,
    lease: OnceLock<LeaseOf>,
    pub(super) life: Mutex<Life>,
}

/// The state of an acquisition, and the hold that it waits for or that has its lease, if any.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) state: State,
    hold: Option<Arc<Hold>>,
}

impl Life {
    fn serves(&self, hold: &Arc<Hold>) -> bool {
        self.hold
            .as_ref()
            .is_some_and(|served| Arc::ptr_eq(served, hold))
    }
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
    /// Notes that the server has answered: the script has run, or never will.
    pub(crate) fn answered(self) {
        lock(&self.0.life).state.script_answered();
    }
}

impl Acquisition {
    pub(super) fn new(sequence: u64, key: Arc<LockKey>, terms: Terms, claim: Claim) -> Self {
        Self {
            sequence,
            key,
            claim,
            lease: OnceLock::new(),
            life: Mutex::new(Life {
                state: State::new(terms),
                hold: None,
            }),
        }
    }

    /// The lease, once a grant was taken.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match self.lease.get()? {
            LeaseOf::Itself(lease) => Some(lease),
            LeaseOf::Other(first) => first.lease(),
        }
    }

    /// Whether it has the lock, and no waiter of another process is known.
    pub(super) fn is_alone(&self) -> bool {
        self.lease().is_some() && !lock(&self.life).state.is_contended()
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
        self.claim.owner.as_ref() == Some(owner)
    }

    pub(crate) fn is_lease_over(&self) -> bool {
        self.lease().is_none_or(Lease::is_over)
    }

    /// Serves this hold from now on: its waiter is woken, and reads the answers.
    pub(super) fn serve(&self, hold: &Arc<Hold>) {
        lock(&self.life).hold = Some(Arc::clone(hold));
    }

    /// Wakes the waiter.
    pub(super) fn wake(&self) {
        if let Some(hold) = &lock(&self.life).hold {
            hold.wake_cell.wake();
        }
    }

    /// Ends the wait, because the manager acquires nothing any more. Returns whether the acquisition waited. A request under way may
    /// still take effect.
    pub(super) fn shut_down(&self) -> bool {
        self.wake();
        let mut life = lock(&self.life);
        let waits = life.state.is_waiting();
        if waits {
            life.state.stalled();
            self.end(&mut life);
        }
        waits
    }

    /// The next step of the waiter with this hold, which runs. Takes a grant in one step, so that either the state or the lease sees a
    /// revocation. `owners` has a lease of the same owner in this process.
    pub(super) fn polled(
        self: &Arc<Self>,
        now: Moment,
        hold: &Arc<Hold>,
        owners: Option<&Arc<Self>>,
    ) -> Next {
        let mut life = lock(&self.life);
        let next = life.state.next(now, hold.request.terms);
        let Next::Take(granted) = next else {
            return next;
        };
        let start = Start {
            sent_at: granted.sent_at,
            pushed: granted.pushed,
            renew: hold.request.renew,
            fence: granted.fence,
        };
        let Some(lease) = Self::lease_of(owners, now, granted.terms, start) else {
            return Next::TooLate;
        };
        if self.lease.set(lease).is_ok() && hold.begin(now, self, granted.fence) {
            life.state.taken(hold.cap());
            life.hold = Some(Arc::clone(hold));
            next
        } else {
            self.end(&mut life);
            Next::Over
        }
    }

    /// Notes that this waiter's request has ended, or that it makes none. A waiter that was passed over must not end the request of
    /// the next waiter.
    pub(super) fn asked_for(&self, hold: &Arc<Hold>) {
        let mut life = lock(&self.life);
        if life.serves(hold) {
            life.state.asked(Asker::Waiter);
        }
    }

    /// Has one more request find out whether the lock is free, because the limit of the waiter with this hold has ended.
    pub(super) fn ask_once_more(&self, hold: &Arc<Hold>) {
        let mut life = lock(&self.life);
        if life.serves(hold) {
            life.state.ask_once_more();
        }
    }

    /// The caller that does not run, if any.
    pub(super) fn stalled_caller(&self, now: Moment, limit: Duration) -> Option<Asker> {
        let life = lock(&self.life);
        let unheeding = || {
            let hold = life.hold.as_ref();
            hold.is_some_and(|hold| hold.wake_cell.is_stalled())
        };
        life.state.stalled_caller(now, limit, unheeding)
    }

    /// Hands the lock over locally: the waiter has it before it runs. Returns false if the waiter has left.
    pub(super) fn hand_to(self: &Arc<Self>, now: Moment, hold: &Arc<Hold>, fence: u64) -> bool {
        let mut life = lock(&self.life);
        let begun = hold.begin(now, self, fence);
        if begun {
            life.state.handed_over(hold.cap());
            life.hold = Some(Arc::clone(hold));
        }
        begun
    }

    /// Called when a renewal is due. Returns whether the lease's caller has not run since the last one: a waiter to which the lease was
    /// handed, or a call for several locks, which is woken now.
    pub(super) fn is_untaken(&self) -> bool {
        let mut life = lock(&self.life);
        if let Some(lease) = self.lease()
            && lease.users() == 1
            && life.hold.as_ref().is_some_and(|hold| hold.awaits_call())
        {
            lease.announce();
            return true;
        }
        // There may be thousands of leases, and few were handed over since their last renewal.
        if !life.state.is_handed() {
            return false;
        }
        let untaken = life.hold.as_ref().is_some_and(|hold| !hold.is_taken());
        if !untaken {
            life.state.seen();
        }
        untaken
    }

    /// Abandons the acquisition: no guard will have its lease any more.
    pub(super) fn let_go(&self) {
        self.end(&mut lock(&self.life));
    }

    fn end(&self, life: &mut Life) {
        let hold = life.hold.take();
        let keep_until = hold.as_ref().map_or(Moment(0), |hold| hold.keep_until());
        if life.state.let_go(keep_until)
            && let Some(lease) = self.lease()
        {
            lease.leave(hold.is_some_and(|hold| hold.request.renew));
        }
    }

    /// The call whose guard has the lease now, if the caller has taken the guard.
    pub(super) fn held_at(&self) -> Option<Place> {
        let life = lock(&self.life);
        let hold = life.hold.as_ref().filter(|hold| hold.is_taken())?;
        Some(hold.request.place)
    }

    /// The hold that has the lease now.
    pub(super) fn hold(&self) -> Option<Arc<Hold>> {
        lock(&self.life).hold.clone()
    }

    pub(super) fn is_over(&self) -> bool {
        lock(&self.life).state.is_over()
    }

    /// The status of the lease, or `Pending` before there is one.
    pub(super) fn status(&self, now: Moment) -> Status {
        match self.lease() {
            _ if self.is_over() => Status::Released,
            Some(lease) => lease.status(now),
            None => Status::Pending,
        }
    }

    /// The finding of a sweep of the leases. A lost lock is released only after its holder has learned of the loss. If it were released
    /// at once, the next holder would start before the tasks that await `lost()` run.
    pub(super) fn swept(&self, now: Moment) -> Swept {
        let Some(lease) = self.lease() else {
            return Swept::Nothing;
        };
        let mut life = lock(&self.life);
        if life.state.is_over() {
            return life.state.found_unreleased();
        }
        if life.state.is_cleaned_up_by_task() {
            return Swept::Nothing;
        }
        let (cap, status) = (life.state.cap(), lease.status(now));
        if status == Status::Held && now < cap {
            // There may be thousands of leases: a hold is checked only after its cap.
            return Swept::Held { cap };
        }
        // The loss is reported now, also if no task looks at the guard.
        let hold = life.hold.as_ref().map(|hold| hold.status(now));
        let clean_up_at = match (status, hold) {
            // The server ends the lease by then, unless a renewal without an answer has prolonged it.
            (Status::Lost(LossReason::Expired), _) => lease.end() + lease.terms().drift(),
            (Status::Held, Some(Status::Lost(LossReason::MaxHold))) => {
                cap + lease.terms().drift().min(Duration::from_secs(1))
            }
            (Status::Held, Some(Status::Held | Status::Pending | Status::Released) | None) => {
                return Swept::Held { cap };
            }
            // The lease was ended from outside: by another holder, by force, or by a shutdown.
            _ => Moment(0),
        };
        Swept::Lost { clean_up_at }
    }

    /// A request for a lease on these terms, with `reserve` fencing tokens beside the first.
    pub(super) fn attempt<'a>(
        &'a self,
        token: &'a Token,
        mode: Mode,
        terms: Terms,
        reserve: u64,
    ) -> Attempt<'a> {
        // A waiter counts as dead after three missed refreshes, but never so soon that a busy machine looks dead.
        let alive_for = (REFRESH.min(terms.third()) * 3).max(Duration::from_secs(5));
        Attempt {
            key: &self.key,
            token,
            ttl: terms.ttl(),
            mode,
            alive_for,
            claim: &self.claim,
            reserve,
        }
    }

    /// The number of the hold that has the lease, as the server must know it. 0 if other holds may have the same lease.
    pub(super) fn number(&self) -> u64 {
        let hold = lock(&self.life).hold.clone();
        // A line passes its lease on, with other numbers.
        let is_alone = !self.key.traits().forms_line;
        hold.filter(|_| is_alone)
            .map_or(0, |hold| hold.fencing_token().get())
    }

    /// Counts a guarded script that is about to be sent.
    pub(crate) fn script_sent(&self) -> OutstandingScript<'_> {
        lock(&self.life).state.script_sent();
        OutstandingScript(self)
    }
}
