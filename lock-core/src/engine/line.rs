//! The waiting line of one lock in this process: a policy above the acquisition. Its waiters share one acquisition, which asks for
//! the first of them, and pass the lock on among themselves.
//!
//! ```text
//!              asks for the first               granted
//!   waiting ----------------------> acquisition ----------> holder ---+
//!      ^                                ^                   |       | local hand-over, no command
//!      |                                +-------------------+ <-----+
//!    joins                         releases and asks again, one command
//! ```
//! The server sees one acquisition of this process, however many waiters the line has. Its place in the server's queue belongs
//! to the line: a waiter that leaves gives it up only if it was the last, or if an owner was named. A line with waiters has a
//! holder, or an acquisition that asks: [`Shared::lead`](super::shared::Shared::lead) makes one where it has neither.
//!
//! No I/O in this module: its callers send the requests and pass on the answers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::acquisition::Acquisition;
use super::hold::{Hold, LockRequest};
use super::lease::Status;
use super::state::{Asker, Granted, Next};
use super::yield_turn::YieldTurn;
use crate::base::key::LockKey;
use crate::base::kind::Traits;
use crate::base::owner::Owner;
use crate::base::place::Place;
use crate::base::sync::lock;
use crate::base::time::{Clock, Moment};
use crate::store::Subscription;

/// Numbers of fencing tokens that a line reserves at once: few for one waiter, more for many, and twice as many each time they
/// ran out. The server grants fewer if its counter would run ahead of its clock.
const RESERVE_FOR_ONE: u64 = 7;
const RESERVE_FOR_MANY: u64 = 63;
const MAXIMUM_RESERVE: u64 = 1023;

/// The longest turn while no other process is known to wait: the message of a waiting process may be lost, or refused (an ACL).
const LONGEST_TURN: Duration = Duration::from_secs(2);

/// Limits of a turn while another process waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) handovers: u32,
    pub(super) time: Duration,
    /// The limits always apply, because no message would tell that another process waits.
    pub(super) always: bool,
}

/// The next step of a waiter.
#[derive(Debug)]
pub(super) enum Step {
    /// The waiter holds the lock.
    Held {
        /// Whether nothing else needs the line for now.
        alone: bool,
        /// Whether the lock was handed over to the waiter.
        handed_over: bool,
    },
    Wait,
    /// Other processes have the turn: the waiter waits for a wake-up, at most for this pause.
    Yield {
        pause: Duration,
    },
    Ask {
        acquisition: Arc<Acquisition>,
        reserve: u64,
    },
    /// The waiter needs no place in this line any more: its owner has the lock, or other waiters came first while it did not run.
    Again,
    /// A grant came later than its lease lasts.
    TooLate(Arc<Acquisition>),
    ShutDown,
}

/// The place of a waiter that has joined a line.
#[derive(Debug)]
pub(super) enum PlaceInLine {
    /// The waiter is the first, and this new acquisition asks for it.
    Leads(Arc<Acquisition>),
    /// The waiter depends on the first one, for which this acquisition asks.
    Behind(Arc<Acquisition>),
    /// The waiter waits for a guard of this process, or for the first waiter, whose acquisition is made at this moment.
    BehindHolder,
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(super) key: Arc<LockKey>,
    pub(super) traits: &'static Traits,
    state: Mutex<LineState>,
}

#[derive(Debug, Default)]
struct LineState {
    /// The waiters, the oldest first.
    waiting: VecDeque<Arc<Hold>>,
    /// The acquisition that asks for the lock on behalf of the first waiter.
    pending: Option<Arc<Acquisition>>,
    holder: Option<Arc<Acquisition>>,
    /// Number of guards that had the holder's lease in this turn, and the start of the turn.
    handovers: u32,
    turn_started: Option<Moment>,
    /// Whether another process waits for the lock that this line holds.
    contended: bool,
    /// Reserved tokens that the holder may still give out.
    reserve: Range<u64>,
    /// Number of tokens that were reserved with the last grant.
    last_reserve: u64,
    /// Whether the server answered the last request.
    answered: bool,
    subscription: Option<Subscription>,
    /// When to subscribe again, after a refusal or on a new connection.
    subscribe_at: Option<Moment>,
    /// Whether other processes have the turn. `None` if the server keeps a queue.
    yield_turn: Option<YieldTurn>,
    shut_down: bool,
}

