use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Waits for its input to end, which happens when the process that holds the
/// other end of the pipe is gone, however it ended; then clears up after it.
const WATCHDOG: &str = r#"read -r _; kill -KILL "$1"; if [ -n "$2" ]; then rm -rf "$2"; fi"#;

/// A child process that never outlives this one, not even after SIGKILL.
#[derive(Debug)]
pub(crate) struct Supervised {
    child: Child,
    watchdog: Child,
    status: Option<ExitStatus>,
}

impl Supervised {
    /// Starts `command`; `scratch` is a folder to remove should this process
    /// be killed.
    pub(crate) fn spawn(command: &mut Command, scratch: Option<&Path>) -> io::Result<Self> {
        // In a group of its own, so that Ctrl-C reaches only the tests, whose
        // end is then noticed by the watchdog.
        Self::spawn_as_it_is(command.process_group(0), scratch)
    }

    /// As [`spawn`](Self::spawn), for a command that leaves our group by itself.
    pub(crate) fn spawn_as_it_is(
        command: &mut Command,
        scratch: Option<&Path>,
    ) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "sh"])
            .arg(child.id().to_string())
            .arg(scratch.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        match watchdog {
            Ok(watchdog) => Ok(Self {
                child,
                watchdog,
                status: None,
            }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn take_pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>) {
        (self.child.stdin.take(), self.child.stdout.take())
    }

    /// Pauses the process, and returns once it does not run any more.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        // The signal is only queued so far. NOWAIT, because the status of a
        // process that has ended is for `wait` to collect.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.rustix_pid()), options)?;
        Ok(())
    }

    pub(crate) fn cont(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// The exit status, if the process has ended.
    pub(crate) fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none()
            && let Some(status) = self.child.try_wait()?
        {
            self.end_watchdog()?;
            self.status = Some(status);
        }
        Ok(self.status)
    }

    /// Kills the process, and returns once it is gone.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        if self.status()?.is_some() {
            return Ok(());
        }
        self.end_watchdog()?;
        self.child.kill()?;
        self.status = Some(self.child.wait()?);
        Ok(())
    }

    /// Ended before the number of the process can be used for another one.
    fn end_watchdog(&mut self) -> io::Result<()> {
        self.watchdog.kill()?;
        self.watchdog.wait().map(drop)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        // Once collected, the number may belong to another process.
        if self.status.is_some() {
            return Err(io::Error::other("the process has ended"));
        }
        Ok(kill_process(self.rustix_pid(), signal)?)
    }

    fn rustix_pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the watchdog remains.
        let _ = self.kill();
    }
}
