//! Letting happen what goes wrong.

use std::ops::Range;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::run::Run;
use super::{Fault, Incident, Met};
use crate::network::{Connects, Target, Way};
use crate::process::Sockets;

/// A request that arrives later than this, after the end of its connection, may miss the clean-up.
const LATE: Duration = Duration::from_millis(900);

/// How often to look whether a process has found out that its connection is silent.
const NOTICED: Duration = Duration::from_millis(500);

/// Lets everything happen in its time.
pub(super) async fn happen(run: Run) {
    let began = Instant::now();
    let mut spare = run.plan.nodes;
    for incident in run.plan.incidents.clone() {
        sleep_until(began + Duration::from_millis(incident.at)).await;
        let what = format_args!("{:?} for {} ms", incident.fault, incident.lasts);
        run.world.note("fault", what);
        let by = spare;
        if incident.fault.replaces() {
            spare += 1;
        }
        let run = run.clone();
        run.world
            .clone()
            .spawn(async move { happens(&run, &incident, by).await });
    }
}

/// Ends all that may still be wrong when the run is over.
pub(super) fn heal(run: &Run) {
    let world = &run.world;
    world.network().heal();
    for server in world.servers() {
        server.resume();
        server.with(|master| *master.faults() = lock_master::Faults::default());
    }
    for node in 0..run.plan.nodes {
        let server = run.checks.nodes().server(node);
        if !world.servers()[server].is_up() {
            start(run, server, true);
        }
    }
    for index in 0..run.plan.processes.len() {
        world.process(index).resume();
    }
    run.checks.weather().shaken(world.now());
}

async fn happens(run: &Run, incident: &Incident, spare: usize) {
    match incident.fault {
        Fault::Pause(_) | Fault::Stutter(..) | Fault::Crash(..) | Fault::ShutDown(_) => {
            process_fails(run, incident).await;
        }
        Fault::Stop(_)
        | Fault::Restart(..)
        | Fault::Replace(_)
        | Fault::Hide(..)
        | Fault::Flush(_)
        | Fault::FlushScripts(_)
        | Fault::OutOfMemory(_)
        | Fault::Clock(..) => node_fails(run, incident, spare).await,
        _ => link_fails(run, incident).await,
    }
}

/// Lets something begin, and end in its time.
async fn lasting(run: &Run, incident: &Incident, begin: impl Fn(), end: impl Fn()) {
    let (world, weather) = (&run.world, run.checks.weather());
    weather.begins(world.now());
    begin();
    sleep(Duration::from_millis(incident.lasts)).await;
    end();
    weather.ends(world.now());
}

/// What befalls the connections of a process to a node.
async fn link_fails(run: &Run, incident: &Incident) {
    let (world, weather) = (&run.world, run.checks.weather());
    let network = world.network();
    let link = |process, node| Target::Link(process, run.checks.nodes().server(node));
    match incident.fault {
        Fault::Reset(process, node) => {
            network.reset(link(process, node));
            weather.shaken(world.now());
        }
        Fault::Outage(process, node) => {
            let link = link(process, node);
            let begin = || {
                network.connects(link, Connects::Refused);
                network.reset(link);
            };
            let end = || network.connects(link, Connects::Open);
            lasting(run, incident, begin, end).await;
        }
        Fault::Cut(process, node, cut) => {
            network.cut(link(process, node), cut);
            lasting(run, incident, || (), || network.forget_cuts()).await;
        }
        Fault::Stall(process, node, way) => {
            let link = link(process, node);
            let (begin, end) = (|| network.stall(link, way), || network.lift(link, way));
            lasting(run, incident, begin, end).await;
            if way != Way::ToClient && Duration::from_millis(incident.lasts) >= LATE {
                run.checks.arrives_late();
            }
        }
        Fault::Late(process, node) => come_late(run, incident, process, node..node + 1).await,
        Fault::AllLate(process) => come_late(run, incident, process, 0..run.plan.nodes).await,
        Fault::Lag(process, node) => {
            let server = run.checks.nodes().server(node);
            let old = network.connections_to(process, server);
            let old = || old.iter().copied().map(Target::Connection);
            let begin = || old().for_each(|id| network.stall(id, Way::ToServer));
            let end = || old().for_each(|id| network.lift(id, Way::ToServer));
            lasting(run, incident, begin, end).await;
            if Duration::from_millis(incident.lasts) >= LATE {
                run.checks.arrives_late();
            }
        }
        Fault::HalfOpen(process, node) => half_open(run, process, node).await,
        Fault::Slow(node, delay) => {
            let to_node = Target::Server(run.checks.nodes().server(node));
            let usual = run.plan.delay_of(node);
            let begin = || network.delay(to_node, delay);
            lasting(run, incident, begin, || network.delay(to_node, usual)).await;
        }
        Fault::MostSlow(first, delay) => {
            let most = || run.plan.most(first);
            let to = |node| Target::Server(run.checks.nodes().server(node));
            let begin = || most().for_each(|node| network.delay(to(node), delay));
            let end = || most().for_each(|node| network.delay(to(node), run.plan.delay_of(node)));
            lasting(run, incident, begin, end).await;
        }
        Fault::AtRenewal(process, node, met) => {
            run.renewed(process).await;
            let link = link(process, node);
            match met {
                Met::Reset => {
                    network.reset(link);
                    weather.shaken(world.now());
                }
                Met::Stall => {
                    let begin = || network.stall(link, Way::ToClient);
                    let end = || network.lift(link, Way::ToClient);
                    lasting(run, incident, begin, end).await;
                }
            }
        }
        _ => {}
    }
}

