//! The process that becomes the command: it waits until the command may begin.

use std::io::{ErrorKind, stdin};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use super::pass;
use crate::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};
use crate::options::RunStart;
use crate::shown;

pub(crate) fn run(options: &RunStart) -> Result<ExitCode, Failure> {
    if options.with_parent {
        end_with_parent()?;
    }
    let file = stdin()
        .as_fd()
        .try_clone_to_owned()
        .and_then(|socket| pass::receive(&UnixStream::from(socket)))
        .map_err(|error| Failure::system("no stdin for the command", &error))?;
    // The lock was lost before the command could begin, or the keeper has died.
    let Some(file) = file else {
        return Ok(ExitCode::FAILURE);
    };
    rustix::stdio::dup2_stdin(&file)
        .map_err(|error| Failure::system("no stdin for the command", &error.into()))?;
    let (name, arguments) = options
        .command
        .split_first()
        .ok_or_else(|| Failure::Usage("there is no command".to_owned()))?;
    let error = Command::new(name).args(arguments).exec();
    shown::warn(format_args!("{}: {error}", name.display()));
    Ok(ExitCode::from(match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }))
}

/// If the keeper is killed, the command is killed with it.
fn end_with_parent() -> Result<(), Failure> {
    #[cfg(any(target_os = "linux", target_os = "freebsd"))]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| Failure::system("no signal when the keeper ends", &error.into()))?;
    Ok(())
}
