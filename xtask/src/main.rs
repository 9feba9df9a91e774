//! Jobs of this workspace: `cargo xtask <job>`.

mod announce;
mod apt;
mod jobs;
mod licences;
mod links;
mod outcome;
mod planted;
mod promises;
mod release;
mod run;
mod server;
mod simulate;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let job = match jobs::parse(&args) {
        Ok(job) => job,
        Err(usage) => {
            eprintln!("xtask: {usage}");
            return ExitCode::from(2);
        }
    };
    match jobs::run(&job) {
        // Nothing is printed: the last words belong to the test runner.
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
