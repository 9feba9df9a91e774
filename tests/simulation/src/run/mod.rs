//! Carrying out a plan.

mod all;
pub(crate) mod attention;
mod data;
mod election;
mod faults;
mod life;
mod operation;
mod shared;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::LockManager;
use lock_master::Data;
use tokio::time::{sleep, timeout};

use crate::check::{Checks, Sharing, is_short};
use crate::meter::{Finding, Limits};
use crate::plan::{Attention, Call, Connection, Kind, Op, Plan, ProcessPlan};
use crate::world::{Settings, World};

/// A waiter that polls asks again no sooner than this.
const POLL: Duration = Duration::from_millis(50);

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// What was found, if anything was.
    pub finding: Option<Finding>,
    /// The lines of the trace, where they were to be kept.
    pub lines: Vec<String>,
    /// The hash of the trace.
    pub hash: u64,
    /// Operations that were carried out.
    pub operations: u64,
    /// Guards that were returned.
    pub grants: u64,
    /// Virtual time.
    pub lasted: Duration,
    /// Commands that the server was sent.
    pub commands: u64,
}

/// What all parts of a run share.
#[derive(Clone)]
pub(crate) struct Run(Rc<Shared>);

pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) world: World,
    pub(crate) checks: Checks,
    pub(crate) operations: Cell<u64>,
    pub(crate) grants: Cell<u64>,
    /// The manager of each process that is alive.
    pub(crate) managers: RefCell<BTreeMap<usize, LockManager>>,
    /// How many managers each process has had.
    made: RefCell<BTreeMap<usize, u32>>,
    /// The data to which faults go back, by their places in the plan.
    pub(crate) copies: RefCell<BTreeMap<usize, Data>>,
    /// What each task is doing, for the report of a run that does not end.
    pub(crate) doing: RefCell<BTreeMap<(usize, usize), Op>>,
}