/// Its waiters.
impl Line {
    /// A line of waiters. `yield_turn` is the knowledge about other processes that want the lock.
    pub(super) fn new(key: Arc<LockKey>, yield_turn: Option<YieldTurn>) -> Arc<Self> {
        Self::with(key, |traits| LineState {
            yield_turn: yield_turn.or_else(|| (!traits.queues).then(YieldTurn::default)),
            ..LineState::default()
        })
    }

    fn with(key: Arc<LockKey>, state: impl FnOnce(&Traits) -> LineState) -> Arc<Self> {
        let traits = key.traits();
        let state = Mutex::new(state(traits));
        Arc::new(Self { key, traits, state })
    }

    /// Creates a line behind an acquisition that held the lock without one.
    pub(super) fn behind(key: Arc<LockKey>, holder: &Arc<Acquisition>) -> Arc<Self> {
        Self::with(key, |traits| LineState {
            // A later message about contention finds this line.
            contended: lock(&holder.life).state.is_contended(),
            holder: Some(Arc::clone(holder)),
            handovers: 1,
            answered: true,
            yield_turn: (!traits.queues).then(YieldTurn::default),
            ..LineState::default()
        })
    }

    /// Adds a waiter, and makes the acquisition that asks for it, if nothing asks yet.
    pub(super) fn join(
        &self,
        hold: &Arc<Hold>,
        make: impl FnOnce(&LockRequest) -> Option<Arc<Acquisition>>,
    ) -> PlaceInLine {
        let mut state = lock(&self.state);
        state.waiting.push_back(Arc::clone(hold));
        // If others wait, the thread that took away their acquisition makes the next one, and wakes the first of them.
        if state.waiting.len() > 1 {
            return match &state.pending {
                Some(pending) => PlaceInLine::Behind(Arc::clone(pending)),
                None => PlaceInLine::BehindHolder,
            };
        }
        match state.lead(make) {
            Some(acquisition) => PlaceInLine::Leads(acquisition),
            None => PlaceInLine::BehindHolder,
        }
    }

    /// Makes the acquisition that asks for the first waiter from now on, if nothing asks for it.
    pub(super) fn lead(
        &self,
        make: impl FnOnce(&LockRequest) -> Option<Arc<Acquisition>>,
    ) -> Option<Arc<Acquisition>> {
        lock(&self.state).lead(make)
    }

    /// The next step of the waiter with this hold.
    pub(super) fn step(&self, hold: &Arc<Hold>, clock: &dyn Clock, limits: Limits) -> Step {
        let mut state = lock(&self.state);
        match hold.phase() {
            Status::Pending if state.shut_down => Step::ShutDown,
            Status::Pending if state.is_of_holder(hold) => Step::Again,
            Status::Pending if state.is_first(hold) => state.step(hold, clock, limits),
            Status::Pending => Step::Wait,
            // A lock that came by local hand-over may be handed over again, so the line stays.
            Status::Held => Step::Held {
                alone: false,
                handed_over: true,
            },
            Status::Released | Status::Lost(_) => Step::Again,
        }
    }

    /// Removes a waiter. Returns the acquisition if no other waiter needs it.
    pub(super) fn leave(&self, hold: &Arc<Hold>) -> Option<Arc<Acquisition>> {
        lock(&self.state).remove(hold)
    }

    /// Passes over the first waiter, which does not run: a waiter behind it takes its place. The first one joins the line anew when it
    /// runs, because its hold is not pending any more. Returns its hold, and the acquisition, if no other waiter needs it.
    pub(super) fn pass_over(
        &self,
        acquisition: &Arc<Acquisition>,
    ) -> Option<(Arc<Hold>, Option<Arc<Acquisition>>)> {
        let mut state = lock(&self.state);
        if !state.is_pending(acquisition) || state.waiting.len() < 2 {
            return None;
        }
        let first = state.waiting.front().cloned()?;
        if !first.abandon() {
            return None;
        }
        lock(&acquisition.life).state.stalled();
        let left = state.remove(&first);
        Some((first, left))
    }

    /// The acquisition that asks for the first waiter.
    pub(super) fn pending(&self) -> Option<Arc<Acquisition>> {
        lock(&self.state).pending.clone()
    }

