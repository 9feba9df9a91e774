//! The state of a waiting line, and its transitions.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::acquisition::{Acquisition, Taken};
use super::hold::Hold;
use super::inbox::{Granted, Next};
use super::yield_turn::YieldTurn;
use crate::base::owner::Owner;
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::store::Subscription;

/// Numbers of fencing tokens that a line reserves at once: few for one waiter, more for many, and twice as many each time they
/// ran out. The server grants fewer where its counter would run ahead of its clock.
const RESERVE_FOR_ONE: u64 = 7;
const RESERVE_FOR_MANY: u64 = 63;
const MAXIMUM_RESERVE: u64 = 1023;

/// Limits of a turn while another process waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) handovers: u32,
    pub(crate) time: Duration,
    /// The limits always apply, because no message would tell that another process waits.
    pub(crate) always: bool,
}

#[derive(Debug, Default)]
pub(super) struct LineState {
    /// The waiters, the oldest first.
    pub(super) waiting: VecDeque<Arc<Hold>>,
    pub(super) pending: Option<PendingAcquisition>,
    pub(super) holder: Option<Arc<Acquisition>>,
    /// Number of guards that had the holder's lease in this turn, and the start of the turn.
    pub(super) handovers: u32,
    pub(super) turn_started: Option<Moment>,
    /// Another process waits for the lock that this line holds.
    pub(super) contended: bool,
    /// The name of the client that holds the lock, as the server said last.
    pub(super) holder_name: Option<Box<str>>,
    /// That client is of another kind, and no message announces its release.
    pub(super) holder_is_foreign: bool,
    /// Reserved tokens that the holder may still give out.
    pub(super) reserve: Range<u64>,
    /// Number of tokens that were reserved with the last grant.
    pub(super) last_reserve: u64,
    /// When the task next checks the line, and the number of that check in the registry. A check may refresh the pending
    /// acquisition.
    pub(super) check_at: Option<(Moment, u64)>,
    /// Consecutive checks that found the first waiter woken and not running.
    pub(super) unheeded: u8,
    pub(super) subscription: Option<Subscription>,
    /// When to subscribe again, after a refusal or on a new connection.
    pub(super) subscribe_at: Option<Moment>,
    /// Whether other processes have the turn, where the server keeps no queue.
    pub(super) yield_turn: YieldTurn,
    pub(super) shut_down: bool,
}

/// The acquisition that asks for the lock on behalf of the first waiter.
#[derive(Debug)]
pub(super) struct PendingAcquisition {
    pub(super) acquisition: Arc<Acquisition>,
    pub(super) asked_by: AskedBy,
    /// When the request under way began, or the subscription that follows it.
    pub(super) asked_at: Moment,
    /// The acquisition that the request releases, if a release makes the request.
    pub(super) releases: Option<Arc<Acquisition>>,
    /// Whether the task's refresh of it is under way.
    pub(super) refreshing: bool,
}

impl PendingAcquisition {
    pub(super) fn new(acquisition: Arc<Acquisition>, asked_by: AskedBy, now: Moment) -> Self {
        Self {
            acquisition,
            asked_by,
            asked_at: now,
            releases: None,
            refreshing: false,
        }
    }
}

/// Work that is due for a line.
#[derive(Debug)]
pub(crate) enum LineCheck {
    /// Ask on behalf of the pending acquisition.
    Refresh(Arc<Acquisition>),
    /// The first waiter did not run after it was woken, and was passed over. Contains its acquisition if no other waiter needs
    /// it.
    PassedOver(Option<Arc<Acquisition>>),
    /// Release this acquisition: its guard has ended, and the client that should release it does not run.
    Release(Arc<Acquisition>),
}

/// Who made the request that is under way, and reads its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskedBy {
    /// No request of a caller is under way; a refresh may be.
    NoCaller,
    /// The first waiter itself.
    First,
    /// The client that releases the previous holder, in the same command.
    Release,
}

