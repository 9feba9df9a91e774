//! A simulated process: tasks behind gates, so that it can be paused and ended at any moment.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use lock_core::sim::{self, enter, spawn_local_in};
use lock_core::{LockError, LockManager, LockManagerBuilder};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};

use crate::connection::UserConnection;
use crate::meter::Meter;
use crate::network::Wire;
use crate::woken::Woken;

/// What becomes of the sockets of a process that crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// The kernel closes them: what was written still arrives, and the server sees the end.
    Closed,
    /// The machine is gone as well: the server is told nothing, and what was under way is lost.
    Silent,
}

/// A process, by its number. Cheap to clone; clones are the same process.
#[derive(Clone)]
pub struct Process(Rc<Inner>);

struct Inner {
    index: usize,
    wire: Wire,
    meter: Meter,
    next_runtime: Arc<AtomicU64>,
    life: RefCell<Arc<Life>>,
    /// The first is the one that [`Process::spawn`] uses.
    runtimes: RefCell<Vec<Runtime>>,
}

/// From a start of the process to its crash.
struct Life {
    /// What the owners of reentrant locks begin with.
    id: String,
    next_owner: AtomicU64,
    paused: AtomicBool,
    /// The most milliseconds that a task is polled late.
    stutter: AtomicU64,
    /// The most milliseconds before a request, of which three in ten wait.
    hesitation: AtomicU64,
}

/// A runtime inside a process. Cheap to clone; clones are the same runtime.
#[derive(Clone)]
pub struct Runtime {
    core: Arc<Core>,
    process: Arc<dyn sim::Process>,
}

struct Core {
    id: u64,
    index: usize,
    wire: Wire,
    meter: Meter,
    life: Arc<Life>,
    paused: AtomicBool,
    ended: AtomicBool,
    tasks: Mutex<BTreeMap<u64, AbortHandle>>,
    /// Tasks that were woken during a pause, or that are late.
    waiting: Mutex<BTreeMap<u64, Waker>>,
    /// Until when tasks are late.
    late: Mutex<BTreeMap<u64, Instant>>,
}

impl sim::Process for Core {
    fn id(&self) -> u64 {
        self.id
    }

    fn admits(&self, task: u64, cx: &mut Context<'_>) -> bool {
        if self.ended.load(Ordering::Relaxed) || !self.meter.polled() {
            return false;
        }
        let paused =
            self.paused.load(Ordering::Relaxed) || self.life.paused.load(Ordering::Relaxed);
        let waits = paused || self.is_late(task, cx.waker());
        if waits {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.insert(task, cx.waker().clone());
        }
        !waits
    }

    fn begins(&self, task: u64, abort: AbortHandle) -> bool {
        if self.ended.load(Ordering::Relaxed) {
            return false;
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.insert(task, abort);
        true
    }

    fn ended(&self, task: u64) {
        let abort = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.remove(&task)
        };
        drop(abort);
    }

    fn connect(&self, host: &str, _port: u16) -> sim::Connecting {
        self.wire.connect(self.index, address(host))
    }

    fn owner(&self) -> String {
        let number = self.life.next_owner.fetch_add(1, Ordering::Relaxed);
        format!("{}:{number}", self.life.id)
    }

    fn hesitates(&self) -> Duration {
        let most = self.life.hesitation.load(Ordering::Relaxed);
        if most == 0 || fastrand::u8(..10) >= 3 {
            return Duration::ZERO;
        }
        Duration::from_millis(fastrand::u64(1..=most))
    }
}

fn urls(nodes: usize, options: &str) -> Vec<String> {
    let url = |node| format!("redis://n{node}{options}");
    (0..nodes).map(url).collect()
}

/// The address with this name: `n1` is the second. Any other name is of the first.
fn address(host: &str) -> usize {
    let number = host
        .strip_prefix('n')
        .and_then(|number| number.parse().ok());
    number.unwrap_or(0)
}

impl Core {
    /// Whether a task is not polled yet. One poll in four of a process that stutters is late.
    fn is_late(&self, task: u64, waker: &Waker) -> bool {
        let most = self.life.stutter.load(Ordering::Relaxed);
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if most == 0 {
            late.clear();
            return false;
        }
        let now = Instant::now();
        if let Some(until) = late.get(&task).copied() {
            if until <= now {
                late.remove(&task);
            }
            return until > now;
        }
        if fastrand::u8(..4) > 0 {
            return false;
        }
        let until = now + Duration::from_millis(fastrand::u64(1..=most));
        late.insert(task, until);
        let waker = waker.clone();
        tokio::spawn(async move {
            sleep_until(until).await;
            waker.wake();
        });
        true
    }

