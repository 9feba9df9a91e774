//! Beside values: when a value beside a lock changes, the server announces it, and its clients are woken and read it again.
//!
//! An announcement says only that there is something new. A lost or repeated one does no harm, because the clients also read after
//! each interruption, and from time to time.

use std::sync::Arc;
use std::time::Duration;

use super::news::NewsCell;
use super::patience::NoAnswer;
use super::shared::Shared;
use crate::base::backoff::Backoff;
use crate::base::beside::Beside;
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::refusal::Refusal;
use crate::base::time::Moment;
use crate::store::{OrRefused, StoreError, Subscription};

/// Interval after which a refused subscription is tried again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(60);

/// Maximum pauses after a read that failed: after the first, and after any number.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long reads have failed, and may fail.
pub(super) struct ReadFailures {
    since: Moment,
    patience: Option<Duration>,
    backoff: Backoff,
}

impl ReadFailures {
    pub(super) fn new(since: Moment, patience: Option<Duration>) -> Self {
        Self {
            since,
            patience,
            backoff: Backoff::new(PAUSE, LONGEST_PAUSE),
        }
    }
}

/// One client of an announcement, and its subscription.
pub(crate) struct Announcements {
    pub(super) shared: Arc<Shared>,
    pub(super) cell: Arc<NewsCell>,
    what: Beside,
    subscription: Option<Subscription>,
    subscribe_at: Moment,
    /// When the last read began, which another waiter may have made, and how old the next one may be.
    pub(super) read_at: Option<Moment>,
    slack: Duration,
    /// The error of the last read, if it failed.
    trouble: Option<StoreError>,
}

impl Announcements {
    pub(crate) fn new(shared: &Arc<Shared>, key: &Arc<LockKey>, what: Beside) -> Self {
        Self {
            shared: Arc::clone(shared),
            cell: shared.news.add(key, what),
            what,
            subscription: None,
            subscribe_at: Moment(0),
            read_at: None,
            slack: Duration::ZERO,
            trouble: None,
        }
    }

    /// The error if reads were not answered in time. `seen` tells whether one was answered.
    pub(crate) fn no_answer(self, seen: bool) -> Option<LockError> {
        match self.trouble {
            Some(error) => Some(error.into_lock_error()),
            None => (!seen).then(|| self.shared.unavailable(&self.cell.key, NoAnswer)),
        }
    }

    /// Reads a latch. A server that does not answer is asked again for this long.
    pub(crate) async fn latch(
        &mut self,
        patience: Duration,
        count: u32,
        ttl: Duration,
    ) -> Result<Result<u32, Refusal>, LockError> {
        let mut failures = ReadFailures::new(self.shared.clock.now(), Some(patience));
        loop {
            self.ready().await?;
            match self.latch_once(count, ttl).await {
                Ok(latch) => {
                    self.trouble = None;
                    return Ok(latch);
                }
                Err(error) => self.failed(error, &mut failures).await?,
            }
            self.slack = Duration::ZERO;
        }
    }

    async fn latch_once(&mut self, count: u32, ttl: Duration) -> OrRefused<u32> {
        let since = self.shared.clock.now() - self.slack;
        loop {
            let now = self.shared.clock.now();
            let (began, read) = self.cell.read((since, now), count, || {
                let (shared, key) = (Arc::clone(&self.shared), Arc::clone(&self.cell.key));
                Box::pin(async move { shared.store.count_down(&key, count, ttl, None).await })
            });
            let seen = read.await;
            if began >= since {
                self.read_at = Some(began);
                return seen;
            }
        }
    }

    /// Called before each read, so that no announcement after the read is missed.
    pub(super) async fn ready(&mut self) -> Result<(), LockError> {
        self.shared.check_open()?;
        self.subscribe().await;
        Ok(())
    }

    /// Waits before the next read, or gives up.
    pub(super) async fn failed(
        &mut self,
        error: StoreError,
        failures: &mut ReadFailures,
    ) -> Result<(), LockError> {
        let waited = failures.since.until(self.shared.clock.now());
        let hopeless = matches!(error, StoreError::Misconfigured(_));
        if hopeless || failures.patience.is_some_and(|patience| waited >= patience) {
            return Err(error.into_lock_error());
        }
        self.trouble = Some(error);
        // A new connection ends the pause.
        let pause = failures.backoff.failed();
        self.cell.wait(&self.shared.timers, pause).await;
        Ok(())
    }

    async fn subscribe(&mut self) {
        let (shared, now) = (&self.shared, self.shared.clock.now());
        // The server of the lock may be another one by now.
        if self.cell.was_interrupted() {
            (self.subscription, self.subscribe_at) = (None, now);
        }
        if self.subscription.is_none() && self.subscribe_at <= now {
            match shared.store.watch(&self.cell.key, self.what).await {
                Ok(subscription) => {
                    self.subscribe_at = now + SUBSCRIBE_AGAIN;
                    self.subscription = subscription;
                }
                // The next read tries again.
                Err(error) => tracing::debug!(%error, "could not subscribe"),
            }
        }
    }

    /// Waits for an announcement, at most this long since the last read. If none arrive, waits for one poll interval.
    pub(crate) async fn news(&mut self, most: Duration, poll: Duration) {
        let most = if self.subscription.is_some() {
            most
        } else {
            most.min(poll.max(self.shared.config.poll_interval))
        };
        let now = self.shared.clock.now();
        let since = self.read_at.map_or(Duration::ZERO, |at| at.until(now));
        let left = most.saturating_sub(since);
        let told = self.cell.wait(&self.shared.timers, left).await;
        // A read of another waiter serves as well, so that all of them make one in an interval.
        self.slack = if told { Duration::ZERO } else { most / 2 };
    }
}
