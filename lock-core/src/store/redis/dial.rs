//! The attempts to connect: when the next one is due, and how the last one ended, for the callers that wait for it.

use std::sync::Mutex;
use std::thread::panicking;
use std::time::Duration;

use redis::{ErrorKind, RedisError};
use tokio::time::{Instant, sleep_until};

use super::error::misconfigured;
use crate::base::backoff::Backoff;
use crate::base::error::RUNTIME_ENDED;
use crate::base::signal::Signal;
use crate::base::sync::lock;

/// Maximum pauses after an attempt: after the first, and after any number that made no connection, or one that did not last.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause while a caller waits for the connection.
const CALLERS_PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Dial {
    state: Mutex<DialState>,
    /// Notified when an attempt has ended.
    pub(super) over: Signal,
    /// Notified when a caller begins to wait: the pause may be shorter now.
    hurry: Signal,
    /// Notified when the master is elsewhere: the attempt under way is of no use.
    pub(super) elsewhere: Signal,
}

struct DialState {
    /// Whether the task runs.
    running: bool,
    /// Callers that wait for the outcome of an attempt.
    callers: usize,
    /// The number of failed attempts, and the error of the last one.
    failures: u64,
    error: Option<RedisError>,
    backoff: Backoff,
    /// The end of the last attempt.
    attempted_at: Option<Instant>,
    /// The times of the next attempt: without a waiting caller, and with one.
    due: Option<[Instant; 2]>,
}

impl Default for DialState {
    fn default() -> Self {
        Self {
            running: false,
            callers: 0,
            failures: 0,
            error: None,
            backoff: Backoff::new(PAUSE, LONGEST_PAUSE),
            attempted_at: None,
            due: None,
        }
    }
}

impl DialState {
    /// An attempt has ended: the next one comes after a pause.
    fn attempted(&mut self) {
        let (pause, now) = (self.backoff.failed(), Instant::now());
        self.attempted_at = Some(now);
        self.due = Some([now + pause, now + pause.min(CALLERS_PAUSE)]);
    }

    /// The time of the next attempt; `None` for at once.
    fn next(&self) -> Option<Instant> {
        let [idle, hurried] = self.due?;
        let due = if self.callers > 0 { hurried } else { idle };
        (due > Instant::now()).then_some(due)
    }
}

impl Dial {
    /// A connection has ended. If it lasted at least `LONGEST_PAUSE`, its attempt does not count as failed.
    pub(super) fn lost(&self) {
        let mut state = lock(&self.state);
        let lasted = state.attempted_at.map(|at| at.elapsed());
        if lasted.is_none_or(|lasted| lasted >= LONGEST_PAUSE) {
            state.backoff.over();
            state.due = None;
        }
    }

    /// The master is elsewhere: the next attempt is made at once.
    pub(super) fn elsewhere(&self) {
        let mut state = lock(&self.state);
        state.backoff.over();
        state.due = None;
        drop(state);
        self.hurry.notify_waiters();
        self.elsewhere.notify_waiters();
    }

    /// Whether a connection is being made.
    pub(super) fn is_running(&self) -> bool {
        lock(&self.state).running
    }

    /// True for the caller that has to start the task.
    pub(super) fn begin(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).running, true)
    }

    /// Ends the task if it is over. `is_over` is told whether a caller waits.
    pub(super) fn ends(&self, is_over: impl FnOnce(bool) -> bool) -> bool {
        let mut state = lock(&self.state);
        state.running = !is_over(state.callers > 0);
        !state.running
    }

    /// The task was dropped before its end: the runtime has ended, or lacks what a connection needs.
    pub(super) fn dropped(&self) {
        let mut state = lock(&self.state);
        state.running = false;
        state.failures += 1;
        state.error = Some(if panicking() {
            (ErrorKind::Io, "the attempt to connect has panicked").into()
        } else {
            misconfigured(RUNTIME_ENDED.to_owned())
        });
        drop(state);
        self.over.notify_waiters();
    }

    /// An attempt has made a connection.
    pub(super) fn made(&self) {
        lock(&self.state).attempted();
    }

    /// The error of the last attempt, if one has failed since there were this many failures.
    pub(super) fn failed_since(&self, failures: u64) -> Option<RedisError> {
        let state = lock(&self.state);
        let error = state.error.as_ref();
        error.filter(|_| state.failures > failures).cloned()
    }

    pub(super) fn failed(&self, error: RedisError) {
        let mut state = lock(&self.state);
        state.attempted();
        state.failures += 1;
        state.error = Some(error);
        drop(state);
        self.over.notify_waiters();
    }

    /// Waits until the next attempt is due.
    pub(super) async fn pause(&self) {
        loop {
            let hurry = self.hurry.notified();
            let Some(due) = lock(&self.state).next() else {
                return;
            };
            tokio::select! {
                () = sleep_until(due) => {}
                () = hurry => {}
            }
        }
    }
}

/// A caller that waits for the connection.
pub(super) struct Caller<'a>(&'a Dial);

impl<'a> Caller<'a> {
    /// Also returns the number of attempts that have failed so far.
    pub(super) fn new(dial: &'a Dial) -> (Self, u64) {
        let mut state = lock(&dial.state);
        state.callers += 1;
        let failures = state.failures;
        drop(state);
        dial.hurry.notify_waiters();
        (Self(dial), failures)
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).callers -= 1;
    }
}
