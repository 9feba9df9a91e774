//! Locks over failovers: three sentinels promote a replica again and again, and the clients follow.
//!
//! ```text
//! cargo run --release -p larger-examples --bin failover -- --events 10
//! ```
//!
//! It always starts its own servers (`REDIS_SERVER_BIN`, else `redis-server` from `PATH`): a master, two replicas and three
//! sentinels (`stage.rs`). The events (`event.rs`) take turns: the master is killed, the sentinels are told to fail over, the master
//! is stopped for 4 s. Meanwhile, worker processes take and hold locks (`worker.rs`). The first process starts them (`crew.rs`) and
//! reads a line for each hold that has ended (`line.rs`).
//!
//! Two worker processes hear the sentinels. A third one, new for each event, knows the URL of the present master only.
//!
//! It prints what each event meant for the clients (`measure.rs`) and whether the limits hold (`report.rs`), and draws the grants
//! over time (`plot.rs`).

mod crew;
mod event;
mod line;
mod measure;
mod plot;
mod report;
mod stage;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use lock_examples::{Outcome, exit};
use tokio::time::sleep;

use crew::{Log, Worker};
use event::{Event, Kind};
use measure::Effect;
use stage::Stage;
use worker::{HEARING, PLAIN};

/// Fresh holds last 2.5 s: after this time, their number does not grow any more.
const WARM_UP: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    exit("failover", run(&args).await)
}

async fn run(args: &[&str]) -> Outcome {
    if let ["worker", process, url] = args {
        return worker::run(process.parse()?, url).await;
    }
    let mut count = 10;
    let mut plot = std::env::temp_dir().join("failover.svg");
    for option in args.chunks(2) {
        match option {
            ["--events", value] => count = value.parse()?,
            ["--plot", value] => plot = PathBuf::from(value),
            _ => return Err("the options are `--events N` and `--plot FILE`".into()),
        }
    }
    if count == 0 {
        return Err("--events is at least 1".into());
    }

    let (events, log) = conduct(count).await?;
    std::fs::write(&plot, plot::draw(events.iter(), &log))?;
    let effects = events.into_iter().map(|event| {
        let effect = Effect::of(&event, &log);
        (event, effect)
    });
    let effects: Vec<_> = effects.collect();
    println!(
        "\n{}\n{}",
        report::table(&effects),
        report::summary(&effects)
    );
    let mut failures = log.failures.iter();
    if let Some(failure) = failures.rfind(|failure| failure.process != PLAIN) {
        println!("The last failed acquisition says: {}", failure.why);
    }
    println!("The grants over time are in {}.", plot.display());
    Ok(())
}

/// Lets the events happen, one after the other.
async fn conduct(count: usize) -> Outcome<(Vec<Event>, Log)> {
    let mut stage = Stage::build().await?;
    stage.in_step().await?;
    let url = stage.url();
    println!("The sentinels and their master are ready: {url}");
    let mut workers = Vec::new();
    for process in 0..HEARING {
        workers.push(Worker::start(process, &url).await?);
    }
    let mut events = Vec::new();
    let mut log = Log::default();
    for (number, kind) in (1..=count).zip(Kind::ALL.into_iter().cycle()) {
        let master = stage.in_step().await?;
        let plain = Worker::start(PLAIN, &stage.servers[master].url()).await?;
        for worker in &mut workers {
            worker.renew_long_holds().await?;
        }
        sleep(WARM_UP).await;
        let event = Event::run(kind, &mut stage, master).await?;
        plain.end(&mut log).await?;
        println!("Event {number} of {count}, `{}`, is over.", kind.name());
        events.push(event);
    }
    for worker in &mut workers {
        worker.renew_long_holds().await?;
    }
    sleep(WARM_UP).await;
    for worker in workers {
        worker.end(&mut log).await?;
    }
    Ok((events, log))
}
