//! Measures lock-core on a server of its own, against its peers and against what it is built on.
//!
//! `cargo xtask bench` runs it. It prints a table and what is demanded beside what was found, and writes medians, ranges
//! and plots of them to `docs/bench/`.

mod about;
mod callgrind;
mod clock;
mod commands;
mod contestant;
mod cpu;
mod crew;
mod demands;
mod grants;
mod kept;
mod masters;
mod network;
mod options;
mod plot;
mod progress;
mod results;
mod scenario;
mod stage;
mod stats;
mod table;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::kept::Kept;
use crate::options::Options;
use crate::progress::Progress;
use crate::results::Results;
use crate::scenario::Step;
use crate::stage::Stage;
use crate::worker::Flavor;

/// Where the figures of a full run are kept, seen from the root of the workspace.
const KEPT: &str = "docs/bench/results.json";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match &args[..] {
        [argument, work] if argument == worker::ARGUMENT => worker::main(work),
        _ => {
            let known = scenario::ALL.map(|(name, _)| name);
            match Options::parse(args, &known) {
                Ok(options) => run(&options),
                Err(usage) => {
                    eprintln!("lock-bench: {usage}");
                    return ExitCode::from(2);
                }
            }
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lock-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    if let Some(path) = &options.plots {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        return draw(path, &serde_json::from_str(&text)?);
    }
    let mut results = Flavor::CurrentThread
        .runtime()?
        .block_on(measure(options))?;
    results.verdicts = demands::judge(&results);
    print!("\n{}", table::render(&results));
    // What is kept is never part of a run, unless somebody names a place for it.
    let path = match &options.json {
        Some(path) => path.clone(),
        None if options.is_full() => workspace().join(KEPT),
        None => return Ok(()),
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let kept = Kept::of(&results);
    fs::write(&path, kept.text()?).with_context(|| path.display().to_string())?;
    draw(&path, &kept)?;
    println!("the figures are in {}, the plots beside it", path.display());
    Ok(())
}

async fn measure(options: &Options) -> Result<Results> {
    let mut stage = Stage::open(options.sentinel).await?;
    let mut results = Results {
        about: about::describe(options, stage.server().binary().name()),
        ..Results::default()
    };
    let rounds: Vec<Vec<Step>> = (0..options.rounds)
        .map(|round| scenario::steps(options, round))
        .collect();
    let mut progress = Progress::new(rounds.iter().map(Vec::len).sum());
    for (round, steps) in rounds.iter().enumerate() {
        for step in steps {
            let label = step.label();
            progress.begin(&format!("round {}, {label}", round + 1));
            // A contestant that fails costs its own figures, and not the run.
            if let Err(error) = step.run(round, options, &mut stage, &mut results).await {
                let note = format!("{label} failed: {error:#}");
                progress.say(&note);
                results.note(note);
                // Nobody can do anything without the server.
                stage.clear().await.context("the server is gone")?;
            }
        }
    }
    Ok(results)
}

fn draw(figures: &Path, kept: &Kept) -> Result<()> {
    for (name, svg) in plot::all(kept) {
        let path = figures.with_file_name(name);
        fs::write(&path, svg).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}
