//! Taking a lock: ask, wait, and leave nothing behind whatever happens in between.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::entry::{Entry, Request, Taken};
use super::wait::{Granted, Next};
use super::{Session, Shared};
use crate::LockError;
use crate::error::Cause;
use crate::store::{Answer, Mode, Store, StoreError};
use crate::sync::lock;

/// How much longer than asked a caller waits for its own clean-up.
const GRACE: Duration = Duration::from_millis(100);

/// How long a caller is ready to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// One try.
    Try,
    Within(Duration),
    Forever,
}

/// Takes the lock. The entry that is returned is held and watched; it is the caller's to release.
///
/// Cancel-safe at every await: dropping the future undoes what it did.
pub(crate) async fn acquire(
    session: &Arc<Session>,
    request: Request,
    limit: Limit,
) -> Result<Arc<Entry>, LockError> {
    let shared = &*session.shared;
    if session.releases.is_closed() {
        return Err(LockError::config(
            "the runtime in which this lock manager was made has ended, and nothing would renew its locks: make one in the runtime that uses it",
        ));
    }
    let pending = Pending {
        session,
        entry: Some(shared.register(request)?),
        sent: false,
    };
    Acquisition {
        shared,
        started: Instant::now(),
        limit,
        trouble: Trouble::new(),
        pending,
    }
    .run()
    .await
}

/// Undoes the acquisition when dropped, unless it was completed or came to nothing.
struct Pending<'a> {
    session: &'a Arc<Session>,
    entry: Option<Arc<Entry>>,
    sent: bool,
}

impl Pending<'_> {
    fn entry(&self) -> &Arc<Entry> {
        self.entry.as_ref().unwrap_or_else(|| {
            unreachable!("taken only by the methods that consume the acquisition")
        })
    }

    fn complete(mut self) -> Arc<Entry> {
        let entry = Arc::clone(self.entry());
        self.entry = None;
        self.session.shared.leave_line(&entry);
        self.session.shared.watch(&entry);
        entry
    }

    /// Leaves the queue before the caller hears that its time is over, so that the lock is not handed to somebody who
    /// has just left. What a slow server does not confirm in time is left to the background.
    async fn withdraw(&mut self) {
        let entry = Arc::clone(self.entry());
        let shared = &self.session.shared;
        shared.leave_line(&entry);
        entry.lease.release(shared.now());
        let release = shared.store.release(&entry.key, &entry.token, None);
        if let Ok(Ok(_)) = timeout(GRACE, release).await {
            self.came_to_nothing();
        }
    }

    /// The server answered that it holds nothing of this acquisition; unless an earlier request is still out.
    fn came_to_nothing(&mut self) {
        self.sent = self.entry().ambiguous.load(Ordering::Relaxed);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else {
            return;
        };
        let shared = &self.session.shared;
        shared.leave_line(&entry);
        entry.lease.release(shared.now());
        if self.sent {
            self.session.undo_later(entry);
        } else {
            shared.forget(&entry);
        }
    }
}

struct Acquisition<'a> {
    shared: &'a Shared,
    started: Instant,
    limit: Limit,
    trouble: Trouble,
    pending: Pending<'a>,
}

