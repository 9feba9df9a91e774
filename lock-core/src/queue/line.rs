//! Who waits for one lock in this process, who asks for it on the server, and who has it.
//!
//! ```text
//!              first in line asks               granted
//!   waiting ----------------------> contender ----------> holder ---+
//!      ^                                ^                   |       | handed on, no command
//!      |                                +-------------------+ <-----+
//!    joins                          lets go and asks again, one command
//! ```
//! However many wait here, the server sees one contender of this process. Its place in the server's queue belongs to
//! the line: a waiter that leaves takes nothing with it unless it was the last.
//!
//! No I/O in here: the callers ask, answer and wake.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Moment;
use crate::key::{Kind, LockKey};
use crate::owner::Owner;
use crate::session::{Contender, Granted, Hold, Lease, Next, Status, Taken};
use crate::store::{StoreError, Subscription};
use crate::sync::lock;

/// Fencing tokens that a line asks for at once: few where one waits, more where many do, and twice as many each time they
/// ran out; but not more than microseconds have passed. The server's clock in microseconds is the floor under its counter, and
/// a counter that runs ahead of it has none.
const SPARE_FOR_ONE: u64 = 7;
const SPARE_FOR_MANY: u64 = 63;
const SPARE_AT_MOST: u64 = 1023;

/// How long the line keeps a lock to itself while another process waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) row: u32,
    pub(crate) time: Duration,
    /// Nobody would tell us that another process waits.
    pub(crate) always: bool,
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) key: Arc<LockKey>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The callers that wait, the oldest first.
    waiting: VecDeque<Arc<Hold>>,
    seeker: Option<Seeker>,
    holder: Option<Arc<Contender>>,
    /// Guards in a row that had the holder's lease, and since when.
    row: u32,
    row_since: Option<Moment>,
    /// Another process waits for the lock that we hold.
    contended: bool,
    /// Fencing tokens that the holder may still give out.
    spare: Range<u64>,
    /// How many were asked for the last time.
    asked_for: u64,
    /// When to ask on behalf of the seeker.
    check_at: Option<Moment>,
    subscription: Option<Subscription>,
    shut_down: bool,
}

/// The contender that asks for the first in line.
#[derive(Debug)]
struct Seeker {
    contender: Arc<Contender>,
    asking: Asking,
}

/// Who waits for the answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    Nobody,
    /// The first in line, itself.
    First,
    /// The release of the holder before.
    Release,
}

/// What a caller in line does next.
#[derive(Debug)]
pub(crate) enum Step {
    /// It holds the lock.
    Held {
        /// Nobody else needs the line for now.
        alone: bool,
    },
    Wait,
    /// Nobody asks: it makes a contender and asks.
    Lead,
    Ask {
        contender: Arc<Contender>,
        spare: u64,
    },
    /// Its owner has the lock by now, through somebody else here: it needs no place in line.
    Enter,
    /// A grant came later than its lease lasts.
    TooLate(Arc<Contender>),
    ShutDown,
}

impl Line {
    pub(crate) fn new(key: Arc<LockKey>) -> Arc<Self> {
        Arc::new(Self {
            key,
            state: Mutex::default(),
        })
    }

    /// A line behind a contender that had the lock for itself.
    pub(crate) fn behind(key: Arc<LockKey>, holder: &Arc<Contender>) -> Arc<Self> {
        let line = Self::new(key);
        holder.stands_for(Arc::downgrade(&line));
        let mut state = lock(&line.state);
        // After the line is known to the holder: whoever says so from now on says it to the line.
        state.contended = holder.contended.load(Ordering::SeqCst);
        state.holder = Some(Arc::clone(holder));
        state.row = 1;
        drop(state);
        line
    }

    /// The contender that has the lock, if nobody else needs this line for now.
    pub(crate) fn lone_holder(&self) -> Option<Arc<Contender>> {
        let state = lock(&self.state);
        let alone = state.waiting.is_empty() && state.seeker.is_none() && state.spare.is_empty();
        state.holder.clone().filter(|_| alone)
    }

