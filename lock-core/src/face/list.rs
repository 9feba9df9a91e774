//! All locks of a manager, page by page.

use std::fmt;
use std::sync::Arc;

use crate::base::error::LockError;
use crate::engine::{Engine, Walk};
use crate::face::inspect::LockInfo;

/// An iteration over the held locks. Made by [`LockManager::list`](crate::LockManager::list).
#[must_use = "a list does nothing before `next_page`"]
pub struct LockList(Walk);

impl fmt::Debug for LockList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockList").finish_non_exhaustive()
    }
}

/// A lock that was held when [`LockList`] read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedLock {
    key: String,
    kind: &'static str,
    info: LockInfo,
}

impl ListedLock {
    /// The key, without the manager's prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The name of the kind, as `lockctl ls` shows it: `exclusive`, `reentrant`, `semaphore` or `read-write`. An election is an
    /// `exclusive` lock, as on the server.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.kind
    }

    /// The state of the lock at that moment.
    #[must_use]
    pub fn info(&self) -> &LockInfo {
        &self.info
    }
}

impl LockList {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self(Walk::new(engine))
    }

    /// The next locks, in no order; a page may be empty. `None` after the last page.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable) if the server does not answer: the next call reads the same page again.
    /// [`InvalidConfig`](LockError::InvalidConfig) if the server's user has no right to `scan`. A lock that the user may not read is
    /// left out.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the next call reads the same page again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<ListedLock>>, LockError> {
        let page = self.0.next_page().await?;
        let listed = page.map(|page| {
            let listed = page.into_iter().map(|(key, snapshot)| ListedLock {
                key: key.name().to_owned(),
                kind: key.traits().name,
                info: LockInfo::new(snapshot),
            });
            listed.filter(|lock| lock.info.is_held()).collect()
        });
        Ok(listed)
    }
}
