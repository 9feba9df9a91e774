//! Measures lock-core on a server of its own, each scenario against what it is built on.
//!
//! `cargo xtask bench` runs it.

mod attribute;
mod options;
mod rounds;
mod scenario;
mod table;
mod uncontended;

use std::process::ExitCode;

use anyhow::{Context, Result};
use lock_tests::TestServer;

use crate::attribute::Attribute;
use crate::options::Options;
use crate::scenario::{Flavor, Scenario};
use crate::uncontended::Uncontended;

const NAMES: [&str; 2] = ["attribute", "uncontended"];

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1), &NAMES) {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("lock-bench: {usage}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(table) => {
            print!("\n{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("lock-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<String> {
    // The server's runtime is not one of those that are measured.
    let server = Flavor::CurrentThread
        .runtime()?
        .block_on(TestServer::start());
    println!("a server of its own: {}", server.binary().path().display());

    let mut results: Vec<_> = scenarios(&server.url(), options)?
        .into_iter()
        .map(|scenario| (scenario, Vec::new()))
        .collect();
    // Rounds outside, so that what changes with time changes all scenarios.
    let rounds = options.plan.rounds;
    for number in 1..=rounds {
        for (scenario, measured) in &mut results {
            let name = format!("{}, {}", scenario.name(), scenario.variant());
            println!("round {number} of {rounds}: {name}");
            let round = scenario.round(options.plan).context(name)?;
            measured.push(round);
        }
    }
    Ok(table::render(&results))
}

fn scenarios(url: &str, options: &Options) -> Result<Vec<Box<dyn Scenario>>> {
    let mut scenarios: Vec<Box<dyn Scenario>> = Vec::new();
    if options.wants(NAMES[0]) {
        for waits in [false, true] {
            for flavor in Flavor::ALL {
                scenarios.push(Box::new(Attribute::new(url, flavor, waits)?));
            }
        }
    }
    if options.wants(NAMES[1]) {
        for flavor in Flavor::ALL {
            scenarios.push(Box::new(Uncontended::new(url, flavor)?));
        }
    }
    Ok(scenarios)
}