/// The connections of a process to these nodes break, and what was sent on them arrives after it.
async fn come_late(run: &Run, incident: &Incident, process: usize, nodes: Range<usize>) {
    let network = run.world.network();
    let servers = nodes.map(|node| run.checks.nodes().server(node));
    let broken = servers.flat_map(|server| network.connections_to(process, server));
    let broken: Vec<_> = broken.collect();
    let stall = |id: &_| network.stall(Target::Connection(*id), Way::ToServer);
    let lift = |id: &_| network.lift(Target::Connection(*id), Way::Both);
    let weather = run.checks.weather();
    weather.begins(run.world.now());
    broken.iter().for_each(stall);
    // What is sent meanwhile is late.
    sleep(Duration::from_millis(incident.lasts.min(500) / 2)).await;
    let begin = || broken.iter().for_each(|id| network.break_late(*id));
    lasting(run, incident, begin, || broken.iter().for_each(lift)).await;
    weather.ends(run.world.now());
    if Duration::from_millis(incident.lasts) >= LATE {
        run.checks.arrives_late();
    }
}

/// Until the process has replaced the connections that are silent.
async fn half_open(run: &Run, process: usize, node: usize) {
    let (network, weather) = (run.world.network(), run.checks.weather());
    let server = run.checks.nodes().server(node);
    let silent = network.connections_to(process, server);
    weather.begins(run.world.now());
    for connection in &silent {
        network.half_open(*connection);
    }
    let is_there = |open: &_| silent.contains(open);
    let mut looks = 0;
    while network.connections_to(process, server).iter().any(is_there) && looks < 60 {
        looks += 1;
        sleep(NOTICED).await;
    }
    weather.ends(run.world.now());
}

/// What befalls a process.
async fn process_fails(run: &Run, incident: &Incident) {
    let (world, weather) = (&run.world, run.checks.weather());
    let lasts = Duration::from_millis(incident.lasts);
    match incident.fault {
        Fault::Pause(process) => {
            let paused = world.process(process);
            if !paused.has_crashed() {
                lasting(run, incident, || paused.pause(), || paused.resume()).await;
            }
        }
        Fault::Stutter(process, most) => {
            let slow = world.process(process);
            lasting(run, incident, || slow.stutter(most), || slow.resume()).await;
        }
        Fault::Crash(process, silent) => {
            let crashed = world.process(process);
            if crashed.has_crashed() {
                return;
            }
            run.checks.leaves(process);
            run.managers.borrow_mut().remove(&process);
            crashed.crash(if silent {
                Sockets::Silent
            } else {
                Sockets::Closed
            });
            weather.shaken(world.now());
            sleep(lasts).await;
            crashed.restart();
        }
        Fault::ShutDown(process) => {
            let locks = run.managers.borrow_mut().remove(&process);
            let there = world.process(process);
            if let Some(locks) = locks
                && !there.has_crashed()
            {
                weather.begins(world.now());
                let ended = there.spawn(async move { locks.shutdown(lasts).await });
                let left = ended.await;
                weather.ends(world.now());
                if !matches!(left, Ok(0)) || run.plan.breaks_links() {
                    run.checks.leaves(process);
                }
            }
        }
        _ => {}
    }
}

fn start(run: &Run, server: usize, keeps: bool) {
    run.checks.nodes().forgets(&run.world, server);
    run.world.servers()[server].restart(keeps);
}

/// What befalls a node.
async fn node_fails(run: &Run, incident: &Incident, spare: usize) {
    let (world, weather) = (&run.world, run.checks.weather());
    let current = |node| run.checks.nodes().server(node);
    match incident.fault {
        Fault::Stop(node) => {
            let server = &world.servers()[current(node)];
            lasting(run, incident, || server.stop(), || server.resume()).await;
            if Duration::from_millis(incident.lasts) >= LATE {
                run.checks.arrives_late();
            }
        }
        Fault::Restart(node, keeps) => {
            let server = current(node);
            let begin = || {
                if world.servers()[server].is_up() {
                    world.servers()[server].crash();
                }
            };
            lasting(run, incident, begin, || start(run, server, keeps)).await;
        }
        Fault::Replace(node) => {
            let before = current(node);
            run.checks.nodes().replaced(world, node, spare);
            world.network().leads(node, spare);
            lasting(run, incident, || (), || world.servers()[before].crash()).await;
        }
        Fault::Hide(node, process) => {
            let (before, network) = (current(node), world.network());
            let link = Target::Link(process, spare);
            run.checks.nodes().replaced(world, node, spare);
            network.leads(node, spare);
            let begin = || network.connects(link, Connects::Refused);
            let end = || {
                network.connects(link, Connects::Open);
                world.servers()[before].crash();
            };
            lasting(run, incident, begin, end).await;
        }
        Fault::Flush(node) => {
            let server = current(node);
            run.checks.nodes().forgets(world, server);
            world.servers()[server].with(lock_master::Master::flush_all);
            weather.shaken(world.now());
        }
        Fault::FlushScripts(node) => {
            world.servers()[current(node)].with(lock_master::Master::flush_scripts);
            weather.shaken(world.now());
        }
        Fault::OutOfMemory(node) => {
            let server = &world.servers()[current(node)];
            let set = |on| server.with(|master| master.faults().out_of_memory = on);
            lasting(run, incident, || set(true), || set(false)).await;
        }
        Fault::Clock(node, by) => {
            let server = current(node);
            run.checks.nodes().jumps(server);
            world.servers()[server].skew(i64::try_from(by * 1_000).unwrap_or(0));
            weather.shaken(world.now());
        }
        _ => {}
    }
}
