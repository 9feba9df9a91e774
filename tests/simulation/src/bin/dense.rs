//! A run in which many want few locks: prints the hash of its trace, and to stderr how fast it was.
//!
//! `dense <seed> <operations> <milliseconds between resets of all connections, or 0 for none>`

#[cfg(lock_sim)]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default| {
        arguments
            .next()
            .map_or(default, |n| n.parse().expect("a number"))
    };
    dense::run(next(1), next(1000), next(0));
}

#[cfg(not(lock_sim))]
fn main() {
    eprintln!("build it with RUSTFLAGS=\"--cfg lock_sim --cfg tokio_unstable\"");
    std::process::exit(2);
}

#[cfg(lock_sim)]
mod dense {
    use std::time::{Duration, Instant};

    use lock_core::LockManager;
    use lock_simulation::network::{Delay, Target};
    use lock_simulation::world::World;
    use tokio::time::sleep;

    const PROCESSES: usize = 4;
    const TASKS: usize = 4;
    const KEYS: [&str; 3] = ["a", "b", "c"];

    pub(super) fn run(seed: u64, operations: u64, resets: u64) {
        let began = Instant::now();
        let outcome = World::run(seed, async |world| {
            let delay = Delay::between(1, 5).or_none(50);
            world.network().delay(Target::All, delay);
            let each = operations.div_ceil((PROCESSES * TASKS) as u64);
            if resets > 0 {
                let world = world.clone();
                world.clone().spawn(async move {
                    loop {
                        sleep(Duration::from_millis(resets)).await;
                        world.network().reset(Target::All);
                    }
                });
            }
            let mut tasks = Vec::new();
            for index in 0..PROCESSES {
                let process = world.process(index);
                let locks = process
                    .connect(LockManager::builder())
                    .await
                    .expect("a server");
                for task in 0..TASKS {
                    let (world, locks) = (world.clone(), locks.clone());
                    let mut rng = world.rng((index * TASKS + task) as u64);
                    tasks.push(process.spawn(async move {
                        for _ in 0..each {
                            let key = KEYS[rng.usize(..KEYS.len())];
                            let taken = locks.lock(key).acquire().await;
                            world.note(index, format_args!("{task}: {key} {}", taken.is_ok()));
                            sleep(Duration::from_millis(rng.u64(..10))).await;
                            if let Ok(guard) = taken {
                                let released = guard.release().await;
                                assert!(resets > 0 || released.is_ok(), "{released:?}");
                            }
                        }
                    }));
                }
            }
            for task in tasks {
                task.await.expect("no panic");
            }
        });
        let took = began.elapsed().as_secs_f64();
        println!("{:016x}", outcome.hash);
        eprintln!(
            "{:.0} operations and {:.0} commands a second, {:.0} times real time, {:.1} polls an operation",
            operations as f64 / took,
            outcome.commands as f64 / took,
            outcome.lasted.as_secs_f64() / took,
            outcome.polls as f64 / operations as f64,
        );
    }
}
