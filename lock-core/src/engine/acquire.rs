//! Acquires a lock. One loop serves a waiter in the line of its process, beside that line, and without a line. The loop asks, waits
//! and takes a grant. A failure leaves nothing behind.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument;

use super::acquisition::Acquisition;
use super::hold::{Hold, LockRequest};
use super::lease::Status;
use super::line::{Line, Step};
use super::observed::ObservedCall;
use super::outstanding::Outstanding;
use super::own_guard;
use super::patience::{Limit, NoAnswer, Patience, TooLate};
use super::release::Unfinished;
use super::shared::Shared;
use super::state::{Asker, Next};
use crate::base::backoff::Backoff;
use crate::base::error::{Cause, LockError, LossReason};
use crate::base::observe::AcquiredHow;
use crate::base::place::Place;
use crate::base::refusal::Refusal;
use crate::base::sync::lock;
use crate::base::time::Moment;
use crate::store::{Answer, Mode, StoreError};

/// A hold, and how it was acquired.
type Acquired = (Arc<Hold>, AcquiredHow);

/// Maximum time after its limit that a waiter spends on its last request, and on its clean-up.
const GRACE: Duration = Duration::from_millis(100);

/// Maximum interval between a failure and the next request of a waiter that runs.
const FRESH: Duration = Duration::from_secs(2);

/// Interval between the requests of a waiter after the key of its lock was found to be something else.
const PUZZLED: Duration = Duration::from_secs(1);

/// Time after which the log warns of a task that waits for a lock which it holds itself.
const SUSPICIOUS: Duration = Duration::from_secs(1);

/// Minimum interval between the looks of a waiter at a server that answers.
const LOOK: Duration = Duration::from_secs(1);

/// The pauses after requests that failed.
const RETRIES: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));

/// Interval after which a refused subscription is tried again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(60);

/// Acquires the lock. The task watches the returned hold; the caller must release it.
///
/// Cancel-safe at every await: dropping the future undoes what it did.
pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    mut request: LockRequest,
    limit: Limit,
) -> Result<Arc<Hold>, LockError> {
    let call = ObservedCall::begin(&request);
    let result = match call.as_deref().and_then(ObservedCall::span) {
        None => until_acquired(shared, &mut request, limit).await,
        // Instrumenting a future moves it, so do it only if the span is enabled.
        Some(span) => {
            let acquiring = Box::pin(until_acquired(shared, &mut request, limit));
            acquiring.instrument(span.clone()).await
        }
    };
    if let Ok((hold, how)) = &result {
        name_holder(shared, hold.get(), *how);
    }
    if let Some(call) = call {
        call.ended(
            shared,
            result.as_ref().map(|(hold, how)| (hold.get(), *how)),
        );
    }
    result.map(|(hold, _)| hold.claim())
}

/// A script of another kind may have granted the lock to a waiter that wants to be named, and does not name it. The first renewal does,
/// so it is due at once.
fn name_holder(shared: &Shared, hold: &Hold, how: AcquiredHow) {
    if hold.request.claim.value.is_some()
        && how != AcquiredHow::Free
        && let Some(lease) = hold.lease()
    {
        let now = shared.clock.now();
        lease.confirm_at(now);
        shared.lease_due_at(now);
    }
}

/// A hold for which there is no guard yet. If a subscriber or an observer panics, its drop releases the lock.
pub(super) struct Unclaimed<'a> {
    shared: &'a Shared,
    hold: Option<Arc<Hold>>,
}

impl<'a> Unclaimed<'a> {
    pub(super) fn new(shared: &'a Shared, hold: Arc<Hold>) -> Self {
        let hold = Some(hold);
        Self { shared, hold }
    }

    pub(super) fn get(&self) -> &Arc<Hold> {
        self.hold
            .as_ref()
            .unwrap_or_else(|| unreachable!("not claimed yet"))
    }

