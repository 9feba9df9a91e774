//! How the program ends: the exit codes, and the sentence on stderr.

use std::fmt;
use std::io;
use std::process::ExitCode;

use lock_core::LockError;

/// The answer is no: the lock was free, still held, or something was found.
pub(crate) const NO: u8 = 1;
/// Wrong arguments.
pub(crate) const USAGE: u8 = 64;
/// The server is not available.
pub(crate) const UNAVAILABLE: u8 = 69;
/// Something is wrong with this machine.
pub(crate) const SYSTEM: u8 = 71;
/// The lock was not acquired in time.
pub(crate) const BUSY: u8 = 75;
/// The server refuses, or the settings cannot work.
pub(crate) const CONFIG: u8 = 78;
/// The lock was lost, and the command was ended.
pub(crate) const LOST: u8 = 80;
/// The command cannot be executed, as shells have it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as shells have it.
pub(crate) const NOT_FOUND: u8 = 127;

/// Why the program ends without a result.
#[derive(Debug)]
pub(crate) enum Failure {
    Lock(LockError),
    /// What cannot be done, and the error of the system.
    System(String),
    Usage(String),
    /// What was asked for cannot be done with this lock.
    Refused(String),
}

impl Failure {
    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        Self::System(format!("{what}: {error}"))
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Lock(LockError::Unavailable { .. }) => UNAVAILABLE,
            Self::Lock(LockError::TimedOut { .. } | LockError::Busy { .. }) => BUSY,
            Self::Lock(_) | Self::Refused(_) => CONFIG,
            Self::System(_) => SYSTEM,
            Self::Usage(_) => USAGE,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::System(text) | Self::Usage(text) | Self::Refused(text) => f.write_str(text),
        }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}
