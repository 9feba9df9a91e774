//! Acquisition of a lock: join the waiting line, ask the server when first, and leave nothing behind on any failure.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

use super::acquisition::Acquisition;
use super::beside::{alone, foreign};
use super::hold::{Hold, LockRequest};
use super::line::Line;
use super::line_state::Step;
use super::observed::ObservedCall;
use super::outstanding::{Asker, Outstanding};
use super::patience::{Limit, NoAnswer, Patience, TooLate, within};
use super::phase::Status;
use super::release::Unfinished;
use super::retries::Retries;
use super::shared::Shared;
use crate::base::error::Cause;
use crate::base::error::LockError;
use crate::base::observe::AcquiredHow;
use crate::base::place::Place;
use crate::store::{Answer, Mode, Store, StoreError};

/// A hold, and how it was acquired.
type Acquired = (Arc<Hold>, AcquiredHow);

/// Maximum time past its limit that a waiter spends on its last request, and on its own clean-up.
const GRACE: Duration = Duration::from_millis(100);

/// Maximum interval between a failure and the next request of a waiter that runs.
const FRESH: Duration = Duration::from_secs(2);

/// Time after which a task that waits for a lock of its own is warned of.
const SUSPICIOUS: Duration = Duration::from_secs(1);

/// Interval after which a refused subscription is tried again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(60);

/// Acquires the lock. The task watches the returned hold; the caller must release it.
///
/// Cancel-safe at every await: dropping the future undoes what it did.
pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    request: LockRequest,
    limit: Limit,
) -> Result<Arc<Hold>, LockError> {
    let call = ObservedCall::begin(&request);
    let result = match call.as_deref().and_then(ObservedCall::span) {
        None => until_acquired(shared, &request, limit).await,
        // Instrumenting a future moves it, so do it only if the span is enabled.
        Some(span) => {
            let acquiring = Box::pin(until_acquired(shared, &request, limit));
            acquiring.instrument(span.clone()).await
        }
    };
    if let Some(call) = call {
        call.ended(
            shared,
            result.as_ref().map(|(hold, how)| (hold.get(), *how)),
        );
    }
    result.map(|(hold, _)| hold.claim())
}

/// A hold for which there is no guard yet. If a subscriber or an observer panics, its drop releases the lock.
struct Unclaimed<'a> {
    shared: &'a Shared,
    hold: Option<Arc<Hold>>,
}

impl Unclaimed<'_> {
    fn get(&self) -> &Arc<Hold> {
        self.hold
            .as_ref()
            .unwrap_or_else(|| unreachable!("not claimed yet"))
    }

    fn claim(mut self) -> Arc<Hold> {
        self.hold
            .take()
            .unwrap_or_else(|| unreachable!("claimed once"))
    }
}

impl Drop for Unclaimed<'_> {
    fn drop(&mut self) {
        if let Some(hold) = &self.hold {
            self.shared.end(hold);
        }
    }
}

