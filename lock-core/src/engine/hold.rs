//! A hold: the part of a lease that belongs to one guard, from before it is held until it is over.
//!
//! ```text
//! Pending --begun--> Handed --taken--> Held --released--> Released
//!    |                 |  |              |
//!    |                 |  +----lost------+--lost--> Lost(reason)
//!    +----abandoned----+--> Untaken
//! ```
//! One atomic byte, so that a guard answers `is_held()` without a lock. A hold that has ended never begins again.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[cfg(feature = "tokio-util")]
use {std::sync::atomic::fence, tokio_util::sync::CancellationToken};

use super::acquisition::Acquisition;
use super::lease::{Lease, Status, loss_code, loss_of};
use super::wake_cell::WakeCell;
use crate::base::claim::Claim;
#[cfg(test)]
use crate::base::claim::PLAIN;
use crate::base::error::LossReason;
use crate::base::fencing::FencingToken;
use crate::base::key::LockKey;
use crate::base::observe::{AcquiredHow, Event, ObservedLock, Observers, ReleasedHow};
use crate::base::place::Place;
use crate::base::sync::when_unlocked;
use crate::base::terms::Terms;
use crate::base::time::{Moment, Span};

/// The parameters of a client's request.
#[derive(Debug, Clone)]
pub(crate) struct LockRequest {
    pub(crate) key: Arc<LockKey>,
    pub(crate) terms: Terms,
    /// Whether the watchdog renews the lease.
    pub(crate) renew: bool,
    pub(crate) max_hold: Span,
    /// Minimum time for which the lock is kept, however early it is released.
    pub(crate) at_least: Span,
    /// Maximum time without an answer of the server, apart from the limit of the wait.
    pub(crate) unavailable_after: Span,
    pub(crate) claim: Claim,
    /// Whether its server has answered an earlier request of the same call.
    pub(crate) is_answered: bool,
    /// The place of the call.
    pub(crate) place: Place,
    /// The label that stands for the key in metrics; empty for none.
    pub(crate) label: &'static str,
    pub(crate) observed: Observers,
}

impl LockRequest {
    /// Whether a task that keeps this much would wait for itself with this request, or be refused because of itself.
    pub(crate) fn is_in_its_own_way(&self, kept: u64, waits: bool) -> bool {
        kept > 0
            && (self.claim.is_left_too_little(kept) || waits && self.key.traits().excludes_itself)
    }
}

#[cfg(test)]
impl LockRequest {
    /// A request without options, for tests.
    #[track_caller]
    pub(super) fn plain(key: LockKey, terms: Terms) -> Self {
        Self {
            key: Arc::new(key),
            terms,
            renew: true,
            max_hold: Span::ENDLESS,
            at_least: Duration::ZERO.into(),
            unavailable_after: Span::ENDLESS,
            claim: PLAIN.clone(),
            is_answered: false,
            place: Place::here(),
            label: "",
            observed: Observers::default(),
        }
    }
}

const PENDING: u8 = 0;
/// The hold has begun, and its waiter has not run since.
const HANDED: u8 = 1;
pub(super) const HELD: u8 = 2;
/// The hold has ended before its waiter knew that it had begun.
const UNTAKEN: u8 = 3;
const RELEASED: u8 = 4;
/// The codes of the reasons of a loss follow this one.
pub(super) const LOST: u8 = 5;

/// The observer was told that a client has the lock.
const BEGUN: u8 = 1;
/// The hold has ended, and the observer was told, or will be as soon as it was told of the beginning.
const ENDED: u8 = 2;

const WHOLE: u8 = 0;
/// The call for all of the locks has not run since it was asked to run.
const SILENT: u8 = 1;
const RUNS: u8 = 2;

/// How a hold has ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum HoldEnd {
    Released(ReleasedHow),
    Lost(LossReason),
}

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) request: LockRequest,
    phase: AtomicU8,
    /// What the observer was told: `BEGUN`, `ENDED`, or both.
    told: AtomicU8,
    /// `WHOLE`, or the state of one of several holds that have not all begun: it is not kept for a minimum time, and is renewed only if
    /// the call for all of them runs.
    part: AtomicU8,
    begun: AtomicU64,
    fence: AtomicU64,
    acquisition: OnceLock<Arc<Acquisition>>,
    /// Made when the first task asks for a token that is cancelled at the end of the hold.
    #[cfg(feature = "tokio-util")]
    cancellation: OnceLock<CancellationToken>,
    /// Wakes the task that waits for this hold.
    pub(crate) wake_cell: WakeCell,
}

