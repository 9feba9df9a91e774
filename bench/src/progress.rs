//! How far the run is.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on a terminal, a line for each step elsewhere.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    steps: usize,
    done: usize,
}

impl Progress {
    pub(crate) fn new(steps: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(
                "{elapsed_precise} [{bar:40}] {pos}/{len}, {eta} left: {msg}",
            );
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            // Drawn when a step begins and never in between: a bar that moves by itself takes time from what is measured.
            ProgressBar::new(steps as u64).with_style(style.progress_chars("=> "))
        });
        Self {
            bar,
            steps,
            done: 0,
        }
    }

    /// A step begins.
    pub(crate) fn begin(&mut self, step: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(step.to_owned());
            bar.set_position(self.done as u64);
            bar.tick();
        } else {
            eprintln!("{}/{} {step}", self.done + 1, self.steps);
        }
        self.done += 1;
    }

    /// Something to be read at once.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
