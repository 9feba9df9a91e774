//! Everything between a handle and a store: the acquisitions of this process, the local waiting lines, the watchdog.
//!
//! An acquisition waits by itself: it wakes its waiter, and the registry has the time of its next check. A kind of lock may have
//! waiting lines, which are a policy above it. A line follows lock cohorting (Dice, Marathe, Shavit: "Lock Cohorting: A General Technique for Designing NUMA
//! Locks", 2012): one acquisition of this process stands in the server's queue for all its waiters, and local hand-over passes
//! the lock on a bounded number of times.
//!
//! # The life of an acquisition
//!
//! One token, from before its first request until nothing of it is left. [`State`](state::State) is its state machine: each event
//! (a request, an answer, a message, a waiter that runs or leaves, the end of a guard, a sweep) is a method, and the
//! [`Action`](state::Action) that it returns is done in one place, [`Shared::act`].
//!
//! | State | On the server | Ends with |
//! |---|---|---|
//! | waiting, made: in the registry | nothing | its first request; *over*, if its waiter has left |
//! | waiting, asked: a request is [`Outstanding`](outstanding::Outstanding) | nothing, a place in the queue, or the lock | *granted*, *queued*, or the next request after a failure |
//! | waiting, queued | a place, and perhaps the lock, if its message was lost | a message: *granted*; a refresh: *asked*; *over*, if no waiter is left |
//! | waiting, granted | the lock | *held*, if its waiter runs; *asked*, if the grant is old or has other terms; *over*, if no waiter runs |
//! | held: it has a [`Lease`] | the lock | a local hand-over: *held* by the next hold; *over*, if it is released or lost |
//! | over, released by its client | the lock, until the release is confirmed | forgotten; *by the task*, if a request is outstanding, or if its client is stalled at two sweeps |
//! | over, released by the task | unknown, until a release is confirmed or the lease has ended | forgotten; *by the task* again, with each late request |
//!
//! In every state an outstanding request may still take effect: the clean-up waits for it, and releases again.
//!
//! # The order of locks
//!
//! `Shared::registry`, then `Line::state`, then `Acquisition::life`, then `Lease::users`. None is held across
//! an await. The task and the handles take them. The messages of the server ([`events`]) take them as well, and never wait.
//! No waker is called under any of them (see [`when_unlocked`](crate::base::sync::when_unlocked)).

mod acquire;
mod acquisition;
mod announcements;
mod election;
mod events;
mod extend;
mod extension;
mod guarded;
mod hold;
mod jobs;
mod lease;
mod line;
mod look;
#[cfg(feature = "testing")]
mod losses;
mod news;
mod observed;
mod outages;
mod outstanding;
mod own_guard;
mod own_thread;
mod pass;
mod patience;
mod refreshes;
mod registry;
mod release;
mod released;
mod renewals;
mod repeats;
mod resize;
mod reweigh;
mod shared;
mod state;
mod sweep;
mod task;
#[cfg(test)]
mod tests;
mod together;
mod wake_cell;
mod yield_turn;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub(crate) use self::acquire::acquire;
pub(crate) use self::announcements::Announcements;
pub(crate) use self::extend::extend;
pub(crate) use self::guarded::guarded;
pub(crate) use self::hold::{Hold, LockRequest};
pub(crate) use self::lease::{Lease, Status};
pub(crate) use self::look::Walk;
use self::news::NewsCells;
use self::outages::Outages;
use self::own_thread::OwnThread;
#[cfg(feature = "quorum")]
pub(crate) use self::own_thread::run_alone;
pub(crate) use self::patience::Limit;
pub(crate) use self::release::confirmed;
pub(crate) use self::reweigh::reweigh;
use self::shared::{Command, Shared};
pub(crate) use self::together::together;
use crate::base::config::Config;
use crate::base::error::{LockError, LossReason};
use crate::base::rt::Handle;
use crate::base::signal::Signal;
use crate::base::sync::lock;
use crate::base::time::{Clock, Moment};
use crate::base::timers::{Home, Timers};
use crate::base::token::{ClientId, client_name};
use crate::store::{AnyStore, Attached};

