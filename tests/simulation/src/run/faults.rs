//! Letting happen what goes wrong.

use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use super::{Run, data};
use crate::check::Excuse;
use crate::network::{Connects, Target};
use crate::plan::{Connection, Fault, Incident};
use crate::process::Sockets;

/// How often to look whether a process has found out that its connection is silent.
const NOTICED: Duration = Duration::from_millis(500);

/// Lets everything happen in its time.
pub(super) async fn happen(run: Run) {
    let began = tokio::time::Instant::now();
    data::copy(&run, began);
    for (number, incident) in run.plan.incidents.clone().into_iter().enumerate() {
        sleep_until(began + Duration::from_millis(incident.at)).await;
        run.world.note(
            "fault",
            format_args!("{:?} for {} ms", incident.fault, incident.lasts),
        );
        let run = run.clone();
        run.world
            .clone()
            .spawn(async move { happens(&run, &incident, number).await });
    }
}

/// Ends all that may still be wrong when the run is over.
pub(super) fn heal(run: &Run) {
    let (world, now) = (&run.world, run.world.now());
    world.network().heal();
    world.server().resume();
    world.server().lags(false);
    if !world.server().is_up() {
        world.server().restart(true);
    }
    world
        .server()
        .with(|master| *master.faults() = lock_master::Faults::default());
    for index in 0..run.plan.processes.len() {
        world.process(index).resume();
    }
    run.checks.weather().shaken(now);
}

async fn happens(run: &Run, incident: &Incident, number: usize) {
    match &incident.fault {
        Fault::Reset(..)
        | Fault::Outage(..)
        | Fault::Cut(..)
        | Fault::Stall(..)
        | Fault::HalfOpen(..)
        | Fault::SlowConnects(..) => network_fails(run, incident).await,
        Fault::Pause(..) | Fault::Crash(..) | Fault::EndRuntime(..) | Fault::ShutDown(..) => {
            process_fails(run, incident).await;
        }
        Fault::Stop
        | Fault::Restart(..)
        | Fault::Demote
        | Fault::Lag
        | Fault::DenyKey(..)
        | Fault::OutOfMemory
        | Fault::Deny(..)
        | Fault::NoChannels
        | Fault::FlushScripts
        | Fault::FlushAll => server_fails(run, incident).await,
        Fault::RestartOlder(..) | Fault::Promote { .. } | Fault::Older(..) | Fault::Counter(..) => {
            data::go_back(run, incident, number).await;
        }
        Fault::ForeignTake(..)
        | Fault::ForeignDelete(..)
        | Fault::ForeignShorten(..)
        | Fault::ForeignHolds(..) => foreign_client(run, incident),
    }
}

/// Lets something begin, and end in its time.
pub(super) async fn lasting(run: &Run, incident: &Incident, begin: impl Fn(), end: impl Fn()) {
    let (world, weather) = (&run.world, run.checks.weather());
    let spares_leases = matches!(incident.fault, Fault::OutOfMemory | Fault::DenyKey(..));
    if spares_leases {
        weather.strains(world.now());
    } else {
        weather.begins(world.now());
    }
    begin();
    sleep(Duration::from_millis(incident.lasts)).await;
    end();
    if spares_leases {
        weather.relents(world.now());
    } else {
        weather.ends(world.now());
    }
}

