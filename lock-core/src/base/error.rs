//! What can go wrong, sorted by what the caller can do about it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::time::in_millis;

/// The tasks that connect and renew have ended with their runtime. A caller may notice either one first, so both have this text.
pub(crate) const RUNTIME_ENDED: &str = "the runtime in which this lock manager was made has ended, so its locks would not be renewed: make a manager in the runtime that uses it";

/// The error of every operation in this crate.
///
/// Each variant calls for a different reaction: wait or give up ([`Busy`](Self::Busy), [`TimedOut`](Self::TimedOut),
/// [`NotOpen`](Self::NotOpen)), stop trying ([`Exhausted`](Self::Exhausted)), stop working on the protected resource
/// ([`Lost`](Self::Lost)), check the server ([`Unavailable`](Self::Unavailable)), or repair the program
/// ([`Deadlock`](Self::Deadlock), [`InvalidKey`](Self::InvalidKey), [`InvalidConfig`](Self::InvalidConfig),
/// [`OtherMax`](Self::OtherMax), [`TooManyPermits`](Self::TooManyPermits), [`OtherCount`](Self::OtherCount),
/// [`NoDefaultManager`](Self::NoDefaultManager)).
///
/// No variant ever shows an ownership token or a password.
///
/// # Examples
///
/// ```
/// use lock_core::{LockError, LockManager};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let lock = locks.lock("report");
/// let _held = lock.acquire().await?;
/// match lock.acquire_within(Duration::from_millis(20)).await {
///     Err(LockError::TimedOut { key, .. }) => assert_eq!(key, "report"),
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another holder has the lock, and the caller did not want to wait.
    #[error("lock `{}` is held by {}: try again{}", Escaped(key), HeldBy(holder), RetryAfter(*retry_after))]
    Busy {
        /// The key as the caller wrote it.
        key: String,
        /// The rest of the holder's lease, unless it is renewed; `None` if the server did not send it.
        retry_after: Option<Duration>,
        /// The [name](crate::LockManagerBuilder::client_name) of the holder's client; `None` if it has none, or the server did not
        /// send it.
        holder: Option<Box<str>>,
    },
    /// The caller did not get the lock in time: others held it, or waited before the caller.
    #[error(
        "lock `{}` was not free within {:?} (held by {} at the server's last answer): wait longer, or hold it for a shorter time",
        Escaped(key),
        in_millis(*waited),
        HeldBy(holder)
    )]
    TimedOut {
        /// The key as the caller wrote it.
        key: String,
        /// How long the caller waited.
        waited: Duration,
        /// The [name](crate::LockManagerBuilder::client_name) of the holder's client at the server's last answer; `None` if it has
        /// none, or the server did not send it.
        holder: Option<Box<str>>,
    },
    /// The caller already runs under this lock: inside the function under `#[distributed_lock]` or the [`with`](crate::Lock::with)
    /// body that holds it. It would wait for itself, so it gets this error at once.
    #[error(
        "lock `{}` is already held by the calling code, which would wait for itself: use its guard (`LockGuard::current`), or a reentrant lock with the same owner",
        Escaped(key)
    )]
    Deadlock {
        /// The key as the caller wrote it.
        key: String,
    },
    /// Every segment of a segmented lock was reported as exhausted: there is nothing left to lock.
    #[error(
        "all segments of lock `{}` are exhausted: there is nothing left to lock",
        Escaped(key)
    )]
    Exhausted {
        /// The key as the caller wrote it.
        key: String,
    },
    /// The lock was held and no longer is: stop touching what it protects.
    #[error(
        "lock `{}` was lost ({reason}): stop touching what it protects",
        Escaped(key)
    )]
    Lost {
        /// The key as the caller wrote it.
        key: String,
        /// Why it was lost.
        reason: LossReason,
    },
    /// The server did not answer, or cannot serve locks now. The lock is not held.
    #[error("the lock server{} is not available ({cause}): {}", At(cause.server()), cause.remedy())]
    Unavailable {
        /// The error of the connection or the server. It is part of this error's text, so it is not its
        /// [`source`](std::error::Error::source) as well.
        cause: Cause,
    },
    /// The key cannot be used.
    #[error("lock key {key:?} cannot be used: {reason}")]
    InvalidKey {
        /// The key, cut after 64 characters.
        key: String,
        /// What is wrong with the key, and how to correct it.
        reason: &'static str,
    },
    /// A setting, a URL or the server's set-up makes locking impossible: a retry does not help.
    #[error("lock configuration: {reason}")]
    InvalidConfig {
        /// What is wrong and what to do.
        reason: String,
    },
    /// The key on the server belongs to something that is not a lock.
    #[error(
        "`{}` on the server is a {kind}{}: {}choose another key or prefix{}",
        Escaped(stored),
        and_not(kind),
        unless_a_lock(kind),
        or_delete(kind)
    )]
    NotALock {
        /// The key as the caller wrote it.
        key: String,
        /// The key on the server.
        stored: Box<str>,
        /// The type of the value there.
        kind: String,
    },
    /// The semaphore has another number of permits than the handle names.
    #[error(
        "semaphore `{}` has {in_use} permits on the server, and this program names {max}: name one number everywhere, or `resize` it",
        Escaped(key)
    )]
    OtherMax {
        /// The key as the caller wrote it.
        key: String,
        /// The number that the handle names.
        max: u32,
        /// The number that the semaphore has.
        in_use: u32,
    },
    /// The call needs more permits than the semaphore has.
    #[error(
        "{permits} permits of semaphore `{}` were asked for, which has {max}: ask for fewer, or `resize` it",
        Escaped(key)
    )]
    TooManyPermits {
        /// The key as the caller wrote it.
        key: String,
        /// The number that the call needs.
        permits: u32,
        /// The number that the semaphore has.
        max: u32,
    },
    /// The latch was made for another number of counts than the handle names.
    #[error(
        "latch `{}` was made for {made_for} counts, and this program names {count}: name one number everywhere, and a new key for each run",
        Escaped(key)
    )]
    OtherCount {
        /// The key as the caller wrote it.
        key: String,
        /// The number that the handle names.
        count: u32,
        /// The number that the latch was made for.
        made_for: u32,
    },
    /// The latch did not open in time: parts of the work have not counted.
    #[error(
        "{left} counts of latch `{}` were missing after {:?}: wait longer, or see what keeps those that have not counted",
        Escaped(key),
        in_millis(*waited)
    )]
    NotOpen {
        /// The key as the caller wrote it.
        key: String,
        /// The number of ids that were missing at the server's last answer.
        left: u32,
        /// How long the caller waited.
        waited: Duration,
    },
    /// A [guarded script](crate::LockGuard::guarded) failed, or its reply had an unexpected type. The lock is still held.
    #[error("the guarded script failed: {reason}")]
    Script {
        /// The error of the script, or of its reply.
        reason: String,
    },
    /// No default manager was installed.
    #[error(
        "no default lock manager: call `LockManager::install_default` at start-up, or name one with `client = ..`"
    )]
    NoDefaultManager,
    /// The manager was shut down.
    #[error("the lock manager was shut down: acquire before `shutdown`, or connect a new one")]
    ShutDown,
}

