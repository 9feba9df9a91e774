//! State that the handles, the task and the store's messages share: the settings, the store, the registry, and the next sweep.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::WeakUnboundedSender;

use super::acquisition::Acquisition;
use super::hold::{Hold, LockRequest};
use super::lease::Lease;
use super::line::{Limits, Line, PlaceInLine};
use super::news::NewsCells;
use super::outages::Outages;
use super::registry::Registry;
use super::released::ReleasedLately;
use super::state::{Action, Next};
use crate::base::claim::PLAIN;
use crate::base::config::{Config, HANDOVER_TIME, MAX_TTL};
use crate::base::error::{LockError, LossReason, RUNTIME_ENDED};
use crate::base::key::LockKey;
use crate::base::observe::Event;
use crate::base::signal::Signal;
use crate::base::sync::{Locked, lock};
use crate::base::time::{Clock, Moment};
use crate::base::timers::Timers;
use crate::base::token::{ClientId, Token};
use crate::store::AnyStore;

/// A command to the task.
#[derive(Debug)]
pub(super) enum Command {
    /// Release what an acquisition has on the server.
    Release(Arc<Acquisition>),
    /// Release again what the server may not have heard of.
    RepeatReleases(Vec<ReleasedLately>),
}

/// State that the handles, the task and the store's messages share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: AnyStore,
    pub(crate) client: ClientId,
    pub(super) registry: Mutex<Registry>,
    /// When a lease or a check needs the task. A moment that is too early is harmless; one that is too late never occurs.
    pub(super) leases_due: AtomicU64,
    pub(super) checks_due: AtomicU64,
    pub(super) wake: Notify,
    /// A request or a release has ended, the manager closes, or the last acquisition was forgotten.
    pub(super) progress: Signal,
    /// Who waits for announcements.
    pub(super) news: NewsCells,
    /// There is a new connection: a release that failed on the old one is repeated at once.
    pub(super) reconnected: Signal,
    /// What the log says of servers that do not renew leases.
    pub(super) outages: Outages,
    /// The same of servers that answer, and refuse. The log does not say when that ends.
    pub(super) refusals: Outages,
    /// The largest fencing token, and the last reserved one, that the server has given this client.
    pub(super) largest_token: AtomicU64,
    /// The runtime of the task has ended.
    pub(super) ended: AtomicBool,
    pub(crate) timers: Timers,
    pub(super) commands: WeakUnboundedSender<Command>,
}

