//! Carrying out a plan over a quorum.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{LockError, LockManager, LockManagerBuilder};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::check::Checks;
use super::fault;
use super::operation::{Context, carry_out};
use super::{Plan, ProcessPlan};
use crate::meter::Limits;
use crate::network::Target;
use crate::plan::Op;
use crate::process::Process;
use crate::run::Report;
use crate::world::{Settings, World};

/// What all parts of a run share.
#[derive(Clone)]
pub(super) struct Run(Rc<Shared>);

pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) world: World,
    pub(super) checks: Checks,
    pub(super) operations: Cell<u64>,
    pub(super) grants: Cell<u64>,
    /// Counts the requests for a renewal, of each process.
    renewals: Vec<watch::Sender<u64>>,
    /// The manager of each process that is alive.
    pub(super) managers: RefCell<BTreeMap<usize, LockManager>>,
    /// What each task is doing, for the report of a run that does not end.
    doing: RefCell<BTreeMap<(usize, usize), Op>>,
}

impl Deref for Run {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Carries out a plan. Where there is a rule, only what breaks this one is a finding.
#[must_use]
pub fn run(rule: Option<&'static str>, plan: &Plan, keep_trace: bool) -> Report {
    let settings = Settings {
        seed: plan.seed,
        servers: plan.servers(),
        keep_trace,
        limits: Limits {
            only: rule,
            ..Limits::default()
        },
    };
    let counted = Rc::new(Cell::new((0, 0)));
    let counts = Rc::clone(&counted);
    let outcome = World::run(settings, async move |world| {
        let run = Run(Rc::new(Shared {
            plan: plan.clone(),
            checks: Checks::new(&world, plan),
            world,
            operations: Cell::new(0),
            grants: Cell::new(0),
            renewals: plan
                .processes
                .iter()
                .map(|_| watch::Sender::new(0))
                .collect(),
            managers: RefCell::default(),
            doing: RefCell::default(),
        }));
        live(&run).await;
        counts.set((run.operations.get(), run.grants.get()));
    });
    let (operations, grants) = counted.get();
    Report {
        finding: outcome.findings.into_iter().next(),
        lines: outcome.lines,
        hash: outcome.hash,
        operations,
        grants,
        lasted: outcome.lasted,
        commands: outcome.commands,
    }
}

impl Run {
    /// Waits until a node is asked for the next renewal of a process.
    pub(super) async fn renewed(&self, process: usize) {
        let _ = self.renewals[process].subscribe().changed().await;
    }