impl LockError {
    /// True for [`Busy`](Self::Busy) and [`TimedOut`](Self::TimedOut): another holder has the lock, and nothing is wrong.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let _held = lock.acquire().await?;
    /// let error = lock.acquire_within(std::time::Duration::ZERO).await.unwrap_err();
    /// assert!(error.is_contention());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_contention(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::TimedOut { .. })
    }

    pub(crate) fn config(reason: impl Into<String>) -> Self {
        Self::InvalidConfig {
            reason: reason.into(),
        }
    }

    pub(crate) fn unavailable(
        cause: impl Into<Box<dyn StdError + Send + Sync>>,
        server: Option<&Arc<str>>,
    ) -> Self {
        let cause = Cause::new(cause);
        let cause = server.map_or(cause.clone(), |server| cause.at(server));
        Self::Unavailable { cause }
    }
}

/// Why a lock that was held is lost.
///
/// # Examples
///
/// ```
/// use lock_core::{LockManager, LossReason};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let guard = locks.lock("job").max_hold(Duration::from_millis(30)).acquire().await?;
/// assert_eq!(guard.lost().await, LossReason::MaxHold);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ended without a confirmed renewal: the server was unreachable, this process was paused, or renewal was switched
    /// off.
    Expired,
    /// The server no longer has the lock, or another holder has it: it was deleted, or the server lost its data.
    Gone,
    /// [`Lock::force_release`](crate::Lock::force_release) was called.
    ForceReleased,
    /// The hold reached `max_hold`.
    MaxHold,
    /// The manager was shut down while the lock was held.
    ShutDown,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the lease ended before it was renewed",
            Self::Gone => "the server no longer has it",
            Self::ForceReleased => "it was force-released",
            Self::MaxHold => "it was held for `max_hold`",
            Self::ShutDown => "the manager was shut down",
        })
    }
}

