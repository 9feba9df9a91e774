//! The waiting line of one lock in this process: its waiters, the acquisition that asks for them, and the holder.
//!
//! ```text
//!              first in line asks               granted
//!   waiting ----------------------> acquisition ----------> holder ---+
//!      ^                                ^                   |       | local hand-over, no command
//!      |                                +-------------------+ <-----+
//!    joins                         releases and asks again, one command
//! ```
//! The server sees one acquisition of this process, however many waiters the line has. Its place in the server's queue belongs
//! to the line: a waiter that leaves gives it up only if it was the last, or if an owner was named.
//!
//! No I/O in this module: its callers send the requests and pass on the answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::acquisition::{Acquisition, Taken};
use super::hold::Hold;
use super::inbox::Granted;
use super::line_state::{AskedBy, Limits, LineCheck, LineState, PendingAcquisition, Step};
use super::phase::Status;
use super::yield_turn::YieldTurn;
use crate::base::key::LockKey;
use crate::base::owner::Owner;
use crate::base::place::Place;
use crate::base::sync::lock;
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::store::{StoreError, Subscription};

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) key: Arc<LockKey>,
    state: Mutex<LineState>,
    /// Whether the server answered the last request of this line.
    answered: AtomicBool,
}

impl Line {
    pub(crate) fn new(key: Arc<LockKey>, yield_turn: YieldTurn) -> Arc<Self> {
        let state = LineState {
            yield_turn,
            ..LineState::default()
        };
        Arc::new(Self {
            key,
            state: Mutex::new(state),
            answered: AtomicBool::new(false),
        })
    }

    /// Creates a line behind an acquisition that held the lock without one.
    pub(crate) fn behind(key: Arc<LockKey>, holder: &Arc<Acquisition>) -> Arc<Self> {
        let line = Self::new(key, YieldTurn::default());
        line.heard(true);
        let mut state = lock(&line.state);
        // A later message about contention finds this line.
        state.contended = holder.life().state.is_contended();
        state.holder = Some(Arc::clone(holder));
        state.handovers = 1;
        drop(state);
        line
    }

    /// The acquisition that holds the lock, if nothing else needs this line for now.
    pub(crate) fn lone_holder(&self) -> Option<Arc<Acquisition>> {
        let state = lock(&self.state);
        let alone = state.waiting.is_empty() && state.pending.is_none() && state.knows_nothing();
        state.holder.clone().filter(|_| alone)
    }

    /// Adds a waiter. Returns the terms of the first waiter if the engine must schedule a check of this line.
    pub(crate) fn join(&self, hold: Arc<Hold>) -> Option<Terms> {
        let mut state = lock(&self.state);
        state.waiting.push_back(hold);
        state.wants_check()
    }