    pub(crate) fn join(&self, hold: Arc<Hold>) {
        lock(&self.state).waiting.push_back(hold);
    }

    /// What the caller with this hold does next.
    pub(crate) fn step(
        &self,
        hold: &Arc<Hold>,
        now: impl FnOnce() -> Moment,
        limits: Limits,
    ) -> Step {
        let mut state = lock(&self.state);
        match hold.phase() {
            Status::Pending if state.shut_down => Step::ShutDown,
            Status::Pending if state.is_of_holder(hold) => Step::Enter,
            Status::Pending if state.is_first(hold) => state.step(hold, now, limits),
            Status::Pending => Step::Wait,
            // What was handed over here may be again.
            _ => Step::Held { alone: false },
        }
    }

    /// The first in line has made a contender. False if somebody else leads by now.
    pub(crate) fn lead(&self, hold: &Arc<Hold>, contender: &Arc<Contender>) -> bool {
        let mut state = lock(&self.state);
        let leads = state.is_first(hold) && state.seeker.is_none() && state.holder.is_none();
        if leads {
            state.seeker = Some(Seeker {
                contender: Arc::clone(contender),
                asking: Asking::Nobody,
            });
        }
        leads
    }

    /// The request of this contender was answered, or came to nothing.
    pub(crate) fn answered(&self, contender: &Arc<Contender>) {
        if let Some(seeker) = lock(&self.state).seeker_of(contender) {
            seeker.asking = Asking::Nobody;
        }
    }

    /// A caller leaves. Returns the contender if nobody needs it any more.
    pub(crate) fn leave(&self, hold: &Arc<Hold>) -> Option<Arc<Contender>> {
        let mut state = lock(&self.state);
        let position = state.waiting.iter().position(|w| Arc::ptr_eq(w, hold))?;
        state.waiting.remove(position);
        if position > 0 {
            return None;
        }
        let Some(next) = state.waiting.front() else {
            state.subscription = None;
            return state.seeker.take().map(|seeker| seeker.contender);
        };
        // What asks for an owner asks for nobody else, and nothing else asks for an owner.
        let next_owned = next.request.owner.is_some();
        let owned = |seeker: &mut Seeker| next_owned || seeker.contender.explicit_owner.is_some();
        let left = state.seeker.take_if(owned).map(|seeker| seeker.contender);
        if let Some(seeker) = &mut state.seeker
            && seeker.asking == Asking::First
        {
            seeker.asking = Asking::Nobody;
            lock(&seeker.contender.wait).interrupted();
        }
        state.wake_first();
        left
    }

