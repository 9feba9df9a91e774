//! What a line knows, and what follows from it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::way::Way;
use crate::owner::Owner;
use crate::session::{Contender, Granted, Hold, Next, Taken};
use crate::store::Subscription;
use crate::sync::lock;
use crate::terms::Terms;
use crate::time::Moment;

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

#[derive(Debug, Default)]
pub(super) struct State {
    /// The callers that wait, the oldest first.
    pub(super) waiting: VecDeque<Arc<Hold>>,
    pub(super) seeker: Option<Seeker>,
    pub(super) holder: Option<Arc<Contender>>,
    /// Guards in a row that had the holder's lease, and since when.
    pub(super) row: u32,
    pub(super) row_since: Option<Moment>,
    /// Another process waits for the lock that we hold.
    pub(super) contended: bool,
    /// Fencing tokens that the holder may still give out.
    pub(super) spare: Range<u64>,
    /// How many were asked for the last time.
    pub(super) asked_for: u64,
    /// When to look at the line, and to ask on behalf of the seeker.
    pub(super) check_at: Option<(Moment, u64)>,
    /// Looks in a row that found the first in line told and not running.
    pub(super) unheeded: u8,
    pub(super) subscription: Option<Subscription>,
    /// When to subscribe again, after a refusal or on a new connection.
    pub(super) subscribe_at: Option<Moment>,
    /// Whether it is the turn of other processes, where the server keeps no queue.
    pub(super) way: Way,
    pub(super) shut_down: bool,
}

/// The contender that asks for the first in line.
#[derive(Debug)]
pub(super) struct Seeker {
    pub(super) contender: Arc<Contender>,
    pub(super) asking: Asking,
    pub(super) asked_at: Moment,
    /// Which contender lets go with the request, where that is the one of its release.
    pub(super) releases: Option<Arc<Contender>>,
    /// The session asks on behalf of the line.
    pub(super) refreshing: bool,
}

impl Seeker {
    pub(super) fn new(contender: Arc<Contender>, asking: Asking, now: Moment) -> Self {
        Self {
            contender,
            asking,
            asked_at: now,
            releases: None,
            refreshing: false,
        }
    }
}

/// What is due for a line.
#[derive(Debug)]
pub(crate) enum LineCheck {
    /// To ask on behalf of the seeker.
    Refresh(Arc<Contender>),
    /// The first in line did not run when it was told, and was passed over. Its contender, if nobody else needs it.
    PassedOver(Option<Arc<Contender>>),
    /// To release this contender: its guard has ended, and the caller that was to release it does not run.
    Release(Arc<Contender>),
}

/// Who waits for the answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asking {
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
    /// It would be the first to ask, but it is the turn of others: it waits for news, and looks again after this pause.
    GiveWay {
        pause: Duration,
    },
    /// Nobody asks: it makes a contender and asks.
    Lead,
    Ask {
        contender: Arc<Contender>,
        spare: u64,
    },
    /// Its owner has the lock by now, through somebody else here: it needs no place in line.
    Enter,
    /// It had the lock, or its turn to ask, and did not run: others came before it, and it joins the line anew.
    Again,
    /// A grant came later than its lease lasts.
    TooLate(Arc<Contender>),
    ShutDown,
}