    fn watch_renewals(&self) {
        for server in self.world.servers() {
            let run = self.clone();
            server.watch(move |command| {
                if command.script() == Some("quorum extend")
                    && let Some(renewals) = run.renewals.get(command.process)
                {
                    renewals.send_modify(|count| *count += 1);
                }
            });
        }
    }
}

async fn live(run: &Run) {
    let Shared {
        plan,
        world,
        checks,
        ..
    } = &**run;
    let network = world.network();
    network.delay(Target::All, plan.delay);
    if let Some((node, delay)) = plan.far {
        network.delay(Target::Server(node), delay);
    }
    for (server, by) in world.servers().iter().zip(&plan.clocks) {
        server.skew(*by);
    }
    if plan.begun {
        let operator = world.process(plan.processes.len());
        if let Err(error) = operator
            .begin_quorum(builder(plan, 3_000), plan.nodes)
            .await
        {
            return world.find("begin", error.to_string());
        }
    } else {
        let mut nodes = checks.nodes();
        (0..plan.nodes).for_each(|node| nodes.forgets(world, node));
    }
    run.watch_renewals();
    let looking = world.spawn(look_now_and_then(run.clone()));
    let processes = (0..plan.processes.len()).map(|index| world.spawn(be(run.clone(), index)));
    let processes = join_all(processes.collect::<Vec<_>>());
    let faults = world.spawn(fault::happen(run.clone()));
    let limit = patience(plan);
    if timeout(limit, processes).await.is_err() {
        let doing = run.doing.borrow();
        let doing = doing.iter().map(|(at, op)| format!("{at:?}: {op}"));
        let doing = doing.collect::<Vec<_>>();
        return world.find("stuck", format!("not over after {limit:?}: {doing:?}"));
    }
    faults.abort();
    let _ = faults.await;
    fault::heal(run);
    // What is left on the nodes now is left behind.
    sleep(Duration::from_secs(15)).await;
    let managers = std::mem::take(&mut *run.managers.borrow_mut());
    for (index, locks) in managers {
        let process = world.process(index);
        if !process.has_crashed() {
            let ending = async move { locks.shutdown(Duration::from_secs(20)).await };
            let _ = process.spawn(ending).await;
            // It waits for a moment only until its clean-up is confirmed.
            if plan.breaks_links() {
                checks.leaves(index);
            }
        }
    }
    sleep(Duration::from_secs(15)).await;
    for index in 0..plan.processes.len() {
        let open = world.network().counts(index).open;
        if open > 0 {
            world.find("sockets", format!("p{index} has {open} open after its end"));
        }
    }
    looking.abort();
    // The longest that anything may be left: a lease, or a queue without waiters.
    sleep(Duration::from_millis(plan.longest_ttl()) + Duration::from_secs(40)).await;
    let left = checks.leftovers();
    if !left.is_empty() {
        world.find("left over", left.join(", "));
    }
}

/// How long a plan may take: what its operations take one after the other, and a ttl now and then.
fn patience(plan: &Plan) -> Duration {
    let sleeps = plan.ops().map(|op| op.before + op.hold + 3_000);
    let incidents = plan.incidents.iter();
    let outages: u64 = incidents.map(|it| it.lasts + 3_000 + plan.wait).sum();
    let leases = plan.longest_ttl() * (3 + plan.incidents.len() as u64);
    let last = plan.incidents.last().map_or(0, |incident| incident.at);
    Duration::from_millis(sleeps.sum::<u64>() * 2 + outages + leases + last + plan.wait + 300_000)
}

async fn look_now_and_then(run: Run) {
    let mut rng = run.world.rng(7);
    loop {
        sleep(Duration::from_millis(rng.u64(1..400))).await;
        run.checks.look();
    }
}

/// A process from its first start until all its tasks have ended, however often it crashes in between.
async fn be(run: Run, index: usize) {
    let plan = run.plan.processes[index].clone();
    let cursors: Vec<_> = plan.tasks.iter().map(|_| Rc::new(Cell::new(0))).collect();
    let is_done = || {
        let mut tasks = plan.tasks.iter().zip(&cursors);
        tasks.all(|(ops, cursor)| cursor.get() >= ops.len())
    };
    while !is_done() {
        let process = run.world.process(index);
        if process.has_crashed() {
            sleep(Duration::from_millis(10)).await;
            continue;
        }
        process.hesitate(run.plan.hesitation);
        let Ok(locks) = connect(&process, &plan, &run.plan).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        if process.has_crashed() {
            continue;
        }
        run.managers.borrow_mut().insert(index, locks.clone());
        let tasks = cursors.iter().enumerate().map(|(task, cursor)| {
            let context = Context {
                run: run.clone(),
                process: index,
                task,
                locks: locks.clone(),
            };
            process.spawn(work(context, Rc::clone(cursor)))
        });
        let tasks: Vec<_> = tasks.collect();
        drop(locks);
        for task in tasks {
            // A task that was cancelled has crashed with its process.
            let _ = task.await;
        }
    }
    let mut doing = run.doing.borrow_mut();
    doing.retain(|(process, _), _| *process != index);
}

/// One operation after the other, until the manager is of no use any more.
async fn work(context: Context, cursor: Rc<Cell<usize>>) {
    let run = context.run.clone();
    let place = (context.process, context.task);
    let ops = run.plan.processes[context.process].tasks[context.task].clone();
    while let Some(op) = ops.get(cursor.get()) {
        run.doing.borrow_mut().insert(place, op.clone());
        let number = cursor.replace(cursor.get() + 1);
        run.operations.set(run.operations.get() + 1);
        if carry_out(&context, op, number).await.is_break() {
            return;
        }
    }
    run.doing.borrow_mut().remove(&place);
}

fn builder(plan: &Plan, command_deadline: u64) -> LockManagerBuilder {
    LockManager::builder()
        .quorum_wait(Duration::from_millis(plan.wait))
        .default_ttl(Duration::from_millis(plan.wait / 2))
        .command_deadline(Duration::from_millis(command_deadline))
}

async fn connect(
    process: &Process,
    of: &ProcessPlan,
    plan: &Plan,
) -> Result<LockManager, LockError> {
    let options = if of.polls { "?protocol=resp2" } else { "" };
    let builder = builder(plan, of.command_deadline);
    process.connect_quorum(builder, plan.nodes, options).await
}
