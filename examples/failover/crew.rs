//! The worker processes, as the first process sees them.

use std::process::Stdio;

use lock_examples::Outcome;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::line::{Failure, Hold, Line};
use crate::stage::within;

/// What processes have written.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) holds: Vec<Hold>,
    pub(crate) failures: Vec<Failure>,
}

impl Log {
    fn add(&mut self, line: &str) -> Outcome {
        match Line::parse(line) {
            Some(Line::Ended(hold)) => self.holds.push(hold),
            Some(Line::Failed(failure)) => self.failures.push(failure),
            Some(Line::Ready) | None => return Err(format!("a worker writes `{line}`").into()),
        }
        Ok(())
    }
}

/// A worker process; ended when dropped, and by the end of its input.
pub(crate) struct Worker {
    child: Child,
    reader: JoinHandle<Outcome<Log>>,
}

impl Worker {
    /// Starts this program again, and returns once all its clients are connected.
    pub(crate) async fn start(process: usize, url: &str) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", &process.to_string(), url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or("a worker has no output")?;
        let mut lines = BufReader::new(output).lines();
        let first = within("a worker is ready", lines.next_line()).await??;
        if first.as_deref().and_then(Line::parse) != Some(Line::Ready) {
            return Err(format!("worker {process} has failed").into());
        }
        let reader = tokio::spawn(async move {
            let mut log = Log::default();
            while let Some(line) = lines.next_line().await? {
                log.add(&line)?;
            }
            Ok(log)
        });
        Ok(Self { child, reader })
    }

    /// Tells it to replace its long holds.
    pub(crate) async fn renew_long_holds(&mut self) -> Outcome {
        let input = self.child.stdin.as_mut().ok_or("a worker has no input")?;
        Ok(input.write_all(b"\n").await?)
    }

    /// Ends it, and adds all that it has written.
    pub(crate) async fn end(mut self, all: &mut Log) -> Outcome {
        drop(self.child.stdin.take());
        let log = within("a worker ends", self.reader).await???;
        all.holds.extend(log.holds);
        all.failures.extend(log.failures);
        Ok(())
    }
}