    fn wake(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        for waker in waiting.into_values() {
            waker.wake();
        }
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        let tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        for task in tasks.into_values() {
            task.abort();
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Runtime").field(&self.core.id).finish()
    }
}

impl Runtime {
    /// Starts a task. It is aborted at once where the runtime has ended.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: 'static> + 'static,
    {
        spawn_local_in(&self.process, Woken::new(future, &self.core.meter))
    }

    /// Runs something at once as a part of the process, as a thread of it would.
    pub fn enter<T>(&self, step: impl FnOnce() -> T) -> T {
        enter(&self.process, step)
    }

    /// Nobody drives it from now on: its tasks are not polled, while the process and its time go on.
    pub fn pause(&self) {
        self.note("runtime pauses");
        self.core.paused.store(true, Ordering::Relaxed);
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self) {
        self.note("runtime resumes");
        self.core.paused.store(false, Ordering::Relaxed);
        self.core.wake();
    }

    /// Ends it, as by dropping it: its tasks are dropped, and none can be spawned in it.
    pub fn end(&self) {
        self.note("runtime ends");
        self.core.end();
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.core.ended.load(Ordering::Relaxed)
    }

    fn note(&self, what: &str) {
        let Core { id, index, .. } = *self.core;
        let trace = &self.core.wire.trace;
        trace.line(format_args!("p{index}"), format_args!("{what} ({id})"));
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// `p` and its number.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0.index)
    }
}

impl Life {
    fn begin() -> Arc<Self> {
        Arc::new(Self {
            id: sim::uuid().to_string(),
            next_owner: AtomicU64::new(1),
            paused: AtomicBool::new(false),
            stutter: AtomicU64::new(0),
            hesitation: AtomicU64::new(0),
        })
    }
}

impl Process {
    pub(crate) fn new(index: usize, wire: Wire, meter: Meter, runtimes: Arc<AtomicU64>) -> Self {
        let process = Self(Rc::new(Inner {
            index,
            wire,
            meter,
            next_runtime: runtimes,
            life: RefCell::new(Life::begin()),
            runtimes: RefCell::default(),
        }));
        process.open_runtime();
        process
    }

    /// Its number.
    #[must_use]
    pub fn index(&self) -> usize {
        self.0.index
    }

    /// Starts a task in it. The task ends as cancelled when the process or its runtime does.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: 'static> + 'static,
    {
        self.runtime().spawn(future)
    }

    /// Connects a manager in this process.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::connect`]; [`LockError::ShutDown`] where the process ends meanwhile.
    pub async fn connect(&self, builder: LockManagerBuilder) -> Result<LockManager, LockError> {
        self.connect_to(builder, "").await
    }

    /// Connects a manager in this process to a quorum. Its nodes are the first servers of the world.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_quorum(
        &self,
        builder: LockManagerBuilder,
        nodes: usize,
        options: &'static str,
    ) -> Result<LockManager, LockError> {
        let connecting = async move { builder.connect_quorum(urls(nodes, options)).await };
        let made = self.spawn(connecting).await;
        made.unwrap_or(Err(LockError::ShutDown))
    }

    /// Begins a quorum with this number of nodes.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::begin_quorum`]; [`LockError::ShutDown`] where the process ends meanwhile.
    pub async fn begin_quorum(
        &self,
        builder: LockManagerBuilder,
        nodes: usize,
    ) -> Result<(), LockError> {
        let begun = self.spawn(builder.begin_quorum(urls(nodes, "")).into_future());
        begun.await.unwrap_or(Err(LockError::ShutDown))
    }

