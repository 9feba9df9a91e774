//! `lockctl run`: a command under a lock.
//!
//! Three processes. `lockctl run` holds the lock and renews it. It starts the keeper, which is the parent of the command. The
//! command has a process group of its own, and so has the keeper. lockctl tells the keeper each new deadline of the lease; the
//! keeper ends the command before the last one that it was told. So the command ends in time also if lockctl is stopped or killed.
//! If the keeper is killed, the kernel kills the command (on Linux), and lockctl its group.
//!
//! A user can defeat this: by stopping or killing both, or by a command that leaves its process group.

mod clock;
mod group;
pub(crate) mod keeper;
mod limits;
mod pass;
mod session;
mod signals;
pub(crate) mod start;
mod terminal;
mod words;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Instant;

use lock_core::{LockError, LockGuard, LockManager, Owner};

pub(crate) use self::limits::Limits;
use self::session::{Outcome, Session};
use self::signals::Signals;
use crate::exit::{Failure, LOST, SYSTEM, said};
use crate::options::{Run, Server};
use crate::shown;

/// This program, also if its file was replaced since it began.
#[cfg_attr(
    target_os = "linux",
    allow(clippy::unnecessary_wraps, reason = "an error elsewhere")
)]
fn this_program() -> io::Result<Command> {
    #[cfg(target_os = "linux")]
    let file = std::path::PathBuf::from("/proc/self/exe");
    #[cfg(not(target_os = "linux"))]
    let file = std::env::current_exe()?;
    let mut command = Command::new(file);
    command.arg0("lockctl");
    Ok(command)
}

pub(crate) async fn run(server: &Server, options: &Run) -> Result<ExitCode, Failure> {
    options.limits.check()?;
    let began = Instant::now();
    let mut signals = Signals::handle().map_err(|error| Failure::system("no signals", &error))?;
    let locks = tokio::select! {
        locks = server.connect_within(options.wait) => locks?,
        number = signals.next() => return Ok(ended_by(number)),
    };
    let guard = tokio::select! {
        guard = acquire(&locks, options, began) => guard,
        number = signals.next() => {
            // The dropped acquisition leaves the queue.
            locks.shutdown(server.deadline).await;
            return Ok(ended_by(number));
        }
    };
    let ended = match guard {
        Ok(guard) => hold(options, guard, &mut signals).await,
        Err(error) => Err(error.into()),
    };
    locks.shutdown(server.deadline).await;
    ended
}

fn ended_by(signal: i32) -> ExitCode {
    ExitCode::from(128 + signal as u8)
}

/// The time until the server was there is a part of the wait.
async fn acquire(
    locks: &LockManager,
    options: &Run,
    began: Instant,
) -> Result<LockGuard, LockError> {
    let (key, ttl) = (&options.lock.key, options.limits.ttl);
    let wait = options
        .wait
        .map(|wait| wait.saturating_sub(began.elapsed()));
    if options.lock.reentrant {
        let lock = locks.reentrant_lock(key).ttl(ttl).owner(&Owner::new());
        return match wait {
            Some(limit) => lock.acquire_within(limit).await,
            None => lock.acquire().await,
        };
    }
    let lock = locks.lock(key).ttl(ttl);
    match wait {
        Some(limit) => lock.acquire_within(limit).await,
        None => lock.acquire().await,
    }
}

async fn hold(options: &Run, guard: LockGuard, signals: &mut Signals) -> Result<ExitCode, Failure> {
    let mut session = Session::begin(options, &guard)
        .map_err(|error| Failure::system("no keeper of the command", &error))?;
    let key = options.lock.shown();
    match session.run(signals).await {
        Outcome::Ended(code) => {
            match guard.release().await {
                Ok(()) => {}
                Err(LockError::Lost { reason, .. }) => shown::warn(format_args!(
                    "the lock `{key}` was lost before the command ended: {reason}"
                )),
                Err(error) => shown::warn(format_args!(
                    "`{key}` stays locked for its ttl: {}",
                    said(&error)
                )),
            }
            Ok(ExitCode::from(code))
        }
        Outcome::Lost(reason) => {
            let reason = reason.map_or("the lease was not renewed in time".to_owned(), |reason| {
                reason.to_string()
            });
            shown::warn(format_args!(
                "the lock `{key}` was lost, and the command was ended: {reason}"
            ));
            Ok(ExitCode::from(LOST))
        }
        Outcome::KeeperDied => {
            let _ = guard.release().await;
            let text = "the keeper has died: how the command has ended is not known";
            Err(Failure::System(text.to_owned()))
        }
        Outcome::Unkillable => {
            shown::warn(format_args!(
                "the command cannot be ended (does it run as another user, as with sudo?), and may outlive the lock `{key}`"
            ));
            // The end of the manager would release the lock.
            std::process::exit(i32::from(SYSTEM))
        }
    }
}
