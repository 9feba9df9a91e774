//! What one guard has: its part of a lease, from before it is held until it is over.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::acquisition::Acquisition;
use super::phase::{Phase, Status};
use super::wake_cell::WakeCell;
use crate::LossReason;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::owner::Owner;
use crate::terms::Terms;
use crate::time::{Moment, Span};

/// What the user asked for.
#[derive(Debug, Clone)]
pub(crate) struct LockRequest {
    pub(crate) key: Arc<LockKey>,
    pub(crate) terms: Terms,
    /// Whether the watchdog renews the lease.
    pub(crate) renew: bool,
    pub(crate) max_hold: Span,
    /// The lock is kept at least this long, however early it is let go.
    pub(crate) at_least: Span,
    /// Who takes it, where that is more than this one acquisition.
    pub(crate) owner: Option<Owner>,
}

/// The caller has not run since the hold began.
const WAITING: u8 = 0;
/// Nor had it when its lease was renewed.
const OVERDUE: u8 = 1;
const TAKEN: u8 = 2;
/// The caller did not run for so long that the next one has the lock.
const GIVEN_BACK: u8 = 3;

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) request: LockRequest,
    phase: Phase,
    /// Whether its caller knows that it has begun: `WAITING`, `OVERDUE`, `TAKEN` or `GIVEN_BACK`.
    taken: AtomicU8,
    begun: AtomicU64,
    fence: AtomicU64,
    acquisition: OnceLock<Arc<Acquisition>>,
    /// Tells the task that waits for this hold to look again.
    pub(crate) wake_cell: WakeCell,
}

impl Hold {
    pub(crate) fn new(request: LockRequest) -> Self {
        Self {
            request,
            phase: Phase::pending(),
            taken: AtomicU8::new(WAITING),
            begun: AtomicU64::new(Moment::NEVER.0),
            fence: AtomicU64::new(0),
            acquisition: OnceLock::new(),
            wake_cell: WakeCell::default(),
        }
    }

    /// The hold has begun, under a lease of this acquisition. False if nobody wants it any more.
    pub(crate) fn begin(&self, now: Moment, acquisition: &Arc<Acquisition>, fence: u64) -> bool {
        self.fence.store(fence, Ordering::Relaxed);
        self.begun.store(now.0, Ordering::Relaxed);
        // Before the phase, which makes it visible.
        self.acquisition.set(Arc::clone(acquisition)).is_ok() && self.phase.begin()
    }

    /// The acquisition whose lease this is, once it has begun.
    pub(crate) fn acquisition(&self) -> Option<&Arc<Acquisition>> {
        self.acquisition.get()
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.fence.load(Ordering::Relaxed))
    }

    /// The status that was last seen.
    pub(crate) fn phase(&self) -> Status {
        self.phase.get()
    }

    /// The status at `now`. Seeing the end makes the loss final.
    pub(crate) fn status(&self, now: Moment) -> Status {
        let phase = self.phase.get();
        if phase != Status::Held {
            return phase;
        }
        let lease = self
            .acquisition
            .get()
            .and_then(|acquisition| acquisition.lease());
        match lease.map(|lease| lease.status(now)) {
            Some(Status::Lost(reason)) => {
                self.phase.lose(reason);
            }
            _ if now >= self.cap() => {
                // Whoever sees it first tells the others: their timers may have stood still.
                if self.phase.lose(LossReason::MaxHold)
                    && let Some(lease) = lease
                {
                    lease.announce();
                }
            }
            _ => return Status::Held,
        }
        self.phase.get()
    }

    /// End of what the user allows: `max_hold`.
    pub(crate) fn cap(&self) -> Moment {
        self.begun() + self.request.max_hold
    }

    fn begun(&self) -> Moment {
        Moment(self.begun.load(Ordering::Relaxed))
    }

    /// When the hold ends if nothing more is heard from the server.
    pub(crate) fn end(&self) -> Moment {
        let lease = self
            .acquisition
            .get()
            .and_then(|acquisition| acquisition.lease());
        lease.map_or(Moment(0), |lease| lease.end().min(self.cap()))
    }

    /// The holder lets go. Returns the status before; only from Held anything changes.
    pub(crate) fn release(&self, now: Moment) -> Status {
        let before = self.status(now);
        if before == Status::Held && !self.phase.release() {
            return self.phase.get();
        }
        before
    }

    /// Nobody waits for it any more. False if it has begun already.
    pub(crate) fn abandon(&self) -> bool {
        self.phase.abandon()
    }

    /// Its caller runs, and has it. False if it was given back before.
    pub(crate) fn take(&self) -> bool {
        self.taken.swap(TAKEN, Ordering::SeqCst) != GIVEN_BACK
    }

    /// Whether its caller knows that it has begun.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::SeqCst) == TAKEN
    }

    /// A renewal is due. True where its caller had not run at the renewal before, and has not since: from here on it cannot
    /// be taken.
    pub(crate) fn is_overdue(&self) -> bool {
        let step = |from, to| {
            let (seq, exchange) = (Ordering::SeqCst, &self.taken);
            exchange.compare_exchange(from, to, seq, seq).is_ok()
        };
        !step(WAITING, OVERDUE) && step(OVERDUE, GIVEN_BACK)
    }

    /// Until when the lock has to be kept, though nobody needs it any more.
    pub(crate) fn keep_until(&self) -> Moment {
        if self.is_taken() {
            self.begun() + self.request.at_least
        } else {
            // Nobody ever knew that it had begun.
            Moment(0)
        }
    }
}