    /// As [`connect`](Self::connect), with RESP2: the server pushes no messages, so waiters ask.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_resp2(
        &self,
        builder: LockManagerBuilder,
    ) -> Result<LockManager, LockError> {
        self.connect_to(builder, "?protocol=resp2").await
    }

    async fn connect_to(
        &self,
        builder: LockManagerBuilder,
        options: &str,
    ) -> Result<LockManager, LockError> {
        let url = format!("redis://p{}/{options}", self.index());
        let made = self.spawn(async move { builder.connect(&url).await });
        made.await.unwrap_or(Err(LockError::ShutDown))
    }

    /// A manager over a connection of the user, which reconnects by itself.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::from_connection`].
    pub fn connect_over(&self, builder: LockManagerBuilder) -> Result<LockManager, LockError> {
        let runtime = self.runtime();
        let connection = UserConnection::new(Arc::clone(&runtime.process));
        runtime.enter(|| builder.from_connection(connection))
    }

    /// Stops it, as a signal does: none of its tasks is polled, while the time goes on and its sockets fill.
    pub fn pause(&self) {
        self.note("pauses");
        self.0.life.borrow().paused.store(true, Ordering::Relaxed);
    }

    /// Has each task polled late now and then, by up to this number of milliseconds, as on a machine with other work: one task
    /// stands still where the others go on.
    pub fn stutter(&self, most: u64) {
        self.0.life.borrow().stutter.store(most, Ordering::Relaxed);
    }

    /// From now on three requests in ten go out up to this number of milliseconds after they were decided, and perhaps behind later
    /// ones.
    pub fn hesitate(&self, most: u64) {
        let life = self.0.life.borrow();
        life.hesitation.store(most, Ordering::Relaxed);
    }

    /// Ends a [`pause`](Self::pause) and a [`stutter`](Self::stutter).
    pub fn resume(&self) {
        self.note("resumes");
        self.stutter(0);
        self.0.life.borrow().paused.store(false, Ordering::Relaxed);
        for runtime in self.0.runtimes.borrow().iter() {
            runtime.core.wake();
        }
    }

    /// Whether it is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.0.life.borrow().paused.load(Ordering::Relaxed)
    }

    /// Ends it without a word: no task of it is ever polled again. Its tasks are dropped, which nobody outside can see.
    pub fn crash(&self, sockets: Sockets) {
        self.note("crashes");
        let runtimes = std::mem::take(&mut *self.0.runtimes.borrow_mut());
        for runtime in &runtimes {
            runtime.core.ended.store(true, Ordering::Relaxed);
        }
        let is_silent = sockets == Sockets::Silent;
        self.0
            .wire
            .with(|state| state.crash(self.0.index, is_silent));
        for runtime in runtimes {
            runtime.core.end();
        }
    }

    /// Whether it has crashed and was not started again.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.0.runtimes.borrow().is_empty()
    }

    /// Starts it anew after a crash: another process with the same number.
    pub fn restart(&self) {
        if self.has_crashed() {
            self.note("starts");
            *self.0.life.borrow_mut() = Life::begin();
            self.open_runtime();
        }
    }

    /// The runtime of [`spawn`](Self::spawn) and [`connect`](Self::connect).
    ///
    /// # Panics
    ///
    /// Where the process has crashed.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        let runtimes = self.0.runtimes.borrow();
        runtimes
            .first()
            .cloned()
            .expect("the process has crashed: restart it")
    }

    /// One more runtime, as programs have that run some work on threads of its own.
    #[must_use = "a runtime that nobody uses does nothing"]
    pub fn another_runtime(&self) -> Runtime {
        self.open_runtime()
    }

    /// Ends the runtime that was used until now and opens another. What was made in the old one outlives it.
    pub fn end_runtime(&self) {
        let old = self.runtime();
        let new = self.open_runtime();
        let mut runtimes = self.0.runtimes.borrow_mut();
        runtimes.retain(|runtime| runtime.core.id != new.core.id && runtime.core.id != old.core.id);
        runtimes.insert(0, new);
        drop(runtimes);
        old.end();
    }

    fn open_runtime(&self) -> Runtime {
        let core = Arc::new(Core {
            id: self.0.next_runtime.fetch_add(1, Ordering::Relaxed),
            index: self.0.index,
            wire: self.0.wire.clone(),
            meter: self.0.meter.clone(),
            life: Arc::clone(&self.0.life.borrow()),
            paused: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            tasks: Mutex::default(),
            waiting: Mutex::default(),
            late: Mutex::default(),
        });
        let process = Arc::clone(&core) as Arc<dyn sim::Process>;
        let runtime = Runtime { core, process };
        self.0.runtimes.borrow_mut().push(runtime.clone());
        runtime
    }

    fn note(&self, what: &str) {
        self.0.wire.trace.line(self, format_args!("{what}"));
    }
}