    /// A lock was granted to somebody who did not stand in line. In one step: two that enter for one owner at the same
    /// moment share a lease.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        contender: &Arc<Contender>,
        granted: Granted,
        hold: &Arc<Hold>,
        now: Moment,
    ) -> Taken {
        let mut state = lock(&self.state);
        let owner = contender.explicit_owner.as_ref();
        let owners = owner.and_then(|owner| state.lease_of(owner));
        let taken = contender.take(now, granted, hold, owners.as_ref());
        if taken == Taken::Held {
            contender.stands_for(Arc::downgrade(self));
            // An owner that enters again has the lease already.
            if !state.is_held_by(contender) {
                state.hold_by(Arc::clone(contender), now, None);
            }
        }
        taken
    }

    /// Gives the lease of a guard that has ended to the next in line, without any command. `None` where the server has to
    /// be asked.
    pub(crate) fn hand_over(
        &self,
        ended: &Arc<Hold>,
        now: Moment,
        limits: Limits,
    ) -> Option<Arc<Hold>> {
        let contender = ended.contender()?;
        let mut state = lock(&self.state);
        if state.shut_down || contender.explicit_owner.is_some() || !state.is_held_by(contender) {
            return None;
        }
        let lease = contender.lease()?;
        let terms = lease.terms();
        let fresh = lease.status(now) == Status::Held && now + terms.third() < lease.end();
        let our_turn = !(state.contended || limits.always)
            || (state.row < limits.row && state.row_lasted(now) < limits.time);
        if !(fresh && our_turn && ended.request.renew) {
            return None;
        }
        while let Some(next) = state.waiting.front() {
            let request = &next.request;
            if !terms.serve(request.terms) || !request.renew || request.owner.is_some() {
                return None;
            }
            let fence = state.spare.next()?;
            let next = state.waiting.pop_front()?;
            if contender.serve(now, &next, fence) {
                state.row += 1;
                if state.waiting.is_empty() {
                    state.subscription = None;
                }
                next.woken.notify_one();
                return Some(next);
            }
        }
        None
    }

    /// The waiter for whom a holder that lets go should ask again in the same command.
    pub(crate) fn next_after(&self, contender: &Arc<Contender>) -> Option<Arc<Hold>> {
        let state = lock(&self.state);
        let next = state.waiting.front()?;
        let ours = state.is_held_by(contender)
            && state.seeker.is_none()
            && !state.shut_down
            && self.key.kind() == Kind::Exclusive;
        ours.then(|| Arc::clone(next))
    }

    /// Puts a new contender in the place of the holder, which lets go and asks for it in one command. Returns the spare
    /// tokens to ask for; `None` if the line has changed since.
    pub(crate) fn replace(
        &self,
        holder: &Arc<Contender>,
        contender: &Arc<Contender>,
        next: &Arc<Hold>,
        now: Moment,
        limits: Limits,
    ) -> Option<u64> {
        let mut state = lock(&self.state);
        if !state.is_held_by(holder) || state.seeker.is_some() || !state.is_first(next) {
            return None;
        }
        let spare = state.spare_wanted(limits, Some(now));
        lock(&contender.wait).asking(next.request.terms);
        state.holder = None;
        state.seeker = Some(Seeker {
            contender: Arc::clone(contender),
            asking: Asking::Release,
        });
        Some(spare)
    }

    /// The contender has neither the lock nor a place any more. Whoever is first in line asks anew.
    pub(crate) fn gone(&self, contender: &Arc<Contender>) {
        let mut state = lock(&self.state);
        // Guards of the same owner may still have the lease.
        let held = state.is_held_by(contender) && contender.is_lease_over();
        if held {
            state.holder = None;
        }
        let sought = state.seeker_of(contender).is_some();
        if sought {
            state.seeker = None;
        }
        if held || sought {
            state.wake_first();
        }
    }

    /// Another process waits for the lock that this contender holds.
    pub(crate) fn contended(&self, contender: &Arc<Contender>, now: Moment) {
        let mut state = lock(&self.state);
        if state.is_held_by(contender) && !state.contended {
            state.contended = true;
            // The row counts from when somebody else began to wait.
            state.row = 1;
            state.row_since = Some(now);
        }
    }

    pub(crate) fn wake_first(&self) {
        lock(&self.state).wake_first();
    }

    /// Whether the first in line has been kept waiting by a server that does not answer.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        let state = lock(&self.state);
        let seeker = state.seeker.as_ref()?;
        lock(&seeker.contender.wait).trouble()
    }

    /// The error that makes waiting on pointless for the caller that is first in line.
    pub(crate) fn hopeless(
        &self,
        hold: &Arc<Hold>,
        now: impl FnOnce() -> Moment,
        patience: Option<Duration>,
    ) -> Option<StoreError> {
        let state = lock(&self.state);
        let seeker = state.seeker.as_ref().filter(|_| state.is_first(hold))?;
        lock(&seeker.contender.wait).hopeless(now(), patience)
    }

    /// Asks for the seeker at `moment` at the latest. True if that is earlier than before.
    pub(crate) fn check_at(&self, moment: Moment) -> bool {
        let mut state = lock(&self.state);
        let earlier = state.check_at.is_none_or(|known| moment < known);
        if earlier {
            state.check_at = Some(moment);
        }
        earlier
    }

    /// The contender to ask for, if its time has come.
    pub(crate) fn due(&self, now: Moment) -> Option<Arc<Contender>> {
        let mut state = lock(&self.state);
        state.check_at.take_if(|at| *at <= now)?;
        let seeker = state.seeker.as_ref()?;
        (seeker.asking == Asking::Nobody).then(|| Arc::clone(&seeker.contender))
    }

    /// How many spare tokens a refresh asks for.
    pub(crate) fn spare(&self, contender: &Contender, limits: Limits) -> u64 {
        contender.spare(lock(&self.state).spare_wanted(limits, None))
    }

    pub(crate) fn needs_subscription(&self) -> bool {
        let state = lock(&self.state);
        state.subscription.is_none() && !state.waiting.is_empty()
    }

    pub(crate) fn subscribed(&self, subscription: Subscription) {
        let mut state = lock(&self.state);
        if !state.waiting.is_empty() {
            state.subscription = Some(subscription);
        }
    }

    /// A message says that the lock was let go, or that messages may have been missed: ask again.
    pub(crate) fn interrupted(&self) {
        let state = lock(&self.state);
        if let Some(seeker) = &state.seeker {
            lock(&seeker.contender.wait).interrupted();
        }
        state.wake_first();
    }

    /// Whoever waits is told that nothing is acquired any more.
    pub(crate) fn shut_down(&self) {
        let mut state = lock(&self.state);
        state.shut_down = true;
        for hold in &state.waiting {
            hold.woken.notify_one();
        }
    }

    /// How many callers wait here beside the one that asks: that one has a place on the server, or its answer is still to come.
    pub(crate) fn waiting_behind(&self) -> u64 {
        let state = lock(&self.state);
        let asks = match (&state.seeker, self.key.kind()) {
            (None, _) => state.holder.is_none(),
            (Some(_), Kind::Exclusive) => true,
            // The server keeps no queue of these: who has been answered is known here only.
            (Some(seeker), Kind::Reentrant) => seeker.asking != Asking::Nobody,
        };
        let waiting = state.waiting.len();
        waiting.saturating_sub(usize::from(asks)) as u64
    }

    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.waiting.is_empty() && state.seeker.is_none() && state.holder.is_none()
    }

    /// The lease of the holder, if it is this owner's.
    pub(crate) fn lease_of(&self, owner: &Owner) -> Option<Arc<Lease>> {
        lock(&self.state).lease_of(owner)
    }

    #[cfg(test)]
    pub(crate) fn is_waiting(&self) -> bool {
        let state = lock(&self.state);
        !state.waiting.is_empty() && (state.check_at.is_some() || state.holder.is_some())
    }
}

