//! Tokens that let a resource refuse an earlier holder.

use std::fmt;

/// A number that grows with every grant of a lock: across release, expiry, hand-over and restart.
///
/// Pass it to the resource that the lock protects, and let the resource refuse any number smaller than the largest it has seen:
/// `UPDATE .. WHERE fence <= $1`. It is the only defence against a process that was paused past its lease and then continues to
/// write; see Martin Kleppmann, "How to do distributed locking".
///
/// The number is below 2^53, so it fits an SQL `BIGINT` and a JSON number.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let lock = lock_core::LockManager::connect("memory://").await?.lock("stock");
/// let first = lock.acquire().await?;
/// let token = first.fencing_token();
/// first.release().await?;
/// assert!(lock.acquire().await?.fencing_token() > token);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    pub(crate) fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number itself.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let guard = lock.acquire().await?;
    /// // As a database driver takes it.
    /// let fence = i64::try_from(guard.fencing_token().get()).expect("below 2^53");
    /// assert!(fence > 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}
