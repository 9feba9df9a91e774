//! Runs the steps of a job, one line before each.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::outcome::Outcome;

/// The steps so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    last: Option<(String, Instant)>,
    /// The steps before that one.
    took: Vec<(String, Duration)>,
    skipped: Vec<String>,
    times_are_told: bool,
}

impl Steps {
    /// Says what comes, and how long the step before took.
    pub(crate) fn begin(&mut self, name: &str) {
        let now = Instant::now();
        match self.last.replace((name.to_owned(), now)) {
            Some((before, start)) => {
                let took = now.duration_since(start);
                println!("==> {name} ({before} took {:.1} s)", took.as_secs_f64());
                self.took.push((before, took));
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

    /// Runs commands at the same time as the next step. What each of them says is written when it has ended.
    pub(crate) fn run_at_once(&mut self, name: &str, commands: Vec<Command>) -> Result<(), String> {
        self.begin(name);
        let running = commands.into_iter().map(|mut command| {
            let child = command.stdout(Stdio::piped()).spawn();
            (command, child)
        });
        let mut all = Ok(());
        for (command, child) in running.collect::<Vec<_>>() {
            let status = child.and_then(|child| {
                let output = child.wait_with_output()?;
                io::stdout().write_all(&output.stdout)?;
                Ok(output.status)
            });
            all = all.and(judge(name, &command, status));
        }
        all
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

    /// Runs a test runner as the next step. At the end what was skipped is named, and how long each step took.
    pub(crate) fn run_tests(&mut self, name: &str, mut command: Command) -> Result<(), String> {
        self.begin(name);
        let status = self.pass_on(&mut command);
        self.times_are_told = true;
        judge(name, &command, status)
    }

    fn pass_on(&self, command: &mut Command) -> io::Result<ExitStatus> {
        let mut runner = command.stdout(Stdio::piped()).spawn()?;
        let heard = runner.stdout.take().map_or(Ok(()), |output| {
            let outcome = Outcome::new(self.skipped.clone());
            let mut to = io::stdout().lock();
            outcome.pass_on(BufReader::new(output), &mut to, || self.times())
        });
        let status = runner.wait()?;
        heard.map(|()| status)
    }

    /// Says how long each step took, unless the end of the tests has said it.
    pub(crate) fn say_times(&self) {
        if !self.times_are_told {
            print!("{}", self.times());
        }
    }

    /// A line for each step, and one for all.
    fn times(&self) -> String {
        let now = Instant::now();
        let last = self.last.iter();
        let last = last.map(|(name, start)| (name, now.duration_since(*start)));
        let mut all = Duration::ZERO;
        let mut table = "seconds of each step:\n".to_owned();
        for (name, took) in self
            .took
            .iter()
            .map(|(name, took)| (name, *took))
            .chain(last)
        {
            all += took;
            let _ = writeln!(table, "{:8.1}  {name}", took.as_secs_f64());
        }
        let _ = writeln!(table, "{:8.1}  all\n", all.as_secs_f64());
        table
    }
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
    fn each_step_has_its_line_in_the_table_of_times() {
        let mut steps = Steps::default();
        for name in ["one", "two"] {
            steps.run(name, Command::new("true")).unwrap();
        }
        let table = steps.times();
        let lines: Vec<_> = table.lines().map(str::trim_start).collect();
        let names = lines.iter().filter_map(|line| line.split_once("  "));
        let names: Vec<_> = names.map(|(_, name)| name).collect();
        assert_eq!(names, ["one", "two", "all"], "{table}");
    }

    #[test]
    fn of_commands_that_run_at_once_each_has_to_succeed() {
        let mut steps = Steps::default();
        let mut both = |first, second| {
            let commands = [first, second].map(Command::new);
            steps.run_at_once("both", commands.into())
        };
        assert_eq!(both("true", "true"), Ok(()));
        for (first, second) in [("true", "false"), ("false", "true")] {
            assert!(both(first, second).unwrap_err().contains("`both`"));
        }
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