/// What befalls the connections of a process.
async fn network_fails(run: &Run, incident: &Incident) {
    let (world, weather) = (&run.world, run.checks.weather());
    let network = world.network();
    let lasts = Duration::from_millis(incident.lasts);
    match &incident.fault {
        Fault::Reset(process) => {
            network.reset(Target::Process(*process));
            weather.shaken(world.now());
        }
        Fault::Outage(process) => {
            let target = Target::Process(*process);
            let begin = || {
                network.connects(target, Connects::Refused);
                network.reset(target);
            };
            lasting(run, incident, &begin, &|| {
                network.connects(target, Connects::Open);
            })
            .await;
        }
        Fault::Cut(process, cut) => {
            network.cut(Target::Process(*process), *cut);
            lasting(run, incident, &|| (), &|| network.forget_cuts()).await;
        }
        Fault::Stall(process, way) => {
            let target = Target::Process(*process);
            lasting(run, incident, &|| network.stall(target, *way), &|| {
                network.lift(target, *way);
            })
            .await;
        }
        Fault::HalfOpen(process) => half_open(run, *process).await,
        Fault::SlowConnects(process) => {
            let target = Target::Process(*process);
            let begin = || {
                network.connects(target, Connects::Slow(lasts));
                network.reset(target);
            };
            lasting(run, incident, &begin, &|| {
                network.connects(target, Connects::Open);
            })
            .await;
        }
        _ => {}
    }
}

/// What befalls a process.
async fn process_fails(run: &Run, incident: &Incident) {
    let (world, weather) = (&run.world, run.checks.weather());
    let lasts = Duration::from_millis(incident.lasts);
    match &incident.fault {
        Fault::Pause(process) => {
            let paused = world.process(*process);
            if !paused.has_crashed() {
                lasting(run, incident, &|| paused.pause(), &|| paused.resume()).await;
            }
        }
        Fault::Crash(process, silent) => crash(run, *process, *silent, lasts).await,
        Fault::EndRuntime(process) if !world.process(*process).has_crashed() => {
            run.checks.crashed(*process);
            world.process(*process).end_runtime();
            weather.runtime_ended(*process, world.now());
        }
        Fault::ShutDown(process) => shut_down(run, *process, lasts).await,
        _ => {}
    }
}

/// What befalls the server.
async fn server_fails(run: &Run, incident: &Incident) {
    let (world, weather) = (&run.world, run.checks.weather());
    let network = world.network();
    let server = world.server();
    match &incident.fault {
        Fault::Stop => lasting(run, incident, &|| server.stop(), &|| server.resume()).await,
        Fault::Restart(keep) => {
            let begin = || {
                if server.is_up() {
                    server.crash();
                }
            };
            let end = || {
                if !*keep {
                    run.checks.excuse(Excuse::DataLoss);
                }
                server.restart(*keep);
            };
            lasting(run, incident, &begin, &end).await;
        }
        Fault::Demote => {
            server.demote();
            weather.demoted();
            reset_connections_of_users(run);
            weather.shaken(world.now());
        }
        Fault::Lag => {
            let begin = || {
                server.lags(true);
                network.reset(Target::All);
            };
            lasting(run, incident, &begin, &|| server.lags(false)).await;
            weather.demoted();
            reset_connections_of_users(run);
        }
        Fault::DenyKey(key) => {
            let name = format!("lock:k{key}");
            run.checks.excuse(Excuse::Shortened(&name));
            let deny = |on: bool| {
                server.with(|master| {
                    let denied = &mut master.faults().denied_keys;
                    if on {
                        denied.insert(name.clone().into_bytes());
                    } else {
                        denied.remove(name.as_bytes());
                    }
                });
            };
            lasting(run, incident, &|| deny(true), &|| deny(false)).await;
            run.checks.excuse(Excuse::Shortened(&name));
            run.checks.hindered();
        }
        Fault::OutOfMemory => {
            let set = |on| server.with(|master| master.faults().out_of_memory = on);
            lasting(run, incident, &|| set(true), &|| set(false)).await;
        }
        Fault::Deny(command) => {
            let allow = |on: bool| {
                server.with(|master| {
                    let denied = &mut master.faults().denied;
                    if on {
                        denied.remove(*command);
                    } else {
                        denied.insert((*command).to_owned());
                    }
                });
            };
            lasting(run, incident, &|| allow(false), &|| allow(true)).await;
            run.checks.hindered();
        }
        Fault::NoChannels => {
            let set = |on| server.with(|master| master.faults().no_channels = on);
            lasting(run, incident, &|| set(true), &|| set(false)).await;
        }
        Fault::FlushScripts => server.with(lock_master::Master::flush_scripts),
        Fault::FlushAll => {
            run.checks.excuse(Excuse::DataLoss);
            server.with(lock_master::Master::flush_all);
        }
        _ => {}
    }
}