    pub(super) fn claim(mut self) -> Arc<Hold> {
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
    request: &mut LockRequest,
    limit: Limit,
) -> Result<(Unclaimed<'a>, AcquiredHow), LockError> {
    let patience = Patience::new(&shared.timers, limit);
    loop {
        match once(shared, request, patience).await {
            Ok(Some((hold, how))) => {
                return Ok((Unclaimed::new(shared, hold), how));
            }
            Ok(None) => {}
            Err(error) => return Err(blamed(shared, error)),
        }
    }
}

/// Replaces an error that looks like a shutdown or a broken connection, if the engine's runtime has ended.
pub(super) fn blamed(shared: &Shared, error: LockError) -> LockError {
    match error {
        LockError::ShutDown | LockError::Unavailable { .. } => {
            shared.check_alive().err().unwrap_or(error)
        }
        error => error,
    }
}

/// Returns `None` if the caller has to try again: another waiter has acquired the lock for the same owner meanwhile, or this waiter
/// was passed over.
async fn once(
    shared: &Arc<Shared>,
    request: &mut LockRequest,
    patience: Patience,
) -> Result<Option<Acquired>, LockError> {
    let (traits, one_try) = (request.key.traits(), patience.is_one_try());
    // An owner may hold the lock already, in this process or in another one. It must not queue behind the waiters for that lock.
    if one_try || traits.has_owners || !traits.forms_line {
        // Boxed, like all futures that talk to the server: a waiter served by local hand-over does not carry their state.
        match Box::pin(without_line(shared, request, patience)).await {
            Err(LockError::Busy { .. }) if !one_try && traits.forms_line => {}
            outcome => return outcome,
        }
    }
    let (line, hold) = shared.join(request.clone())?;
    if request.is_answered {
        line.set_answered(true);
    }
    let queue = Queue::Line(line);
    Waiter::new(shared, patience, queue, hold).run().await
}

/// Makes one try beside the line of the lock. Of a kind without lines: waits in the server's queue.
async fn without_line(
    shared: &Arc<Shared>,
    request: &mut LockRequest,
    patience: Patience,
) -> Result<Option<Acquired>, LockError> {
    let (forms_line, one_try) = (request.key.traits().forms_line, patience.is_one_try());
    let (end, timers) = (patience.end(), &shared.timers);
    if forms_line || one_try {
        shared.after_own_releases(&request.key, end).await?;
    }
    // The owner must not overtake waiters of other processes while this process yields the turn to them.
    if forms_line
        && !one_try
        && shared.holder_for(request).is_none()
        && let Some(pause) = shared.yields(&request.key)
        && timers.within(end, timers.sleep(pause)).await.is_none()
    {
        return Err(LockError::TimedOut {
            key: request.key.name().to_owned(),
            waited: patience.waited(timers),
            holder: None,
        });
    }
    let mut waiter = Waiter::without_line(shared, request, patience)?;
    let acquired = waiter.run().await;
    request.is_answered = waiter.is_answered;
    let how = |how| if one_try { AcquiredHow::Tried } else { how };
    acquired.map(|acquired| acquired.map(|(hold, was)| (hold, how(was))))
}

/// Where a waiter waits.
#[derive(Debug)]
pub(super) enum Queue {
    /// In the line of its lock. The line's acquisition asks for the first waiter.
    Line(Arc<Line>),
    /// Beside the line, which learns of a grant. This acquisition never waits: if another owner has the lock, the answer is `Busy`.
    Beside(Arc<Acquisition>),
    /// In the server's queue, without a line. This acquisition serves only this waiter.
    Server(Arc<Acquisition>),
}

/// A waiter. Dropping it leaves its queue, and undoes what it did.
#[expect(clippy::struct_excessive_bools, reason = "each stands for itself")]
pub(super) struct Waiter<'a> {
    shared: &'a Arc<Shared>,
    patience: Patience,
    retries: Backoff,
    queue: Queue,
    pub(super) hold: Arc<Hold>,
    /// Whether the server answered the last request that was not made for a line.
    is_answered: bool,
    /// Whether it has waited for another holder.
    has_waited: bool,
    /// What the key was at the last answer, if it was not a lock. The log has reported this kind.
    puzzled_by: Option<Refusal>,
    /// Whether the log has warned that its own task holds the lock.
    warned: bool,
    /// Where its own task holds the lock through another acquisition. Computed once: there may be thousands of holders.
    held_at: OnceLock<Option<Place>>,
    /// Whether it has left its queue, or its hold is taken.
    is_over: bool,
}