/// The handle that managers and guards hold. When the last one is dropped, the task finishes the queued work and ends.
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    /// The task ends when the last sender is dropped.
    _commands: UnboundedSender<Command>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts the engine's task on the current runtime.
    pub(crate) fn start(
        config: Config,
        store: AnyStore,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, LockError> {
        let thread = config.own_thread.then(|| OwnThread::start(&*clock));
        let thread = thread.transpose()?;
        let runtime = match &thread {
            Some(thread) => thread.runtime.clone(),
            None => Handle::try_current().map_err(|_| {
                LockError::config(
                    "there is no tokio runtime here: connect inside one, which then renews the locks, or use `own_thread`",
                )
            })?,
        };
        let timers = Timers::on(thread.as_ref().map(|thread| thread.runtime.clone()));
        let home = Home {
            runtime: runtime.clone(),
            timers: timers.clone(),
        };
        let (commands, queued) = unbounded_channel();
        let client = match &config.client_name {
            Some(name) => ClientId::random(name),
            None => ClientId::random(&client_name()),
        };
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            store.attach(Attached::new(&client, shared.clone(), home));
            Shared {
                config,
                clock,
                store,
                client,
                registry: Mutex::default(),
                leases_due: AtomicU64::new(Moment::NEVER.0),
                checks_due: AtomicU64::new(Moment::NEVER.0),
                wake: Notify::new(),
                progress: Signal::default(),
                news: NewsCells::default(),
                reconnected: Signal::default(),
                outages: Outages::default(),
                refusals: Outages::default(),
                largest_token: AtomicU64::new(0),
                ended: AtomicBool::new(false),
                timers,
                commands: commands.downgrade(),
            }
        });
        own_guard::started(&shared);
        let ended = Ended(Arc::clone(&shared));
        let task = task::run(Arc::clone(&shared), queued);
        runtime.spawn(async move {
            let _thread = thread;
            let _ended = ended;
            task.await;
        });
        Ok(Arc::new(Self {
            shared,
            _commands: commands,
        }))
    }

    /// Resolves when the manager is shut down, or its runtime has ended.
    pub(crate) async fn closed(&self) -> LockError {
        self.shared
            .progress
            .until(|| self.shared.is_closing())
            .await;
        let closed = self.shared.check_open().err();
        closed.unwrap_or(LockError::ShutDown)
    }

    /// Refuses new acquisitions, then waits until no lock is held, waited for or being released. Locks that are still held
    /// shortly before `limit` are taken from their holders. Returns the number of locks that were left unreleased.
    pub(crate) async fn shutdown(&self, limit: Duration) -> usize {
        let (shared, timers) = (&self.shared, &self.shared.timers);
        // Longer than any shutdown waits, and short enough for the timer's arithmetic.
        let limit = limit.min(Duration::from_secs(365 * 24 * 3600));
        let end = timers.now() + limit;
        shared.close();
        let is_idle = || lock(&shared.registry).acquisitions.is_empty();
        let grace = (limit / 4).min(Duration::from_secs(1));
        if timers
            .timeout_at(end - grace, shared.progress.until(is_idle))
            .await
            .is_err()
        {
            let left = lock(&shared.registry).all();
            for acquisition in left {
                if let Some(lease) = acquisition.lease() {
                    let lost = lease.lose(LossReason::ShutDown);
                    if lost || matches!(acquisition.status(shared.clock.now()), Status::Lost(_)) {
                        // Its guard is told.
                        if let Some(hold) = acquisition.hold() {
                            hold.status(shared.clock.now());
                        }
                        shared.clean_up(acquisition);
                    }
                }
            }
            let _ = timers.timeout_at(end, shared.progress.until(is_idle)).await;
        }
        // A node of a quorum that is away would keep its votes until their ttl.
        let patience = timers.now() + shared.config.command_deadline;
        let _ = timers
            .timeout_at(end.min(patience), shared.store.cleaned_up())
            .await;
        lock(&shared.registry).unfinished(shared.clock.now())
    }
}

/// Marks the end of the engine's task, and tells the waiters on other runtimes.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        self.0.close();
    }
}