/// The next step of a waiter.
#[derive(Debug)]
pub(crate) enum Step {
    /// The waiter holds the lock.
    Held {
        /// Nothing else needs the line for now.
        alone: bool,
        /// It was handed over to the waiter.
        handed_over: bool,
    },
    Wait,
    /// No acquisition is pending, but other processes have the turn: the waiter waits for a wake-up, at most for this pause.
    Yield {
        pause: Duration,
    },
    /// No acquisition asks: the waiter makes one and asks.
    Lead,
    Ask {
        acquisition: Arc<Acquisition>,
        reserve: u64,
    },
    /// The waiter's owner has the lock by now, through another acquisition of this process. The waiter needs no place in the
    /// line.
    Enter,
    /// The waiter held the lock, or had to ask, and did not run. Other waiters came first, and this one joins the line anew.
    Again,
    /// A grant came later than its lease lasts.
    TooLate(Arc<Acquisition>),
    ShutDown,
}

impl LineState {
    pub(super) fn step(
        &mut self,
        hold: &Arc<Hold>,
        now: impl FnOnce() -> Moment,
        limits: Limits,
    ) -> Step {
        let Some(pending) = &self.pending else {
            return if self.holder.is_some() {
                Step::Wait
            } else if let Some(pause) = self.yield_turn.pause(now()) {
                Step::Yield { pause }
            } else {
                Step::Lead
            };
        };
        let acquisition = Arc::clone(&pending.acquisition);
        if pending.asked_by != AskedBy::NoCaller {
            return Step::Wait;
        }
        let wanted = hold.request.terms;
        let now = now();
        let next = acquisition.life().state.next(now, wanted);
        match next {
            Next::Wait => Step::Wait,
            Next::Take(granted) => match acquisition.take(now, granted, hold, None) {
                Taken::Held => {
                    self.waiting.pop_front();
                    if self.waiting.is_empty() {
                        self.subscription = None;
                    }
                    self.pending = None;
                    self.hold_by(acquisition, now, Some(granted));
                    Step::Held {
                        alone: self.waiting.is_empty() && self.knows_nothing(),
                        handed_over: false,
                    }
                }
                Taken::TooLate => Step::TooLate(acquisition),
                Taken::ShutDown => Step::ShutDown,
                Taken::Revoked => self.ask(hold, now, limits),
                Taken::Abandoned => {
                    self.pending = None;
                    Step::Lead
                }
            },
            Next::AskAgain => match self.yield_turn.pause(now) {
                Some(pause) => {
                    // The reason to ask must outlast the pause.
                    acquisition.life().state.interrupted();
                    Step::Yield { pause }
                }
                None => self.ask(hold, now, limits),
            },
        }
    }

    fn ask(&mut self, hold: &Arc<Hold>, now: Moment, limits: Limits) -> Step {
        let reserve = self.reserve_wanted(limits, false);
        match &mut self.pending {
            Some(pending) => {
                pending.asked_by = AskedBy::First;
                pending.asked_at = now;
                pending.acquisition.life().state.asking(hold.request.terms);
                Step::Ask {
                    reserve: pending.acquisition.reserve(reserve),
                    acquisition: Arc::clone(&pending.acquisition),
                }
            }
            None => Step::Lead,
        }
    }

    /// Removes a waiter. Returns the acquisition if no other waiter needs it.
    pub(super) fn remove(&mut self, hold: &Arc<Hold>) -> Option<Arc<Acquisition>> {
        let position = self.waiting.iter().position(|w| Arc::ptr_eq(w, hold))?;
        self.waiting.remove(position);
        if position > 0 {
            return None;
        }
        self.unheeded = 0;
        if self.waiting.is_empty() {
            self.subscription = None;
            return self.pending.take().map(|pending| pending.acquisition);
        }
        // An acquisition with an owner serves no other waiter.
        let owned = |pending: &mut PendingAcquisition| pending.acquisition.key.traits().has_owners;
        let left = self
            .pending
            .take_if(owned)
            .map(|pending| pending.acquisition);
        if let Some(pending) = &mut self.pending
            && pending.asked_by == AskedBy::First
        {
            pending.asked_by = AskedBy::NoCaller;
            pending.acquisition.life().state.interrupted();
        }
        self.wake_first();
        left
    }

