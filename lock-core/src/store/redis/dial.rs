//! Connecting: one task of the link makes one attempt at a time, for any number of callers.
//!
//! The task runs while a caller waits for the connection, or while the engine holds or waits for a lock. It ends when there is
//! a connection. An attempt belongs to the link: if a caller gives up, the attempt serves the next callers.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::error::said;
use super::link::Link;
use super::live::Live;
use crate::base::sync::lock;

/// Pause after the first failed attempt. Each further failure doubles it.
const MINIMUM_PAUSE: Duration = Duration::from_millis(5);
const MAXIMUM_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause while a caller waits for the connection.
const CALLERS_PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Dial {
    state: Mutex<DialState>,
    /// Notified when an attempt has ended.
    over: Notify,
    /// Notified when a caller begins to wait: the pause may be shorter now.
    hurry: Notify,
    /// Notified when the master is elsewhere: the attempt under way is of no use.
    elsewhere: Notify,
}

#[derive(Default)]
struct DialState {
    /// Whether the task runs.
    running: bool,
    /// Callers that wait for the outcome of an attempt.
    callers: usize,
    /// The number of failed attempts, and the error of the last one.
    failures: u64,
    error: Option<RedisError>,
    /// Consecutive attempts that made no connection, or one that did not last.
    in_vain: u32,
    /// The end of the last attempt.
    attempted_at: Option<Instant>,
    /// The times of the next attempt: without a waiting caller, and with one.
    due: Option<[Instant; 2]>,
}

impl DialState {
    /// An attempt has ended: the next one comes after a pause.
    fn attempted(&mut self) {
        let pause = pause_after(self.in_vain);
        self.in_vain = self.in_vain.saturating_add(1);
        let now = Instant::now();
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

/// The pauses are spread, so that the clients of a server that comes back do not connect at one instant.
fn pause_after(in_vain: u32) -> Duration {
    let pause = MINIMUM_PAUSE.saturating_mul(1 << in_vain.min(16));
    pause
        .min(MAXIMUM_PAUSE)
        .mul_f64(0.5 + fastrand::f64() / 2.0)
}

impl Dial {
    /// A connection has ended. If it lasted at least `MAXIMUM_PAUSE`, its attempt does not count as failed.
    pub(super) fn lost(&self) {
        let mut state = lock(&self.state);
        let lasted = state.attempted_at.map(|at| at.elapsed());
        if lasted.is_none_or(|lasted| lasted >= MAXIMUM_PAUSE) {
            state.in_vain = 0;
            state.due = None;
        }
    }

    /// The master is elsewhere: the next attempt is made at once.
    pub(super) fn elsewhere(&self) {
        let mut state = lock(&self.state);
        state.in_vain = 0;
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
    fn begin(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).running, true)
    }

    fn failed(&self, error: RedisError) {
        let mut state = lock(&self.state);
        state.attempted();
        state.failures += 1;
        state.error = Some(error);
        drop(state);
        self.over.notify_waiters();
    }

    /// Waits until the next attempt is due.
    async fn pause(&self) {
        loop {
            let mut hurry = pin!(self.hurry.notified());
            hurry.as_mut().enable();
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
struct Caller<'a>(&'a Dial);

impl<'a> Caller<'a> {
    /// Also returns the number of attempts that have failed so far.
    fn new(dial: &'a Dial) -> (Self, u64) {
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

/// The running task. Its drop reports the end to the callers, also if the runtime has ended.
struct Running(Arc<Link>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = lock(&self.0.dial.state);
        if state.running {
            state.running = false;
            state.failures += 1;
            let error = (ErrorKind::Io, "the runtime of the connection has ended");
            state.error = Some(error.into());
            drop(state);
            self.0.dial.over.notify_waiters();
        }
    }
}

impl Running {
    async fn run(self) {
        let (link, dial) = (&self.0, &self.0.dial);
        loop {
            if link.generation().is_none() {
                dial.pause().await;
            }
            let in_use = link.is_in_use();
            {
                let mut state = lock(&dial.state);
                if link.generation().is_some() || !(in_use || state.callers > 0) {
                    state.running = false;
                    break;
                }
            }
            let mut elsewhere = pin!(dial.elsewhere.notified());
            elsewhere.as_mut().enable();
            let attempt = tokio::select! {
                biased;
                () = elsewhere => continue,
                attempt = link.connect() => attempt,
            };
            match attempt {
                Ok(live) => {
                    lock(&dial.state).attempted();
                    link.adopt(live);
                    // From now on, callers find the connection.
                    dial.over.notify_waiters();
                }
                Err(error) => {
                    let why = said(&error);
                    tracing::debug!(
                        server = &*link.address(),
                        why,
                        "no connection to the lock server"
                    );
                    dial.failed(error);
                }
            }
        }
        // A caller that came just before the end of the task starts another one.
        dial.over.notify_waiters();
    }
}

impl Link {
    /// Returns the connection, and has it made if there is none. An error is that of an attempt that ended after the call.
    pub(super) async fn connection(self: &Arc<Self>) -> RedisResult<Live> {
        let (_caller, before) = Caller::new(&self.dial);
        loop {
            let mut over = pin!(self.dial.over.notified());
            over.as_mut().enable();
            if let Some(live) = self.current() {
                return Ok(live);
            }
            {
                let state = lock(&self.dial.state);
                if state.failures > before
                    && let Some(error) = &state.error
                {
                    return Err(error.clone());
                }
            }
            self.dial();
            over.await;
        }
    }

    /// Starts the task that makes the connection, unless it runs.
    pub(super) fn dial(self: &Arc<Self>) {
        if self.dial.begin() {
            // Without the lock: a runtime that has ended drops the task at once, and its drop takes the lock.
            self.spawn(Running(Arc::clone(self)).run());
        }
    }
}