impl<'a> Waiter<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        patience: Patience,
        queue: Queue,
        hold: Arc<Hold>,
    ) -> Self {
        if let Queue::Beside(acquisition) | Queue::Server(acquisition) = &queue {
            acquisition.serve(&hold);
        }
        Self {
            shared,
            patience,
            retries: RETRIES,
            queue,
            is_answered: hold.request.is_answered,
            hold,
            has_waited: false,
            puzzled_by: None,
            warned: false,
            held_at: OnceLock::new(),
            is_over: false,
        }
    }

    /// A waiter beside the line of its lock, or of a kind without lines.
    pub(super) fn without_line(
        shared: &'a Arc<Shared>,
        request: &LockRequest,
        patience: Patience,
    ) -> Result<Self, LockError> {
        let acquisition = shared.acquisition(request)?;
        let queue = if request.key.traits().forms_line {
            Queue::Beside(acquisition)
        } else {
            Queue::Server(acquisition)
        };
        let hold = Arc::new(Hold::new(request.clone()));
        Ok(Self::new(shared, patience, queue, hold))
    }

    pub(super) async fn run(&mut self) -> Result<Option<Acquired>, LockError> {
        loop {
            match self.step() {
                Step::Held { alone, handed_over } => {
                    let how = match (handed_over, self.has_waited) {
                        (true, _) => AcquiredHow::HandedOver,
                        (false, true) => AcquiredHow::Granted,
                        (false, false) => AcquiredHow::Free,
                    };
                    return Ok(self.complete(alone).map(|hold| (hold, how)));
                }
                Step::Again => return Ok(None),
                Step::ShutDown => return Err(LockError::ShutDown),
                Step::Ask {
                    acquisition,
                    reserve,
                } => self.ask(&acquisition, reserve).await?,
                Step::TooLate(acquisition) => {
                    let late = StoreError::Ambiguous(Cause::of(Arc::new(TooLate)));
                    let now = self.shared.clock.now();
                    self.failed(&acquisition, now, late).await?;
                }
                Step::Wait => {
                    self.has_waited = true;
                    let waited = self.wait().await;
                    self.stay(waited).await?;
                }
                Step::Yield { pause } => {
                    self.has_waited = true;
                    // Boxed to keep each waiter small: yielding is rare, and thousands of waiters may wait.
                    let timers = &self.shared.timers;
                    let waited = Box::pin(timers.timeout(pause, self.wait())).await;
                    self.stay(waited.unwrap_or(Ok(()))).await?;
                }
            }
        }
    }

    fn step(&self) -> Step {
        let (shared, hold) = (self.shared, &self.hold);
        let (acquisition, polled) = match &self.queue {
            Queue::Line(line) => {
                return line.step(hold, &*shared.clock, shared.limits(line));
            }
            Queue::Beside(acquisition) if lock(&acquisition.life).state.has_grant() => {
                (acquisition, shared.polled_beside(acquisition, hold))
            }
            Queue::Beside(acquisition) | Queue::Server(acquisition) => (
                acquisition,
                acquisition.polled(shared.clock.now(), hold, None),
            ),
        };
        match polled {
            Next::Wait => Step::Wait,
            Next::Ask => {
                let (now, terms) = (shared.clock.now(), hold.request.terms);
                lock(&acquisition.life)
                    .state
                    .asks(Asker::Waiter, now, terms);
                Step::Ask {
                    acquisition: Arc::clone(acquisition),
                    reserve: 0,
                }
            }
            Next::Take(_) => Step::Held {
                alone: false,
                handed_over: false,
            },
            Next::TooLate => Step::TooLate(Arc::clone(acquisition)),
            Next::Over => Step::ShutDown,
        }
    }

    /// Sends one request, and passes the answer on to the acquisition.
    async fn ask(&mut self, acquisition: &Arc<Acquisition>, reserve: u64) -> Result<(), LockError> {
        if let Some(connected) = self.connect(acquisition).await {
            return connected;
        }
        // The acquisition through which this process holds the lock for the owner before the request.
        let owners = match &self.queue {
            Queue::Beside(_) => self.shared.holder_for(&self.hold.request),
            Queue::Line(_) | Queue::Server(_) => None,
        };
        let terms = self.hold.request.terms;
        let (began, until) = (self.shared.clock.now(), self.until(Some(acquisition)));
        let request = Outstanding::begin(self.shared, acquisition, Asker::Waiter, terms, reserve);
        let answer = {
            let call = pin!(async {
                let token = self.shared.token(acquisition);
                let attempt = request.attempt(&token, self.mode());
                self.shared.store.acquire(attempt).await
            });
            self.shared.timers.within(until, call).await
        };
        let Some(answer) = answer else {
            return Err(self.no_answer(acquisition, began));
        };
        if !self.read(acquisition, request, &answer) {
            return Ok(());
        }
        let held_for = self.answered(acquisition, answer, owners).await;
        acquisition.asked_for(&self.hold);
        // Set the check only now: a check that falls due during a request is put off, and subscribing may outlast that.
        if let Some(remaining) = held_for? {
            self.shared.check(acquisition, self.line(), remaining);
        }
        Ok(())
    }

    /// Waits for a connection if there is none. The waiter then asks in its next step.
    pub(super) async fn connect(
        &mut self,
        acquisition: &Arc<Acquisition>,
    ) -> Option<Result<(), LockError>> {
        let connecting = self.shared.store.connecting(&acquisition.key)?;
        let (began, until) = (self.shared.clock.now(), self.until(Some(acquisition)));
        // A waiter that gives up before a connection exists leaves nothing on the server.
        let connected = match self.shared.timers.within(until, connecting).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => self.failed(acquisition, began, error).await,
            None => Err(self.no_answer(acquisition, began)),
        };
        lock(&acquisition.life).state.interrupted();
        acquisition.asked_for(&self.hold);
        Some(connected)
    }

    /// Passes an answer on to the acquisition. Returns false if the answer is not for this waiter any more.
    pub(super) fn read(
        &mut self,
        acquisition: &Arc<Acquisition>,
        request: Outstanding<'_>,
        answer: &Result<Answer, StoreError>,
    ) -> bool {
        self.set_answered(answer.is_ok());
        if self.hold.phase() != Status::Pending || lock(&acquisition.life).state.is_over() {
            // The waiter did not run and was passed over, or its manager was shut down. Another waiter may be asking by now.
            request.settle_late();
            return false;
        }
        request.read(answer);
        true
    }

    /// Acts on an answer. Returns the rest of the holder's lease if the waiter has to wait.
    pub(super) async fn answered(
        &mut self,
        acquisition: &Arc<Acquisition>,
        answer: Result<Answer, StoreError>,
        owners: Option<Arc<Acquisition>>,
    ) -> Result<Option<Duration>, LockError> {
        match answer {
            Ok(Answer::Granted { .. }) => Ok(None),
            Ok(Answer::Queued(place)) => {
                self.retries.over();
                self.puzzled_by = None;
                if let Some(own) = place.own_holder {
                    self.shared
                        .check_own_holder(own, &acquisition.key, place.remaining);
                }
                tracing::trace!("waiting in the queue");
                Ok(Some(place.remaining))
            }
            Ok(Answer::Busy { remaining, holder }) if self.mode() == Mode::Try => {
                if let Some(lease) = owners.as_ref().and_then(|holder| holder.lease())
                    && lease.lose(LossReason::Gone)
                {
                    // Until now this process knew the owner as the holder, but another owner has the lock.
                    self.shared.lease_due_at(self.shared.clock.now());
                }
                lock(&acquisition.life).state.refused();
                Err(self.busy(remaining, holder))
            }
            // Only a server without a queue gives this answer to a waiter.
            Ok(Answer::Busy { remaining, .. }) => {
                self.retries.over();
                self.subscribe(acquisition).await?;
                Ok(Some(remaining))
            }
            Ok(Answer::Refused(refusal)) => self.refused(acquisition, refusal).map(Some),
            Err(error) => self.after(acquisition, error).await.map(|()| None),
        }
    }

    /// Handles a key that is not what the request takes it for. A waiter that has waited for a lock goes on: the lock may be there again
    /// soon. Returns the time until its next request.
    fn refused(
        &mut self,
        acquisition: &Acquisition,
        refusal: Refusal,
    ) -> Result<Duration, LockError> {
        let is_known = self.puzzled_by.as_ref() == Some(&refusal);
        let is_lasting = !matches!(refusal, Refusal::Foreign(_));
        self.puzzled_by = Some(refusal.clone());
        let error = self.hold.request.claim.refused(&acquisition.key, refusal);
        if is_lasting {
            return Err(error);
        }
        if !self.has_waited || self.patience.is_last {
            // The next waiter of the line sends its own request.
            lock(&acquisition.life).state.interrupted();
            return Err(error);
        }
        if !is_known {
            tracing::warn!(key = acquisition.key.name(), %error, "waiting for a lock: asking again each second");
        }
        Ok(PUZZLED)
    }

    fn mode(&self) -> Mode {
        match (&self.queue, self.patience.limit) {
            (Queue::Beside(_), _) | (Queue::Server(_), Limit::Try) => Mode::Try,
            (Queue::Line(_) | Queue::Server(_), _) => Mode::Wait,
        }
    }

    fn line(&self) -> Option<&Line> {
        match &self.queue {
            Queue::Line(line) => Some(line),
            Queue::Beside(_) | Queue::Server(_) => None,
        }
    }

    /// The acquisition that asks for this waiter, or for the first of its line.
    pub(super) fn asks(&self) -> Option<Arc<Acquisition>> {
        match &self.queue {
            Queue::Line(line) => line.pending(),
            Queue::Beside(acquisition) | Queue::Server(acquisition) => {
                Some(Arc::clone(acquisition))
            }
        }
    }

    fn set_answered(&mut self, answered: bool) {
        match self.line() {
            Some(line) => line.set_answered(answered),
            None => self.is_answered = answered,
        }
    }

    /// The error for a lock that is held, or `ShutDown` if the manager was shut down meanwhile.
    fn busy(&self, remaining: Duration, holder: Option<Box<str>>) -> LockError {
        if self.shared.is_closing() {
            return LockError::ShutDown;
        }
        LockError::Busy {
            key: self.hold.request.key.name().to_owned(),
            retry_after: Some(remaining),
            holder,
        }
    }

    /// Subscribes to the releases of the lock. One more request finds a release that came before the subscription was confirmed.
    async fn subscribe(&self, acquisition: &Arc<Acquisition>) -> Result<(), LockError> {
        let now = self.shared.clock.now();
        let line = self.line().filter(|line| line.needs_subscription(now));
        let Some(line) = line.filter(|_| self.shared.store.pushes(&acquisition.key)) else {
            return Ok(());
        };
        lock(&acquisition.life).state.asks_on(now);
        let subscribing = Box::pin(self.shared.store.subscribe(&acquisition.key));
        let (timers, end) = (&self.shared.timers, self.patience.end());
        match timers.within(end, subscribing).await {
            Some(Ok(subscription)) => {
                if subscription.is_some() {
                    lock(&acquisition.life).state.interrupted();
                }
                line.subscribed(subscription, now + SUBSCRIBE_AGAIN);
            }
            // The line polls, and subscribes again with the next poll.
            Some(Err(error)) => tracing::debug!(%error, "could not subscribe"),
            None => {
                // The next waiter has no subscription either: it asks and subscribes itself.
                lock(&acquisition.life).state.interrupted();
                return Err(self.out_of_time());
            }
        }
        Ok(())
    }

    /// Leaves the queue if the wait failed because the lock is taken.
    async fn stay(&mut self, waited: Result<(), LockError>) -> Result<(), LockError> {
        if let Err(error) = &waited
            && error.is_contention()
        {
            self.withdraw().await;
        }
        waited
    }

    /// Waits for a wake-up, or for the end of the waiter's limit.
    async fn wait(&mut self) -> Result<(), LockError> {
        if self.patience.is_last {
            return Err(self.out_of_time());
        }
        let hold = &self.hold;
        let asks = self.asks();
        if let Some(error) = asks.as_ref().and_then(|asks| self.hopeless(asks)) {
            return Err(error.into_lock_error());
        }
        let held_at = match &asks {
            // Another process has the lock, or another manager or guard of this process.
            Some(_) => {
                let look = || own_guard::held_in_task_of(self.shared, &hold.request);
                *self.held_at.get_or_init(look)
            }
            None => self.line().and_then(|line| line.held_in_task_of(hold)),
        };
        let woken = match held_at {
            Some(held_at) if !self.warned => Box::pin(self.wait_for_own_task(held_at)).await,
            _ => {
                let (end, woken) = (self.looks_at(asks.as_ref()), hold.wake_cell.wait());
                self.shared.timers.within(end, woken).await
            }
        };
        let is_over = self.patience.is_over(&self.shared.timers);
        // A hand-over may have come at the last moment.
        if woken.is_none()
            && is_over
            && self.hold.status(self.shared.clock.now()) == Status::Pending
        {
            // The lock may have become free without a message: a client of another kind had it, or its key was deleted.
            self.patience.lengthen(GRACE);
            if let Some(asks) = self.asks() {
                asks.ask_once_more(&self.hold);
            }
        }
        Ok(())
    }

    /// Warns of a wait that may never end. It is no error: a correct task may poll the holder and the waiter in turns.
    async fn wait_for_own_task(&mut self, held_at: Place) -> Option<()> {
        let (timers, hold) = (&self.shared.timers, &self.hold);
        let woken = timers.within(self.patience.end(), hold.wake_cell.wait());
        if let Ok(woken) = timers.timeout(SUSPICIOUS, woken).await {
            return woken;
        }
        self.warned = true;
        let LockRequest { key, place, .. } = &hold.request;
        // Warn once for each pair of places: the program may pass guards to other tasks on purpose.
        if own_guard::warns_of(self.shared, held_at, *place) {
            tracing::warn!(
                key = key.name(),
                %held_at,
                waits_at = %place,
                "a task waits for a lock whose guard it has taken itself: without a limit the wait never ends, unless another task or a joined future drops that guard"
            );
        }
        Some(())
    }

    /// The end of the waiter's limit or of `unavailable_after`, whichever is earlier.
    pub(super) fn until(&self, asks: Option<&Arc<Acquisition>>) -> Option<Instant> {
        let end = self.patience.end();
        let Some(after) = self.hold.request.unavailable_after.limit() else {
            return end;
        };
        let failing = asks.and_then(|asks| lock(&asks.life).state.failing());
        let since = failing.map(|(since, _)| since.until(self.shared.clock.now()));
        let left = after.saturating_sub(since.unwrap_or_default());
        let away = self.shared.timers.now().checked_add(left);
        end.into_iter().chain(away).min()
    }

    /// When a waiter that is not woken checks whether its server is away. Rarely while no request fails: thousands may wait.
    fn looks_at(&self, asks: Option<&Arc<Acquisition>>) -> Option<Instant> {
        let until = self.until(asks)?;
        let is_failing = asks.is_some_and(|asks| lock(&asks.life).state.failing().is_some());
        let rarely = self.shared.timers.now() + LOOK;
        let looks = if is_failing { until } else { until.max(rarely) };
        Some(self.patience.end().map_or(looks, |end| end.min(looks)))
    }

    /// The error that makes further waiting pointless. A waiter with a limit waits until that limit.
    fn hopeless(&self, asks: &Arc<Acquisition>) -> Option<StoreError> {
        let request = &self.hold.request;
        let is_endless = matches!(self.patience.limit, Limit::Forever);
        let limit = request.unavailable_after.limit();
        let patience = limit.or(is_endless.then(|| request.terms.ttl()));
        let life = lock(&asks.life);
        life.state.hopeless(|| self.shared.clock.now(), patience)
    }

    /// The error to return if no reply and no connection came in time.
    pub(super) fn no_answer(&self, acquisition: &Arc<Acquisition>, began: Moment) -> LockError {
        if !self.patience.is_over(&self.shared.timers) {
            return self.away(acquisition, began);
        }
        // A server that answered the last request is reachable: the lock itself did not come in time.
        if self.line().map_or(self.is_answered, Line::is_answered) {
            self.out_of_time()
        } else {
            self.shared.unavailable(&self.hold.request.key, NoAnswer)
        }
    }

    /// Notes that the server has been away for too long, also for the waiters behind this one.
    fn away(&self, acquisition: &Arc<Acquisition>, began: Moment) -> LockError {
        let (key, now) = (&self.hold.request.key, self.shared.clock.now());
        let mut life = lock(&acquisition.life);
        if let Some((_, last)) = life.state.failing() {
            return last.into_lock_error();
        }
        let error = self.shared.unavailable(key, NoAnswer);
        if let LockError::Unavailable { cause } = &error {
            let cause = cause.clone();
            life.state.failed(began, now, StoreError::Ambiguous(cause));
        }
        error
    }

    fn out_of_time(&self) -> LockError {
        let fresh = self.shared.config.command_deadline.saturating_add(FRESH);
        let since = self.shared.clock.now() - fresh;
        let asks = self.asks();
        let trouble = |asks: &Arc<Acquisition>| lock(&asks.life).state.trouble(since);
        if let Some(error) = asks.as_ref().and_then(trouble) {
            return error.into_lock_error();
        }
        let holder = match self.line() {
            Some(line) if line.holder().is_some() => Some(self.shared.client.name().into()),
            _ => asks.and_then(|asks| lock(&asks.life).state.holder().map(Into::into)),
        };
        LockError::TimedOut {
            key: self.hold.request.key.name().to_owned(),
            waited: self.patience.waited(&self.shared.timers),
            holder,
        }
    }

    /// Handles an attempt without a failed request: no connection, or a grant that arrived too late.
    async fn failed(
        &mut self,
        acquisition: &Arc<Acquisition>,
        began: Moment,
        error: StoreError,
    ) -> Result<(), LockError> {
        let now = self.shared.clock.now();
        lock(&acquisition.life)
            .state
            .failed(began, now, error.clone());
        self.after(acquisition, error).await
    }

    /// Decides after a failed request: try again after a pause, or give up.
    pub(super) async fn after(
        &mut self,
        acquisition: &Arc<Acquisition>,
        error: StoreError,
    ) -> Result<(), LockError> {
        if self.line().is_none() && self.shared.is_closing() {
            return Err(LockError::ShutDown);
        }
        let pause = self.retries.failed();
        let end = self.patience.end();
        // A broken connection may have lost the reply: a second request with the same token finds out.
        let has_tried = self.patience.is_one_try()
            && (self.retries.failures() > 1 || !matches!(error, StoreError::Ambiguous(_)));
        let is_too_late = end.is_some_and(|end| self.shared.timers.now() + pause >= end);
        if has_tried || is_too_late || self.hopeless(acquisition).is_some() {
            return Err(error.into_lock_error());
        }
        tracing::debug!(key = acquisition.key.name(), %error, "asking again");
        self.shared.asked_in_vain(&acquisition.key, &error);
        // A wake-up ends the pause early, for example when the connection is back.
        let timers = &self.shared.timers;
        let woken = timers.timeout(pause, self.hold.wake_cell.wait());
        let _ = timers.within(self.until(Some(acquisition)), woken).await;
        Ok(())
    }
}

