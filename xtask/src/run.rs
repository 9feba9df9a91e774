//! Runs the steps of a job, one line before each.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The steps so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    last: Option<(String, Instant)>,
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
        let program = command.get_program().to_owned();
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the step `{name}` failed ({status})")),
            Err(error) => Err(format!("cannot run {}: {error}", program.display())),
        }
    }
}

/// Cargo, in the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this package is a member of the workspace");
    let mut command = Command::new(program);
    command
        .current_dir(root)
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
