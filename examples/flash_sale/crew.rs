//! The processes of a sale, as the first one sees them.

use std::process::Stdio;

use lock_examples::Outcome;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedSender;

use crate::line::Line;

/// What a process said; `None` is its end.
pub(crate) type Said = (usize, Option<Line>);

/// A process of this program; ended when dropped.
#[derive(Debug)]
pub(crate) struct Member {
    child: Child,
}

impl Member {
    /// Starts this program again. What it says arrives under its number.
    pub(crate) fn start(
        number: usize,
        args: &[String],
        url: &str,
        said: UnboundedSender<Said>,
    ) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            // Not an argument, which everybody on the machine could read: it may hold a password.
            .env("REDIS_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the first process, which then ends the others.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or("a process has no output")?;
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let line = Line::parse(&line)
                    .unwrap_or_else(|| Line::Fails(format!("speaks in riddles: {line}")));
                if said.send((number, Some(line))).is_err() {
                    return;
                }
            }
            let _ = said.send((number, None));
        });
        Ok(Self { child })
    }

    pub(crate) async fn tell(&mut self, line: &str) {
        // A process that has gone says so by itself.
        if let Some(input) = &mut self.child.stdin {
            let _ = input.write_all(format!("{line}\n").as_bytes()).await;
        }
    }

    /// The end of its input sends it home.
    pub(crate) fn close(&mut self) {
        drop(self.child.stdin.take());
    }

    /// SIGKILL: no destructor runs, nothing is released.
    pub(crate) async fn kill(&mut self) -> Outcome {
        Ok(self.child.kill().await?)
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // It may have ended a moment ago, and is ours to collect: the id is nobody else's.
            let _ = kill_process(pid, signal);
        }
    }
}