    /// The next step of the waiter with this hold.
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
            // A lock that came by local hand-over may be handed over again, so the line stays.
            Status::Held => Step::Held {
                alone: false,
                handed_over: true,
            },
            Status::Released | Status::Lost(_) => Step::Again,
        }
    }

    /// The first waiter has made an acquisition. Returns false if this waiter does not lead any more.
    pub(crate) fn lead(
        &self,
        hold: &Arc<Hold>,
        acquisition: &Arc<Acquisition>,
        now: Moment,
    ) -> bool {
        let mut state = lock(&self.state);
        let leads = state.is_first(hold) && state.pending.is_none() && state.holder.is_none();
        if leads {
            state.pending = Some(PendingAcquisition::new(
                Arc::clone(acquisition),
                AskedBy::NoCaller,
                now,
            ));
        }
        leads
    }

    /// Whether the first waiter waits for the release that asks for this acquisition.
    pub(crate) fn waits_for_release(&self, acquisition: &Arc<Acquisition>) -> bool {
        let mut state = lock(&self.state);
        let pending = state.pending_of(acquisition);
        pending.is_some_and(|pending| pending.asked_by == AskedBy::Release)
    }

    /// The request of this acquisition was answered, or ended without an answer.
    pub(crate) fn answered(&self, acquisition: &Arc<Acquisition>, hold: &Arc<Hold>) {
        let mut state = lock(&self.state);
        // Skip a waiter that was passed over: another one may be asking by now.
        if state.is_first(hold)
            && let Some(pending) = state.pending_of(acquisition)
        {
            pending.asked_by = AskedBy::NoCaller;
        }
    }

    /// The release that asked for this acquisition was answered, or ended without an answer.
    pub(crate) fn release_answered(&self, acquisition: &Arc<Acquisition>) {
        if let Some(pending) = lock(&self.state).pending_of(acquisition)
            && pending.asked_by == AskedBy::Release
        {
            pending.asked_by = AskedBy::NoCaller;
            pending.releases = None;
        }
    }

    /// Removes a waiter. Returns the acquisition if no other waiter needs it.
    pub(crate) fn leave(&self, hold: &Arc<Hold>) -> Option<Arc<Acquisition>> {
        lock(&self.state).remove(hold)
    }

    /// The server says that a client of this name holds the lock, or one of another kind.
    pub(crate) fn held_by(&self, name: Option<Box<str>>, is_foreign: bool) {
        let mut state = lock(&self.state);
        (state.holder_name, state.holder_is_foreign) = (name, is_foreign);
    }

    /// Makes the first waiter ask once more, if no request is under way.
    pub(crate) fn ask_again(&self, hold: &Arc<Hold>) {
        let state = lock(&self.state);
        if let Some(pending) = state.pending.as_ref().filter(|_| state.is_first(hold))
            && pending.asked_by == AskedBy::NoCaller
            && !pending.refreshing
        {
            pending.acquisition.life().state.interrupted();
        }
    }

    /// The name of the holder's client, as last heard of. `own` if that is this client.
    pub(crate) fn holder_name(&self, own: &str) -> Option<Box<str>> {
        let state = lock(&self.state);
        match &state.holder {
            Some(_) => Some(own.into()),
            None => state.holder_name.clone(),
        }
    }

    /// Records whether the last request of this line was answered or failed.
    pub(crate) fn heard(&self, answered: bool) {
        self.answered.store(answered, Ordering::Relaxed);
    }

    /// Whether the last request of this line was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Takes a grant for an acquisition beside the line. Done in one step, so that two acquisitions of one owner that are granted
    /// at the same moment share a lease.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        acquisition: &Arc<Acquisition>,
        granted: Granted,
        hold: &Arc<Hold>,
        now: Moment,
    ) -> Taken {
        let mut state = lock(&self.state);
        let owner = acquisition.explicit_owner.as_ref();
        let owners = owner.and_then(|owner| state.holder_for(owner));
        let taken = acquisition.take(now, granted, hold, owners);
        if taken == Taken::Held {
            self.heard(true);
            // An owner that acquires again has the lease already.
            if !state.is_held_by(acquisition) {
                state.hold_by(Arc::clone(acquisition), now, None);
            }
        }
        taken
    }

    /// Hands the lease of an ended guard over to the next waiter without any command; the caller wakes that waiter. Returns
    /// `None` if the server must be asked.
    pub(crate) fn hand_over(
        &self,
        ended: &Arc<Hold>,
        now: Moment,
        limits: Limits,
    ) -> Option<Arc<Hold>> {
        let acquisition = ended.acquisition()?;
        let mut state = lock(&self.state);
        if state.shut_down || !self.key.traits().hands_over || !state.is_held_by(acquisition) {
            return None;
        }
        let lease = acquisition.lease()?;
        // The ttl that the guard asked for is not for the next one.
        if lease.is_extension_wanted() {
            return None;
        }
        let terms = lease.terms();
        let fresh = lease.status(now) == Status::Held && now + terms.third() < lease.end();
        let our_turn = !(state.contended || limits.always)
            || (state.handovers < limits.handovers && state.turn_lasted(now) < limits.time);
        if !(fresh && our_turn && ended.request.renew) {
            return None;
        }
        while let Some(next) = state.waiting.front() {
            let request = &next.request;
            if !terms.serve(request.terms) || !request.renew {
                return None;
            }
            let fence = state.reserve.next()?;
            let next = state.waiting.pop_front()?;
            if acquisition.hand_to(now, &next, fence) {
                state.handovers += 1;
                if state.waiting.is_empty() {
                    state.subscription = None;
                }
                return Some(next);
            }
        }
        None
    }

    /// The waiter for which the release of this holder should ask in the same command.
    pub(crate) fn next_after(&self, acquisition: &Arc<Acquisition>) -> Option<Arc<Hold>> {
        let state = lock(&self.state);
        let next = state.waiting.front()?;
        let ours = state.is_held_by(acquisition)
            && state.pending.is_none()
            && !state.shut_down
            && self.key.traits().passes;
        ours.then(|| Arc::clone(next))
    }

    /// Replaces the holder by a new acquisition; one command releases the holder and asks for the new acquisition. Returns the
    /// number of reserved tokens to ask for, or `None` if the line has changed since.
    pub(crate) fn replace(
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
        acquisition.life().state.asking(next.request.terms);
        let mut pending = PendingAcquisition::new(Arc::clone(acquisition), AskedBy::Release, now);
        pending.releases = state.holder.take();
        state.pending = Some(pending);
        Some(reserve)
    }

    /// The acquisition has neither the lock nor a place in the queue any more. The first waiter asks anew.
    pub(crate) fn gone(&self, acquisition: &Arc<Acquisition>) {
        let mut state = lock(&self.state);
        // Other guards of the same owner may still have the lease.
        let held = state.is_held_by(acquisition) && acquisition.is_lease_over();
        if held {
            state.holder = None;
        }
        let sought = state.pending_of(acquisition).is_some();
        if sought {
            state.pending = None;
        }
        if held || sought {
            state.wake_first();
        }
    }

    /// Another process waits for the lock that this acquisition holds.
    pub(crate) fn contended(&self, acquisition: &Arc<Acquisition>, now: Moment) {
        let mut state = lock(&self.state);
        if state.is_held_by(acquisition) && !state.contended {
            state.contended = true;
            // The turn counts from the moment when another process began to wait.
            state.handovers = 1;
            state.turn_started = Some(now);
        }
    }

    pub(crate) fn wake_first(&self) {
        lock(&self.state).wake_first();
    }

    /// The error of the pending acquisition's last request, if it failed at `since` or later.
    pub(crate) fn trouble(&self, since: Moment) -> Option<StoreError> {
        let state = lock(&self.state);
        let pending = state.pending.as_ref()?;
        pending.acquisition.life().state.trouble(since)
    }

    /// The error that makes further waiting pointless for the first waiter.
    pub(crate) fn hopeless(
        &self,
        hold: &Arc<Hold>,
        now: impl FnOnce() -> Moment,
        patience: Option<Duration>,
    ) -> Option<StoreError> {
        let state = lock(&self.state);
        let pending = state.pending.as_ref().filter(|_| state.is_first(hold))?;
        let now = now();
        pending.acquisition.life().state.hopeless(now, patience)
    }

    /// Where the lock was taken that this waiter waits for, if the waiter's own task holds it.
    pub(crate) fn held_in_task_of(&self, hold: &Hold) -> Option<Place> {
        let state = lock(&self.state);
        let held_at = state.holder.as_ref()?.held_at()?;
        held_at.is_in_task_of(hold.request.place).then_some(held_at)
    }

    /// Whether the engine checks this line at `moment` or earlier.
    pub(crate) fn is_checked_by(&self, moment: Moment) -> bool {
        let check = lock(&self.state).check_at;
        check.is_some_and(|(at, _)| at <= moment)
    }

    /// Sets the moment and the number of the engine's next check of this line. Returns the check that it replaces.
    pub(crate) fn check_at(&self, moment: Moment, number: u64) -> Option<(Moment, u64)> {
        lock(&self.state).check_at.replace((moment, number))
    }

    /// Removes the scheduled check, which is not needed any more.
    pub(crate) fn take_check(&self) -> Option<(Moment, u64)> {
        lock(&self.state).check_at.take()
    }

    /// The terms of the first waiter, if the line needs a check and none is scheduled.
    pub(crate) fn wants_check(&self) -> Option<Terms> {
        lock(&self.state).wants_check()
    }

    /// Returns the work for a line whose check is due. `limit` is longer than any request takes.
    pub(crate) fn due(&self, now: Moment, limit: Duration) -> Option<LineCheck> {
        let mut state = lock(&self.state);
        state.check_at = None;
        state.due(now, limit)
    }

    /// A refresh of this acquisition by the engine has ended.
    pub(crate) fn refreshed(&self, acquisition: &Arc<Acquisition>) {
        if let Some(pending) = lock(&self.state).pending_of(acquisition) {
            pending.refreshing = false;
        }
    }

    /// Number of reserved tokens that a refresh asks for.
    pub(crate) fn reserve(&self, acquisition: &Acquisition, limits: Limits) -> u64 {
        acquisition.reserve(lock(&self.state).reserve_wanted(limits, false))
    }

    /// Whether a message announces a release to this line.
    pub(crate) fn is_told(&self) -> bool {
        self.key.traits().queues || lock(&self.state).subscription.is_some()
    }

    /// Whether the holder is a client of another kind, whose release no message announces.
    pub(crate) fn is_held_by_foreigner(&self) -> bool {
        lock(&self.state).holder_is_foreign
    }

    /// Whether the line should subscribe to the announcements of the lock now.
    pub(crate) fn needs_subscription(&self, now: Moment) -> bool {
        let state = lock(&self.state);
        let due = match state.subscribe_at {
            Some(at) => at <= now,
            None => state.subscription.is_none(),
        };
        !self.key.traits().queues && due && !state.waiting.is_empty()
    }

    /// The first waiter goes on with a second request: it may take as long as the first one.
    pub(crate) fn asks_on(&self, acquisition: &Arc<Acquisition>, hold: &Arc<Hold>, now: Moment) {
        let mut state = lock(&self.state);
        let is_first = state.is_first(hold);
        if let Some(pending) = state.pending_of(acquisition).filter(|_| is_first) {
            pending.asked_at = now;
        }
    }

    /// Stores the result of subscribing. `None` means that the server refuses; the line does not ask again before `until`.
    pub(crate) fn subscribed(&self, subscription: Option<Subscription>, until: Moment) {
        let mut state = lock(&self.state);
        state.subscribe_at = subscription.is_none().then_some(until);
        state.subscription = subscription.filter(|_| !state.waiting.is_empty());
    }

    /// A new connection exists. The first waiter is woken, and the line subscribes again, because the new connection may not have
    /// the subscription.
    pub(crate) fn reconnected(&self) {
        let mut state = lock(&self.state);
        state.subscribe_at = Some(Moment(0));
        state.wake_first();
    }

    /// Yields the turn before the release of a lock for which the server keeps no queue. Waiters of other processes come before
    /// the waiters of this line, and before an acquisition that starts now.
    pub(crate) fn start_yielding(&self, now: Moment) {
        let mut state = lock(&self.state);
        let listening = state.subscription.is_some();
        state.yield_turn.start(now, listening);
    }

    /// Records the outcome of that release: `heard` connections received the announcement, or `None` if the lock was not
    /// released. Returns the knowledge about other processes if no waiter is left in this line.
    pub(crate) fn yielded(&self, heard: Option<u64>) -> Option<YieldTurn> {
        let mut state = lock(&self.state);
        let listening = state.subscription.is_some();
        let lifted = match heard {
            Some(connections) => state.yield_turn.subscribers_heard(connections, listening),
            None => state.yield_turn.cancel(),
        };
        if lifted {
            state.wake_first();
        }
        (state.waiting.is_empty() && state.yield_turn.is_wanted()).then(|| state.yield_turn.clone())
    }

    /// The remaining time for which other processes have the turn.
    pub(crate) fn yields(&self, now: Moment) -> Option<Duration> {
        lock(&self.state).yield_turn.pause(now)
    }

    /// A message says that the lock was released.
    pub(crate) fn announced(&self) {
        lock(&self.state).yield_turn.another_released();
        self.interrupted();
    }

    /// Messages may have been missed, or the lock was released: ask again.
    pub(crate) fn interrupted(&self) {
        let state = lock(&self.state);
        if let Some(pending) = &state.pending {
            pending.acquisition.life().state.interrupted();
        }
        state.wake_first();
    }

    /// Tells the waiters that the manager acquires nothing any more. Returns the pending acquisition for release, because a
    /// waiter that does not run would not release it.
    pub(crate) fn shut_down(&self) -> Option<Arc<Acquisition>> {
        let mut state = lock(&self.state);
        state.shut_down = true;
        for hold in &state.waiting {
            hold.wake_cell.wake();
        }
        let pending = state.pending.take()?;
        if pending.asked_by != AskedBy::NoCaller {
            // The request may still take effect.
            pending.acquisition.life().state.count_outstanding();
        }
        Some(pending.acquisition)
    }

    /// Number of waiters beside the one that asks. That one has a place on the server, or its answer is still to come.
    pub(crate) fn waiting_behind(&self) -> u64 {
        let state = lock(&self.state);
        let asks = match &state.pending {
            None => state.holder.is_none() && !state.yield_turn.is_yielding(),
            Some(_) if self.key.traits().queues => true,
            // Without a queue only this process knows which waiter has been answered.
            Some(pending) => pending.asked_by != AskedBy::NoCaller,
        };
        let waiting = state.waiting.len();
        waiting.saturating_sub(usize::from(asks)) as u64
    }

    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.waiting.is_empty() && state.pending.is_none() && state.holder.is_none()
    }

    /// The holder, if it has the lock for this owner.
    pub(crate) fn holder_for(&self, owner: &Owner) -> Option<Arc<Acquisition>> {
        lock(&self.state).holder_for(owner).cloned()
    }

    #[cfg(test)]
    pub(crate) fn is_waiting(&self) -> bool {
        let state = lock(&self.state);
        !state.waiting.is_empty() && (state.check_at.is_some() || state.holder.is_some())
    }
}
