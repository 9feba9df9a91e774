//! The processes that do what is measured.
//!
//! The program starts itself again for every piece of work, so that each contestant has a process of its own, and one
//! that hangs can be ended. A worker says `ready`, is told `go FROM TO`, and answers with one line of JSON.

mod alternate;
mod contend;
mod count;
mod flavor;

use std::io::{BufRead, Write};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub(crate) use self::alternate::{Alternate, Side};
pub(crate) use self::contend::Contend;
pub(crate) use self::count::{Count, What};
pub(crate) use self::flavor::Flavor;
use crate::grants::Log;

/// The hidden argument in front of a piece of work.
pub(crate) const ARGUMENT: &str = "worker";

/// A piece of work for one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Work {
    Alternate(Alternate),
    Contend(Contend),
    Count(Count),
}

/// What it came to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// Nanoseconds of each call of each side.
    Times(Vec<Vec<u64>>),
    /// What each task wrote down, and the nanoseconds of work of the process.
    Logs {
        logs: Vec<Log>,
        cpu: u64,
    },
    /// All that was to be counted is done.
    Done,
    Failed(String),
}

/// When to begin and to end, on the clock of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Window {
    pub(crate) fn line(self) -> String {
        format!("go {} {}", self.from, self.to)
    }

    fn parse(line: &str) -> Option<Self> {
        let (from, to) = line.strip_prefix("go ")?.trim().split_once(' ')?;
        Some(Self {
            from: from.parse().ok()?,
            to: to.parse().ok()?,
        })
    }
}

/// The life of a worker process.
pub(crate) fn main(work: &str) -> Result<()> {
    let outcome = serde_json::from_str(work)
        .context("that is no piece of work")
        .and_then(run)
        .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    say(&serde_json::to_string(&outcome)?)?;
    // A contestant may have tasks that would keep the runtime from ending.
    std::process::exit(0)
}

fn run(work: Work) -> Result<Outcome> {
    match work {
        Work::Alternate(work) => work.run(),
        Work::Contend(work) => work.run(),
        Work::Count(work) => work.run(),
    }
}

/// Waits for the word of the parent, who waits for all workers to be ready.
fn ready() -> Result<Window> {
    say("ready")?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Window::parse(&line).with_context(|| format!("`{}` is no window", line.trim()))
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn a_window_survives_its_line() {
        let window = Window { from: 5, to: 70 };
        assert_eq!(Window::parse(&format!("{}\n", window.line())), Some(window));
        assert_eq!(Window::parse("go 5"), None);
        assert_eq!(Window::parse(""), None);
    }
}
