//! The seams of a deterministic simulation. There only with `--cfg lock_sim`, and no part of the interface.
//!
//! All runs on one thread. A simulated process is a [`Process`] that was [entered](enter): it is asked for connections and
//! random names, and its tasks are [`Gate`]s, so that it can be paused and ended.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use redis::RedisResult;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use uuid::{Builder, Uuid};

use crate::base::sync::lock;

/// The same hashes in each run.
pub(crate) type RandomState = BuildHasherDefault<DefaultHasher>;

/// Which runtime it is.
pub(crate) type Id = u64;

/// A connection of the simulated network.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// One runtime of one simulated process.
pub trait Process: Send + Sync {
    /// A number that no other runtime has.
    fn id(&self) -> u64;

    /// Whether the task may be polled now. A process that refuses keeps the waker, if it is to go on.
    fn admits(&self, task: u64, cx: &mut Context<'_>) -> bool;

    /// A task has begun. False where the runtime has ended.
    fn begins(&self, task: u64, abort: AbortHandle) -> bool;

    /// A task is gone.
    fn ended(&self, task: u64);

    /// Connects to a server.
    fn connect(&self, host: &str, port: u16) -> Connecting;

    /// A text that no other owner of a reentrant lock has.
    fn owner(&self) -> String;

    /// How long the processor is away between a decision and its request.
    fn hesitates(&self) -> Duration;
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Process>>> = const { RefCell::new(None) };
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
    static NEXT_TASK: Cell<u64> = const { Cell::new(0) };
}

/// The names of the scripts, by their hashes.
static SCRIPTS: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());

/// A run begins on this thread, at this moment of its runtime.
pub fn begin(seed: u64) {
    fastrand::seed(seed);
    START.set(Some(Instant::now()));
    NEXT_TASK.set(0);
}

/// How long the run has lasted.
#[must_use]
pub fn elapsed() -> Duration {
    START.get().map_or(Duration::ZERO, |start| start.elapsed())
}

/// The process that is running, if one is.
#[must_use]
pub fn current() -> Option<Arc<dyn Process>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Runs something as a part of this process.
pub fn enter<T>(process: &Arc<dyn Process>, step: impl FnOnce() -> T) -> T {
    let _within = Within(CURRENT.replace(Some(Arc::clone(process))));
    step()
}

/// The process around the one that was entered.
struct Within(Option<Arc<dyn Process>>);

impl Drop for Within {
    fn drop(&mut self) {
        let inner = CURRENT.replace(self.0.take());
        drop(inner);
    }
}

/// Whether this thread has no mutex of the crate locked.
#[must_use]
pub fn is_unlocked() -> bool {
    crate::base::sync::is_unlocked()
}

/// A uuid of the run's random numbers.
#[must_use]
pub fn uuid() -> Uuid {
    Builder::from_random_bytes(fastrand::u128(..).to_le_bytes()).into_uuid()
}

/// The name of the script with this hash, once it was used.
#[must_use]
pub fn script_name(hash: &str) -> Option<&'static str> {
    lock(&SCRIPTS).get(hash).copied()
}

pub(crate) fn know_script(hash: &str, name: &'static str) {
    lock(&SCRIPTS).insert(hash.to_owned(), name);
}

pub(crate) fn owner() -> String {
    current().map_or_else(|| format!("{}:1", uuid()), |process| process.owner())
}

/// Before a request: another thread may have the processor.
pub(crate) async fn before_send() {
    let pause = current().map_or(Duration::ZERO, |process| process.hesitates());
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

pub(crate) async fn tcp(host: &str, port: u16, _nodelay: bool) -> RedisResult<Box<dyn Stream>> {
    let process = current().ok_or_else(|| io::Error::other("outside of a simulated process"))?;
    Ok(process.connect(host, port).await?)
}

/// There is no process here.
#[derive(Debug)]
pub(crate) struct Outside;

/// A runtime, as far as this crate uses one.
#[derive(Clone)]
pub(crate) struct Handle(Arc<dyn Process>);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.0.id()).finish()
    }
}

impl Handle {
    pub(crate) fn try_current() -> Result<Self, Outside> {
        current().map(Self).ok_or(Outside)
    }

    pub(crate) fn current() -> Self {
        Self::try_current().expect("a simulated process")
    }

    pub(crate) fn id(&self) -> Id {
        self.0.id()
    }

    /// There is one runtime, which has all timers.
    #[expect(clippy::unused_self, reason = "as tokio's")]
    pub(crate) fn enter(&self) {}

    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        spawn_in(&self.0, future)
    }
}

pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    Handle::current().spawn(future)
}

/// Starts a task of this process. It is aborted at once where the runtime has ended.
pub fn spawn_in<F>(process: &Arc<dyn Process>, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (task, gate) = gate(process, future);
    begun(process, task, tokio::spawn(gate))
}

/// As [`spawn_in`], for a task that stays on this thread.
pub fn spawn_local_in<F>(process: &Arc<dyn Process>, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: 'static> + 'static,
{
    let (task, gate) = gate(process, future);
    begun(process, task, tokio::task::spawn_local(gate))
}

fn gate<F>(process: &Arc<dyn Process>, future: F) -> (u64, Gate<F>) {
    let task = NEXT_TASK.replace(NEXT_TASK.get() + 1);
    let gate = Gate {
        process: Arc::clone(process),
        task,
        future: Some(Box::pin(future)),
    };
    (task, gate)
}

fn begun<T>(process: &Arc<dyn Process>, task: u64, spawned: JoinHandle<T>) -> JoinHandle<T> {
    if !process.begins(task, spawned.abort_handle()) {
        spawned.abort();
    }
    spawned
}

/// A task of a process: it is polled, and dropped, inside it.
struct Gate<F> {
    process: Arc<dyn Process>,
    task: u64,
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Gate<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        if !this.process.admits(this.task, cx) {
            return Poll::Pending;
        }
        match &mut this.future {
            Some(future) => enter(&this.process, || future.as_mut().poll(cx)),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for Gate<F> {
    fn drop(&mut self) {
        self.process.ended(self.task);
        let Self {
            process, future, ..
        } = self;
        enter(process, || *future = None);
    }
}
