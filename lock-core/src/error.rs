//! What can go wrong, sorted by what the caller can do about it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The error of every operation in this crate.
///
/// Each variant asks for a different reaction: wait or give up ([`Busy`](Self::Busy),
/// [`TimedOut`](Self::TimedOut)), stop asking ([`Exhausted`](Self::Exhausted)), stop working on the protected resource ([`Lost`](Self::Lost)), look at the
/// server ([`Unavailable`](Self::Unavailable)), or repair the program ([`Deadlock`](Self::Deadlock),
/// [`InvalidKey`](Self::InvalidKey), [`InvalidConfig`](Self::InvalidConfig), [`NoDefaultManager`](Self::NoDefaultManager)).
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
    /// Another holder has the lock, and the caller asked not to wait.
    #[error("lock `{key}` is held by {}: try again{}", Holder(holder), RetryAfter(*retry_after))]
    Busy {
        /// The key as the caller wrote it.
        key: String,
        /// What is left of the holder's lease, if it does not renew; `None` where the server did not say.
        retry_after: Option<Duration>,
        /// The [name](crate::LockManagerBuilder::client_name) of the holder's client; `None` where it has none, or the server did
        /// not say.
        holder: Option<Box<str>>,
    },
    /// The lock did not become free within the time given.
    #[error(
        "lock `{key}` was not free within {waited:?} (held by {} when last asked): wait longer, or hold it for a shorter time",
        Holder(holder)
    )]
    TimedOut {
        /// The key as the caller wrote it.
        key: String,
        /// How long the caller waited.
        waited: Duration,
        /// The [name](crate::LockManagerBuilder::client_name) of the holder's client when the server was last asked; `None` where it
        /// has none, or the server did not say.
        holder: Option<Box<str>>,
    },
    /// The code that asks for the lock runs under that very lock: inside the function under `#[distributed_lock]` or the
    /// [`with`](crate::Lock::with) body that holds it. It could only wait for itself, so it is told at once.
    #[error(
        "lock `{key}` is held by the code that asks for it, which would wait for itself: use the guard that it has (`LockGuard::current`), or a reentrant lock with the same owner"
    )]
    Deadlock {
        /// The key as the caller wrote it.
        key: String,
    },
    /// Every segment of a segmented lock was reported as exhausted: there is nothing left to lock.
    #[error("all segments of lock `{key}` are exhausted: there is nothing left to lock")]
    Exhausted {
        /// The key as the caller wrote it.
        key: String,
    },
    /// The lock was held and is no longer: stop touching what it protects.
    #[error("lock `{key}` was lost ({reason}): stop touching what it protects")]
    Lost {
        /// The key as the caller wrote it.
        key: String,
        /// Why it was lost.
        reason: LossReason,
    },
    /// The server did not answer, or cannot serve locks now. The lock is not held.
    #[error("the lock server{} is not available ({cause}): check that it runs and can be reached", At(cause.server()))]
    Unavailable {
        /// What the connection or the server said. It is a part of this error's text, so it is not its
        /// [`source`](std::error::Error::source) as well.
        cause: Cause,
    },
    /// The key cannot be used.
    #[error("lock key {key:?} cannot be used: {reason}")]
    InvalidKey {
        /// The key, cut after 64 characters.
        key: String,
        /// What is wrong with it and what would do.
        reason: &'static str,
    },
    /// A setting, a URL or the server's set-up makes locking impossible: trying again will not help.
    #[error("lock configuration: {reason}")]
    InvalidConfig {
        /// What is wrong and what to do.
        reason: String,
    },
    /// The name is taken on the server by something that is not a lock.
    #[error(
        "`{key}` on the server is a {kind}, not a lock: choose another key or prefix, or delete it there"
    )]
    NotALock {
        /// The key as the caller wrote it.
        key: String,
        /// What is there.
        kind: String,
    },
    /// A [guarded script](crate::LockGuard::guarded) failed, or replied something else than was expected. The lock is still held.
    #[error("the guarded script failed: {reason}")]
    Script {
        /// What the server said.
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
        let cause = Cause::new(Arc::from(cause.into()));
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
    /// The lease ended without a confirmed renewal: the server was out of reach, this process was paused,
    /// or renewal was switched off.
    Expired,
    /// The server has the lock no more, or another holder has it: it was deleted, or the server lost its data.
    Gone,
    /// Somebody called [`Lock::force_release`](crate::Lock::force_release).
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

/// The error underneath an [`Unavailable`](LockError::Unavailable), kept whole, and the server that it speaks of.
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

struct Underneath {
    server: Option<Arc<str>>,
    shown: Box<str>,
    error: Arc<dyn StdError + Send + Sync>,
}

impl Cause {
    pub(crate) fn new(error: Arc<dyn StdError + Send + Sync>) -> Self {
        let shown = error.to_string();
        Self::shown_as(&shown, error)
    }

    /// An error with a better text than its own.
    pub(crate) fn shown_as(shown: &str, error: Arc<dyn StdError + Send + Sync>) -> Self {
        Self(Arc::new(Underneath {
            server: None,
            // On one line: a parser of replies explains itself on several.
            shown: shown.trim_end().replace('\n', ", ").into(),
            error,
        }))
    }

    pub(crate) fn text(reason: String) -> Self {
        Self::new(Arc::from(Box::<dyn StdError + Send + Sync>::from(reason)))
    }

    /// The same, of this server.
    pub(crate) fn at(&self, server: &Arc<str>) -> Self {
        Self(Arc::new(Underneath {
            server: Some(Arc::clone(server)),
            shown: self.0.shown.clone(),
            error: Arc::clone(&self.0.error),
        }))
    }

    /// Host and port of the server, or the path of its socket. `None` where it is not known
    /// ([`from_connection`](crate::LockManager::from_connection)), and for a quorum, whose nodes are in the text.
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

/// " at host:port", or nothing where the server is not known.
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
struct Holder<'a>(&'a Option<Box<str>>);

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "`{name}`"),
            None => f.write_str("another"),
        }
    }
}

/// " in 1.5s", or " later" where the server did not say when.
struct RetryAfter(Option<Duration>);

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(after) => write!(f, " in {after:?} at the latest if it does not renew"),
            None => f.write_str(" later"),
        }
    }
}