    /// The terms of the first waiter, if the line needs a check and none is scheduled. It needs one if it has a place on the
    /// server, or if a waiter depends on another waiter or on a guard of this process.
    pub(super) fn wants_check(&self) -> Option<Terms> {
        let is_placed = |pending: &PendingAcquisition| match pending.asked_by {
            AskedBy::NoCaller => !pending.refreshing,
            AskedBy::First => false,
            AskedBy::Release => true,
        };
        let depends = self.waiting.len() > 1
            || self.holder.is_some()
            || self.pending.as_ref().is_some_and(is_placed);
        let unwatched = depends && self.check_at.is_none();
        let first = self.waiting.front().filter(|_| unwatched)?;
        Some(first.request.terms)
    }

    /// Whether the line is stuck: the first waiter was woken or its pause is over and it does not run, a request has been under
    /// way for longer than any request takes, or the holder is over and was not released.
    fn is_unheeded(&self, now: Moment, limit: Duration) -> bool {
        let Some(first) = self.waiting.front() else {
            return false;
        };
        match (&self.pending, &self.holder) {
            (Some(pending), _) if pending.asked_by != AskedBy::NoCaller => {
                now > pending.asked_at + limit
            }
            (_, Some(holder)) => holder.is_over(),
            (None, None) if self.yield_turn.is_overdue(now) => true,
            (_, None) => first.wake_cell.is_unheeded(),
        }
    }

    /// Acts on a client that two checks in a row found not to run, or that has a late request. A first waiter with others behind
    /// it is passed over: its hold is not pending any more, so the waiter joins the line anew when it runs.
    fn pass_over(&mut self, now: Moment, limit: Duration) -> Option<LineCheck> {
        if !self.is_unheeded(now, limit) {
            self.unheeded = 0;
            return None;
        }
        self.unheeded = self.unheeded.saturating_add(1);
        if let Some(pending) = &mut self.pending
            && pending.asked_by == AskedBy::Release
        {
            // The release may still take effect, and its client does not run: it cannot read the answer or repeat the release.
            pending.asked_by = AskedBy::NoCaller;
            let mut life = pending.acquisition.life();
            life.state.count_outstanding();
            life.state.interrupted();
            drop(life);
            let released = pending.releases.take();
            self.wake_first();
            return released.map(LineCheck::Release);
        }
        let is_late = |pending: &PendingAcquisition| pending.asked_by == AskedBy::First;
        if self.unheeded < 2 && !self.pending.as_ref().is_some_and(is_late) {
            return None;
        }
        if let Some(holder) = self.holder.as_ref().filter(|holder| holder.is_over()) {
            return Some(LineCheck::Release(Arc::clone(holder)));
        }
        if self.waiting.len() < 2 {
            return None;
        }
        let first = Arc::clone(self.waiting.front()?);
        if !first.abandon() {
            return None;
        }
        if let Some(pending) = self.pending.as_ref()
            && pending.asked_by == AskedBy::First
        {
            // Its request may still take effect, and no waiter will read the answer.
            pending.acquisition.life().state.count_outstanding();
        }
        let left = self.remove(&first);
        first.wake_cell.wake();
        Some(LineCheck::PassedOver(left))
    }

    /// Returns the work that is due now. `limit` is longer than any request of the first waiter takes.
    pub(super) fn due(&mut self, now: Moment, limit: Duration) -> Option<LineCheck> {
        if let Some(passed_over) = self.pass_over(now, limit) {
            return Some(passed_over);
        }
        let pending = self.pending.as_mut()?;
        if pending.asked_by != AskedBy::NoCaller || pending.refreshing {
            return None;
        }
        // A grant that its waiter does not take is not prolonged: the server grants the lock to the next one after the ttl.
        if pending.acquisition.life().state.has_grant() {
            return None;
        }
        pending.refreshing = true;
        Some(LineCheck::Refresh(Arc::clone(&pending.acquisition)))
    }

