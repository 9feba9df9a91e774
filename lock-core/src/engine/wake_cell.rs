//! A cell that wakes one task.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;

use crate::base::sync::when_unlocked;

/// Wakes the one task that waits, now or at its next wait. It is smaller than a primitive for any number of waiting tasks: every
/// held lock has one.
#[derive(Debug, Default)]
pub(crate) struct WakeCell {
    waiter: AtomicWaker,
    told: AtomicBool,
}

impl WakeCell {
    pub(crate) fn wake(&self) {
        self.told.store(true, Ordering::SeqCst);
        if let Some(waiter) = self.waiter.take() {
            when_unlocked(|| waiter.wake());
        }
    }

    /// Whether the task has not looked since it was woken.
    pub(crate) fn is_unheeded(&self) -> bool {
        self.told.load(Ordering::SeqCst)
    }

    /// Resolves after the next [`wake`](Self::wake), and at once if there was one since the last wait.
    pub(crate) async fn wait(&self) {
        poll_fn(|cx| {
            if !self.told.load(Ordering::SeqCst) {
                self.waiter.register(cx.waker());
            }
            // Check again: `wake` may have come in between.
            if self.told.swap(false, Ordering::SeqCst) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn what_is_said_before_the_wait_counts_once() {
        let wake_cell = WakeCell::default();
        wake_cell.wake();
        wake_cell.wake();
        wake_cell.wait().await;
        assert!(wake_cell.wait().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_message_between_polls_is_not_lost_with_the_wait() {
        let wake_cell = WakeCell::default();
        {
            let mut wait = pin!(wake_cell.wait());
            assert!(wait.as_mut().now_or_never().is_none());
            wake_cell.wake();
        }
        assert!(wake_cell.wait().now_or_never().is_some());
    }
}
