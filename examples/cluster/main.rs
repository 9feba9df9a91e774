//! Locks on a cluster whose slots move, and one of whose masters is killed.
//!
//! ```text
//! cargo run --release --example cluster -- --seconds 60
//! ```
//!
//! It always starts its own servers (`REDIS_SERVER_BIN`, else `redis-server` from `PATH`): three masters with a replica each
//! (`stage.rs`). One worker process holds 1,000 locks all the time, and two others compete for 100 more (`worker.rs`). Meanwhile
//! the slots of all these locks move from master to master, in the old way key by key, and where the server can also at once; then one
//! slot is left half moved for a while. At the end a master is stopped until its replica has taken over, and another one is killed.
//!
//! It prints for each of these what the workers have seen (`report.rs`). A master that goes on may grant what lies in its sockets: such
//! a lock is lost, and two holders may believe in it for some milliseconds.

mod report;
mod stage;
mod worker;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use lock_examples::{Outcome, exit};
use tokio::time::sleep;

use report::Phase;
use stage::{Stage, now};
use worker::Worker;

/// How long a slot is left half moved: first a while, then longer than the leases in it. In a short run as long as that.
const HALF_MOVED: [u64; 2] = [3, 8];

/// For the last failures to show.
const REST: Duration = Duration::from_secs(6);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    exit("cluster", run(&args).await)
}

/// What is asked for.
struct Options {
    seconds: u64,
    held: usize,
    waited: usize,
}

async fn run(args: &[&str]) -> Outcome {
    if let ["worker", number, url, count] = args {
        return worker::run(number.parse()?, url, count.parse()?).await;
    }
    let mut options = Options {
        seconds: 60,
        held: 1000,
        waited: 100,
    };
    for option in args.chunks(2) {
        match option {
            ["--seconds", value] => options.seconds = value.parse()?,
            ["--held", value] => options.held = value.parse()?,
            ["--waited", value] => options.waited = value.parse()?,
            _ => return Err("the options are `--seconds N`, `--held N` and `--waited N`".into()),
        }
    }
    let mut stage = Stage::build().await?;
    println!("The cluster is ready: {}", stage.url());
    let mut workers = Vec::new();
    for (number, count) in [(0, options.held), (1, options.waited), (2, options.waited)] {
        workers.push(Worker::start(number, &stage.url(), count).await?);
    }
    let phases = conduct(&mut stage, &options).await?;
    let mut log = worker::Log::default();
    for worker in workers {
        worker.end(&mut log).await?;
    }
    println!("\n{}", report::table(&phases, &log, stage.slots()));
    println!("{}", report::summary(&log));
    Ok(())
}

async fn conduct(stage: &mut Stage, options: &Options) -> Outcome<Vec<Phase>> {
    let mut slots = stage.slots_of("held", options.held).await?;
    slots.extend(stage.slots_of("hot", options.waited).await?);
    slots.sort_unstable();
    slots.dedup();
    let mut phases = Vec::new();
    for at_once in [false, true] {
        if at_once && !stage.moves_at_once().await {
            println!("This server cannot move a slot at once (Redis 8.4, Valkey 9.0).");
            continue;
        }
        let name = if at_once {
            "moved at once"
        } else {
            "moved key by key"
        };
        let mut phase = Phase::begin(name);
        let end = Instant::now() + Duration::from_secs(options.seconds);
        while Instant::now() < end {
            fastrand::shuffle(&mut slots);
            for slot in &slots {
                phase.moves.push(stage.move_slot(*slot, at_once).await?);
                if Instant::now() >= end {
                    break;
                }
            }
        }
        println!("The slots have moved {} times.", phase.moves.len());
        phases.push(phase.end());
        sleep(Duration::from_secs(1)).await;
    }
    for pause in HALF_MOVED {
        let pause = Duration::from_secs(pause.min(options.seconds));
        let mut phase = Phase::begin("half moved");
        for key in ["held-0", "hot-0"] {
            let slot = stage.slots_of(key.trim_end_matches("-0"), 1).await?[0];
            phase.moves.push(
                stage
                    .move_slowly(slot, &format!("lock:{key}"), pause)
                    .await?,
            );
        }
        println!("Two slots were half moved for {pause:?} each.");
        sleep(Duration::from_secs(1)).await;
        phases.push(phase.end());
    }
    let mut phase = Phase::begin("a master is stopped");
    let stopped = now();
    let taken_over = stage.stop_a_master().await?;
    println!(
        "A replica took over {} ms after its master was stopped, which then went on.",
        (taken_over - stopped) / 1000
    );
    phase.killed = Some((stopped, taken_over));
    sleep(REST).await;
    phases.push(phase.end());
    let mut phase = Phase::begin("a master is killed");
    let killed = now();
    let taken_over = stage.kill_a_master().await?;
    println!(
        "A replica took over {} ms after its master was killed.",
        (taken_over - killed) / 1000
    );
    phase.killed = Some((killed, taken_over));
    sleep(REST).await;
    phases.push(phase.end());
    Ok(phases)
}