impl State {
    fn step(&mut self, hold: &Arc<Hold>, now: impl FnOnce() -> Moment, limits: Limits) -> Step {
        let Some(seeker) = &self.seeker else {
            return if self.holder.is_some() {
                Step::Wait
            } else {
                Step::Lead
            };
        };
        let contender = Arc::clone(&seeker.contender);
        if seeker.asking != Asking::Nobody {
            return Step::Wait;
        }
        let wanted = hold.request.terms;
        let now = now();
        let next = lock(&contender.wait).next(now, wanted);
        match next {
            Next::Wait => Step::Wait,
            Next::Take(granted) => match contender.take(now, granted, hold, None) {
                Taken::Held => {
                    self.waiting.pop_front();
                    if self.waiting.is_empty() {
                        self.subscription = None;
                    }
                    self.seeker = None;
                    self.hold_by(contender, now, Some(granted));
                    Step::Held {
                        alone: self.waiting.is_empty() && self.spare.is_empty(),
                    }
                }
                Taken::TooLate => Step::TooLate(contender),
                Taken::ShutDown => Step::ShutDown,
                Taken::Revoked => self.ask(hold, limits),
                Taken::Abandoned => {
                    self.seeker = None;
                    Step::Lead
                }
            },
            Next::AskAgain => self.ask(hold, limits),
        }
    }