    /// Records whether the last request of this line was answered or failed.
    pub(super) fn set_answered(&self, answered: bool) {
        lock(&self.state).answered = answered;
    }

    /// Whether the last request of this line was answered.
    pub(super) fn is_answered(&self) -> bool {
        lock(&self.state).answered
    }

    /// Where the lock was taken that this waiter waits for, if the waiter's own task holds it.
    pub(super) fn held_in_task_of(&self, hold: &Hold) -> Option<Place> {
        let state = lock(&self.state);
        let held_at = state.holder.as_ref()?.held_at()?;
        held_at.is_in_task_of(hold.request.place).then_some(held_at)
    }

    /// Number of waiters beside the one that asks: that one has a place on the server, or its answer is still to come.
    pub(super) fn waiting_behind(&self) -> u64 {
        let state = lock(&self.state);
        let asks = match &state.pending {
            None => false,
            Some(_) if self.traits.queues => true,
            // Without a queue only this process knows which waiter has been answered.
            Some(pending) => lock(&pending.life).state.is_asked_by(Asker::Waiter),
        };
        let waiting = state.waiting.len();
        waiting.saturating_sub(usize::from(asks)) as u64
    }

    /// Tells the waiters that the manager acquires nothing any more.
    pub(super) fn shut_down(&self) {
        let mut state = lock(&self.state);
        state.shut_down = true;
        state.pending = None;
        for hold in &state.waiting {
            hold.wake_cell.wake();
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.waiting.is_empty() && state.pending.is_none() && state.holder.is_none()
    }

    #[cfg(test)]
    pub(super) fn is_waiting(&self) -> bool {
        let state = lock(&self.state);
        let placed = |pending: &Arc<Acquisition>| lock(&pending.life).state.is_checked();
        !state.waiting.is_empty()
            && (state.holder.is_some() || state.pending.as_ref().is_some_and(placed))
    }
}

/// Its holder, and the hand-over to the next waiter.
impl Line {
    /// The acquisition that holds the lock, if nothing else needs this line for now.
    pub(super) fn lone_holder(&self) -> Option<Arc<Acquisition>> {
        let state = lock(&self.state);
        let alone = state.waiting.is_empty() && state.pending.is_none() && state.knows_nothing();
        state.holder.clone().filter(|_| alone)
    }

    /// The holder, if it has the lock for this owner.
    pub(super) fn holder_for(&self, owner: &Owner) -> Option<Arc<Acquisition>> {
        lock(&self.state).holder_for(owner).cloned()
    }

    /// The acquisition of this process that holds the lock.
    pub(super) fn holder(&self) -> Option<Arc<Acquisition>> {
        lock(&self.state).holder.clone()
    }

    /// The next step of a client beside the line. One step under the lock, so that two acquisitions of one owner that are granted at
    /// the same moment share a lease.
    pub(super) fn polled_beside(
        &self,
        acquisition: &Arc<Acquisition>,
        hold: &Arc<Hold>,
        now: Moment,
    ) -> Next {
        let mut state = lock(&self.state);
        let owner = acquisition.claim.owner.as_ref();
        let owners = owner.and_then(|owner| state.holder_for(owner));
        let polled = acquisition.polled(now, hold, owners);
        if matches!(polled, Next::Take(_)) {
            state.answered = true;
            // An owner that acquires again has the lease already.
            if !state.is_held_by(acquisition) {
                state.hold_by(Arc::clone(acquisition), now, None);
            }
        }
        polled
    }

