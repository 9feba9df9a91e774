//! The handle to a latch.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::config::check_kept;
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::latch::LATCH;
use crate::base::refusal::Refusal;
use crate::base::share::Share;
use crate::engine::{Announcements, Engine};
use crate::face::handle::LockHandle;

/// The longest id, in bytes.
const MAX_ID: usize = 1024;

/// The largest number of counts.
const MAX_COUNT: u32 = 1 << 20;

/// How long a latch is kept after a count, unless [`Latch::keep`] says otherwise.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Interval of the reads of a waiter that gets no announcement: it may be lost.
const LOOK: Duration = Duration::from_secs(10);

/// Maximum time after its limit that a waiter spends on its last read.
const LAST: Duration = Duration::from_millis(100);

/// A gate that opens when a number of different ids have been counted, across all processes that use the same server.
///
/// Use it to wait until several parts of a work are done, wherever each part runs: each part counts down with its own id, and the
/// caller that needs all parts waits. A part that counts again, after a crash or a retry, counts once.
///
/// A latch opens once. Give each run its own key (`"import:2026-11-26"`): there is no reset. It is [kept](Self::keep) for a day
/// after its last count, open or not, and then forgotten with all its counts.
///
/// # Limits
///
/// Not over a quorum. A process that crashes before it has counted is not noticed: give [`wait_within`](Self::wait_within) a limit.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = lock_core::LockManager::connect("memory://").await?;
/// let imported = locks.latch("import:2026-11-26", 2);
/// imported.count_down("orders").await?;
/// imported.count_down("orders").await?;
/// assert_eq!(imported.left().await?, 1);
/// imported.count_down("stock").await?;
/// imported.wait().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing: call `count_down` or `wait`"]
pub struct Latch {
    handle: LockHandle,
    count: u32,
    keep: Duration,
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch")
            .field("key", &self.key())
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Latch {
    pub(crate) fn new(engine: Arc<Engine>, key: &str, count: u32) -> Self {
        let checked = LockKey::new(engine.shared.config.prefix(), key);
        Self {
            handle: LockHandle::new(engine, key, checked),
            count,
            keep: KEPT,
        }
    }

    /// The key as it was given, without the prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        self.handle.name()
    }

    /// The number of different ids that open the latch.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How long the latch is kept after each count, also a repeated one. Choose a time longer than any pause between two counts, and
    /// longer than a waiter may come after the last count. If processes choose different times, the longest counts. From 10 ms to
    /// 24 days. Default: a day.
    pub fn keep(mut self, time: Duration) -> Self {
        self.keep = time;
        self
    }

    /// Counts this id, once, however often it is called. Returns the number of ids that are missing: 0 if the latch is open. An id is
    /// at most 1024 bytes.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable) if the server does not answer: the id may have been counted; a retry with the same id
    /// is safe. [`OtherCount`](LockError::OtherCount) if the latch was made for another number of ids. [`NotALock`](LockError::NotALock),
    /// [`InvalidKey`](LockError::InvalidKey), [`InvalidConfig`](LockError::InvalidConfig).
    ///
    /// # Cancel safety
    ///
    /// A dropped future may or may not have counted.
    pub async fn count_down(&self, id: impl AsRef<str>) -> Result<u32, LockError> {
        let id = id.as_ref();
        if id.is_empty() || id.len() > MAX_ID {
            return Err(LockError::config(
                "an id of a latch is 1 to 1024 bytes long: name the part of the work",
            ));
        }
        self.ask(Some(id)).await
    }

    /// The number of ids that are missing: 0 if the latch is open.
    ///
    /// # Errors
    ///
    /// As [`count_down`](Self::count_down).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it changes nothing.
    pub async fn left(&self) -> Result<u32, LockError> {
        self.ask(None).await
    }

    async fn ask(&self, id: Option<&str>) -> Result<u32, LockError> {
        let key = self.checked()?;
        let engine = &self.handle.engine;
        let asking = engine.count_down(key, self.count, self.keep, id);
        self.missing(asking.await?)
    }

