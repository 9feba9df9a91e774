//! One task that waits and is woken.

use std::pin::pin;

use futures_util::FutureExt;

use super::super::wake_cell::WakeCell;

#[tokio::test]
async fn a_wake_up_before_the_wait_counts_once() {
    let wake_cell = WakeCell::default();
    wake_cell.wake();
    wake_cell.wake();
    wake_cell.wait().await;
    assert!(wake_cell.wait().now_or_never().is_none());
}

#[tokio::test]
async fn a_wake_up_between_polls_is_not_lost_with_the_wait() {
    let wake_cell = WakeCell::default();
    {
        let mut wait = pin!(wake_cell.wait());
        assert!(wait.as_mut().now_or_never().is_none());
        wake_cell.wake();
    }
    assert!(wake_cell.wait().now_or_never().is_some());
}

#[tokio::test]
async fn a_task_that_has_not_looked_at_two_checks_is_stalled() {
    let wake_cell = WakeCell::default();
    assert!(!wake_cell.is_stalled());
    wake_cell.wake();
    assert!(!wake_cell.is_stalled());
    wake_cell.wake();
    assert!(wake_cell.is_stalled() && wake_cell.is_stalled());
    wake_cell.wait().await;
    assert!(!wake_cell.is_stalled());
}
