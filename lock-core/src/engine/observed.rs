//! What the observer is told: a call for a lock, which also has a span, its renewals, and what of it is on the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use super::acquisition::Acquisition;
use super::hold::{Hold, LockRequest};
use super::shared::Shared;
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::observe::{AcquiredHow, CANCELLED, Event, ObservedLock, Observers, refusal};
use crate::base::time::{Moment, millis};
use crate::store::StoreError;

/// A call that has begun. If it is dropped without an outcome, the call was cancelled.
pub(super) struct ObservedCall {
    key: Arc<LockKey>,
    label: &'static str,
    observed: Observers,
    /// Disabled, if only the observer sees the call.
    span: Span,
    started: Instant,
    is_over: bool,
}

impl ObservedCall {
    /// Returns `None` if neither is there. Boxed, because that is the common case.
    pub(super) fn begin(request: &LockRequest) -> Option<Box<Self>> {
        let span = tracing::debug_span!(
            target: "lock_core",
            "lock.acquire",
            key = request.key.name(),
            label = request.label,
            outcome = Empty,
            holder = Empty,
            waited_ms = Empty
        );
        if span.is_disabled() && !request.observed.is_some() {
            return None;
        }
        let call = Self {
            key: Arc::clone(&request.key),
            label: request.label,
            observed: request.observed.clone(),
            span,
            started: Instant::now(),
            is_over: false,
        };
        call.observed.tell(&Event::Waiting { lock: call.lock() });
        Some(Box::new(call))
    }

    pub(super) fn span(&self) -> Option<&Span> {
        (!self.span.is_disabled()).then_some(&self.span)
    }

    /// The client has the lock, or an error.
    pub(super) fn ended(
        mut self,
        shared: &Shared,
        result: Result<(&Arc<Hold>, AcquiredHow), &LockError>,
    ) {
        self.is_over = true;
        let waited = self.started.elapsed();
        // The observer first: a subscriber may panic.
        match result {
            Ok((hold, how)) => {
                if self.observed.is_some() {
                    hold.observe_begin(|| shared.clock.now(), waited, how);
                }
                self.record(waited, how.word());
            }
            Err(error) => {
                self.observed.tell(&Event::Refused {
                    lock: self.lock(),
                    waited,
                    error,
                });
                if let LockError::Busy { holder, .. } | LockError::TimedOut { holder, .. } = error {
                    self.span.record("holder", holder.as_deref());
                }
                self.record(waited, refusal(error));
            }
        }
    }

    fn record(&self, waited: Duration, outcome: &str) {
        self.span.record("waited_ms", millis(waited));
        self.span.record("outcome", outcome);
    }

    fn lock(&self) -> ObservedLock<'_> {
        ObservedLock::new(&self.key, self.label)
    }
}

impl Drop for ObservedCall {
    fn drop(&mut self) {
        if !self.is_over {
            let (waited, lock) = (self.started.elapsed(), self.lock());
            self.observed.tell(&Event::Cancelled { lock, waited });
            self.record(waited, CANCELLED);
        }
    }
}

impl Shared {
    /// Tells the observer of a lock, of no call in particular.
    pub(super) fn observe(
        &self,
        key: &LockKey,
        event: impl for<'a> FnOnce(ObservedLock<'a>) -> Event<'a>,
    ) {
        let observed = &self.config.observed;
        if observed.is_some() {
            observed.tell(&event(ObservedLock::new(key, "")));
        }
    }

    /// Tells the observer of a renewal, whose answer came at `now`, before it takes effect on a lease that ends at `end`.
    pub(super) fn observe_renewal(
        &self,
        acquisition: &Acquisition,
        now: Moment,
        end: Moment,
        error: Option<&StoreError>,
    ) {
        if !self.config.observed.is_some() {
            return;
        }
        let Some(hold) = acquisition.hold() else {
            return;
        };
        let (lock, slack) = (hold.observed_lock(), now.until(end));
        let error = error.map(|error| error.clone().into_lock_error());
        self.config.observed.tell(&match &error {
            None => Event::Renewed { lock, slack },
            Some(error) => Event::RenewalFailed { lock, slack, error },
        });
    }
}
