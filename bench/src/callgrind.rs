//! Counts the instructions that processes run, by `callgrind`, a tool of valgrind.

use std::process::Command;

use anyhow::{Context, Result};

/// The command in front of a program whose instructions are to be counted.
pub(crate) const COUNTING: [&str; 4] = [
    "valgrind",
    "--quiet",
    "--tool=callgrind",
    "--callgrind-out-file=/dev/null",
];

/// The program that asks such a process for its counts. It comes with valgrind.
const CONTROL: &str = "vgdb";

pub(crate) fn is_installed() -> bool {
    let mut version = Command::new(COUNTING[0]);
    version.arg("--version").output().is_ok()
}

/// The instructions that a process has run so far.
pub(crate) fn counted(process: u32) -> Result<u64> {
    let output = Command::new(CONTROL)
        .args(["--max-invoke-ms=5", &format!("--pid={process}")])
        .args(["status", "internal"])
        .output()
        .context(CONTROL)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    total(&text).with_context(|| format!("{CONTROL} tells no counts: {text}{why}"))
}

/// The sum of the threads. Each has a line such as `events-1: 22147161`, and such lines for its functions as `events-1-0: 518`.
fn total(text: &str) -> Option<u64> {
    let counts = text.lines().filter_map(|line| {
        let (thread, count) = line.strip_prefix("events-")?.split_once(':')?;
        thread.parse::<u32>().ok()?;
        count.trim().parse::<u64>().ok()
    });
    counts.reduce(|sum, count| sum + count)
}

#[cfg(test)]
mod tests {
    use super::total;

    #[test]
    fn the_counts_of_all_threads_are_added() {
        let text = "executed-bbs: 4378202\nevents: Ir\npart: 0\nthreads: 1 12\nevents-1: 22147161\nframes-1: 2\n\
            calls-1-0: 1\nevents-1-0: 14084151\nfunction-1-1: main\nevents-12: 518\nevents-12-0: 511\n";
        assert_eq!(total(text), Some(22_147_161 + 518));
    }

    #[test]
    fn a_process_that_is_not_counted_has_no_count() {
        assert_eq!(total(""), None);
        assert_eq!(total("instrumentation: off\nevents: Ir\n"), None);
    }
}