/// A connection of the user's is the user's to replace.
pub(super) fn reset_connections_of_users(run: &Run) {
    for (index, process) in run.plan.processes.iter().enumerate() {
        if process.connection == Connection::User {
            run.world.network().reset(Target::Process(index));
        }
    }
}

/// What a client does that is none of ours.
fn foreign_client(run: &Run, incident: &Incident) {
    let world = &run.world;
    let server = world.server();
    let lasts = Duration::from_millis(incident.lasts);
    match &incident.fault {
        Fault::ForeignTake(key) => {
            let name = format!("lock:k{key}");
            let px = incident.lasts.to_string();
            let words: [&[u8]; 6] = [
                b"SET",
                name.as_bytes(),
                b"foreign",
                b"PX",
                px.as_bytes(),
                b"NX",
            ];
            server.execute(&words);
            run.checks
                .foreign(&name, world.now() + lasts + Duration::from_millis(2));
        }
        Fault::ForeignDelete(key) => {
            let name = format!("lock:k{key}");
            run.checks.excuse(Excuse::Foreign(&name));
            server.execute(&[b"DEL", name.as_bytes()]);
        }
        Fault::ForeignShorten(key, left) => {
            let (name, left) = (format!("lock:k{key}"), left.to_string());
            run.checks.excuse(Excuse::Shortened(&name));
            server.execute(&[b"PEXPIRE", name.as_bytes(), left.as_bytes(), b"LT"]);
        }
        Fault::ForeignHolds(key) => {
            let (lock, holds) = (format!("r{key}"), format!("lock-core:holds:{{r{key}}}"));
            run.checks.excuse(Excuse::Foreign(&lock));
            // A holder finds nothing of its own there, and leaves the lock to its ttl. Its count looks like one of Redisson's, so
            // with a shared owner it stays for as long as another process of that owner comes back.
            let left = if run.plan.shared_owners > 0 {
                Duration::from_secs(365 * 24 * 3600)
            } else {
                Duration::from_millis(run.plan.longest_ttl()) * 3 + Duration::from_secs(60)
            };
            run.checks.foreign(&lock, world.now() + left);
            let px = incident.lasts.to_string();
            server.execute(&[b"SET", holds.as_bytes(), b"foreign", b"PX", px.as_bytes()]);
        }
        _ => {}
    }
}

/// Until the process has replaced the connections that are silent.
async fn half_open(run: &Run, process: usize) {
    // A connection of the user's is the user's to watch.
    if run.plan.processes[process].connection == Connection::User {
        return;
    }
    let (network, weather) = (run.world.network(), run.checks.weather());
    let silent = network.connections(process);
    for connection in &silent {
        network.half_open(*connection);
    }
    weather.leaves(process);
    while network
        .connections(process)
        .iter()
        .any(|open| silent.contains(open))
    {
        sleep(NOTICED).await;
    }
    sleep(NOTICED * 4).await;
    weather.returns(process);
}

async fn crash(run: &Run, process: usize, silent: bool, lasts: Duration) {
    let crashed = run.world.process(process);
    if crashed.has_crashed() {
        return;
    }
    let sockets = if silent {
        Sockets::Silent
    } else {
        Sockets::Closed
    };
    run.checks.crashed(process);
    run.managers.borrow_mut().remove(&process);
    crashed.crash(sockets);
    run.checks.weather().shaken(run.world.now());
    sleep(lasts).await;
    crashed.restart();
}

async fn shut_down(run: &Run, process: usize, lasts: Duration) {
    let locks = run.managers.borrow_mut().remove(&process);
    let there = run.world.process(process);
    if let Some(locks) = locks
        && !there.has_crashed()
    {
        run.checks.weather().closing(run.world.now());
        let ended = there.spawn(async move { locks.shutdown(lasts).await });
        let _ = ended.await;
        run.checks.weather().closed(run.world.now());
    }
}
