//! All locks of a manager's prefix, page by page.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;

use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::engine::Engine;
use crate::face::inspect::LockInfo;
use crate::store::{Cursor, Store, StoreError};

/// An iteration over the held locks. Made by [`LockManager::list`](crate::LockManager::list).
#[must_use = "a list does nothing before `next_page`"]
pub struct LockList {
    engine: Arc<Engine>,
    next: Option<Cursor>,
    seen: HashSet<String>,
}

impl fmt::Debug for LockList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockList").finish_non_exhaustive()
    }
}

/// A lock that was held when [`LockList`] read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedLock {
    key: String,
    info: LockInfo,
}

impl ListedLock {
    /// Its key, without the prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The state of the lock at that moment.
    #[must_use]
    pub fn info(&self) -> &LockInfo {
        &self.info
    }
}

impl LockList {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            next: Some(Cursor::default()),
            seen: HashSet::new(),
        }
    }

    /// The next locks, in no order; a page may be empty. `None` after the last page.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable) if the server does not answer: the next call reads the same page again.
    /// [`InvalidConfig`](LockError::InvalidConfig) if the server's user has no right to `scan`. A lock to which it has no right is
    /// left out.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the next call reads the same page again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<ListedLock>>, LockError> {
        let Some(cursor) = self.next else {
            return Ok(None);
        };
        let shared = &self.engine.shared;
        let prefix = &shared.config.prefix;
        let page = shared.store.scan(prefix, cursor).await;
        let page = page.map_err(StoreError::into_lock_error)?;
        // A name that cannot be a key is no lock.
        let key = |name: &String| LockKey::new(prefix, name.strip_prefix(&**prefix)?).ok();
        let new = page.keys.iter().filter(|name| !self.seen.contains(*name));
        let keys: Vec<LockKey> = new.filter_map(key).collect();
        let looks = keys.iter().map(|key| shared.store.inspect(key));
        let mut held = Vec::new();
        for (key, look) in keys.iter().zip(join_all(looks).await) {
            let look = match look {
                Ok(look) => look,
                // The user may have rights to some keys only.
                Err(StoreError::Misconfigured(_)) => continue,
                Err(error) => return Err(error.into_lock_error()),
            };
            let info = LockInfo::new(look, 0);
            let key = key.name().to_owned();
            // It may have been released meanwhile.
            if info.is_held() {
                held.push(ListedLock { key, info });
            }
        }
        self.seen.extend(page.keys);
        self.next = page.next;
        Ok(Some(held))
    }
}
