//! Helper processes, driven line by line.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::supervise::Supervised;
use crate::wait::in_time;

/// A process that takes orders on its standard input and answers on its
/// standard output, a line each; killed on drop.
///
/// What it writes to standard error goes to the output of the test.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: Supervised,
    stdin: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Child {
    /// Starts the program at `path`; an integration test finds a helper of
    /// this package with `env!("CARGO_BIN_EXE_name")`.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn spawn<A, K, V>(
        path: impl AsRef<Path>,
        args: impl IntoIterator<Item = A>,
        envs: impl IntoIterator<Item = (K, V)>,
    ) -> Self
    where
        A: AsRef<OsStr>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let name = path.as_ref().display().to_string();
        let mut command = Command::new(path.as_ref());
        command
            .args(args)
            .envs(envs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Supervised::spawn(&mut command, None)
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let (stdin, stdout) = process.take_pipes();
        let (sender, lines) = mpsc::unbounded_channel();
        let stdout = stdout.expect("its output was asked for");
        // A thread, so that reading depends on no runtime; it ends with the
        // process, whose end closes the pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            name,
            process,
            stdin,
            lines,
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends it a line.
    ///
    /// # Panics
    ///
    /// When its input is closed.
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its input is open");
        writeln!(stdin, "{line}")
            .and_then(|()| stdin.flush())
            .unwrap_or_else(|error| panic!("{} does not listen: {error}", self.name));
    }

    /// Its next line, or `None` once its output has ended.
    ///
    /// # Panics
    ///
    /// When nothing comes within [`LIMIT`](crate::LIMIT).
    pub async fn next_line(&mut self) -> Option<String> {
        let what = format!("a line of {}", self.name);
        in_time(&what, self.lines.recv()).await
    }

    /// Its next line, if one has come already.
    pub fn try_line(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Its next line.
    ///
    /// # Panics
    ///
    /// When its output ends, or nothing comes within [`LIMIT`](crate::LIMIT).
    pub async fn recv_line(&mut self) -> String {
        match self.next_line().await {
            Some(line) => line,
            None => panic!("{} ended without another line", self.name),
        }
    }

    /// Its next line, which must begin with `prefix`; answers what follows
    /// the prefix, without the space between.
    ///
    /// # Panics
    ///
    /// When the line begins otherwise, and as [`recv_line`](Self::recv_line).
    pub async fn expect(&mut self, prefix: &str) -> String {
        let line = self.recv_line().await;
        match line.strip_prefix(prefix) {
            Some(rest) => rest.trim_start().to_owned(),
            None => panic!("{} said {line:?}, awaited was {prefix:?}", self.name),
        }
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    ///
    /// When it does not within [`LIMIT`](crate::LIMIT).
    pub async fn wait(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        let process = &mut self.process;
        let ended = async {
            loop {
                if let Some(status) = process.status().expect("own child can be waited for") {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        in_time(&what, ended).await
    }

    /// Pauses it (SIGSTOP); it has stopped when this returns.
    ///
    /// # Panics
    ///
    /// When it has ended.
    pub fn stop(&self) {
        self.process.stop().expect("the helper runs");
    }

    /// Lets it run on (SIGCONT).
    ///
    /// # Panics
    ///
    /// When it has ended.
    pub fn cont(&self) {
        self.process.cont().expect("the helper runs");
    }

    /// Kills it (SIGKILL); it is gone when this returns. Lines it had written
    /// can still be read.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn kill(&mut self) {
        self.process.kill().expect("own child can be killed");
    }
}
