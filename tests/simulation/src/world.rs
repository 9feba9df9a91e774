//! A world: servers, a network and processes, on one thread and in virtual time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use lock_core::sim;
use tokio::runtime::{Builder, LocalOptions, RngSeed};
use tokio::time::sleep;

use crate::meter::{Finding, Limits, Meter};
use crate::network::{Driver, Network, Wire};
use crate::process::Process;
use crate::server::Server;
use crate::trace::Trace;

/// How a world is to run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// All that is random follows from it.
    pub seed: u64,
    /// How many servers there are; at least one. The address of each leads to it.
    pub servers: usize,
    /// Whether the lines of the trace are kept. They are hashed in any case.
    pub keep_trace: bool,
    /// Where the run ends that would not end by itself.
    pub limits: Limits,
}

impl From<u64> for Settings {
    fn from(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome<T> {
    /// What the run returned, unless something was found before its end.
    pub value: Option<T>,
    /// What was found. The first ended the run.
    pub findings: Vec<Finding>,
    /// The lines of the trace, where they were to be kept.
    pub lines: Vec<String>,
    /// The hash of the trace.
    pub hash: u64,
    /// Virtual time.
    pub lasted: Duration,
    /// Commands that the servers were sent.
    pub commands: u64,
    /// Polls of tasks.
    pub polls: u64,
}

/// A handle to everything in a run. Cheap to clone; clones are the same world.
#[derive(Clone)]
pub struct World(Rc<Inner>);

struct Inner {
    seed: u64,
    trace: Trace,
    meter: Meter,
    network: Network,
    servers: Vec<Server>,
    processes: RefCell<BTreeMap<usize, Process>>,
    runtimes: Arc<AtomicU64>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("seed", &self.0.seed)
            .finish_non_exhaustive()
    }
}

impl World {
    /// Runs `main` outside of all processes, until it ends or something is found.
    ///
    /// # Panics
    ///
    /// Where `main` or a task outside of processes panics.
    pub fn run<T>(settings: impl Into<Settings>, main: impl AsyncFnOnce(Self) -> T) -> Outcome<T> {
        let settings = settings.into();
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .rng_seed(RngSeed::from_bytes(&settings.seed.to_le_bytes()))
            .build_local(LocalOptions::default())
            .expect("a runtime without I/O needs nothing of the system");
        let trace = Trace::new(settings.keep_trace);
        let meter = Meter::new(settings.limits, trace.clone());
        let (value, lasted, servers) = runtime.block_on(async {
            sim::begin(settings.seed);
            let world = Self::new(settings, trace.clone(), meter.clone());
            let servers = world.0.servers.clone();
            let driver = Driver::new(world.0.network.0.clone(), servers.clone(), meter.clone());
            tokio::task::spawn_local(driver.run());
            let value = until_found(&meter, main(world)).await;
            (value, sim::elapsed(), servers)
        });
        let hash = trace.hash();
        // Tasks that are left are dropped: nothing of that is a part of the run.
        let (lines, polls) = (trace.take(), meter.polls());
        drop(runtime);
        let commands = servers.iter().map(Server::commands).sum();
        servers.iter().for_each(Server::is_over);
        Outcome {
            value,
            findings: meter.findings(),
            lines,
            hash,
            lasted,
            commands,
            polls,
        }
    }

    fn new(settings: Settings, trace: Trace, meter: Meter) -> Self {
        let Settings { seed, servers, .. } = settings;
        let servers = servers.max(1);
        let wire = Wire::new(mixed(seed, 1), servers, trace.clone());
        let server = |index| Server::new(index, wire.clone(), meter.clone());
        Self(Rc::new(Inner {
            seed,
            servers: (0..servers).map(server).collect(),
            network: Network(wire),
            trace,
            meter,
            processes: RefCell::default(),
            runtimes: Arc::new(AtomicU64::new(1)),
        }))
    }

    /// The seed of the run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// A source of random numbers of its own: the same for the same seed and name, whatever else is drawn.
    #[must_use]
    pub fn rng(&self, name: u64) -> Rng {
        rng(self.0.seed, name)
    }

    /// The virtual time since the run began.
    #[must_use]
    pub fn now(&self) -> Duration {
        sim::elapsed()
    }

    /// The process with this number, started when it is named first.
    #[must_use]
    pub fn process(&self, index: usize) -> Process {
        let new = || {
            let Inner {
                network,
                meter,
                runtimes,
                ..
            } = &*self.0;
            Process::new(
                index,
                network.0.clone(),
                meter.clone(),
                Arc::clone(runtimes),
            )
        };
        let mut processes = self.0.processes.borrow_mut();
        processes.entry(index).or_insert_with(new).clone()
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.0.network
    }

    /// The first server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.0.servers[0]
    }

    /// All servers.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.0.servers
    }

    /// The trace.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Writes a line into the trace.
    pub fn note(&self, who: impl fmt::Display, what: fmt::Arguments<'_>) {
        self.0.trace.line(who, what);
    }

    /// Something is there that must not be: the run ends.
    pub fn find(&self, rule: &'static str, what: impl Into<String>) {
        self.0.meter.find(rule, what.into());
    }

    /// Starts a task outside of all processes, which cannot connect: for faults and checkers.
    pub fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: 'static> + 'static,
    {
        tokio::task::spawn_local(future)
    }
}

/// The source of random numbers that [`World::rng`] gives, also without a world.
#[must_use]
pub fn rng(seed: u64, name: u64) -> Rng {
    Rng::with_seed(mixed(seed, name.wrapping_add(2)))
}

/// Two numbers as one, every bit of which depends on both.
fn mixed(seed: u64, name: u64) -> u64 {
    let mut mixed = seed ^ name.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 31)
}

/// Polls `main` until it ends, unless something is found first.
async fn until_found<F: Future>(meter: &Meter, main: F) -> Option<F::Output> {
    let limit = meter.limits().time;
    let (mut main, mut end) = (pin!(main), pin!(sleep(limit)));
    poll_fn(|cx| {
        meter.wakes(cx.waker());
        if !meter.polled() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(value) = main.as_mut().poll(cx) {
            return Poll::Ready(if meter.is_halted() { None } else { Some(value) });
        }
        if end.as_mut().poll(cx).is_ready() {
            meter.find("time", format!("not over after {} s", limit.as_secs()));
        }
        if meter.is_halted() {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await
}