impl std::ops::Deref for Run {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Carries out a plan.
#[must_use]
pub fn run(plan: &Plan, keep_trace: bool) -> Report {
    run_for(None, plan, keep_trace)
}

/// As [`run`], and where there is a rule, only what breaks this one is a finding.
#[must_use]
pub fn run_for(rule: Option<&'static str>, plan: &Plan, keep_trace: bool) -> Report {
    let settings = Settings {
        seed: plan.seed,
        servers: 1,
        keep_trace,
        limits: Limits {
            only: rule,
            ..Limits::default()
        },
    };
    let counted = Rc::new(Cell::new((0, 0)));
    let counts = Rc::clone(&counted);
    let outcome = World::run(settings, async move |world| {
        let ms = Duration::from_millis;
        // A grant may come too late for a short lease: then its turn goes by unused.
        let can_be_used = !is_short(ms(plan.shortest_ttl()), ms(plan.delay.most));
        let sharing = |(index, process): (usize, &ProcessPlan)| {
            let pushes = process.connection == Connection::Push;
            Sharing {
                limit: process.handover_limit,
                queues: pushes && can_be_used,
                pushes,
                // Nor does the server know of a waiter that its lease ends before it hears of it.
                vanishes: pushes && plan.vanishes(index) || !can_be_used,
            }
        };
        let processes = plan.processes.iter().enumerate().map(sharing).collect();
        let longest_ttl = ms(plan.longest_ttl());
        let checks = Checks::new(&world, longest_ttl, ms(plan.delay.most), processes);
        let run = Run(Rc::new(Shared {
            plan: plan.clone(),
            world,
            checks,
            operations: Cell::new(0),
            grants: Cell::new(0),
            managers: RefCell::default(),
            made: RefCell::default(),
            copies: RefCell::default(),
            doing: RefCell::default(),
        }));
        let counting = run.clone();
        carry_out(&run).await;
        counts.set((counting.operations.get(), counting.grants.get()));
    });
    let (operations, grants) = counted.get();
    Report {
        finding: outcome.findings.into_iter().next(),
        lines: outcome.lines,
        hash: outcome.hash,
        operations: operations.max(plan.operations() as u64),
        grants,
        lasted: outcome.lasted,
        commands: outcome.commands,
    }
}

async fn carry_out(run: &Run) {
    let Shared {
        plan,
        world,
        checks,
        ..
    } = &**run;
    world
        .network()
        .delay(crate::network::Target::All, plan.delay);
    world.network().split(plan.split);
    let looking = world.spawn(look_now_and_then(run.clone()));
    let lives = (0..plan.processes.len()).map(|index| life::live(run.clone(), index));
    let lives = join_all(lives.map(|life| world.spawn(life)));
    let faults = world.spawn(faults::happen(run.clone()));
    let limit = patience(plan);
    if timeout(limit, lives).await.is_err() {
        // Leases that end within a round trip may never be held at the same time.
        let may_starve = |op: &Op| matches!(op.kind, Kind::All(_)) && op.ttl < plan.delay.most * 2;
        let doing = run.doing.borrow();
        if !doing.values().all(may_starve) {
            let doing: Vec<_> = doing
                .iter()
                .map(|(at, op)| format!("{at:?}: {op}"))
                .collect();
            world.find("stuck", format!("not over after {limit:?}: {doing:?}"));
        }
        return;
    }
    faults.abort();
    let _ = faults.await;
    if plan.incidents.is_empty() {
        let (sent, most) = (world.server().commands(), most_commands(plan, world.now()));
        if sent > most {
            world.find(
                "herd",
                format!("{sent} commands were sent, {most} are enough"),
            );
        }
    }
    faults::heal(run);
    let managers: Vec<_> = std::mem::take(&mut *run.managers.borrow_mut())
        .into_iter()
        .collect();
    for (index, locks) in managers {
        let process = world.process(index);
        if process.has_crashed() {
            continue;
        }
        let left = process
            .spawn(async move { locks.shutdown(Duration::from_secs(20)).await })
            .await;
        if left.is_ok_and(|left| left > 0)
            && !plan.ends(index)
            && checks.weather().calm(world.now()) > Duration::from_secs(10)
        {
            world.find("shutdown", format!("p{index} leaves locks"));
        }
    }
    sleep(Duration::from_secs(15)).await;
    for (index, of) in plan.processes.iter().enumerate() {
        let counts = world.network().counts(index);
        // Where managers follow one another, their attempts to connect are not told apart.
        let is_one_manager = run.made.borrow().get(&index) == Some(&1);
        if is_one_manager && counts.most_connecting > 2 && of.connection != Connection::User {
            let most = counts.most_connecting;
            world.find(
                "connects",
                format!("p{index} made {most} connections at once"),
            );
        }
        if counts.open > 0 && of.connection != Connection::User {
            world.find(
                "sockets",
                format!("p{index} has {} open after its end", counts.open),
            );
        }
    }
    looking.abort();
    // The longest that anything may be left: a lease, or a queue without waiters. A key with several leases has twice the ttl.
    let leases = if plan.has_shared() { 2 } else { 1 };
    sleep(Duration::from_millis(plan.longest_ttl()) * leases + Duration::from_secs(40)).await;
    let left = checks.leftovers();
    if !left.is_empty() {
        world.find("left over", left.join(", "));
    }
}

/// How long a plan may take: what its operations take one after the other, and a ttl now and then.
fn patience(plan: &Plan) -> Duration {
    let ops = plan
        .processes
        .iter()
        .flat_map(|process| process.tasks.iter().flatten());
    // A caller of several locks that does not run keeps those that it has.
    let sleeps = |op: &Op| match (op.kind, op.attention) {
        (Kind::All(_), Attention::Sleep(_, time) | Attention::SleepThenDrop(_, time)) => time,
        _ => 0,
    };
    let all: u64 = ops
        .map(|op| op.before + op.hold + op.at_least + sleeps(op) + 50)
        .sum();
    let outages: u64 = plan
        .incidents
        .iter()
        .map(|incident| incident.lasts + 3_000)
        .sum();
    let leases = plan.longest_ttl() * (3 + plan.incidents.len() as u64);
    let last = plan.incidents.last().map_or(0, |incident| incident.at);
    Duration::from_millis(all * 2 + outages + leases + last + 300_000)
}

/// P9: how many commands are enough for a plan without faults that lasts this long. Each operation has a share that does not
/// grow with the number of waiters, except for reentrant locks: they have no queue, and each process may ask after a release.
/// The rest connects the processes, renews leases and refreshes waiters.
fn most_commands(plan: &Plan, lasts: Duration) -> u64 {
    let refresh = Duration::from_millis(plan.shortest_ttl() / 3).min(Duration::from_secs(3));
    let looks = |process: &ProcessPlan| {
        let polls = process.connection != Connection::Push;
        let every = if polls { refresh.min(POLL) } else { refresh };
        let times = lasts.as_micros() / every.as_micros().max(1);
        // A leader announces itself with each renewal, and some wait for a lock while they hold others.
        let each = if plan.most_terms() > 0 || plan.has_all() {
            2
        } else {
            1
        };
        15 + u64::try_from(times)
            .unwrap_or(u64::MAX)
            .saturating_mul(process.tasks.len() as u64 * each)
    };
    let processes = plan.processes.len() as u64;
    let terms = plan.most_terms();
    let asks = |op: &Op| match op.kind {
        Kind::Reentrant(times) => (5 + processes) * (1 + u64::from(times)),
        Kind::Exclusive | Kind::Segmented(_) => 5,
        // It may change from a reader to a writer, or back.
        Kind::Semaphore { .. } | Kind::Read { .. } | Kind::Write { .. } => 6,
        // Each term is announced with a renewal, and its end; a body may be begun anew.
        Kind::Candidate { .. } if op.call == Call::With => 16,
        Kind::Candidate { .. } => 8,
        // One try for all, and then one after the other.
        Kind::All(_) => 24,
        // Each beginning and each end of a term is read.
        Kind::Observer => 4 + 2 * terms,
    };
    let ops = plan
        .processes
        .iter()
        .flat_map(|it| it.tasks.iter().flatten());
    plan.processes.iter().map(looks).sum::<u64>() + ops.map(asks).sum::<u64>()
}

async fn look_now_and_then(run: Run) {
    let mut rng = run.world.rng(7);
    loop {
        sleep(Duration::from_millis(rng.u64(1..400))).await;
        run.checks.look();
    }
}