    /// Hands the lease of an ended guard over to the next waiter without any command; the caller wakes that waiter. Returns
    /// `None` if the server must be asked.
    pub(super) fn hand_over(
        &self,
        ended: &Arc<Hold>,
        now: Moment,
        limits: Limits,
    ) -> Option<Arc<Hold>> {
        let acquisition = ended.acquisition()?;
        let mut state = lock(&self.state);
        if state.shut_down || !self.traits.hands_over || !state.is_held_by(acquisition) {
            return None;
        }
        let life = lock(&acquisition.life);
        if !life.state.may_be_handed_over(now, ended.keep_until()) {
            return None;
        }
        drop(life);
        let lease = acquisition.lease()?;
        // The ttl of the ended guard is not the ttl of the next guard.
        if lease.is_extension_wanted() {
            return None;
        }
        let terms = lease.terms();
        let fresh = lease.status(now) == Status::Held && now + terms.third() < lease.end();
        let lasted = state.turn_lasted(now);
        let our_turn = !(state.contended || limits.always) && lasted < LONGEST_TURN
            || (state.handovers < limits.handovers && lasted < limits.time);
        if !(fresh && our_turn && ended.request.renew) {
            return None;
        }
        while let Some(next) = state.waiting.front() {
            let request = &next.request;
            if !terms.serve(request.terms) || !request.renew {
                return None;
            }
            // No token is left if another acquisition has a place on the server for the first waiter.
            let fence = state.reserve.next()?;
            let next = state.waiting.pop_front()?;
            if acquisition.hand_to(now, &next, fence) {
                state.handovers += 1;
                state.unsubscribe();
                return Some(next);
            }
        }
        None
    }

    /// The waiter for which the release of this holder should ask in the same command.
    pub(super) fn next_after(&self, acquisition: &Arc<Acquisition>) -> Option<Arc<Hold>> {
        let state = lock(&self.state);
        let ours = state.is_held_by(acquisition)
            && state.pending.is_none()
            && !state.shut_down
            && self.traits.passes;
        state.waiting.front().filter(|_| ours).cloned()
    }

    /// Replaces the holder by a new acquisition; one command releases the holder and asks for the new acquisition. Returns the
    /// number of reserved tokens to ask for, or `None` if the line has changed since.
    pub(super) fn replace(
        &self,
        holder: &Arc<Acquisition>,
        acquisition: &Arc<Acquisition>,
        next: &Arc<Hold>,
        now: Moment,
        limits: Limits,
    ) -> Option<u64> {
        let mut state = lock(&self.state);
        if !state.is_held_by(holder) || state.pending.is_some() || !state.is_first(next) {
            return None;
        }
        let reserve = state.reserve_wanted(limits, true);
        let terms = next.request.terms;
        acquisition.serve(next);
        lock(&acquisition.life)
            .state
            .asks(Asker::Release, now, terms);
        state.holder = None;
        state.pending = Some(Arc::clone(acquisition));
        Some(reserve)
    }

    /// Number of reserved tokens that a refresh asks for.
    pub(super) fn reserve(&self, limits: Limits) -> u64 {
        if self.traits.hands_over {
            lock(&self.state).reserve_wanted(limits, false)
        } else {
            0
        }
    }

    /// Notes that the acquisition has neither the lock nor a place in the queue any more.
    pub(super) fn gone(&self, acquisition: &Arc<Acquisition>) {
        let mut state = lock(&self.state);
        // Other guards of the same owner may still have the lease.
        if state.is_held_by(acquisition) && acquisition.is_lease_over() {
            state.holder = None;
            if let Some(pending) = &state.pending {
                pending.wake();
            }
        }
        if state.is_pending(acquisition) {
            state.pending = None;
        }
    }

    /// Notes that another process waits for the lock that this acquisition holds.
    pub(super) fn contended(&self, acquisition: &Arc<Acquisition>, now: Moment) {
        let mut state = lock(&self.state);
        if state.is_held_by(acquisition) && !state.contended {
            state.contended = true;
            // The turn counts from the moment when another process began to wait.
            state.handovers = 1;
            state.turn_started = Some(now);
        }
    }
}

/// Announcements and turns, if the server keeps no queue.
impl Line {
    /// Whether a message announces a release to this line.
    pub(super) fn is_told(&self) -> bool {
        self.traits.queues || lock(&self.state).subscription.is_some()
    }

    /// Whether the line should subscribe to the announcements of the lock now.
    pub(super) fn needs_subscription(&self, now: Moment) -> bool {
        let state = lock(&self.state);
        let due = match state.subscribe_at {
            Some(at) => at <= now,
            None => state.subscription.is_none(),
        };
        !self.traits.queues && due && !state.waiting.is_empty()
    }

    /// Stores the result of subscribing. `None` means that the server refuses; the line does not ask again before `until`.
    pub(super) fn subscribed(&self, subscription: Option<Subscription>, until: Moment) {
        let mut state = lock(&self.state);
        state.subscribe_at = subscription.is_none().then_some(until);
        state.subscription = subscription.filter(|_| !state.waiting.is_empty());
    }