    fn ask(&mut self, hold: &Arc<Hold>, limits: Limits) -> Step {
        let spare = self.spare_wanted(limits, None);
        match &mut self.seeker {
            Some(seeker) => {
                seeker.asking = Asking::First;
                lock(&seeker.contender.wait).asking(hold.request.terms);
                Step::Ask {
                    spare: seeker.contender.spare(spare),
                    contender: Arc::clone(&seeker.contender),
                }
            }
            None => Step::Lead,
        }
    }

    fn lease_of(&self, owner: &Owner) -> Option<Arc<Lease>> {
        let holder = self.holder.as_ref()?;
        let same = holder.explicit_owner.as_ref() == Some(owner);
        same.then(|| holder.lease().cloned())?
    }

    fn hold_by(&mut self, contender: Arc<Contender>, now: Moment, granted: Option<Granted>) {
        self.contended = contender.contended.load(Ordering::SeqCst);
        self.holder = Some(contender);
        for hold in &self.waiting {
            if self.is_of_holder(hold) {
                hold.woken.notify_one();
            }
        }
        self.row = 1;
        self.row_since = Some(now);
        let (fence, spare) = granted.map_or((0, 0), |granted| (granted.fence, granted.spare));
        self.spare = fence + 1..fence + 1 + spare;
        self.asked_for = spare;
    }

    /// How many fencing tokens the next lease should bring beside the first, which is asked for when a guard is released
    /// (at that moment) or by somebody who waits.
    fn spare_wanted(&self, limits: Limits, released_at: Option<Moment>) -> u64 {
        let base = match self.waiting.len() {
            // Nobody is behind the one that asks; but whoever lets go often comes back.
            0 | 1 if released_at.is_none() => 0,
            0 | 1 => SPARE_FOR_ONE,
            _ => SPARE_FOR_MANY,
        };
        let ran_out = released_at.filter(|_| self.asked_for > 0 && self.spare.is_empty());
        let wanted = ran_out.map_or(base, |now| {
            let passed = self.row_lasted(now).as_micros() as u64;
            let more = (self.asked_for * 2 + 1).min(SPARE_AT_MOST);
            base.max(more.min(passed))
        });
        if self.contended || limits.always {
            wanted.min(u64::from(limits.row) - 1)
        } else {
            wanted
        }
    }

    fn row_lasted(&self, now: Moment) -> Duration {
        self.row_since
            .map_or(Duration::ZERO, |since| since.until(now))
    }

    /// Whether the caller waits for an owner that has the lock.
    fn is_of_holder(&self, hold: &Hold) -> bool {
        let Some(holder) = &self.holder else {
            return false;
        };
        hold.request.owner.is_some()
            && holder.explicit_owner == hold.request.owner
            && !holder.is_lease_over()
    }

    fn is_first(&self, hold: &Arc<Hold>) -> bool {
        self.waiting
            .front()
            .is_some_and(|first| Arc::ptr_eq(first, hold))
    }

    /// Whether this contender has the lock, or shares the lease of the one that has it.
    fn is_held_by(&self, contender: &Arc<Contender>) -> bool {
        let holder = self.holder.as_ref();
        holder.is_some_and(|holder| holder.shares_lease_with(contender))
    }

    fn seeker_of(&mut self, contender: &Arc<Contender>) -> Option<&mut Seeker> {
        self.seeker
            .as_mut()
            .filter(|seeker| Arc::ptr_eq(&seeker.contender, contender))
    }

    fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.woken.notify_one();
        }
    }
}
