//! What keeps held locks alive and cleans up after them: one session, with one task, for each manager.

mod acquire;
mod entry;
mod lease;
mod line;
mod task;
#[cfg(test)]
mod tests;
mod undo;
mod wait;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout_at};

pub(crate) use self::acquire::{Limit, acquire};
pub(crate) use self::entry::{Entry, Request};
pub(crate) use self::lease::{Status, Terms};
use self::line::Lines;
pub(crate) use self::undo::confirmed;
use crate::LockError;
use crate::clock::{Clock, Moment};
use crate::config::Config;
use crate::error::LossReason;
use crate::key::LockKey;
use crate::store::{AnyStore, Events, Store};
use crate::sync::lock;
use crate::token::ClientId;

/// Asks for a lock at least this often while waiting for it.
const REFRESH: Duration = Duration::from_secs(3);

/// The handle that managers and guards hold. When the last one goes, the task finishes what is queued and ends.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    releases: UnboundedSender<Arc<Entry>>,
}

/// What the handle, the task and the store's messages share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: AnyStore,
    client: ClientId,
    registry: Mutex<Registry>,
    next_sequence: AtomicU64,
    /// When a lease or a line wants the task's attention. Too early is harmless; too late never happens.
    leases_due: AtomicU64,
    lines_due: AtomicU64,
    wake: Notify,
    idle: Notify,
    releases: WeakUnboundedSender<Arc<Entry>>,
}