/// The original error of an [`Unavailable`](LockError::Unavailable), and the server that it concerns.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # use lock_core::{LockError, LockManager};
/// match LockManager::connect("redis://127.0.0.1:1").await {
///     Err(LockError::Unavailable { cause }) => assert_eq!(cause.server(), Some("127.0.0.1:1")),
///     other => panic!("{other:?}"),
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Cause(Arc<Underneath>);

#[derive(Clone)]
struct Underneath {
    server: Option<Arc<str>>,
    /// What to do, if that does not follow from the text.
    advice: Option<&'static str>,
    shown: Box<str>,
    error: Arc<dyn StdError + Send + Sync>,
}

impl Cause {
    /// A cause, for tests of code that handles [`Unavailable`](LockError::Unavailable).
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::{Cause, LockError};
    ///
    /// let away = LockError::Unavailable { cause: Cause::new("connection refused") };
    /// assert!(away.to_string().contains("connection refused"));
    /// ```
    #[must_use]
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of(Arc::from(error.into()))
    }

    pub(crate) fn of(error: Arc<dyn StdError + Send + Sync>) -> Self {
        let shown = error.to_string();
        Self::shown_as(&shown, error)
    }

    /// An error with a clearer text than its own.
    pub(crate) fn shown_as(shown: &str, error: Arc<dyn StdError + Send + Sync>) -> Self {
        Self(Arc::new(Underneath {
            server: None,
            advice: None,
            // On one line: the error of a reply parser has several.
            shown: shown.trim_end().replace('\n', ", ").into(),
            error,
        }))
    }

    pub(crate) fn text(reason: String) -> Self {
        Self::new(reason)
    }

    /// The same cause, at this server.
    pub(crate) fn at(&self, server: &Arc<str>) -> Self {
        let server = Some(Arc::clone(server));
        Self(Arc::new(Underneath {
            server,
            ..(*self.0).clone()
        }))
    }

    /// The same cause with this advice, unless other advice is known.
    pub(crate) fn advised(self, advice: Option<&'static str>) -> Self {
        if advice.is_none() || self.known_advice().is_some() {
            return self;
        }
        Self(Arc::new(Underneath {
            advice,
            ..(*self.0).clone()
        }))
    }

    /// What to do, unless the server only has to be reached. The errors of Redis 6 and of a quorum have the code of the server's
    /// reply inside their text.
    pub(crate) fn known_advice(&self) -> Option<&'static str> {
        self.0.advice.or_else(|| {
            let text = format!(" {} ", self.0.shown.replace('-', " "));
            let known = |of: &str| text.contains(&format!(" {of} "));
            let remedy = REMEDIES.iter().find(|(of, _)| known(of));
            remedy.map(|(_, remedy)| *remedy)
        })
    }

    fn remedy(&self) -> &'static str {
        let reach = "check that it runs and can be reached";
        self.known_advice().unwrap_or(reach)
    }

    /// Host and port of the server, or the path of its socket. `None` if it is not known
    /// ([`from_connection`](crate::LockManager::from_connection)), and for a quorum, whose nodes are named in the text.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.error, f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.shown)
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0.error)
    }
}

/// What to do about a replica.
pub(crate) const A_REPLICA: &str = "connect to its master, or through its sentinels (`redis+sentinel://`), or wait if it is being promoted";

/// An error with what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{said}")]
pub(crate) struct Advised {
    pub(crate) said: String,
    pub(crate) advice: &'static str,
}

/// What to do about a server that runs and refuses, by the code of its reply.
const REMEDIES: [(&str, &str); 11] = [
    ("OOM", "give the server more memory"),
    (
        "BUSY",
        "a script of another client occupies it, and `SCRIPT KILL` ends the script",
    ),
    (
        "MISCONF",
        "it cannot save to disk and refuses writes, so free its disk or see its log",
    ),
    (
        "NOREPLICAS",
        "too few replicas are connected, so connect them or lower `min-replicas-to-write`",
    ),
    ("READONLY", A_REPLICA),
    ("MASTERDOWN", A_REPLICA),
    (
        "LOADING",
        "it loads its data, and answers when it has loaded all",
    ),
    (
        "UNKILLABLE",
        "a script of another client occupies it and has written, so only `SHUTDOWN NOSAVE` ends the script",
    ),
    (
        "CLUSTERDOWN",
        "a part of the slots has no master, and `redis-cli --cluster check` shows which",
    ),
    (
        "TRYAGAIN",
        "the slot is half moved, and `redis-cli --cluster fix` ends that",
    ),
    (
        "max number of clients",
        "raise its `maxclients`, or end connections that are not used",
    ),
];