impl Acquisition<'_> {
    async fn run(mut self) -> Result<Arc<Entry>, LockError> {
        let mode = match self.limit {
            Limit::Try => Mode::Try,
            Limit::Within(_) | Limit::Forever => Mode::Wait,
        };
        loop {
            {
                let mut wait = lock(&self.pending.entry().wait);
                if wait.is_shut_down() {
                    return Err(LockError::ShutDown);
                }
                wait.asking();
            }
            let sent_at = self.shared.now();
            self.pending.sent = true;
            let answer = self.ask(mode).await?;
            let entry = self.pending.entry();
            let next = match answer {
                Ok(Answer::Granted { fence, .. }) => Next::Take(Granted {
                    fence,
                    sent_at,
                    pushed: false,
                }),
                Ok(Answer::Busy { remaining }) => {
                    let error = LockError::Busy {
                        key: entry.key.name().to_owned(),
                        retry_after: Some(remaining),
                    };
                    self.pending.came_to_nothing();
                    return Err(error);
                }
                Ok(Answer::Foreign { kind }) => {
                    return Err(LockError::ForeignKey {
                        key: entry.key.name().to_owned(),
                        kind,
                    });
                }
                Ok(Answer::Queued(place)) => {
                    self.trouble.over();
                    lock(&entry.wait).queued(sent_at, place.last_fence);
                    self.shared.join_line(entry, place.remaining);
                    tracing::trace!(depth = place.depth, "waiting in the queue");
                    match self.wait().await {
                        Ok(next) => next,
                        Err(error) => {
                            if error.is_contention() {
                                self.pending.withdraw().await;
                            }
                            return Err(error);
                        }
                    }
                }
                Err(error) => {
                    self.after(error).await?;
                    continue;
                }
            };
            match next {
                Next::Take(granted) => {
                    match self.pending.entry().take(self.shared.now(), granted) {
                        Taken::Held => return Ok(self.pending.complete()),
                        Taken::TooLate => {
                            let late = StoreError::Ambiguous(Cause::new(Arc::new(TooLate)));
                            self.after(late).await?;
                        }
                        Taken::ShutDown => return Err(LockError::ShutDown),
                        Taken::Revoked => {}
                    }
                }
                Next::ShutDown => return Err(LockError::ShutDown),
                Next::AskAgain | Next::Wait => {}
            }
        }
    }

    /// Sends one request. The outer error is the caller's own time running out.
    async fn ask(&self, mode: Mode) -> Result<Result<Answer, StoreError>, LockError> {
        let attempt = self.pending.entry().attempt(mode);
        let call = self.shared.store.acquire(attempt);
        match self.until() {
            Some(end) => {
                if let Ok(answer) = timeout_at(end, call).await {
                    Ok(answer)
                } else {
                    self.pending
                        .entry()
                        .ambiguous
                        .store(true, Ordering::Relaxed);
                    Err(LockError::unavailable(NoAnswer))
                }
            }
            None => Ok(call.await),
        }
    }

    /// Waits for news, or for the end of the caller's patience.
    async fn wait(&self) -> Result<Next, LockError> {
        let entry = self.pending.entry();
        loop {
            {
                let now = self.shared.now();
                let mut wait = lock(&entry.wait);
                let next = wait.next(now, entry.terms.third());
                if next != Next::Wait {
                    return Ok(next);
                }
                // With a limit of its own, the wait ends there.
                let patience = matches!(self.limit, Limit::Forever).then_some(entry.terms.ttl);
                if let Some(error) = wait.hopeless(now, patience) {
                    return Err(error.into_lock_error());
                }
            }
            let woken = entry.woken.notified();
            match self.until() {
                Some(end) => {
                    if timeout_at(end, woken).await.is_err() {
                        return Err(self.out_of_time());
                    }
                }
                None => woken.await,
            }
        }
    }

    fn until(&self) -> Option<Instant> {
        match self.limit {
            Limit::Within(limit) => self.started.checked_add(limit),
            Limit::Try | Limit::Forever => None,
        }
    }

    fn out_of_time(&self) -> LockError {
        let entry = self.pending.entry();
        match lock(&entry.wait).trouble() {
            Some(error) => error.into_lock_error(),
            None => LockError::TimedOut {
                key: entry.key.name().to_owned(),
                waited: self.started.elapsed(),
            },
        }
    }

    /// Decides what a failed request means: try again after a pause, or give up.
    async fn after(&mut self, error: StoreError) -> Result<(), LockError> {
        let entry = self.pending.entry();
        if let StoreError::Ambiguous(_) = error {
            entry.ambiguous.store(true, Ordering::Relaxed);
        }
        if matches!(error, StoreError::Misconfigured(_)) {
            return Err(error.into_lock_error());
        }
        let pause = self.trouble.again();
        let give_up = match self.limit {
            // A broken connection may have swallowed the reply: with the same token a second call finds out.
            Limit::Try => self.trouble.count > 1 || !matches!(error, StoreError::Ambiguous(_)),
            Limit::Within(_) => self
                .until()
                .is_some_and(|end| Instant::now() + pause >= end),
            Limit::Forever => self.trouble.since.elapsed() > entry.terms.ttl,
        };
        if give_up {
            return Err(error.into_lock_error());
        }
        tracing::debug!(key = entry.key.name(), ?error, "asking again");
        sleep(pause).await;
        Ok(())
    }
}

/// A row of failed requests.
struct Trouble {
    since: Instant,
    count: u32,
}

impl Trouble {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            count: 0,
        }
    }

    fn over(&mut self) {
        *self = Self::new();
    }

    /// The pause before the next try: at once after the first failure, then doubling to half a second.
    fn again(&mut self) -> Duration {
        if self.count == 0 {
            self.since = Instant::now();
        }
        self.count += 1;
        let most = Duration::from_millis(10) * 2_u32.pow(self.count.min(7) - 1);
        most.min(Duration::from_millis(500))
            .mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the reply came later than the lease lasts")]
struct TooLate;

#[derive(Debug, thiserror::Error)]
#[error("no answer within the time given")]
struct NoAnswer;
