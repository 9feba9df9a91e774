//! What the test runner says, passed on line by line, and what is to be remembered of it.
//!
//! `cargo-nextest` names slow tests, too. Debian does not have it, to compile its 492 crates takes minutes, and it starts a process for each
//! test, so that tests could not share a warm server.

use std::io::{self, BufRead, Write};
use std::time::Duration;

/// The last words of a test program.
const SUMMARY: &str = "test result: ";

/// A test begins its excuse with this.
const LACKS: &str = "SKIPPED: ";

/// A test that takes longer is named at the end.
const SLOW: Duration = Duration::from_secs(5);

/// The tests that did not run, and those that ran long.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    skipped: Vec<String>,
    slow: Vec<(Duration, String)>,
}

impl Outcome {
    /// What was skipped before the tests.
    pub(crate) fn new(skipped: Vec<String>) -> Self {
        let slow = Vec::new();
        Self { skipped, slow }
    }

    /// Copies the output of the runner without the times of the tests. The slow tests, the tests that were skipped and `last` are
    /// written in front of its last summary, so that this stays the end of all.
    pub(crate) fn pass_on(
        mut self,
        from: impl BufRead,
        to: &mut impl Write,
        last: impl FnOnce() -> String,
    ) -> io::Result<()> {
        let mut summary = None;
        for line in from.split(b'\n') {
            let line = line?;
            let text = String::from_utf8_lossy(&line);
            if text.starts_with(SUMMARY) {
                // Whether it is the last one shows later.
                if let Some(earlier) = summary.replace(line.clone()) {
                    write_line(to, &earlier)?;
                }
                continue;
            }
            let line = self.time(&text).map_or(line.as_slice(), str::as_bytes);
            self.hear(&text);
            if !text.trim().is_empty()
                && let Some(earlier) = summary.take()
            {
                write_line(to, &earlier)?;
                write_line(to, b"")?;
            }
            if summary.is_none() {
                write_line(to, line)?;
            }
        }
        self.show(to)?;
        to.write_all(last().as_bytes())?;
        summary.map_or(Ok(()), |summary| write_line(to, &summary))
    }

    /// The line without the time at its end, `test <name> ... ok <1.234s>`, if there is one.
    fn time<'l>(&mut self, line: &'l str) -> Option<&'l str> {
        let (line, time) = line.strip_suffix("s>")?.rsplit_once(" <")?;
        let name = line.strip_prefix("test ")?.rsplit_once(" ... ")?.0;
        let took = Duration::try_from_secs_f64(time.parse().ok()?).ok()?;
        if took > SLOW {
            self.slow.push((took, name.to_owned()));
        }
        Some(line)
    }

    /// `test <name> ... ignored`, perhaps with a reason behind a comma; and what a test says that lacks something it needs.
    fn hear(&mut self, line: &str) {
        // One thread of tests names the test in front, in the same line.
        if let Some((_, what)) = line.split_once(LACKS) {
            self.skipped.push(what.to_owned());
            return;
        }
        let named = line.strip_prefix("test ");
        if let Some((name, verdict)) = named.and_then(|line| line.split_once(" ... "))
            && verdict.starts_with("ignored")
        {
            self.skipped.push(match verdict.split_once(", ") {
                Some((_, reason)) => format!("{name} ({reason})"),
                None => name.to_owned(),
            });
        }
    }

    fn show(&mut self, to: &mut impl Write) -> io::Result<()> {
        if !self.slow.is_empty() {
            self.slow.sort_unstable_by(|a, b| b.cmp(a));
            writeln!(to, "tests that took longer than {SLOW:?}:")?;
            for (took, name) in &self.slow {
                writeln!(to, "{:8.1} s  {name}", took.as_secs_f64())?;
            }
            writeln!(to)?;
        }
        if self.skipped.is_empty() {
            return Ok(());
        }
        writeln!(to, "skipped tests: {}", self.skipped.len())?;
        for name in &self.skipped {
            writeln!(to, "    {name}")?;
        }
        writeln!(to)
    }
}

fn write_line(to: &mut impl Write, line: &[u8]) -> io::Result<()> {
    to.write_all(line)?;
    to.write_all(b"\n")?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    fn passed_on(text: &str) -> String {
        let mut to = Vec::new();
        Outcome::new(Vec::new())
            .pass_on(text.as_bytes(), &mut to, || "the steps\n\n".to_owned())
            .unwrap();
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn what_the_runner_says_is_passed_on() {
        let text = "\nrunning 1 test\ntest a::b ... ok\n\ntest result: ok. 1 passed\n\n\nrunning 0 tests\n\ntest result: ok. 0 passed\n";
        let heard = passed_on(text);
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(&heard.replace("the steps\n", "")), words(text));
        let end = "\nthe steps\n\ntest result: ok. 0 passed\n";
        assert!(heard.ends_with(end), "{heard}");
    }

    #[test]
    fn slow_tests_are_named_with_their_seconds_and_no_other_time_is_shown() {
        let text = "test a ... ok <5.000s>\ntest b::c ... FAILED <5.100s>\ntest d - should panic ... ok <61.250s>\ntest e ... ok <x>\ntest result: FAILED. 1 failed\n";
        let heard = passed_on(text);
        let end = "test a ... ok\ntest b::c ... FAILED\ntest d - should panic ... ok\ntest e ... ok <x>\n\
                   tests that took longer than 5s:\n    61.2 s  d - should panic\n     5.1 s  b::c\n\nthe steps\n\ntest result: FAILED. 1 failed\n";
        assert_eq!(heard, end);
    }

    #[test]
    fn skipped_tests_are_counted_and_named_in_front_of_the_last_summary() {
        let text = "test a::b ... ignored\ntest result: ok. 1 passed\n\ntest c ... ok\ntest d ... ignored, needs a disk\nSKIPPED: e: it needs a browser\ntest e ... ok\ntest result: FAILED. 1 failed\n\n";
        let heard = passed_on(text);
        let end = "skipped tests: 3\n    a::b\n    d (needs a disk)\n    e: it needs a browser\n\nthe steps\n\ntest result: FAILED. 1 failed\n";
        assert!(heard.ends_with(end), "{heard}");
        assert!(heard.contains("test result: ok. 1 passed\n\ntest c ... ok\n"));
    }
}