/// The end of a waiter.
impl Waiter<'_> {
    /// Returns `None` if the lease ended before the waiter ran.
    fn complete(&mut self, alone: bool) -> Option<Arc<Hold>> {
        if !self.hold.take() {
            return None;
        }
        self.is_over = true;
        if alone && let Queue::Line(line) = &self.queue {
            self.shared.rest(line);
        }
        self.shared.watch(&self.hold);
        Some(Arc::clone(&self.hold))
    }

    /// Leaves the queue. Returns the acquisition if no other waiter needs it. Ends the hold if it began at the last moment.
    fn leave(&mut self) -> Option<Arc<Acquisition>> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        if !self.hold.abandon() {
            // A hand-over came at the last moment: end the hold, so that the lock goes to the next waiter.
            self.shared.end(&self.hold);
            return None;
        }
        match &self.queue {
            Queue::Line(line) => self.shared.leave(line, &self.hold),
            Queue::Beside(acquisition) | Queue::Server(acquisition) => {
                // A shutdown has abandoned it already.
                (!acquisition.is_over()).then(|| Arc::clone(acquisition))
            }
        }
    }

    /// Leaves the queue and releases before the waiter reports its error, so that the lock does not go to a waiter that has just
    /// left. The task finishes a release that a slow server does not confirm in time.
    async fn withdraw(&mut self) {
        let Some(acquisition) = self.leave() else {
            return;
        };
        acquisition.let_go();
        let unfinished = Unfinished::new(self.shared, &acquisition);
        let shared = self.shared;
        let release = Box::pin(async {
            let token = shared.token(&acquisition);
            let (key, owner) = (&acquisition.key, acquisition.claim.owner());
            shared.store.release(key, &token, owner, false).await
        });
        if let Ok(Ok(_)) = shared.timers.timeout(GRACE, release).await {
            unfinished.released();
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(acquisition) = self.leave() {
            self.shared.abandon(&acquisition);
        }
    }
}
