//! How the program ends: the exit codes, and the sentence on stderr.

use std::fmt;
use std::io;
use std::process::ExitCode;

use lock_core::LockError;

use crate::shown::plain;

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
            Self::Lock(error) => f.write_str(&said(error)),
            Self::System(text) | Self::Usage(text) | Self::Refused(text) => f.write_str(text),
        }
    }
}

/// What the library tells a program to write, and what that is here.
const OPTIONS: [(&str, &str); 27] = [
    (" or `memory://`", ""),
    (
        "use `reentrant_lock`, if it is a semaphore or a read-write lock, `semaphore` or `rw_lock`",
        "state `--reentrant`",
    ),
    ("use `semaphore`, or ", ""),
    ("use `rw_lock`, or ", ""),
    (
        "if it is an exclusive lock, use `lock`",
        "if it is an exclusive lock, leave out `--reentrant`",
    ),
    (
        "choose another key or prefix",
        "state another key or `--prefix`",
    ),
    (
        "use another name or a prefix",
        "state another key or `--prefix`",
    ),
    (".tls(Tls::new().ca_file(\"ca.pem\"))", "--ca ca.pem"),
    (".tls(Tls::new().ca_file(..))", "--ca FILE"),
    (".tls(Tls::new().server_name(..))", "--tls-name NAME"),
    (
        ".tls(Tls::new().identity_files(\"client.pem\", \"client.key\"))",
        "--cert client.pem --cert-key client.key",
    ),
    (
        ".tls(Tls::new().identity_files(..))",
        "--cert FILE --cert-key FILE",
    ),
    (
        "use `Tls::insecure` with the feature `tls-insecure`",
        "state `--insecure`",
    ),
    (
        "give it with `.sentinel_password(..)`",
        "state `--sentinel-password`, or LOCK_SENTINEL_PASSWORD in the environment",
    ),
    (".sentinel_password(..)", "--sentinel-password"),
    (".sentinel_user(..)", "--sentinel-user"),
    (
        "set its TLS with `.sentinel_tls(..)`",
        "state `--plain-sentinels` if it has no TLS",
    ),
    ("`quorum_wait`", "`--quorum-wait`"),
    (
        "call `begin_quorum` with `anew`",
        "run `lockctl quorum begin --anew`",
    ),
    (
        "begin the quorum `anew`",
        "run `lockctl quorum begin --anew`",
    ),
    ("call `begin_quorum`", "run `lockctl quorum begin`"),
    ("`begin_quorum`", "`lockctl quorum begin`"),
    ("`prefix`", "`--prefix`"),
    ("`namespace`", "`--namespace`"),
    ("`any_version`", "`--any-version`"),
    ("`command_deadline`", "`--deadline`"),
    ("and this program names", "and you name"),
];

/// A text of the library, with the options of lockctl in the place of its calls.
pub(crate) fn translated(text: &str) -> String {
    let texts = OPTIONS.iter();
    texts.fold(text.to_owned(), |text, (call, option)| {
        text.replace(call, option)
    })
}

/// An error of the library. What it says of the number of a semaphore or a latch is for a program, so that is said here.
pub(crate) fn said(error: &LockError) -> String {
    match error {
        LockError::OtherMax { key, in_use, max } => format!(
            "semaphore `{}` has {in_use} permits on the server, and you name {max}: state `{in_use}` as FROM",
            plain(key)
        ),
        LockError::OtherCount {
            key,
            made_for,
            count,
        } => format!(
            "latch `{}` was made for {made_for} counts, and you name {count}: state `--latch {made_for}`",
            plain(key)
        ),
        other => translated(&other.to_string()),
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}
