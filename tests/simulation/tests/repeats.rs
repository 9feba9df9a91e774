//! Runs with everything that a world can do, each of them twice: their traces are equal.
#![cfg(lock_sim)]

use std::time::Duration;

use fastrand::Rng;
use lock_core::LockManager;
use lock_simulation::network::{Connects, Cut, Delay, Target, Way};
use lock_simulation::process::{Process, Sockets};
use lock_simulation::world::{Outcome, Settings, World};
use tokio::time::{sleep, timeout};

const PROCESSES: usize = 3;
const SEEDS: u64 = 6;

fn pause(rng: &mut Rng, most: u64) -> Duration {
    Duration::from_millis(1 + rng.u64(..most))
}

/// Connects, takes and releases, until it is stopped.
async fn work(world: World, process: Process, mut rng: Rng) {
    let builder = LockManager::builder().default_ttl(Duration::from_millis(500 + rng.u64(..3000)));
    let locks = match rng.u8(..4) {
        0 => process.connect_over(builder),
        1 => process.connect_resp2(builder).await,
        _ => process.connect(builder).await,
    };
    let Ok(locks) = locks else {
        return;
    };
    let name = format!("{process}");
    for _ in 0..30 {
        let limit = pause(&mut rng, 3000);
        let key = ["a", "b"][rng.usize(..2)];
        let guard = if rng.u8(..4) == 0 {
            let lock = locks.reentrant_lock(key).owner(&lock_core::Owner::new());
            timeout(limit, lock.acquire()).await
        } else {
            timeout(limit, locks.lock(key).acquire()).await
        };
        let hold = pause(&mut rng, 300);
        if let Ok(Ok(guard)) = guard {
            world.note(
                &name,
                format_args!("has {key}, {:?}", guard.fencing_token()),
            );
            sleep(hold).await;
            if rng.bool() {
                let released = guard.release().await;
                world.note(&name, format_args!("released {key}: {}", released.is_ok()));
            }
        } else {
            sleep(hold).await;
        }
    }
}

fn fault(world: &World, rng: &mut Rng) {
    let process = world.process(rng.usize(..PROCESSES));
    let network = world.network();
    let open = network.connections(process.index());
    let target = match (rng.u8(..3), open.last()) {
        (0, _) => Target::All,
        (1, Some(id)) => Target::Connection(*id),
        _ => Target::Process(process.index()),
    };
    let way = [Way::ToServer, Way::ToClient, Way::Both][rng.usize(..3)];
    match rng.u8(..20) {
        0 => process.pause(),
        1 => process.resume(),
        2 => process.crash(Sockets::Closed),
        3 => process.crash(Sockets::Silent),
        4 if !process.has_crashed() => process.end_runtime(),
        5 | 6 => network.stall(target, way),
        7..=9 => network.heal(),
        10 => drop(network.reset(target)),
        11 => network.cut(target, Cut::BeforeRequest),
        12 => network.cut(target, Cut::InsideReply(rng.usize(..9))),
        13 => network.cut(target, Cut::AfterReply),
        14 => network.connects(target, Connects::Refused),
        15 => network.connects(target, Connects::Hang),
        16 => open.iter().for_each(|id| network.half_open(*id)),
        17 => world.server().restart(rng.bool()),
        18 => world.server().stop(),
        _ => world.server().resume(),
    }
}

fn chaos(seed: u64) -> Outcome<()> {
    let settings = Settings {
        seed,
        keep_trace: true,
        ..Settings::default()
    };
    World::run(settings, async |world| {
        let mut rng = world.rng(0);
        let delay = Delay::between(1, rng.u64(2..60)).or_none(rng.u8(..90));
        world.network().delay(Target::All, delay);
        world.network().split(rng.u8(..50));
        for round in 0..60 {
            let process = world.process(rng.usize(..PROCESSES));
            process.restart();
            drop(process.spawn(work(world.clone(), process.clone(), world.rng(1 + round))));
            for _ in 0..rng.u8(..4) {
                fault(&world, &mut rng);
                sleep(pause(&mut rng, 800)).await;
            }
        }
        world.server().resume();
        world.network().heal();
        for index in 0..PROCESSES {
            world.process(index).resume();
        }
        sleep(Duration::from_secs(30)).await;
    })
}

#[test]
fn with_all_faults_one_seed_is_one_trace() {
    for seed in 0..SEEDS {
        let (one, again) = (chaos(seed), chaos(seed));
        let lines = one.lines.iter().zip(&again.lines);
        for (number, (one, again)) in lines.enumerate() {
            assert_eq!(one, again, "seed {seed}, line {number}");
        }
        assert_eq!((one.hash, one.polls), (again.hash, again.polls), "{seed}");
        assert_eq!(one.findings, [], "{seed}");
        assert!(one.commands > 100, "seed {seed}: {} commands", one.commands);
    }
}