async fn until_acquired<'a>(
    shared: &'a Arc<Shared>,
    request: &LockRequest,
    limit: Limit,
) -> Result<(Unclaimed<'a>, AcquiredHow), LockError> {
    shared.check_alive()?;
    let patience = Patience::new(limit);
    let mut answered = false;
    loop {
        match once_in_line(shared, request.clone(), patience, &mut answered).await {
            Ok(Some((hold, how))) => {
                let hold = Some(hold);
                return Ok((Unclaimed { shared, hold }, how));
            }
            Ok(None) => {}
            // An error that looks like a shutdown or a broken connection may be the end of the engine's runtime.
            Err(error @ (LockError::ShutDown | LockError::Unavailable { .. })) => {
                shared.check_alive()?;
                return Err(error);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns `None` if the owner has acquired by another way meanwhile, so that the next attempt finds the lock held by its owner,
/// or if the waiter was passed over. `answered` tells whether the server answered the last attempt of an owner beside the line.
async fn once_in_line(
    shared: &Arc<Shared>,
    request: LockRequest,
    patience: Patience,
    answered: &mut bool,
) -> Result<Option<Acquired>, LockError> {
    // An owner may hold the lock already, in this process or in another one. It must not queue behind the waiters for that lock.
    let one_try = matches!(patience.limit, Limit::Try);
    if one_try || request.key.traits().has_owners {
        if shared.is_releasing(&request.key) {
            Box::pin(shared.after_own_release(&request.key, patience.end())).await;
        }
        // The owner must not overtake waiters of other processes while this process yields the turn to them.
        if !one_try
            && shared.holder_for(&request).is_none()
            && let Some(pause) = shared.yields(&request.key)
            && within(patience.end(), Box::pin(sleep(pause)))
                .await
                .is_none()
        {
            return Err(LockError::TimedOut {
                key: request.key.name().to_owned(),
                waited: patience.waited(),
                holder: None,
            });
        }
        // Boxed, like the other futures that talk to the server: a waiter served by local hand-over does not carry their state.
        match Box::pin(alone(shared, request.clone(), patience, answered)).await {
            Err(LockError::Busy { .. }) if !one_try => {}
            outcome => {
                let how = if one_try {
                    AcquiredHow::Tried
                } else {
                    AcquiredHow::Free
                };
                return outcome.map(|hold| Some((hold, how)));
            }
        }
    }
    let (line, hold) = shared.join(request)?;
    if *answered {
        line.heard(true);
    }
    let place = PlaceInLine {
        shared,
        line,
        hold: Some(hold),
    };
    Waiter {
        shared,
        patience,
        retries: Retries::new(),
        place,
        has_waited: false,
        warned: false,
        is_last: false,
    }
    .run()
    .await
}

/// A place in the waiting line. Dropping it leaves the line.
struct PlaceInLine<'a> {
    shared: &'a Arc<Shared>,
    line: Arc<Line>,
    hold: Option<Arc<Hold>>,
}

impl PlaceInLine<'_> {
    fn hold(&self) -> &Arc<Hold> {
        self.hold.as_ref().unwrap_or_else(|| {
            unreachable!("taken only by the methods that consume the acquisition")
        })
    }

    /// Returns `None` if the waiter had not run for too long, so that the lock went to the next one.
    fn complete(mut self, alone: bool) -> Option<Arc<Hold>> {
        let hold = Arc::clone(self.hold());
        if !hold.take() {
            return None;
        }
        self.hold = None;
        if alone {
            self.shared.rest(&self.line);
        }
        self.shared.watch(&hold);
        Some(hold)
    }

    /// Leaves the line. Returns the acquisition if no other waiter needs it. Ends the hold if it began at the last moment.
    fn leave(&mut self) -> Option<Arc<Acquisition>> {
        let hold = self.hold.take()?;
        if !hold.abandon() {
            // A hand-over came at the last moment: end the hold, so that the lock goes to the next waiter.
            self.shared.end(&hold);
            return None;
        }
        let acquisition = self.line.leave(&hold);
        self.shared.tidy(&self.line);
        acquisition
    }

    /// Leaves the line and releases before the waiter reports its error, so that the lock does not go to a waiter that has just
    /// left. The task finishes a release that a slow server does not confirm in time.
    async fn withdraw(&mut self) {
        let Some(acquisition) = self.leave() else {
            return;
        };
        acquisition.let_go();
        let unfinished = Unfinished::new(self.shared, &acquisition);
        let shared = &self.shared;
        let release = Box::pin(async {
            let token = shared.token(&acquisition);
            let (key, owner) = (&acquisition.key, acquisition.owner());
            shared.store.release(key, &token, owner).await
        });
        if let Ok(Ok(_)) = timeout(GRACE, release).await {
            unfinished.released();
        }
    }
}

impl Drop for PlaceInLine<'_> {
    fn drop(&mut self) {
        if let Some(acquisition) = self.leave() {
            self.shared.abandon(&acquisition);
        }
    }
}

struct Waiter<'a> {
    shared: &'a Shared,
    patience: Patience,
    retries: Retries,
    place: PlaceInLine<'a>,
    /// It has waited for another holder.
    has_waited: bool,
    /// It was warned that its own task holds the lock.
    warned: bool,
    /// Its limit is over, and it asks a last time.
    is_last: bool,
}

