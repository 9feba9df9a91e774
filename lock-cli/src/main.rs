//! `lockctl`: the locks of lock-core from the command line.

mod connect;
mod doctor;
mod exit;
mod inspect;
mod lock;
mod ls;
mod options;
mod pages;
mod quorum;
mod resize;
mod run;
mod shown;
mod top;
mod unlock;
mod wait;

use std::process::ExitCode;

use clap::Parser;

use crate::exit::{Failure, USAGE};
use crate::options::{Cli, Command, Part, Server};

fn main() -> ExitCode {
    let is_part = std::env::args_os().nth(1);
    let is_part = is_part.is_some_and(|word| word == "run-keeper" || word == "run-start");
    let outcome = if is_part {
        Part::try_parse().map(|part| match part {
            Part::RunKeeper(options) => run::keeper::run(&options),
            Part::RunStart(options) => run::start::run(&options),
        })
    } else {
        Cli::try_parse().map(|cli| match &cli.command {
            Command::Completions { shell } => Ok(pages::completions(*shell)),
            Command::Man => pages::man(),
            command => with_runtime(&cli.server, command),
        })
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            let _ = error.print();
            // Help and version are no errors.
            let is_usage = error.use_stderr();
            return ExitCode::from(if is_usage { USAGE } else { 0 });
        }
    };
    outcome.unwrap_or_else(|failure| {
        shown::warn(format_args!("{failure}"));
        failure.code()
    })
}

fn with_runtime(server: &Server, command: &Command) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::system("no runtime", &error))?;
    runtime.block_on(async {
        match command {
            Command::Run(options) => run::run(server, options).await,
            Command::Ls(options) => ls::run(server, options).await,
            Command::Inspect(options) => inspect::run(server, options).await,
            Command::Unlock(options) => unlock::run(server, options).await,
            Command::Resize(options) => resize::run(server, options).await,
            Command::Top(options) => top::run(server, options).await,
            Command::Wait(options) => wait::run(server, options).await,
            Command::Quorum(command) => quorum::run(server, command).await,
            Command::Doctor(options) => doctor::run(server, options).await,
            Command::Completions { .. } | Command::Man => unreachable!("without a runtime"),
        }
    })
}
