//! Runs the steps of a job, one line before each.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::outcome::Outcome;

/// The steps so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    last: Option<(String, Instant)>,
    skipped: Vec<String>,
}

impl Steps {
    /// Says what comes, and how long the step before took.
    pub(crate) fn begin(&mut self, name: &str) {
        let now = Instant::now();
        match self.last.replace((name.to_owned(), now)) {
            Some((before, start)) => {
                let took = now.duration_since(start).as_secs_f64();
                println!("==> {name} ({before} took {took:.1} s)");
            }
            None => println!("==> {name}"),
        }
    }

    /// Runs a command as the next step.
    pub(crate) fn run(&mut self, name: &str, mut command: Command) -> Result<(), String> {
        self.begin(name);
        let status = command.status();
        judge(name, &command, status)
    }

    /// Notes what cannot be done here. It is named with the tests that are skipped.
    pub(crate) fn skip(&mut self, what: &str) {
        self.skipped.push(what.to_owned());
    }

    /// Names what was skipped, at the end of a job without tests.
    pub(crate) fn say_skipped(&self) {
        for what in &self.skipped {
            println!("skipped: {what}");
        }
    }

    /// Runs a test runner as the next step. At the end what was skipped is named.
    pub(crate) fn run_tests(&mut self, name: &str, mut command: Command) -> Result<(), String> {
        self.begin(name);
        let status = pass_on(&mut command, self.skipped.clone());
        judge(name, &command, status)
    }
}

fn pass_on(command: &mut Command, skipped: Vec<String>) -> io::Result<ExitStatus> {
    let mut runner = command.stdout(Stdio::piped()).spawn()?;
    let heard = runner.stdout.take().map_or(Ok(()), |output| {
        Outcome::new(skipped).pass_on(BufReader::new(output), &mut io::stdout().lock())
    });
    let status = runner.wait()?;
    heard.map(|()| status)
}

fn judge(name: &str, command: &Command, status: io::Result<ExitStatus>) -> Result<(), String> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the step `{name}` failed ({status})")),
        Err(error) => Err(format!(
            "cannot run {}: {error}",
            command.get_program().display()
        )),
    }
}

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this package is a member of the workspace")
}

/// Cargo, in the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command
        .current_dir(root())
        .args(args)
        // Tests bring servers of their own; they must never meet the one
        // somebody works with.
        .env_remove("REDIS_URL");
    command
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::Steps;

    #[test]
    fn a_failed_step_is_named() {
        let mut steps = Steps::default();
        assert_eq!(steps.run("good", Command::new("true")), Ok(()));
        let failure = steps.run("bad", Command::new("false")).unwrap_err();
        assert!(failure.contains("`bad`"), "{failure}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let mut steps = Steps::default();
        let failure = steps
            .run("step", Command::new("/nonexistent/program"))
            .unwrap_err();
        assert!(failure.contains("/nonexistent/program"), "{failure}");
    }
}