impl Shared {
    /// The error of a server that did not answer about this lock.
    pub(crate) fn unavailable(
        &self,
        key: &LockKey,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> LockError {
        LockError::unavailable(cause, self.store.server_of(key).as_ref())
    }

    /// Refuses to acquire a lock that no task would renew.
    pub(crate) fn check_alive(&self) -> Result<(), LockError> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(LockError::config(RUNTIME_ENDED));
        }
        Ok(())
    }

    /// After a shutdown a manager still looks at locks, but changes nothing.
    pub(super) fn check_open(&self) -> Result<(), LockError> {
        // The end of the runtime has closed it as well.
        self.check_alive()?;
        if self.is_closing() {
            return Err(LockError::ShutDown);
        }
        Ok(())
    }

    /// Sends a command to the task. Returns the command if the task takes no more.
    pub(super) fn send(&self, command: Command) -> Result<(), Command> {
        match self.commands.upgrade() {
            Some(commands) => commands.send(command).map_err(|refused| refused.0),
            None => Err(command),
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.registry).closing
    }

    /// Does what an event in the life of an acquisition asks for.
    pub(super) fn act(&self, acquisition: &Arc<Acquisition>, action: Action) {
        match action {
            Action::Nothing => {}
            Action::Wake => acquisition.wake(),
            Action::Lose => {
                let lease = acquisition.lease();
                if lease.is_some_and(|lease| lease.lose(LossReason::ForceReleased)) {
                    self.lease_due_at(self.clock.now());
                }
            }
            Action::CleanUp => {
                // A late request may concern an acquisition that was forgotten.
                self.remember(acquisition);
                self.clean_up(Arc::clone(acquisition));
            }
            Action::GoOn => self.progress.notify_waiters(),
            Action::Forget => self.forget(acquisition),
        }
    }

    /// Hands the clean-up of an acquisition to the task. Callable from any thread, at any time, without I/O.
    pub(super) fn clean_up(&self, acquisition: Arc<Acquisition>) {
        self.release_queued(&acquisition);
        if let Err(Command::Release(acquisition)) = self.send(Command::Release(acquisition)) {
            let now = self.clock.now();
            let lease = acquisition.lease();
            let until = lease.map_or_else(|| now + self.lasts(&acquisition), Lease::end);
            if until > now {
                tracing::warn!(
                    key = acquisition.key.name(),
                    "the runtime of this lock manager is gone: the lock stays until its ttl has passed"
                );
                lock(&self.registry).strand(acquisition.sequence, until);
            }
            acquisition.let_go();
            self.release_tried(&acquisition);
            self.forget(&acquisition);
        }
    }

    /// A client that asks from now on waits for this release first, also if it is of a waiter that has left its queue. Not if other
    /// guards of the owner keep the lock, and not after an attempt that came to nothing, since its server may be silent.
    pub(super) fn release_queued(&self, acquisition: &Acquisition) {
        let was_served = || lock(&acquisition.life).state.was_served();
        if acquisition.lease().map_or_else(was_served, Lease::is_over) {
            lock(&self.registry).release_queued(acquisition);
        }
    }

    /// The server has answered the release of this acquisition, or the task does not release it.
    pub(super) fn release_tried(&self, acquisition: &Acquisition) {
        if lock(&self.registry).release_tried(acquisition) {
            self.progress.notify_waiters();
        }
    }

    /// Abandons an acquisition. The task cleans up after it if it has asked.
    pub(super) fn abandon(&self, acquisition: &Arc<Acquisition>) {
        acquisition.let_go();
        let action = lock(&acquisition.life).state.abandoned();
        self.act(acquisition, action);
    }

    pub(super) fn lasts(&self, acquisition: &Acquisition) -> Duration {
        lock(&self.registry).lasts(acquisition)
    }

    /// Creates an acquisition and registers it before its first request is sent.
    pub(super) fn acquisition(&self, request: &LockRequest) -> Result<Arc<Acquisition>, LockError> {
        let acquisition = lock(&self.registry).acquisition(request)?;
        self.observe(&acquisition.key, |lock| Event::Outstanding { lock });
        Ok(acquisition)
    }

    /// Adds a waiter to the line of its lock.
    pub(super) fn join(&self, request: LockRequest) -> Result<(Arc<Line>, Arc<Hold>), LockError> {
        let hold = Arc::new(Hold::new(request));
        let mut registry = lock(&self.registry);
        if registry.closing {
            return Err(LockError::ShutDown);
        }
        let line = registry.line(&hold.request.key);
        match line.join(&hold, |request| registry.acquisition(request).ok()) {
            PlaceInLine::Leads(acquisition) => {
                drop(registry);
                self.observe(&acquisition.key, |lock| Event::Outstanding { lock });
            }
            PlaceInLine::Behind(acquisition) => self.watch_waiter(registry, &acquisition),
            PlaceInLine::BehindHolder => {}
        }
        Ok((line, hold))
    }

    /// Makes the acquisition that asks for the first waiter of this line, if nothing asks for it any more. The waiter is woken, and
    /// may not run.
    fn lead(&self, mut registry: Locked<'_, Registry>, line: &Line) {
        let Some(acquisition) = line.lead(|request| registry.acquisition(request).ok()) else {
            return;
        };
        self.watch_waiter(registry, &acquisition);
        self.observe(&acquisition.key, |lock| Event::Outstanding { lock });
        acquisition.wake();
    }

    /// A waiter leaves its line. Returns the acquisition if no other waiter needs it.
    pub(super) fn leave(&self, line: &Arc<Line>, hold: &Arc<Hold>) -> Option<Arc<Acquisition>> {
        let left = line.leave(hold);
        self.lead_next(line);
        left
    }

    /// The first waiter of this line has left it, or its acquisition.
    pub(super) fn lead_next(&self, line: &Arc<Line>) {
        let mut registry = lock(&self.registry);
        registry.tidy(line);
        self.lead(registry, line);
    }

    /// This acquisition does not have the lock any more, or will not get it: the first waiter asks anew.
    pub(super) fn gone(&self, acquisition: &Arc<Acquisition>) {
        let mut registry = lock(&self.registry);
        if let Some(line) = registry.gone(acquisition) {
            self.lead(registry, &line);
        }
    }

    /// The client of an acquisition beside the line runs, and takes its grant, of which the line learns.
    pub(super) fn polled_beside(&self, acquisition: &Arc<Acquisition>, hold: &Arc<Hold>) -> Next {
        let now = self.clock.now();
        let mut registry = lock(&self.registry);
        let line = registry.line(&acquisition.key);
        let owner = acquisition.claim.owner.as_ref();
        let before = owner.and_then(|owner| line.holder_for(owner));
        let polled = line.polled_beside(acquisition, hold, now);
        registry.rest(&line);
        // Not earlier: an idle line may be forgotten at any moment, and another client would then make a second one.
        registry.tidy(&line);
        drop(registry);
        // The grant may have shown that the owner had lost the lock and got it anew.
        if before.is_some_and(|holder| holder.is_lease_over()) {
            self.lease_due_at(now);
        }
        polled
    }

    /// The acquisition that has the lock for the owner of this request in this process, if an owner is named.
    pub(crate) fn holder_for(&self, request: &LockRequest) -> Option<Arc<Acquisition>> {
        let owner = request.claim.owner.as_ref()?;
        lock(&self.registry).holder_for(&request.key, owner)
    }

    /// The token of this acquisition.
    pub(crate) fn token(&self, acquisition: &Acquisition) -> Token {
        self.client.token(acquisition.sequence)
    }

    /// The limits of a turn in this line.
    pub(super) fn limits(&self, line: &Line) -> Limits {
        Limits {
            handovers: self.config.handover_limit,
            time: HANDOVER_TIME,
            always: !line.traits.queues || !self.store.pushes(&line.key),
        }
    }

    /// A guard has ended: hands its lease over to the next waiter, or returns the acquisition for release.
    pub(crate) fn pass_on(&self, hold: &Arc<Hold>, now: Moment) -> Option<Arc<Acquisition>> {
        let acquisition = Arc::clone(hold.acquisition()?);
        if let Some(line) = self.line_of(&acquisition)
            && let Some(next) = line.hand_over(hold, now, self.limits(&line))
        {
            if next.cap() != Moment::NEVER {
                self.lease_due_at(next.cap());
            }
            // Wake last: a thread of a multi-threaded runtime first runs the task that it woke last. That must be the new holder,
            // not the task of the engine.
            next.wake_cell.wake();
            return None;
        }
        acquisition.let_go();
        Some(acquisition)
    }

    /// Forgets an acquisition: nothing of it is left on the server, or nothing more can be done about it.
    pub(super) fn forget(&self, acquisition: &Arc<Acquisition>) {
        self.gone(acquisition);
        let mut registry = lock(&self.registry);
        let was_known = registry.forget(acquisition);
        let idle = registry.closing && registry.acquisitions.is_empty();
        drop(registry);
        if was_known {
            self.observe(&acquisition.key, |lock| Event::Settled { lock });
        }
        if idle {
            self.progress.notify_waiters();
        }
    }

    /// The line of the lock of this acquisition, if any.
    pub(super) fn line_of(&self, acquisition: &Acquisition) -> Option<Arc<Line>> {
        let registry = lock(&self.registry);
        registry.existing_line(&acquisition.key).cloned()
    }

    /// Whether this process has the lock, or waits for it, and is not about to release it.
    pub(crate) fn uses(&self, key: &LockKey) -> bool {
        lock(&self.registry).uses(key)
    }

    /// Whether this process has the lock, and is not about to release it.
    pub(crate) fn holds(&self, key: &LockKey) -> bool {
        let registry = lock(&self.registry);
        registry.uses(key) && !registry.holders(key).is_empty()
    }

    /// Number of waiters in this process beside the one place that the server knows.
    pub(crate) fn waiting_behind(&self, key: &LockKey) -> u64 {
        let line = lock(&self.registry).existing_line(key).cloned();
        line.map_or(0, |line| line.waiting_behind())
    }

    /// The remaining time for which other processes have the turn to ask for this lock.
    pub(crate) fn yields(&self, key: &LockKey) -> Option<Duration> {
        lock(&self.registry).yields(key, self.clock.now())
    }

    /// Registers a forgotten acquisition again, until it is cleaned up.
    pub(super) fn remember(&self, acquisition: &Arc<Acquisition>) {
        let known = lock(&self.registry)
            .acquisitions
            .insert(acquisition.sequence, Arc::clone(acquisition));
        if known.is_none() {
            self.observe(&acquisition.key, |lock| Event::Outstanding { lock });
        }
    }

    /// Makes the task check the leases at `moment` or earlier.
    pub(crate) fn lease_due_at(&self, moment: Moment) {
        self.due_at(&self.leases_due, moment);
    }

    pub(super) fn due_at(&self, due: &AtomicU64, moment: Moment) {
        if moment.0 < due.fetch_min(moment.0, Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// Nothing else needs this line for now: only its holder is kept.
    pub(super) fn rest(&self, line: &Arc<Line>) {
        lock(&self.registry).rest(line);
    }

    /// A hold has begun: the task watches its renewal and its end from now on.
    pub(crate) fn watch(&self, hold: &Hold) {
        if let Some(acquisition) = hold.acquisition()
            && !acquisition.key.traits().forms_line
        {
            lock(&self.registry).holds_apart(acquisition);
        }
        self.lease_due_at(hold.due());
    }

    /// This acquisition waits, perhaps for a line, and the holder's lease ends in `remaining`: the task asks again.
    pub(super) fn check(
        &self,
        acquisition: &Acquisition,
        line: Option<&Line>,
        remaining: Duration,
    ) {
        let is_told = self.store.pushes(&acquisition.key) && line.is_none_or(Line::is_told);
        let (now, poll) = (self.clock.now(), self.config.poll_interval);
        let mut registry = lock(&self.registry);
        let at = lock(&acquisition.life)
            .state
            .refresh_at(now, is_told, poll, remaining);
        let at = registry.check_at(acquisition, at);
        drop(registry);
        self.due_at(&self.checks_due, at);
    }

    /// Schedules a check of an acquisition whose waiter may not run and so delay others.
    pub(super) fn watch_waiter(
        &self,
        mut registry: Locked<'_, Registry>,
        acquisition: &Acquisition,
    ) {
        let at = lock(&acquisition.life).state.watch_at(|| self.clock.now());
        let at = registry.check_at(acquisition, at);
        drop(registry);
        self.due_at(&self.checks_due, at);
    }

    /// A grant for a forgotten acquisition: a request that was abandoned long ago reached the server after all. The lock goes to
    /// the next waiter at once. `ttl` is the rest of the lease.
    pub(super) fn decline(&self, sequence: u64, key: Arc<LockKey>, ttl: Duration) {
        let ttl = ttl.clamp(self.config.default_ttl, MAX_TTL);
        if let Ok(terms) = self.config.terms(ttl) {
            self.release_again(Acquisition::new(sequence, key, terms, PLAIN.clone()));
        }
    }

    /// Releases what a forgotten acquisition may have on the server.
    pub(super) fn release_again(&self, acquisition: Acquisition) {
        if let Some(commands) = self.commands.upgrade() {
            let acquisition = Arc::new(acquisition);
            acquisition.let_go();
            self.remember(&acquisition);
            let _ = commands.send(Command::Release(acquisition));
        }
    }

    #[cfg(test)]
    pub(super) fn lines(&self) -> usize {
        lock(&self.registry).lines().count()
    }

    #[cfg(test)]
    pub(super) fn lines_waiting(&self) -> usize {
        let registry = lock(&self.registry);
        registry.lines().filter(|line| line.is_waiting()).count()
    }
}
