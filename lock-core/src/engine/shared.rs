//! State that the handles, the task and the store's messages share: the settings, the store, the registry, and the next sweep.

use std::any::Any;
use std::collections::HashSet;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::WeakUnboundedSender;

use super::acquisition::{Acquisition, REFRESH, Taken};
use super::hold::{Hold, LockRequest};
use super::inbox::Granted;
use super::line::Line;
use super::line_state::Limits;
use super::outages::Outages;
use super::phase::Status;
use super::registry::Registry;
use super::released::ReleasedLately;
use crate::base::config::{Config, MAX_TTL};
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::observe::Event;
use crate::base::place::Place;
use crate::base::rt;
use crate::base::sync::lock;
use crate::base::terms::Terms;
use crate::base::time::{Clock, Moment};
use crate::base::token::{ClientId, Token, sequence_at};
use crate::store::{AnyStore, Store, StoreError};

/// A value to drop when a release is over.
pub(crate) type Then = Box<dyn Any + Send>;

/// A command to the task.
#[derive(Debug)]
pub(super) enum Command {
    /// Release what an acquisition has on the server.
    Release(Arc<Acquisition>),
    /// The same, and drop a value once the release is over.
    ReleaseThen(Arc<Acquisition>, Then),
    /// Release again what the server may not have heard of.
    RepeatReleases(Vec<ReleasedLately>),
}

/// State that the handles, the task and the store's messages share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: AnyStore,
    pub(super) client: ClientId,
    pub(super) registry: Mutex<Registry>,
    pub(super) last_sequence: AtomicU64,
    /// Longest ttl that was asked for here with an owner, in milliseconds.
    pub(super) longest_of_owners: AtomicU64,
    /// When a lease or a line needs the task. A moment that is too early is harmless; one that is too late never occurs.
    pub(super) leases_due: AtomicU64,
    pub(super) lines_due: AtomicU64,
    pub(super) wake: Notify,
    pub(super) idle: Notify,
    /// Places of a guard and of a wait for it in one task, of which the program was warned.
    pub(super) warned_of: Mutex<HashSet<[&'static Location<'static>; 2]>>,
    /// A release that was queued was answered or has failed, and a client may wait for it.
    pub(super) release_tried: Notify,
    /// A request has ended, and a clean-up may wait for it.
    pub(super) request_ended: Notify,
    /// There is a new connection: a release that failed on the old one is repeated at once.
    pub(super) reconnected: Notify,
    /// What the log says of servers that do not renew leases.
    pub(super) outages: Outages,
    /// The same of servers that answer, and refuse. The log does not say when that ends.
    pub(super) refusals: Outages,
    /// The largest fencing token, and the last reserved one, that the server has given this client.
    pub(super) largest_token: AtomicU64,
    /// The runtime of the task has ended.
    pub(super) ended: AtomicBool,
    /// The runtime of the manager's own thread, if it has one.
    pub(super) own_runtime: Option<rt::Handle>,
    pub(super) commands: WeakUnboundedSender<Command>,
}

impl Shared {
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

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
            return Err(LockError::config(
                "the runtime in which this lock manager was made has ended, so its locks would not be renewed: make a manager in the runtime that uses it",
            ));
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