    pub(super) fn holder_for(&self, owner: &Owner) -> Option<&Arc<Acquisition>> {
        self.holder.as_ref().filter(|holder| holder.is_for(owner))
    }

    pub(super) fn hold_by(
        &mut self,
        acquisition: Arc<Acquisition>,
        now: Moment,
        granted: Option<Granted>,
    ) {
        self.contended = acquisition.life().state.is_contended();
        self.holder = Some(acquisition);
        for hold in &self.waiting {
            if self.is_of_holder(hold) {
                hold.wake_cell.wake();
            }
        }
        self.yield_turn.reacquired();
        self.handovers = 1;
        self.turn_started = Some(now);
        let (fence, reserve) = granted.map_or((0, 0), |granted| (granted.fence, granted.reserve));
        self.reserve = fence + 1..fence + 1 + reserve;
        self.last_reserve = reserve;
    }

    /// Whether no knowledge is lost with this line: no reserved tokens to give out, and no processes to yield the turn to.
    pub(super) fn knows_nothing(&self) -> bool {
        self.reserve.is_empty() && !self.yield_turn.is_wanted()
    }

    /// Number of fencing tokens that the next lease should bring beside the first. A guard's release or a waiter asks
    /// for that lease.
    pub(super) fn reserve_wanted(&self, limits: Limits, by_release: bool) -> u64 {
        let base = match self.waiting.len() {
            // No waiter is behind the one that asks. A client that releases often comes back, so its release reserves tokens all
            // the same.
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

    pub(super) fn turn_lasted(&self, now: Moment) -> Duration {
        self.turn_started
            .map_or(Duration::ZERO, |since| since.until(now))
    }

    /// Whether the waiter's owner has the lock.
    pub(super) fn is_of_holder(&self, hold: &Hold) -> bool {
        let Some(holder) = &self.holder else {
            return false;
        };
        hold.request.owner.is_some()
            && holder.explicit_owner == hold.request.owner
            && !holder.is_lease_over()
    }

    pub(super) fn is_first(&self, hold: &Arc<Hold>) -> bool {
        self.waiting
            .front()
            .is_some_and(|first| Arc::ptr_eq(first, hold))
    }

    /// Whether this acquisition has the lock, or shares the lease of the holder.
    pub(super) fn is_held_by(&self, acquisition: &Arc<Acquisition>) -> bool {
        let holder = self.holder.as_ref();
        holder.is_some_and(|holder| holder.shares_lease_with(acquisition))
    }

    pub(super) fn pending_of(
        &mut self,
        acquisition: &Arc<Acquisition>,
    ) -> Option<&mut PendingAcquisition> {
        self.pending
            .as_mut()
            .filter(|pending| Arc::ptr_eq(&pending.acquisition, acquisition))
    }

    pub(super) fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.wake_cell.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::yield_turn::PAUSE;
    use super::*;
    use crate::base::key::LockKey;
    use crate::engine::LockRequest;

    const T0: Moment = Moment(1 << 50);

    fn waiter() -> Arc<Hold> {
        let ttl = Duration::from_secs(30);
        let terms = Terms::new(ttl, ttl, Duration::from_millis(302));
        let key = LockKey::new("", "a").unwrap();
        Arc::new(Hold::new(LockRequest::plain(key, terms)))
    }

    #[test]
    fn who_does_not_run_after_giving_way_is_passed_over() {
        let mut yield_turn = YieldTurn::wanted_by(2);
        yield_turn.start(T0, true);
        let mut state = LineState {
            yield_turn,
            waiting: [waiter(), waiter()].into(),
            ..LineState::default()
        };
        let long = Duration::from_secs(5);
        assert!(state.due(T0 + PAUSE / 2, long).is_none());
        assert_eq!(state.unheeded, 0, "it gives way");
        assert!(state.due(T0 + PAUSE, long).is_none());
        let passed_over = state.due(T0 + PAUSE * 2, long);
        assert!(matches!(passed_over, Some(LineCheck::PassedOver(None))));
        assert_eq!(state.waiting.len(), 1);
    }
}