/// Says what a value of this type is not.
fn and_not(kind: &str) -> &'static str {
    match kind {
        "semaphore" => ", another kind of lock",
        "read-write" => " lock, another kind of lock",
        _ => ", not a lock",
    }
}

/// The advice to delete the value, unless it is another kind of lock, which others may use.
fn or_delete(kind: &str) -> &'static str {
    match kind {
        "semaphore" | "read-write" => "",
        _ => ", or delete it there",
    }
}

/// What to do if the value is a lock after all, by its type.
fn unless_a_lock(kind: &str) -> &'static str {
    match kind {
        "hash" => {
            "if it is a lock of Redisson, use `reentrant_lock`, if it is a semaphore or a read-write lock, `semaphore` or `rw_lock`, otherwise "
        }
        "semaphore" => "use `semaphore`, or ",
        "read-write" => "use `rw_lock`, or ",
        "string" => "if it is an exclusive lock, use `lock`, otherwise ",
        "string without a ttl" => {
            "if `PERSIST` has removed the ttl of a lock, set one with `PEXPIRE`, otherwise "
        }
        _ => "",
    }
}

/// A text of the user or the server on one line, so that it cannot pass for a line of the log.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            if letter.is_control() {
                write!(f, "{}", letter.escape_default())?;
            } else {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// " at host:port", or nothing if the server is not known.
struct At<'a>(Option<&'a str>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(server) => write!(f, " at {server}"),
            None => Ok(()),
        }
    }
}

/// The name of a client in backticks, or "another".
struct HeldBy<'a>(&'a Option<Box<str>>);

impl fmt::Display for HeldBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "`{}`", Escaped(name)),
            None => f.write_str("another"),
        }
    }
}

/// " later; its lease ends in 1.5s unless renewed", or " later" if the server did not send the lease.
struct RetryAfter(Option<Duration>);

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(after) => {
                let after = in_millis(after);
                write!(f, " later; its lease ends in {after:?} unless renewed")
            }
            None => f.write_str(" later"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_a_server_has_its_own_advice() {
        for (said, advice) in [
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                "more memory",
            ),
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                "`SCRIPT KILL`",
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots, but",
                "save to disk",
            ),
            (
                "NOREPLICAS Not enough good replicas to write.",
                "`min-replicas-to-write`",
            ),
            (
                "ERR Error running script (call to f_ab): @user_script:1: -OOM command not allowed",
                "more memory",
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                "when it has loaded",
            ),
            (
                "READONLY You can't write against a read only replica.",
                "connect to its master",
            ),
            ("ERR max number of clients reached", "`maxclients`"),
            ("no reply within 1s", "reached"),
        ] {
            let error = LockError::unavailable(said, None).to_string();
            let (_, shown) = error.rsplit_once("): ").unwrap();
            assert!(shown.contains(advice), "{error}");
        }
    }

    #[test]
    fn texts_have_times_in_whole_milliseconds() {
        let busy = LockError::Busy {
            key: "a".to_owned(),
            retry_after: Some(Duration::from_micros(1_500_400)),
            holder: None,
        };
        assert!(busy.to_string().contains("ends in 1.5s unless"), "{busy}");
        let late = LockError::TimedOut {
            key: "a".to_owned(),
            waited: Duration::from_nanos(2_001_595_186),
            holder: None,
        };
        assert!(late.to_string().contains("within 2.001s ("), "{late}");
        assert_eq!(in_millis(Duration::from_nanos(7)), Duration::from_millis(1));
        assert_eq!(in_millis(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn no_text_of_an_error_lets_a_key_begin_a_line() {
        let key = || "a\n2026 ERROR forged\r\u{1b}[2K".to_owned();
        let holder = || Some("b\nforged".into());
        for error in [
            LockError::Busy {
                key: key(),
                retry_after: None,
                holder: holder(),
            },
            LockError::TimedOut {
                key: key(),
                waited: Duration::ZERO,
                holder: holder(),
            },
            LockError::Deadlock { key: key() },
            LockError::Exhausted { key: key() },
            LockError::Lost {
                key: key(),
                reason: LossReason::Gone,
            },
            LockError::InvalidKey {
                key: key(),
                reason: "it is too long",
            },
            LockError::NotALock {
                key: key(),
                stored: key().into(),
                kind: "list".to_owned(),
            },
        ] {
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
            assert!(shown.contains("a\\n2026 ERROR forged"), "{shown}");
        }
    }
}