impl State {
    pub(super) fn step(
        &mut self,
        hold: &Arc<Hold>,
        now: impl FnOnce() -> Moment,
        limits: Limits,
    ) -> Step {
        let Some(seeker) = &self.seeker else {
            return if self.holder.is_some() {
                Step::Wait
            } else if let Some(pause) = self.way.pause(now()) {
                Step::GiveWay { pause }
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
                        alone: self.waiting.is_empty() && self.knows_nothing(),
                    }
                }
                Taken::TooLate => Step::TooLate(contender),
                Taken::ShutDown => Step::ShutDown,
                Taken::Revoked => self.ask(hold, now, limits),
                Taken::Abandoned => {
                    self.seeker = None;
                    Step::Lead
                }
            },
            Next::AskAgain => match self.way.pause(now) {
                Some(pause) => {
                    // Whatever it was that made us ask, it still does when the pause is over.
                    lock(&contender.wait).interrupted();
                    Step::GiveWay { pause }
                }
                None => self.ask(hold, now, limits),
            },
        }
    }

    fn ask(&mut self, hold: &Arc<Hold>, now: Moment, limits: Limits) -> Step {
        let spare = self.spare_wanted(limits, None);
        match &mut self.seeker {
            Some(seeker) => {
                seeker.asking = Asking::First;
                seeker.asked_at = now;
                lock(&seeker.contender.wait).asking(hold.request.terms);
                Step::Ask {
                    spare: seeker.contender.spare(spare),
                    contender: Arc::clone(&seeker.contender),
                }
            }
            None => Step::Lead,
        }
    }

    /// Takes a caller out of the line. Returns the contender if nobody needs it any more.
    pub(super) fn remove(&mut self, hold: &Arc<Hold>) -> Option<Arc<Contender>> {
        let position = self.waiting.iter().position(|w| Arc::ptr_eq(w, hold))?;
        self.waiting.remove(position);
        if position > 0 {
            return None;
        }
        self.unheeded = 0;
        let Some(next) = self.waiting.front() else {
            self.subscription = None;
            return self.seeker.take().map(|seeker| seeker.contender);
        };
        // What asks for an owner asks for nobody else, and nothing else asks for an owner.
        let next_owned = next.request.owner.is_some();
        let owned = |seeker: &mut Seeker| next_owned || seeker.contender.explicit_owner.is_some();
        let left = self.seeker.take_if(owned).map(|seeker| seeker.contender);
        if let Some(seeker) = &mut self.seeker
            && seeker.asking == Asking::First
        {
            seeker.asking = Asking::Nobody;
            lock(&seeker.contender.wait).interrupted();
        }
        self.wake_first();
        left
    }

    /// The terms of the first, where it has a place on the server, or depends on another caller here, and nothing would make the
    /// session look at the line.
    pub(super) fn wants_check(&self) -> Option<Terms> {
        let is_placed = |seeker: &Seeker| match seeker.asking {
            Asking::Nobody => !seeker.refreshing,
            Asking::First => false,
            Asking::Release => true,
        };
        let depends = self.waiting.len() > 1
            || self.holder.is_some()
            || self.seeker.as_ref().is_some_and(is_placed);
        let unwatched = depends && self.check_at.is_none();
        let first = self.waiting.front().filter(|_| unwatched)?;
        Some(first.request.terms)
    }

    /// Whether the first in line does not run though it was told to or a pause is over, or a request for it has been under way
    /// for longer than any, or the lock is let go and was not released.
    fn is_unheeded(&self, now: Moment, limit: Duration) -> bool {
        let Some(first) = self.waiting.front() else {
            return false;
        };
        match (&self.seeker, &self.holder) {
            (Some(seeker), _) if seeker.asking != Asking::Nobody => now > seeker.asked_at + limit,
            (_, Some(holder)) => holder.is_over(),
            (None, None) if self.way.is_overdue(now) => true,
            (_, None) => first.woken.is_unheeded(),
        }
    }

    /// Where a caller is found for the second time not to run, nobody waits for it any longer. A first in line with others
    /// behind it is passed over: its hold is no longer pending, so its caller joins anew when it runs.
    fn pass_over(&mut self, now: Moment, limit: Duration) -> Option<LineCheck> {
        if !self.is_unheeded(now, limit) {
            self.unheeded = 0;
            return None;
        }
        self.unheeded = self.unheeded.saturating_add(1);
        if let Some(seeker) = &mut self.seeker
            && seeker.asking == Asking::Release
        {
            // The release may still be carried out, and its caller does not run to see the answer, or to repeat it.
            seeker.asking = Asking::Nobody;
            seeker.contender.request_unanswered();
            lock(&seeker.contender.wait).interrupted();
            let released = seeker.releases.take();
            self.wake_first();
            return released.map(LineCheck::Release);
        }
        let is_late = |seeker: &Seeker| seeker.asking == Asking::First;
        if self.unheeded < 2 && !self.seeker.as_ref().is_some_and(is_late) {
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
        if let Some(seeker) = self.seeker.as_ref()
            && seeker.asking == Asking::First
        {
            // Its request may still be carried out, and nobody will see the answer.
            seeker.contender.request_unanswered();
        }
        let left = self.remove(&first);
        first.woken.wake();
        Some(LineCheck::PassedOver(left))
    }

    /// What is due now. `limit` is longer than any request of the first in line takes.
    pub(super) fn due(&mut self, now: Moment, limit: Duration) -> Option<LineCheck> {
        if let Some(passed_over) = self.pass_over(now, limit) {
            return Some(passed_over);
        }
        let seeker = self.seeker.as_mut()?;
        if seeker.asking != Asking::Nobody || seeker.refreshing {
            return None;
        }
        // A grant that its caller does not take is not prolonged: the server gives it to the next after a ttl.
        if lock(&seeker.contender.wait).has_grant() {
            return None;
        }
        seeker.refreshing = true;
        Some(LineCheck::Refresh(Arc::clone(&seeker.contender)))
    }

    pub(super) fn holder_for(&self, owner: &Owner) -> Option<&Arc<Contender>> {
        self.holder.as_ref().filter(|holder| holder.is_for(owner))
    }

    pub(super) fn hold_by(
        &mut self,
        contender: Arc<Contender>,
        now: Moment,
        granted: Option<Granted>,
    ) {
        self.contended = contender.contended.load(Ordering::SeqCst);
        self.holder = Some(contender);
        for hold in &self.waiting {
            if self.is_of_holder(hold) {
                hold.woken.wake();
            }
        }
        self.way.taken();
        self.row = 1;
        self.row_since = Some(now);
        let (fence, spare) = granted.map_or((0, 0), |granted| (granted.fence, granted.spare));
        self.spare = fence + 1..fence + 1 + spare;
        self.asked_for = spare;
    }

    /// Whether nothing would be forgotten with this line: tokens to give out, others to give way to.
    pub(super) fn knows_nothing(&self) -> bool {
        self.spare.is_empty() && !self.way.is_wanted()
    }

    /// How many fencing tokens the next lease should bring beside the first, which is asked for when a guard is released
    /// (at that moment) or by somebody who waits.
    pub(super) fn spare_wanted(&self, limits: Limits, released_at: Option<Moment>) -> u64 {
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

    pub(super) fn row_lasted(&self, now: Moment) -> Duration {
        self.row_since
            .map_or(Duration::ZERO, |since| since.until(now))
    }

    /// Whether the caller waits for an owner that has the lock.
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

    /// Whether this contender has the lock, or shares the lease of the one that has it.
    pub(super) fn is_held_by(&self, contender: &Arc<Contender>) -> bool {
        let holder = self.holder.as_ref();
        holder.is_some_and(|holder| holder.shares_lease_with(contender))
    }

    pub(super) fn seeker_of(&mut self, contender: &Arc<Contender>) -> Option<&mut Seeker> {
        self.seeker
            .as_mut()
            .filter(|seeker| Arc::ptr_eq(&seeker.contender, contender))
    }

    pub(super) fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.woken.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::way::PAUSE;
    use super::*;
    use crate::key::LockKey;
    use crate::session::Request;
    use crate::time::Span;

    const T0: Moment = Moment(1 << 50);

    fn waiter() -> Arc<Hold> {
        let ttl = Duration::from_secs(30);
        Arc::new(Hold::new(Request {
            key: Arc::new(LockKey::new("", "a").unwrap()),
            terms: Terms::new(ttl, ttl, Duration::from_millis(302)),
            renew: true,
            max_hold: Span::ENDLESS,
            at_least: Duration::ZERO.into(),
            owner: None,
        }))
    }

    #[test]
    fn who_does_not_run_after_giving_way_is_passed_over() {
        let mut way = Way::wanted_by(2);
        way.give(T0, true);
        let mut state = State {
            way,
            waiting: [waiter(), waiter()].into(),
            ..State::default()
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
