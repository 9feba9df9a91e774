//! The limit of a wait, and the errors at its end.

use std::time::Duration;

use tokio::time::Instant;

use crate::base::config::ENDLESS;
use crate::base::timers::Timers;

/// Maximum time that a client waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// One attempt.
    Try,
    Within(Duration),
    Forever,
}

impl Limit {
    /// A limit of zero is one attempt.
    pub(crate) fn of(limit: Option<Duration>) -> Self {
        match limit {
            None => Self::Forever,
            Some(Duration::ZERO) => Self::Try,
            Some(limit) => Self::Within(limit),
        }
    }

    /// This limit, or the default for a wait without one.
    pub(crate) fn or(self, default: Option<Duration>) -> Self {
        match (self, default) {
            (Self::Forever, wait) => Self::of(wait),
            (limit, _) => limit,
        }
    }
}

/// A [`Limit`] that has begun. Without a limit the clock is not read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) limit: Limit,
    started: Option<Instant>,
    /// It has ended, and was moved for one last request.
    pub(super) is_last: bool,
}

impl Patience {
    pub(super) fn new(timers: &Timers, limit: Limit) -> Self {
        let limit = match limit {
            Limit::Within(limit) if limit >= ENDLESS => Limit::Forever,
            limit => limit,
        };
        let timed = matches!(limit, Limit::Within(_));
        Self {
            limit,
            started: timed.then(|| timers.now()),
            is_last: false,
        }
    }

    pub(super) fn is_one_try(self) -> bool {
        matches!(self.limit, Limit::Try)
    }

    /// The end of the wait, if any.
    pub(super) fn end(self) -> Option<Instant> {
        match self.limit {
            Limit::Within(limit) => self.started?.checked_add(limit),
            Limit::Try | Limit::Forever => None,
        }
    }

    pub(super) fn is_over(self, timers: &Timers) -> bool {
        self.end().is_some_and(|end| timers.now() >= end)
    }

    /// Moves the end of the wait for one last request.
    pub(super) fn lengthen(&mut self, by: Duration) {
        self.is_last = true;
        if let Limit::Within(limit) = &mut self.limit {
            *limit = limit.saturating_add(by);
        }
    }

    pub(super) fn waited(self, timers: &Timers) -> Duration {
        self.started
            .map_or(Duration::ZERO, |started| timers.elapsed(started))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the reply came later than the lease lasts")]
pub(super) struct TooLate;

#[derive(Debug, thiserror::Error)]
#[error("no reply within the time given")]
pub(super) struct NoAnswer;