    /// Waits until the latch is open. Returns at once if it is.
    ///
    /// The wait has no limit, and [`default_wait`](crate::LockManagerBuilder::default_wait) does not set one.
    ///
    /// # Errors
    ///
    /// As [`count_down`](Self::count_down); [`Unavailable`](LockError::Unavailable) if the server has not answered for one
    /// [`default_ttl`](crate::LockManagerBuilder::default_ttl) of the manager; [`ShutDown`](LockError::ShutDown).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it changes nothing.
    pub async fn wait(&self) -> Result<(), LockError> {
        let (mut announcements, mut seen) = (self.announcements()?, None);
        self.opened(&mut announcements, &mut seen).await
    }

    /// As [`wait`](Self::wait), at most this long. Zero asks once.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), and [`NotOpen`](LockError::NotOpen) if the latch was not open in time, or
    /// [`Unavailable`](LockError::Unavailable) if the server did not answer in time.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let latch = lock_core::LockManager::connect("memory://").await?.latch("import", 2);
    /// let late = latch.wait_within(Duration::from_millis(20)).await.unwrap_err();
    /// assert!(matches!(late, lock_core::LockError::NotOpen { left: 2, .. }));
    /// # Ok(()) }
    /// ```
    pub async fn wait_within(&self, limit: Duration) -> Result<(), LockError> {
        let not_open = |left| LockError::NotOpen {
            key: self.key().to_owned(),
            left,
            waited: limit,
        };
        if limit.is_zero() {
            return match self.left().await? {
                0 => Ok(()),
                left => Err(not_open(left)),
            };
        }
        let (mut announcements, mut seen) = (self.announcements()?, None);
        let timers = &self.handle.engine.shared.timers;
        let waiting = timers.timeout(limit, self.opened(&mut announcements, &mut seen));
        if let Ok(opened) = waiting.await {
            return opened;
        }
        if seen.is_some() {
            // The announcement may have been lost.
            let last = announcements.latch(Duration::ZERO, self.count, self.keep);
            if let Ok(answer) = timers.timeout(LAST, last).await {
                seen = Some(self.missing(answer?)?);
            }
        }
        if seen == Some(0) {
            return Ok(());
        }
        let no_answer = announcements.no_answer(seen.is_some());
        Err(no_answer.unwrap_or_else(|| not_open(seen.unwrap_or(self.count))))
    }

    fn announcements(&self) -> Result<Announcements, LockError> {
        let key = self.checked()?;
        let shared = &self.handle.engine.shared;
        Ok(Announcements::new(shared, key, LATCH))
    }

    /// Waits until the latch is open, and notes how many ids were missing at the last answer.
    async fn opened(
        &self,
        announcements: &mut Announcements,
        seen: &mut Option<u32>,
    ) -> Result<(), LockError> {
        let patience = self.handle.engine.shared.config.default_ttl;
        loop {
            let answer = announcements.latch(patience, self.count, self.keep).await?;
            match self.missing(answer)? {
                0 => return Ok(()),
                left => *seen = Some(left),
            }
            announcements.news(LOOK, Duration::ZERO).await;
        }
    }

    fn checked(&self) -> Result<&Arc<LockKey>, LockError> {
        if self.count == 0 || self.count > MAX_COUNT {
            return Err(LockError::config(
                "a latch counts 1 to 2^20 ids: choose another number",
            ));
        }
        check_kept("a latch that is kept for", self.keep)?;
        self.handle.key()
    }

    fn missing(&self, seen: Result<u32, Refusal>) -> Result<u32, LockError> {
        let key = self.handle.key()?;
        seen.map_err(|refusal| match refusal {
            // Its name on the server is another one than that of a lock.
            Refusal::Foreign(kind) => LockError::NotALock {
                key: self.key().to_owned(),
                stored: key.name_of(LATCH).into(),
                kind,
            },
            other => {
                let (weight, max) = (1, self.count);
                other.into_error(key, Share { weight, max })
            }
        })
    }
}

#[cfg(feature = "blocking")]
crate::face::blocking_face::blocking_face! {
    Latch:
    sets { keep(time: Duration) }
    calls {
        fn count_down(id: &str) -> u32;
        fn left() -> u32;
        fn wait() -> ();
        fn wait_within(limit: Duration) -> ();
    }
}
