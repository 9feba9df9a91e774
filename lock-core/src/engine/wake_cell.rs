//! A cell that wakes one task.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;

use crate::base::sync::when_unlocked;

const QUIET: u8 = 0;
const WOKEN: u8 = 1;
/// Woken, and checked since.
const CHECKED: u8 = 2;

/// Wakes the one task that waits, now or at its next wait. It is smaller than a primitive for any number of waiting tasks: every
/// held lock has one.
#[derive(Debug, Default)]
pub(crate) struct WakeCell {
    waiter: AtomicWaker,
    state: AtomicU8,
}

impl WakeCell {
    pub(crate) fn wake(&self) {
        self.state.fetch_max(WOKEN, Ordering::SeqCst);
        if let Some(waiter) = self.waiter.take() {
            when_unlocked(|| waiter.wake());
        }
    }

    /// A check: whether the task was woken before the last one and has not looked since.
    pub(crate) fn is_stalled(&self) -> bool {
        let (state, order) = (&self.state, Ordering::SeqCst);
        state.compare_exchange(WOKEN, CHECKED, order, order) == Err(CHECKED)
    }

    /// Resolves after the next [`wake`](Self::wake), and at once if there was one since the last wait.
    pub(crate) async fn wait(&self) {
        poll_fn(|cx| {
            if self.state.load(Ordering::SeqCst) == QUIET {
                self.waiter.register(cx.waker());
            }
            // Check again: `wake` may have come in between.
            if self.state.swap(QUIET, Ordering::SeqCst) == QUIET {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }
}
