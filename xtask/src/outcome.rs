//! What the test runner says, passed on line by line, and what is to be remembered of it.

use std::io::{self, BufRead, Write};

/// The last words of a test program.
const SUMMARY: &str = "test result: ";

/// A test begins its excuse with this.
const LACKS: &str = "SKIPPED: ";

/// The tests that did not run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    skipped: Vec<String>,
}

impl Outcome {
    /// What was skipped before the tests.
    pub(crate) fn new(skipped: Vec<String>) -> Self {
        Self { skipped }
    }

    /// Copies the output of the runner. The tests that were skipped are named in front of its last summary, so that this stays
    /// the end of all.
    pub(crate) fn pass_on(mut self, from: impl BufRead, to: &mut impl Write) -> io::Result<()> {
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
            self.hear(&text);
            if !text.trim().is_empty()
                && let Some(earlier) = summary.take()
            {
                write_line(to, &earlier)?;
                write_line(to, b"")?;
            }
            if summary.is_none() {
                write_line(to, &line)?;
            }
        }
        self.show(to)?;
        summary.map_or(Ok(()), |summary| write_line(to, &summary))
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

    fn show(&self, to: &mut impl Write) -> io::Result<()> {
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
            .pass_on(text.as_bytes(), &mut to)
            .unwrap();
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn what_the_runner_says_is_passed_on() {
        let text = "\nrunning 1 test\ntest a::b ... ok\n\ntest result: ok. 1 passed\n\n\nrunning 0 tests\n\ntest result: ok. 0 passed\n";
        let heard = passed_on(text);
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(&heard), words(text));
        assert!(heard.ends_with("\ntest result: ok. 0 passed\n"), "{heard}");
    }

    #[test]
    fn skipped_tests_are_counted_and_named_in_front_of_the_last_summary() {
        let text = "test a::b ... ignored\ntest result: ok. 1 passed\n\ntest c ... ok\ntest d ... ignored, needs a disk\nSKIPPED: e: it needs a browser\ntest e ... ok\ntest result: FAILED. 1 failed\n\n";
        let heard = passed_on(text);
        let end = "skipped tests: 3\n    a::b\n    d (needs a disk)\n    e: it needs a browser\n\ntest result: FAILED. 1 failed\n";
        assert!(heard.ends_with(end), "{heard}");
        assert!(heard.contains("test result: ok. 1 passed\n\ntest c ... ok\n"));
    }
}