#[derive(Default)]
struct Registry {
    entries: HashMap<u64, Arc<Entry>>,
    lines: Lines,
    closing: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Starts the session's task on the current runtime.
    pub(crate) fn start(
        config: Config,
        store: AnyStore,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, LockError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            LockError::config(
                "there is no tokio runtime here: connect inside one, it keeps the locks alive",
            )
        })?;
        let (releases, queued) = unbounded_channel();
        let client = ClientId::random();
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            store.attach(&client, shared.clone(), runtime.clone());
            Shared {
                config,
                clock,
                store,
                client,
                registry: Mutex::default(),
                next_sequence: AtomicU64::new(1),
                leases_due: AtomicU64::new(Moment::NEVER.0),
                lines_due: AtomicU64::new(Moment::NEVER.0),
                wake: Notify::new(),
                idle: Notify::new(),
                releases: releases.downgrade(),
            }
        });
        runtime.spawn(task::run(Arc::clone(&shared), queued));
        Ok(Arc::new(Self { shared, releases }))
    }

    /// Hands the clean-up of an entry to the task. From any thread, at any time, without I/O.
    pub(crate) fn undo_later(&self, entry: Arc<Entry>) {
        if let Err(unsent) = self.releases.send(entry) {
            let entry = unsent.0;
            tracing::warn!(
                key = entry.key.name(),
                "the runtime of this lock manager is gone: the lock stays until its ttl has passed"
            );
            self.shared.forget(&entry);
        }
    }

    /// Refuses new acquisitions, then waits until nothing is held, waited for or being released. What is still
    /// held shortly before `limit` is taken from its holder. Returns how many locks were left unreleased.
    pub(crate) async fn shutdown(&self, limit: Duration) -> usize {
        let shared = &self.shared;
        // Longer than anybody waits, and short enough for the timer's arithmetic.
        let limit = limit.min(Duration::from_secs(365 * 24 * 3600));
        let end = Instant::now() + limit;
        {
            let mut registry = lock(&shared.registry);
            registry.closing = true;
            // Whatever is not held yet will not be: it waits, or its request is still under way.
            for entry in registry.entries.values() {
                entry.tell(wait::Wait::shut_down);
            }
        }
        let grace = (limit / 4).min(Duration::from_millis(250));
        if timeout_at(end - grace, shared.until_idle()).await.is_err() {
            let left: Vec<_> = lock(&shared.registry).entries.values().cloned().collect();
            for entry in left {
                let lost = matches!(entry.lease.status(shared.now()), Status::Lost(_));
                if lost || entry.lease.lose(LossReason::ShutDown) {
                    self.undo_later(entry);
                }
            }
            let _ = timeout_at(end, shared.until_idle()).await;
        }
        lock(&shared.registry).entries.len()
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Makes an acquisition known before anything of it is sent.
    fn register(&self, request: Request) -> Result<Arc<Entry>, LockError> {
        let sequence = self.next_sequence.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry::new(sequence, self.client.token(sequence), request));
        let mut registry = lock(&self.registry);
        if registry.closing {
            return Err(LockError::ShutDown);
        }
        registry.entries.insert(sequence, Arc::clone(&entry));
        Ok(entry)
    }

    /// Nothing of this entry is left on the server, or nothing more can be done about it.
    pub(crate) fn forget(&self, entry: &Entry) {
        let mut registry = lock(&self.registry);
        registry.entries.remove(&entry.sequence);
        if registry.closing && registry.entries.is_empty() {
            self.idle.notify_waiters();
        }
    }

    async fn until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if lock(&self.registry).entries.is_empty() {
                return;
            }
            idle.await;
        }
    }

    /// Makes an entry count again that was forgotten, until it is cleaned up.
    fn remember(&self, entry: &Arc<Entry>) {
        let mut registry = lock(&self.registry);
        registry.entries.insert(entry.sequence, Arc::clone(entry));
    }

    /// Makes sure that the task looks at the leases at `moment` or before.
    fn lease_due_at(&self, moment: Moment) {
        self.due_at(&self.leases_due, moment);
    }

    /// Makes sure that the task looks at the lines at `moment` or before.
    fn line_due_at(&self, moment: Moment) {
        self.due_at(&self.lines_due, moment);
    }

    fn due_at(&self, due: &AtomicU64, moment: Moment) {
        if moment.0 < due.fetch_min(moment.0, Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// A hold has begun: its renewal and its end are the task's business from now on.
    fn watch(&self, entry: &Entry) {
        self.lease_due_at(entry.renew_at().min(entry.lease.end()));
    }

    fn join_line(&self, entry: &Arc<Entry>, remaining: Duration) {
        let check_at = self.now() + self.check_after(entry.terms, remaining);
        entry.in_line.store(true, Ordering::Relaxed);
        let next = lock(&self.registry).lines.join(entry, check_at);
        self.line_due_at(next);
    }

    fn leave_line(&self, entry: &Entry) {
        if entry.in_line.swap(false, Ordering::Relaxed) {
            lock(&self.registry).lines.leave(entry);
        }
    }

    /// When to ask again: after the refresh interval, or just after the holder's lease ends, which no
    /// message tells. The spread keeps processes that wait for the same lease apart.
    fn check_after(&self, terms: Terms, remaining: Duration) -> Duration {
        let spread = Duration::from_micros(2_000 + fastrand::u64(..3_000));
        self.refresh_interval(terms).min(remaining + spread)
    }

    fn refresh_interval(&self, terms: Terms) -> Duration {
        if self.store.pushes() {
            terms.third().min(REFRESH)
        } else {
            self.config.poll_interval.mul_f64(0.5 + fastrand::f64())
        }
    }

    /// A grant for somebody who has gone: a request that was long given up reached the server after all. The lock
    /// goes on to the next at once.
    fn decline(&self, sequence: u64, lock: &str) {
        let name = lock.strip_prefix(self.config.prefix.as_str());
        let key = name.and_then(|name| LockKey::new(&self.config.prefix, name).ok());
        let terms = self.config.terms(self.config.default_ttl);
        if let (Some(key), Ok(terms), Some(releases)) = (key, terms, self.releases.upgrade()) {
            let request = Request {
                key: Arc::new(key),
                terms,
                renew: false,
                max_hold: None,
                at_least: Duration::ZERO,
            };
            let entry = Entry::new(sequence, self.client.token(sequence), request);
            let entry = Arc::new(entry);
            self.remember(&entry);
            let _ = releases.send(entry);
        }
    }

    #[cfg(test)]
    fn lines_waiting(&self) -> usize {
        lock(&self.registry).lines.all().count()
    }

    fn entry(&self, sequence: u64) -> Option<Arc<Entry>> {
        lock(&self.registry).entries.get(&sequence).cloned()
    }
}

impl Events for Shared {
    fn granted(&self, token: &str, fence: u64, lock: &str) {
        let Some(sequence) = self.client.sequence_of(token) else {
            return;
        };
        match self.entry(sequence) {
            Some(entry) => entry.tell(|wait| wait.pushed(fence)),
            None => self.decline(sequence, lock),
        }
    }

    fn revoked(&self, token: &str) {
        let entry = self.client.sequence_of(token);
        if let Some(entry) = entry.and_then(|sequence| self.entry(sequence))
            && entry.revoke()
        {
            self.lease_due_at(self.now());
        }
    }

    fn unlocked(&self, _lock: &str) {}

    fn interrupted(&self) {
        for entry in lock(&self.registry).lines.all() {
            entry.tell(wait::Wait::interrupted);
        }
    }
}