    /// Handles a new connection. It may not have the subscription, so the line subscribes again.
    pub(super) fn reconnected(&self) {
        lock(&self.state).subscribe_at = Some(Moment(0));
    }

    /// Yields the turn before the release of a lock for which the server keeps no queue. Waiters of other processes come before
    /// the waiters of this line, and before an acquisition that starts now.
    pub(super) fn start_yielding(&self, now: Moment) {
        let mut state = lock(&self.state);
        let listening = state.subscription.is_some();
        if let Some(yield_turn) = &mut state.yield_turn {
            yield_turn.start(now, listening);
        }
    }

    /// Records the outcome of that release: `heard` connections received the announcement, or `None` if the lock was not
    /// released. Returns the knowledge about other processes if no waiter is left in this line.
    pub(super) fn yielded(&self, heard: Option<u64>) -> Option<YieldTurn> {
        let state = &mut *lock(&self.state);
        let listening = state.subscription.is_some();
        let yield_turn = state.yield_turn.as_mut()?;
        let lifted = match heard {
            Some(connections) => yield_turn.subscribers_heard(connections, listening),
            None => yield_turn.cancel(),
        };
        if lifted && let Some(pending) = &state.pending {
            pending.wake();
        }
        (state.waiting.is_empty() && yield_turn.is_wanted()).then(|| yield_turn.clone())
    }

    /// The remaining time for which other processes have the turn.
    pub(super) fn yields(&self, now: Moment) -> Option<Duration> {
        lock(&self.state).yields(now)
    }

    /// Whether the turn of other processes is over and no request has followed: the waiter whose pause has ended must run.
    pub(super) fn is_overdue(&self, now: Moment) -> bool {
        let state = lock(&self.state);
        let yield_turn = state.yield_turn.as_ref();
        yield_turn.is_some_and(|yield_turn| yield_turn.is_overdue(now))
    }

    /// Handles the message that the lock was released: the line asks again.
    pub(super) fn announced(&self) {
        let mut state = lock(&self.state);
        if let Some(yield_turn) = &mut state.yield_turn {
            yield_turn.another_released();
        }
        if let Some(pending) = &state.pending {
            lock(&pending.life).state.interrupted();
            pending.wake();
        }
    }
}

impl LineState {
    fn step(&mut self, hold: &Arc<Hold>, clock: &dyn Clock, limits: Limits) -> Step {
        let Some(acquisition) = self.pending.clone() else {
            return Step::Wait;
        };
        let now = clock.now();
        match acquisition.polled(now, hold, None) {
            Next::Wait => Step::Wait,
            Next::Take(granted) => {
                self.waiting.pop_front();
                self.unsubscribe();
                self.pending = None;
                self.hold_by(acquisition, now, Some(granted));
                Step::Held {
                    alone: self.waiting.is_empty() && self.knows_nothing(),
                    handed_over: false,
                }
            }
            Next::TooLate => Step::TooLate(acquisition),
            Next::Over => Step::Again,
            Next::Ask => {
                let mut life = lock(&acquisition.life);
                if let Some(pause) = self.yields(now) {
                    // The reason to ask must outlast the pause.
                    life.state.interrupted();
                    return Step::Yield { pause };
                }
                life.state.asks(Asker::Waiter, now, hold.request.terms);
                drop(life);
                Step::Ask {
                    // An owner has one fencing token for its tenure.
                    reserve: match hold.request.claim.owner {
                        None => self.reserve_wanted(limits, false),
                        Some(_) => 0,
                    },
                    acquisition,
                }
            }
        }
    }

    fn lead(
        &mut self,
        make: impl FnOnce(&LockRequest) -> Option<Arc<Acquisition>>,
    ) -> Option<Arc<Acquisition>> {
        if self.pending.is_some() || self.holder.is_some() || self.shut_down {
            return None;
        }
        let first = self.waiting.front()?;
        let acquisition = make(&first.request)?;
        acquisition.serve(first);
        self.pending = Some(Arc::clone(&acquisition));
        Some(acquisition)
    }

