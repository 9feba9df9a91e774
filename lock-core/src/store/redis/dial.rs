//! Making the connection: one attempt at a time, by one task of the link, however many callers ask for it.
//!
//! The task runs while a caller waits for the connection, or while the engine holds or waits for a lock, and ends with the
//! connection. An attempt belongs to the link: a caller that gives up leaves it to the next ones.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::link::{Link, Live};
use crate::sync::lock;

/// Pause after the first attempt in vain. It doubles with each one.
const MINIMUM_PAUSE: Duration = Duration::from_millis(5);
const MAXIMUM_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause while a caller waits for the connection.
const CALLERS_PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Dial {
    state: Mutex<DialState>,
    /// An attempt is over.
    over: Notify,
    /// A caller waits: the pause may be shorter now.
    hurry: Notify,
}

#[derive(Default)]
struct DialState {
    /// The task runs.
    running: bool,
    /// Callers that wait for the outcome of an attempt.
    callers: usize,
    /// All attempts that have failed, and the error of the last one.
    failures: u64,
    error: Option<RedisError>,
    /// Attempts in a row that brought no connection, or one that did not last.
    in_vain: u32,
    /// When the last attempt was over.
    attempted_at: Option<Instant>,
    /// The next attempt without a caller that waits, and with one.
    due: Option<[Instant; 2]>,
}

impl DialState {
    /// An attempt is over: the next one comes after a pause.
    fn attempted(&mut self) {
        let pause = pause_after(self.in_vain);
        self.in_vain = self.in_vain.saturating_add(1);
        let now = Instant::now();
        self.attempted_at = Some(now);
        self.due = Some([now + pause, now + pause.min(CALLERS_PAUSE)]);
    }

    /// When to try next; `None` for at once.
    fn next(&self) -> Option<Instant> {
        let [idle, hurried] = self.due?;
        let due = if self.callers > 0 { hurried } else { idle };
        (due > Instant::now()).then_some(due)
    }
}

/// Spread out, so that the clients of a server that comes back do not connect at one instant.
fn pause_after(in_vain: u32) -> Duration {
    let pause = MINIMUM_PAUSE.saturating_mul(1 << in_vain.min(16));
    pause
        .min(MAXIMUM_PAUSE)
        .mul_f64(0.5 + fastrand::f64() / 2.0)
}

impl Dial {
    /// A connection has ended. One that has lasted for a while was no attempt in vain.
    pub(super) fn lost(&self) {
        let mut state = lock(&self.state);
        let lasted = state.attempted_at.map(|at| at.elapsed());
        if lasted.is_none_or(|lasted| lasted >= MAXIMUM_PAUSE) {
            state.in_vain = 0;
            state.due = None;
        }
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
    /// Also returns how many attempts have failed so far.
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

/// The task. Its end is told however it comes, also with its runtime.
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
            match link.connect().await {
                Ok(live) => {
                    lock(&dial.state).attempted();
                    link.adopt(live);
                    // Callers that look from now on find the connection.
                    dial.over.notify_waiters();
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection to the lock server");
                    dial.failed(error);
                }
            }
        }
        // A caller that came while the task was about to end starts another one.
        dial.over.notify_waiters();
    }
}

impl Link {
    /// The connection, made if there is none. The error is that of an attempt that ended after the call.
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

    /// Sees to it that a connection is made.
    pub(super) fn dial(self: &Arc<Self>) {
        if self.dial.begin() {
            // Not under the lock: a runtime that has ended drops the task at once.
            self.spawn(Running(Arc::clone(self)).run());
        }
    }
}