    /// Whether this is the first wait at `place` for a guard of the same task taken at `held_at`.
    pub(super) fn warns_of(&self, held_at: Place, place: Place) -> bool {
        lock(&self.warned_of).insert([held_at.at(), place.at()])
    }

    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.registry).closing
    }

    /// Adds a waiter to the line of its lock.
    pub(crate) fn join(&self, request: LockRequest) -> Result<(Arc<Line>, Arc<Hold>), LockError> {
        let hold = Arc::new(Hold::new(request));
        let mut registry = lock(&self.registry);
        if registry.closing {
            return Err(LockError::ShutDown);
        }
        let line = registry.line(&hold.request.key);
        let unwatched = line.join(Arc::clone(&hold));
        let next = unwatched.and_then(|terms| self.watch_line(&mut registry, &line, terms));
        drop(registry);
        self.lines_due_at(next);
        Ok((line, hold))
    }

    /// Above all earlier ones, and no smaller than that of the present time.
    fn next_sequence(&self) -> u64 {
        let floor = sequence_at(rt::unix_time());
        let next = |last: u64| (last + 1).max(floor);
        let relaxed = Ordering::Relaxed;
        let last = self
            .last_sequence
            .fetch_update(relaxed, relaxed, |last| Some(next(last)));
        last.map_or(floor, next)
    }

    /// A request on these terms will be made, perhaps for an owner, whose acquisitions share one lease.
    pub(super) fn note_longest(&self, request: &LockRequest, terms: Terms) {
        if request.key.traits().has_owners {
            let ttl = terms.ttl().as_millis() as u64;
            self.longest_of_owners.fetch_max(ttl, Ordering::Relaxed);
        }
    }

    /// Creates an acquisition and registers it before its first request is sent.
    pub(crate) fn acquisition(&self, request: &LockRequest) -> Result<Arc<Acquisition>, LockError> {
        let sequence = self.next_sequence();
        self.note_longest(request, request.terms);
        let acquisition = Arc::new(Acquisition::new(
            sequence,
            Arc::clone(&request.key),
            request.terms,
            request.owner.clone(),
        ));
        let mut registry = lock(&self.registry);
        if registry.closing {
            return Err(LockError::ShutDown);
        }
        registry
            .acquisitions
            .insert(sequence, Arc::clone(&acquisition));
        drop(registry);
        self.observe(&acquisition.key, |lock| Event::Outstanding { lock });
        Ok(acquisition)
    }

    /// Makes the acquisition with which the first waiter asks the server on behalf of the line.
    pub(crate) fn lead(&self, line: &Arc<Line>, hold: &Arc<Hold>) -> Result<(), LockError> {
        let acquisition = self.acquisition(&hold.request)?;
        if !line.lead(hold, &acquisition, self.now()) {
            self.forget(&acquisition);
        }
        Ok(())
    }

    /// Takes a grant for an acquisition beside the line.
    pub(crate) fn take_alone(
        &self,
        acquisition: &Arc<Acquisition>,
        granted: Granted,
        hold: &Arc<Hold>,
    ) -> Taken {
        let now = self.now();
        let mut registry = lock(&self.registry);
        let line = registry.line(&acquisition.key);
        let owner = acquisition.explicit_owner.as_ref();
        let before = owner.and_then(|owner| line.holder_for(owner));
        let taken = line.adopt(acquisition, granted, hold, now);
        registry.rest(&line);
        // Not earlier: an idle line may be forgotten at any moment, and another client would then make a second one.
        registry.tidy(&line);
        drop(registry);
        if taken == Taken::Held {
            self.watch(hold);
        }
        // The grant may have shown that the owner had lost the lock and got it anew.
        if before.is_some_and(|holder| holder.is_lease_over()) {
            self.lease_due_at(now);
        }
        taken
    }

    /// The acquisition that has the lock for the owner of this request in this process, if an owner is named.
    pub(crate) fn holder_for(&self, request: &LockRequest) -> Option<Arc<Acquisition>> {
        let owner = request.owner.as_ref()?;
        lock(&self.registry).holder_for(&request.key, owner)
    }

    /// The token of this acquisition.
    pub(crate) fn token(&self, acquisition: &Acquisition) -> Token {
        self.client.token(acquisition.sequence)
    }

    /// The limits of a turn in this line.
    pub(crate) fn limits(&self, line: &Line) -> Limits {
        Limits {
            handovers: self.config.handover_limit,
            time: self.config.handover_time,
            always: !line.key.traits().queues || !self.store.pushes(&line.key),
        }
    }

    /// A guard has ended: hands its lease over to the next waiter, or returns the acquisition for release.
    pub(crate) fn pass_on(&self, hold: &Arc<Hold>, now: Moment) -> Option<Arc<Acquisition>> {
        let acquisition = Arc::clone(hold.acquisition()?);
        if acquisition.ended(hold, now)
            && let Some(line) = self.line_of(&acquisition)
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
    pub(crate) fn forget(&self, acquisition: &Arc<Acquisition>) {
        let mut registry = lock(&self.registry);
        let was_known = registry.forget(acquisition);
        let idle = registry.closing && registry.acquisitions.is_empty();
        drop(registry);
        if was_known {
            self.observe(&acquisition.key, |lock| Event::Settled { lock });
        }
        if idle {
            self.idle.notify_waiters();
        }
    }

    /// The line of the lock of this acquisition, if any.
    pub(super) fn line_of(&self, acquisition: &Acquisition) -> Option<Arc<Line>> {
        let registry = lock(&self.registry);
        registry.existing_line(&acquisition.key).cloned()
    }

    /// Number of waiters in this process beside the one place that the server knows.
    pub(crate) fn waiting_behind(&self, key: &LockKey) -> u64 {
        let line = lock(&self.registry).existing_line(key).cloned();
        line.map_or(0, |line| line.waiting_behind())
    }

    /// The remaining time for which other processes have the turn to ask for this lock.
    pub(crate) fn yields(&self, key: &LockKey) -> Option<Duration> {
        lock(&self.registry).yields(key, self.now())
    }

    /// Nothing else needs this line for now: only its holder is kept.
    pub(crate) fn rest(&self, line: &Arc<Line>) {
        lock(&self.registry).rest(line);
    }

    pub(crate) fn tidy(&self, line: &Arc<Line>) {
        lock(&self.registry).tidy(line);
    }

    pub(super) async fn until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if lock(&self.registry).acquisitions.is_empty() {
                return;
            }
            idle.await;
        }
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

    /// A hold has begun: the task watches its renewal and its end from now on.
    pub(crate) fn watch(&self, hold: &Hold) {
        let lease = hold
            .acquisition()
            .and_then(|acquisition| acquisition.lease());
        if let Some(lease) = lease {
            self.lease_due_at(lease.renew_at().min(hold.end()));
        }
    }

    /// The acquisition of this line waits. The task asks for it again after the refresh interval, or just after the end of the
    /// holder's lease, which no message announces. A holder of another kind of client announces no release either. The spread
    /// separates processes that wait for the same lease.
    pub(crate) fn check_line(&self, line: &Arc<Line>, terms: Terms, remaining: Duration) {
        let spread = Duration::from_micros(2_000 + fastrand::u64(..3_000));
        let poll = self.config.poll_interval;
        let interval = if line.is_held_by_foreigner() {
            // Such clients ask often, and have no queue: a waiter that asks less often hardly ever gets the lock.
            poll.mul_f64(0.25 + fastrand::f64() / 2.0)
        } else if self.store.pushes(&line.key) && line.is_told() {
            terms.third().min(REFRESH)
        } else {
            poll.mul_f64(0.5 + fastrand::f64())
        };
        let at = self.now() + interval.min(remaining.saturating_add(spread));
        let next = lock(&self.registry).check_at(line, at);
        self.lines_due_at(next);
    }

    /// Schedules a check of a line whose first waiter may not run and so delay the others. Returns the moment of the next check
    /// of any line if one was scheduled.
    pub(super) fn watch_line(
        &self,
        registry: &mut Registry,
        line: &Arc<Line>,
        terms: Terms,
    ) -> Option<Moment> {
        registry.check_at(line, self.now() + terms.third().min(REFRESH))
    }

    pub(super) fn lines_due_at(&self, next: Option<Moment>) {
        if let Some(next) = next {
            self.due_at(&self.lines_due, next);
        }
    }

    /// A grant for a forgotten acquisition: a request that was abandoned long ago reached the server after all. The lock goes to
    /// the next waiter at once. `ttl` is the rest of the lease.
    pub(super) fn decline(&self, sequence: u64, key: Arc<LockKey>, ttl: Duration) {
        let ttl = ttl.clamp(self.config.default_ttl, MAX_TTL);
        if let Ok(terms) = self.config.terms(ttl) {
            self.release_again(Acquisition::new(sequence, key, terms, None));
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

    /// Whether another lock is on the server of this one.
    fn is_beside(&self, key: &LockKey) -> impl Fn(&LockKey) -> bool {
        let part = self.store.part_of(key);
        move |other| self.store.part_of(other) == part
    }

    /// Renewals that were sent at `since` have failed, of this lock and of others on its server.
    pub(super) fn renewals_failed(&self, key: &Arc<LockKey>, since: Moment, error: &StoreError) {
        let (now, is_there) = (self.now(), self.is_beside(key));
        let is_refused = matches!(error, StoreError::Misconfigured(_));
        let outages = if is_refused {
            &self.refusals
        } else {
            &self.outages
        };
        if !outages.failed(key, &is_there, since, now) {
            return;
        }
        // Where the server is away, the other leases fail as well. A refusal may be of one key.
        let registry = lock(&self.registry);
        let on_server = registry
            .acquisitions
            .values()
            .filter(|it| is_there(&it.key));
        let ends = on_server.filter_map(|acquisition| {
            let lease = acquisition.lease()?;
            let concerned = lease.is_failing() || !is_refused;
            (concerned && acquisition.status(now) == Status::Held).then(|| lease.end())
        });
        let (locks, end) = ends.fold((0_u64, Moment::NEVER), |(locks, nearest), end| {
            (locks + 1, nearest.min(end))
        });
        drop(registry);
        let lost_in_ms = now.until(end).as_millis() as u64;
        let server = self.store.server_of(key);
        let server = server.as_deref();
        tracing::warn!(server, locks, lost_in_ms, %error, "leases could not be renewed: trying again");
    }

    /// A lease of this lock is over.
    pub(super) fn lease_lost(&self, key: &LockKey) {
        if self.outages.is_any() {
            self.outages.lost(self.is_beside(key));
        }
    }

    /// The server of this lock has answered.
    pub(super) fn answered(&self, key: &LockKey) {
        if self.outages.is_any() {
            self.outages_end(self.is_beside(key));
        }
    }

    /// The servers of these locks answer again.
    pub(super) fn outages_end(&self, is_there: impl Fn(&LockKey) -> bool) {
        for ended in self.outages.ended(is_there, self.now()) {
            let server = self.store.server_of(&ended.key);
            let away_ms = ended.lasted.as_millis() as u64;
            tracing::info!(
                server = server.as_deref(),
                away_ms,
                lost = ended.lost,
                "the server answers again"
            );
        }
    }

    #[cfg(test)]
    pub(super) fn lines_waiting(&self) -> usize {
        let registry = lock(&self.registry);
        registry.lines().filter(|line| line.is_waiting()).count()
    }
}