impl Hold {
    pub(crate) fn new(request: LockRequest) -> Self {
        Self {
            request,
            phase: AtomicU8::new(PENDING),
            told: AtomicU8::new(0),
            part: AtomicU8::new(WHOLE),
            begun: AtomicU64::new(Moment::NEVER.0),
            fence: AtomicU64::new(0),
            acquisition: OnceLock::new(),
            #[cfg(feature = "tokio-util")]
            cancellation: OnceLock::new(),
            wake_cell: WakeCell::default(),
        }
    }

    /// Begins the hold under a lease of this acquisition. Returns false if the hold was abandoned.
    pub(crate) fn begin(&self, now: Moment, acquisition: &Arc<Acquisition>, fence: u64) -> bool {
        self.fence.store(fence, Ordering::Relaxed);
        self.begun.store(now.0, Ordering::Relaxed);
        // Set it before the phase, which makes it visible.
        self.acquisition.set(Arc::clone(acquisition)).is_ok() && self.step(PENDING, HANDED)
    }

    /// The acquisition that has the lease of this hold, once the hold has begun.
    pub(crate) fn acquisition(&self) -> Option<&Arc<Acquisition>> {
        self.acquisition.get()
    }

    /// The lease, once the hold has begun.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.acquisition.get()?.lease()
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.fence.load(Ordering::Relaxed))
    }

    /// Gives the hold another fencing token.
    pub(super) fn renumber(&self, fence: u64) {
        self.fence.store(fence, Ordering::Relaxed);
    }

    /// The last known status.
    pub(crate) fn phase(&self) -> Status {
        match self.phase.load(Ordering::SeqCst) {
            PENDING => Status::Pending,
            HANDED | HELD => Status::Held,
            UNTAKEN | RELEASED => Status::Released,
            lost => Status::Lost(loss_of(lost - LOST)),
        }
    }

    pub(super) fn step(&self, from: u8, to: u8) -> bool {
        let order = Ordering::SeqCst;
        let stepped = self.phase.compare_exchange(from, to, order, order);
        stepped.is_ok()
    }

    /// Ends the hold as lost. A loss that no client can see is not reported: its waiter acquires anew.
    fn lose(&self, now: Moment, reason: LossReason) -> bool {
        let lost = LOST + loss_code(reason);
        if self.step(HELD, lost) {
            self.warn_of_loss(now, reason);
            return true;
        }
        self.step(HANDED, lost)
    }

    /// The status at `now`. The first call after the end makes the loss final.
    pub(crate) fn status(&self, now: Moment) -> Status {
        let phase = self.phase();
        if phase != Status::Held {
            return phase;
        }
        let lease = self.lease();
        match lease.map(|lease| lease.status(now)) {
            Some(Status::Lost(reason)) => {
                let end = lease.map_or(now, Lease::end);
                self.lose(now.min(end), reason);
            }
            _ if now >= self.cap() => {
                // The first observer announces the loss: the timers of the others may have stood still.
                if self.lose(now, LossReason::MaxHold)
                    && let Some(lease) = lease
                {
                    lease.announce();
                }
            }
            _ => return Status::Held,
        }
        self.phase()
    }

    /// The one warning of a loss. Written without locks, since a subscriber may use locks of this library.
    pub(super) fn warn_of_loss(&self, at: Moment, reason: LossReason) {
        #[cfg(feature = "tokio-util")]
        self.cancel();
        let key = Arc::clone(&self.request.key);
        let held_ms = self.begun().until(at).as_millis() as u64;
        when_unlocked(move || {
            tracing::warn!(key = key.name(), %reason, held_ms, "a lock was lost");
        });
        self.observe_end(|| at, HoldEnd::Lost(reason));
    }

    /// Tells the observer that a client has the lock, and also of the end, if that came first.
    pub(super) fn observe_begin(
        &self,
        now: impl FnOnce() -> Moment,
        waited: Duration,
        how: AcquiredHow,
    ) {
        self.request.observed.tell(&Event::Acquired {
            lock: self.observed_lock(),
            waited,
            how,
            fencing_token: self.fencing_token(),
        });
        let ended = self.told.fetch_or(BEGUN, Ordering::SeqCst) == ENDED;
        if ended && let Status::Lost(reason) = self.phase() {
            self.tell_end(now(), HoldEnd::Lost(reason));
        }
    }

    /// Tells the observer, once, that the hold has ended. A loss takes precedence over the release of its guard.
    pub(super) fn observe_end(&self, at: impl FnOnce() -> Moment, ended: HoldEnd) {
        let ended = match self.phase() {
            Status::Lost(reason) => HoldEnd::Lost(reason),
            Status::Pending | Status::Held | Status::Released => ended,
        };
        if self.request.observed.is_some() && self.told.fetch_or(ENDED, Ordering::SeqCst) == BEGUN {
            self.tell_end(at(), ended);
        }
    }

    fn tell_end(&self, at: Moment, ended: HoldEnd) {
        let held = self.begun().until(at);
        let LockRequest {
            key,
            label,
            observed,
            ..
        } = &self.request;
        let (key, label, observed) = (Arc::clone(key), *label, observed.clone());
        when_unlocked(move || {
            let lock = ObservedLock::new(&key, label);
            observed.tell(&match ended {
                HoldEnd::Released(how) => Event::Released { lock, held, how },
                HoldEnd::Lost(reason) => Event::Lost { lock, held, reason },
            });
        });
    }

    /// The lock as the observer sees it.
    pub(super) fn observed_lock(&self) -> ObservedLock<'_> {
        ObservedLock::new(&self.request.key, self.request.label)
    }

    /// End of the hold as limited by `max_hold`.
    pub(crate) fn cap(&self) -> Moment {
        self.begun() + self.request.max_hold
    }

    fn begun(&self) -> Moment {
        Moment(self.begun.load(Ordering::Relaxed))
    }

    /// End of the hold if the server confirms nothing more.
    pub(crate) fn end(&self) -> Moment {
        let lease = self.lease();
        lease.map_or(Moment(0), |lease| lease.end().min(self.cap()))
    }

    /// When the task next looks at the hold: to renew its lease, or at its end.
    pub(super) fn due(&self) -> Moment {
        let lease = self.lease();
        lease.map_or(Moment::NEVER, Lease::due).min(self.cap())
    }

    /// Releases the hold. Returns the status before. Only a hold that is held changes.
    pub(crate) fn release(&self, now: Moment) -> Status {
        let before = self.status(now);
        if before == Status::Held && !(self.step(HELD, RELEASED) || self.step(HANDED, UNTAKEN)) {
            return self.phase();
        }
        #[cfg(feature = "tokio-util")]
        self.cancel();
        before
    }

    /// Tells the work under the hold that it is over.
    #[cfg(feature = "tokio-util")]
    fn cancel(&self) {
        // Either this thread sees the token, or its maker sees that the hold is over.
        fence(Ordering::SeqCst);
        if let Some(token) = self.cancellation.get().cloned() {
            when_unlocked(move || token.cancel());
        }
    }

    /// A token that is cancelled when the hold is over.
    #[cfg(feature = "tokio-util")]
    pub(crate) fn cancellation(&self, now: Moment) -> CancellationToken {
        let token = self.cancellation.get_or_init(CancellationToken::new);
        fence(Ordering::SeqCst);
        if self.status(now) != Status::Held {
            token.cancel();
        }
        // A user who cancels a child stops only the work that uses it.
        token.child_token()
    }

    /// Abandons the hold. Returns false if it has begun already.
    pub(crate) fn abandon(&self) -> bool {
        self.step(PENDING, UNTAKEN)
    }

    /// The waiter runs and takes the hold. Returns false if the hold is over already.
    pub(crate) fn take(&self) -> bool {
        self.step(HANDED, HELD)
    }

    /// Whether the hold was taken by its waiter, and is not over.
    pub(crate) fn is_taken(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == HELD
    }

    /// Notes whether this is one of several holds that have not all begun.
    pub(crate) fn set_part(&self, is_part: bool) {
        let part = if is_part { SILENT } else { WHOLE };
        self.part.store(part, Ordering::SeqCst);
    }

    /// Notes that a woken watcher runs. Returns whether a renewal waits for that.
    pub(crate) fn watcher_runs(&self) -> bool {
        self.changes_part(SILENT, RUNS)
    }

    /// Called when a renewal is due. Returns whether it has to wait until the call for all of the locks has run.
    pub(super) fn awaits_call(&self) -> bool {
        self.part.load(Ordering::SeqCst) != WHOLE && !self.changes_part(RUNS, SILENT)
    }

    fn changes_part(&self, from: u8, to: u8) -> bool {
        let order = Ordering::SeqCst;
        let changed = self.part.compare_exchange(from, to, order, order);
        changed.is_ok()
    }

    /// The moment until which the lock must be kept although no client needs it.
    pub(crate) fn keep_until(&self) -> Moment {
        match self.phase.load(Ordering::SeqCst) {
            PENDING | HANDED | UNTAKEN => Moment(0),
            _ if self.part.load(Ordering::Relaxed) != WHOLE => Moment(0),
            _ => self.begun() + self.request.at_least,
        }
    }
}
