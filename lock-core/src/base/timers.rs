//! The timers of a manager: they work whatever polls the future that waits for them.
//!
//! A manager with a thread of its own has its timers on the runtime of that thread, because its callers may be on no runtime, or on one
//! without timers. Tokio takes the runtime of a timer when the timer is made, or (after 1.54) when it is first polled: so the runtime is
//! entered for both.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use pin_project_lite::pin_project;
use tokio::task::coop::{has_budget_remaining, unconstrained};
use tokio::time::Instant;

use crate::base::rt::Handle;

/// Makes timers, on this runtime, or else on the one that polls them.
#[derive(Debug, Clone)]
pub(crate) struct Timers(Option<Handle>);

/// Timers on the runtime that polls them.
pub(crate) static OF_CALLER: Timers = Timers(None);

/// Where a manager runs: its tasks and connections on this runtime, and the waits of its callers with these timers.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub(crate) runtime: Handle,
    pub(crate) timers: Timers,
}

/// The time of a [`Timeout`] has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elapsed;

impl Timers {
    pub(crate) fn on(runtime: Option<Handle>) -> Self {
        Self(runtime)
    }

    /// The runtime of the manager's thread, if it has one.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> Option<&Handle> {
        self.0.as_ref()
    }

    /// Whether they are on a thread of the manager.
    pub(crate) fn are_own(&self) -> bool {
        self.0.is_some()
    }

    /// The time by the clock of these timers: a runtime of a test may have stopped its own.
    pub(crate) fn now(&self) -> Instant {
        let _entered = self.enter();
        Instant::now()
    }

    pub(crate) fn elapsed(&self, since: Instant) -> Duration {
        self.now().saturating_duration_since(since)
    }

    pub(crate) fn sleep(&self, time: Duration) -> Sleep {
        self.timer(|| tokio::time::sleep(time))
    }

    pub(crate) fn sleep_until(&self, end: Instant) -> Sleep {
        self.timer(|| tokio::time::sleep_until(end))
    }

    pub(crate) fn timeout<F: Future>(&self, limit: Duration, future: F) -> Timeout<F> {
        let sleep = self.sleep(limit);
        Timeout { future, sleep }
    }

    pub(crate) fn timeout_at<F: Future>(&self, end: Instant, future: F) -> Timeout<F> {
        let sleep = self.sleep_until(end);
        Timeout { future, sleep }
    }

    /// The output of this work, or `None` if the time runs out first.
    pub(crate) async fn within<F: Future>(
        &self,
        end: Option<Instant>,
        work: F,
    ) -> Option<F::Output> {
        match end {
            Some(end) => self.timeout_at(end, work).await.ok(),
            None => Some(work.await),
        }
    }

    /// Runs a future of another library, which may have timers of its own.
    pub(crate) async fn lend<F: Future + Unpin>(&self, mut future: F) -> F::Output {
        poll_fn(|cx| {
            let _entered = self.enter();
            future.poll_unpin(cx)
        })
        .await
    }

    fn timer(&self, make: impl FnOnce() -> tokio::time::Sleep) -> Sleep {
        let _entered = self.enter();
        Sleep {
            timers: self.clone(),
            sleep: make(),
        }
    }

    fn enter(&self) -> Option<impl Sized + '_> {
        self.0.as_ref().map(Handle::enter)
    }
}

pin_project! {
    /// Resolves at a certain time.
    pub(crate) struct Sleep {
        timers: Timers,
        #[pin]
        sleep: tokio::time::Sleep,
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let _entered = this.timers.enter();
        this.sleep.poll(cx)
    }
}

pin_project! {
    /// Resolves with the output of a future, or at a certain time. The future itself is polled where the caller polls.
    pub(crate) struct Timeout<F> {
        #[pin]
        future: F,
        #[pin]
        sleep: Sleep,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let had_budget = has_budget_remaining();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let elapsed = if had_budget && !has_budget_remaining() {
            // A future that uses up tokio's budget of the task each time would never time out.
            pin!(unconstrained(this.sleep)).poll(cx)
        } else {
            this.sleep.poll(cx)
        };
        elapsed.map(|()| Err(Elapsed))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::poll_fn;
    use tokio::task::coop::poll_proceed;

    use super::*;

    #[test]
    fn a_timer_is_little_larger_than_that_of_tokio() {
        let more = size_of::<Sleep>() - size_of::<tokio::time::Sleep>();
        assert!(more <= size_of::<Handle>(), "{more}");
    }

    #[tokio::test]
    async fn a_future_that_uses_up_the_budget_of_its_task_times_out() {
        let greedy = poll_fn(|cx| -> Poll<()> {
            while let Poll::Ready(restore) = poll_proceed(cx) {
                restore.made_progress();
            }
            Poll::Pending
        });
        let limit = Duration::from_millis(1);
        assert_eq!(OF_CALLER.timeout(limit, greedy).await, Err(Elapsed));
    }
}