    /// Removes a waiter. Returns the acquisition if no other waiter needs it.
    fn remove(&mut self, hold: &Arc<Hold>) -> Option<Arc<Acquisition>> {
        let position = self.waiting.iter().position(|w| Arc::ptr_eq(w, hold))?;
        self.waiting.remove(position);
        if position > 0 {
            return None;
        }
        self.unsubscribe();
        // An acquisition with an owner serves no other waiter.
        let next = self.waiting.front();
        let next = next.filter(|next| !next.request.key.traits().has_owners);
        let (Some(next), Some(pending)) = (next, &self.pending) else {
            return self.pending.take();
        };
        pending.serve(next);
        let mut life = lock(&pending.life);
        if life.state.is_asked_by(Asker::Waiter) {
            life.state.asked(Asker::Waiter);
            life.state.interrupted();
        }
        drop(life);
        pending.wake();
        None
    }

    /// A line without waiters needs no announcements.
    fn unsubscribe(&mut self) {
        if self.waiting.is_empty() {
            self.subscription = None;
        }
    }

    fn holder_for(&self, owner: &Owner) -> Option<&Arc<Acquisition>> {
        self.holder.as_ref().filter(|holder| holder.is_for(owner))
    }

    fn hold_by(&mut self, acquisition: Arc<Acquisition>, now: Moment, granted: Option<Granted>) {
        self.contended = lock(&acquisition.life).state.is_contended();
        self.holder = Some(acquisition);
        for hold in &self.waiting {
            if self.is_of_holder(hold) {
                hold.wake_cell.wake();
            }
        }
        if let Some(yield_turn) = &mut self.yield_turn {
            yield_turn.reacquired();
        }
        self.handovers = 1;
        self.turn_started = Some(now);
        let (fence, reserve) = granted.map_or((0, 0), |granted| (granted.fence, granted.reserve));
        self.reserve = fence + 1..fence + 1 + reserve;
        self.last_reserve = reserve;
    }

    /// Whether no knowledge is lost with this line: no reserved tokens to give out, and no processes to yield the turn to.
    fn knows_nothing(&self) -> bool {
        let wanted = self.yield_turn.as_ref().is_some_and(YieldTurn::is_wanted);
        self.reserve.is_empty() && !wanted
    }

    fn yields(&self, now: Moment) -> Option<Duration> {
        self.yield_turn.as_ref()?.pause(now)
    }

    /// Number of fencing tokens that the next lease should bring beside the first. A guard's release or a waiter asks
    /// for that lease.
    fn reserve_wanted(&self, limits: Limits, by_release: bool) -> u64 {
        let base = match self.waiting.len() {
            // No waiter is behind the one that asks. A client that releases often acquires again, so its release reserves tokens
            // all the same.
            0 | 1 if !by_release => 0,
            0 | 1 => RESERVE_FOR_ONE,
            _ => RESERVE_FOR_MANY,
        };
        let ran_out = by_release && self.last_reserve > 0 && self.reserve.is_empty();
        let wanted = if ran_out {
            base.max((self.last_reserve * 2 + 1).min(MAXIMUM_RESERVE))
        } else {
            base
        };
        if self.contended || limits.always {
            wanted.min(u64::from(limits.handovers) - 1)
        } else {
            wanted
        }
    }

    fn turn_lasted(&self, now: Moment) -> Duration {
        self.turn_started
            .map_or(Duration::ZERO, |since| since.until(now))
    }

    /// Whether the waiter's owner has the lock.
    fn is_of_holder(&self, hold: &Hold) -> bool {
        let Some(holder) = &self.holder else {
            return false;
        };
        hold.request.claim.owner.is_some()
            && holder.claim.owner == hold.request.claim.owner
            && !holder.is_lease_over()
    }

    fn is_first(&self, hold: &Arc<Hold>) -> bool {
        let first = self.waiting.front();
        first.is_some_and(|first| Arc::ptr_eq(first, hold))
    }

    /// Whether this acquisition has the lock, or shares the lease of the holder.
    fn is_held_by(&self, acquisition: &Arc<Acquisition>) -> bool {
        let holder = self.holder.as_ref();
        holder.is_some_and(|holder| holder.shares_lease_with(acquisition))
    }

    fn is_pending(&self, acquisition: &Arc<Acquisition>) -> bool {
        let pending = self.pending.as_ref();
        pending.is_some_and(|pending| Arc::ptr_eq(pending, acquisition))
    }
}