impl Waiter<'_> {
    async fn run(mut self) -> Result<Option<Acquired>, LockError> {
        loop {
            let hold = self.place.hold();
            let line = &self.place.line;
            match line.step(hold, || self.shared.now(), self.shared.limits(line)) {
                Step::Held { alone, handed_over } => {
                    let how = match (handed_over, self.has_waited) {
                        (true, _) => AcquiredHow::HandedOver,
                        (false, true) => AcquiredHow::Granted,
                        (false, false) => AcquiredHow::Free,
                    };
                    return Ok(self.place.complete(alone).map(|hold| (hold, how)));
                }
                Step::Enter | Step::Again => return Ok(None),
                Step::ShutDown => return Err(LockError::ShutDown),
                Step::Lead => {
                    self.shared.lead(&self.place.line, hold)?;
                }
                Step::Ask {
                    acquisition,
                    reserve,
                } => self.ask(&acquisition, reserve).await?,
                Step::TooLate(acquisition) => {
                    let late = StoreError::Ambiguous(Cause::new(Arc::new(TooLate)));
                    self.failed(&acquisition, late).await?;
                }
                Step::Wait => {
                    self.has_waited = true;
                    let waited = self.wait().await;
                    self.stay(waited).await?;
                }
                Step::Yield { pause } => {
                    self.has_waited = true;
                    // Boxed to keep each waiter small: yielding is rare, and thousands of waiters may wait.
                    let waited = Box::pin(timeout(pause, self.wait())).await;
                    self.stay(waited.unwrap_or(Ok(()))).await?;
                }
            }
        }
    }

    /// Sends one request for the line, and passes the answer on to the line.
    async fn ask(&mut self, acquisition: &Arc<Acquisition>, reserve: u64) -> Result<(), LockError> {
        if let Some(connecting) = self.shared.store.connecting(&acquisition.key) {
            // A waiter that gives up before a connection exists leaves nothing on the server.
            let connected = match within(self.patience.end(), connecting).await {
                Some(Ok(())) => Ok(()),
                Some(Err(error)) => self.failed(acquisition, error).await,
                None => Err(self.no_answer()),
            };
            // The waiter asks in its next step.
            acquisition.life().state.interrupted();
            self.place.line.answered(acquisition, self.place.hold());
            return connected;
        }
        let terms = self.place.hold().request.terms;
        let request = Outstanding::begin(self.shared, acquisition, terms, reserve);
        let answer = {
            let call = pin!(async {
                let token = self.shared.token(acquisition);
                let attempt = request.attempt(&token, Mode::Wait);
                self.shared.store.acquire(attempt).await
            });
            within(self.patience.end(), call).await
        };
        let Some(answer) = answer else {
            return Err(self.no_answer());
        };
        let line = Arc::clone(&self.place.line);
        line.heard(answer.is_ok());
        if self.place.hold().phase() != Status::Pending || acquisition.is_over() {
            // The waiter did not run and was passed over, or its manager was shut down. Another waiter may be asking by now.
            request.settle_late();
            return Ok(());
        }
        request.read(&answer, Asker::Waiter);
        let mut parked = None;
        let outcome = match answer {
            Ok(Answer::Granted { .. }) => Ok(()),
            Ok(Answer::Queued(place)) => {
                self.retries.over();
                if let Some(own) = place.own_holder {
                    self.shared
                        .check_own_holder(own, &acquisition.key, place.remaining);
                }
                line.held_by(place.holder, place.is_foreign);
                // Mark the answer before the check is set: a check that falls due during a request is dropped.
                line.answered(acquisition, self.place.hold());
                self.shared.check_line(&line, terms, place.remaining);
                tracing::trace!("waiting in the queue");
                Ok(())
            }
            // Only where the server keeps no queue.
            Ok(Answer::Busy { remaining, holder }) => {
                self.retries.over();
                line.held_by(holder, false);
                parked = Some(remaining);
                self.subscribe(acquisition).await
            }
            Ok(Answer::Foreign { kind }) => Err(foreign(acquisition, kind)),
            Err(error) => self.after(acquisition, error).await,
        };
        line.answered(acquisition, self.place.hold());
        // Set the check only now: a check that falls due during a request is dropped, and subscribing may take longer than that.
        if let Some(remaining) = parked {
            self.shared
                .check_line(&line, acquisition.terms(), remaining);
        }
        outcome
    }

    /// Subscribes to the releases of the lock. One more request finds a release that came before the subscription was confirmed.
    async fn subscribe(&self, acquisition: &Arc<Acquisition>) -> Result<(), LockError> {
        let line = &self.place.line;
        let now = self.shared.now();
        if !(self.shared.store.pushes(&acquisition.key) && line.needs_subscription(now)) {
            return Ok(());
        }
        line.asks_on(acquisition, self.place.hold(), now);
        let subscribing = Box::pin(self.shared.store.subscribe(&acquisition.key));
        match within(self.patience.end(), subscribing).await {
            Some(Ok(subscription)) => {
                if subscription.is_some() {
                    acquisition.life().state.interrupted();
                }
                line.subscribed(subscription, now + SUBSCRIBE_AGAIN);
            }
            // The line polls, and subscribes again with the next poll.
            Some(Err(error)) => tracing::debug!(%error, "could not subscribe"),
            None => {
                // The next waiter has no subscription either: it asks and subscribes itself.
                acquisition.life().state.interrupted();
                return Err(self.out_of_time());
            }
        }
        Ok(())
    }

    /// Leaves the line if the wait failed because the lock is taken.
    async fn stay(&mut self, waited: Result<(), LockError>) -> Result<(), LockError> {
        if let Err(error) = &waited
            && error.is_contention()
        {
            self.place.withdraw().await;
        }
        waited
    }

    /// Waits for a wake-up, or for the end of the waiter's limit.
    async fn wait(&mut self) -> Result<(), LockError> {
        if self.is_last {
            return Err(self.out_of_time());
        }
        let hold = self.place.hold();
        // A waiter with a limit waits until that limit.
        let patience =
            matches!(self.patience.limit, Limit::Forever).then_some(hold.request.terms.ttl());
        if let Some(error) = self
            .place
            .line
            .hopeless(hold, || self.shared.now(), patience)
        {
            return Err(error.into_lock_error());
        }
        let woken = match self.place.line.held_in_task_of(hold) {
            Some(held_at) if !self.warned => Box::pin(self.wait_for_own_task(held_at)).await,
            _ => within(self.patience.end(), hold.wake_cell.wait()).await,
        };
        let hold = self.place.hold();
        // A hand-over may have come at the last moment.
        if woken.is_none() && hold.status(self.shared.now()) == Status::Pending {
            // The lock may have become free without a message: a client of another kind had it, or its key was deleted.
            self.is_last = true;
            self.patience.lengthen(GRACE);
            self.place.line.ask_again(hold);
        }
        Ok(())
    }

    /// Warns of a wait that may never end. The task may be a good program: it may poll the holder and the waiter in turns.
    async fn wait_for_own_task(&mut self, held_at: Place) -> Option<()> {
        let (end, hold) = (self.patience.end(), self.place.hold());
        if let Ok(woken) = timeout(SUSPICIOUS, within(end, hold.wake_cell.wait())).await {
            return woken;
        }
        self.warned = true;
        let LockRequest { key, place, .. } = &hold.request;
        // A program that gives its guards to other tasks is warned of once, and not for each of them.
        if self.shared.warns_of(held_at, *place) {
            tracing::warn!(
                key = key.name(),
                %held_at,
                waits_at = %place,
                "a task waits for a lock whose guard it has taken itself: without a limit the wait never ends, unless another task or a joined future drops that guard"
            );
        }
        within(end, hold.wake_cell.wait()).await
    }

    /// The error of a limit that passed without an answer or a connection.
    fn no_answer(&self) -> LockError {
        // A server that answered the last request of this line is reachable: the lock itself did not come in time.
        if self.place.line.is_answered() {
            self.out_of_time()
        } else {
            self.shared.unavailable(&self.place.line.key, NoAnswer)
        }
    }

    fn out_of_time(&self) -> LockError {
        let fresh = self.shared.config.command_deadline.saturating_add(FRESH);
        match self.place.line.trouble(self.shared.now() - fresh) {
            Some(error) => error.into_lock_error(),
            None => LockError::TimedOut {
                key: self.place.line.key.name().to_owned(),
                waited: self.patience.waited(),
                holder: self.place.line.holder_name(self.shared.client.name()),
            },
        }
    }

    /// Handles an attempt that came to nothing although no request failed: no connection, or a grant that came too late.
    async fn failed(
        &mut self,
        acquisition: &Arc<Acquisition>,
        error: StoreError,
    ) -> Result<(), LockError> {
        {
            let mut life = acquisition.life();
            life.state.failed(self.shared.now(), error.clone());
            life.state.interrupted();
        }
        self.after(acquisition, error).await
    }

    /// Decides after a failed request: try again after a pause, or give up.
    async fn after(
        &mut self,
        acquisition: &Arc<Acquisition>,
        error: StoreError,
    ) -> Result<(), LockError> {
        let patience = match self.patience.limit {
            Limit::Forever => Some(self.place.hold().request.terms.ttl()),
            Limit::Try | Limit::Within(_) => None,
        };
        let now = self.shared.now();
        let hopeless = acquisition.life().state.hopeless(now, patience);
        let pause = self.retries.again();
        let end = self.patience.end();
        if hopeless.is_some() || end.is_some_and(|end| Instant::now() + pause >= end) {
            return Err(error.into_lock_error());
        }
        tracing::debug!(key = acquisition.key.name(), %error, "asking again");
        // A wake-up ends the pause early, for example when the connection is back.
        let _ = timeout(pause, self.place.hold().wake_cell.wait()).await;
        Ok(())
    }
}
