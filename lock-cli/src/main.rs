//! `lockctl`: the locks of lock-core from the command line.

mod connect;
mod doctor;
mod exit;
mod inspect;
mod ls;
mod options;
mod pages;
mod quorum;
mod shown;
mod top;
mod unlock;
mod wait;

use std::process::ExitCode;

use clap::Parser;

use crate::exit::{Failure, USAGE};
use crate::options::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // Help and version are no errors.
            let is_usage = error.use_stderr();
            return ExitCode::from(if is_usage { USAGE } else { 0 });
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(Failure::system("no runtime", &error)),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("lockctl: {failure}");
        failure.code()
    })
}

async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let server = &cli.server;
    match cli.command {
        Command::Ls(options) => ls::run(server, &options).await,
        Command::Inspect(options) => inspect::run(server, &options).await,
        Command::Unlock(options) => unlock::run(server, &options).await,
        Command::Top(options) => top::run(server, &options).await,
        Command::Wait(options) => wait::run(server, &options).await,
        Command::Quorum(command) => quorum::run(server, &command).await,
        Command::Completions { shell } => pages::completions(shell),
        Command::Man => pages::man(),
        Command::Doctor(options) => doctor::run(server, &options).await,
    }
}
