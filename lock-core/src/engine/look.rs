//! What operators ask for: the state of a lock, its forced release, and all locks of the prefix.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::Engine;
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::snapshot::{Snapshot, SnapshotState};
use crate::store::{Cursor, Forced, Store, StoreError};

impl Engine {
    /// Host and port of the server of a lock, if known.
    pub(crate) fn server_of(&self, key: &LockKey) -> Option<Arc<str>> {
        self.shared.store.server_of(key)
    }

    /// The state of a lock, with the waiters of this process.
    pub(crate) async fn inspect(&self, key: &LockKey) -> Result<Snapshot, LockError> {
        let snapshot = self.shared.store.inspect(key).await;
        let mut snapshot = snapshot.map_err(|error| self.blame(error))?;
        snapshot.waiting += self.shared.waiting_behind(key);
        Ok(snapshot)
    }

    /// Takes the lock from its holder. Returns whether there was one.
    pub(crate) async fn force_release(&self, key: &LockKey) -> Result<bool, LockError> {
        match self.shared.store.force_release(key).await {
            Ok(Forced::TakenAway) => Ok(true),
            Ok(Forced::NotHeld) => Ok(false),
            Ok(Forced::Foreign { kind }) => Err(LockError::NotALock {
                key: key.name().to_owned(),
                kind,
            }),
            Err(error) => Err(self.blame(error)),
        }
    }

    /// After the end of the runtime its connection is broken, which is not an error of the server.
    fn blame(&self, error: StoreError) -> LockError {
        match self.shared.check_alive() {
            Ok(()) => error.into_lock_error(),
            Err(ended) => ended,
        }
    }
}

/// A walk through the locks of the prefix.
pub(crate) struct Walk {
    pub(crate) engine: Arc<Engine>,
    next: Option<Cursor>,
    seen: HashSet<Arc<LockKey>>,
}

impl Walk {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            next: Some(Cursor::default()),
            seen: HashSet::new(),
        }
    }

    /// The held locks of the next page, each of them once. `None` after the last page. After an error, the next call reads the
    /// same page again.
    pub(crate) async fn next_page(
        &mut self,
    ) -> Result<Option<Vec<(Arc<LockKey>, Snapshot)>>, LockError> {
        let Some(cursor) = self.next else {
            return Ok(None);
        };
        let shared = &self.engine.shared;
        let page = shared.store.scan(shared.config.prefix(), cursor).await;
        let page = page.map_err(StoreError::into_lock_error)?;
        let keys: HashSet<_> = page.keys.into_iter().map(Arc::new).collect();
        let new: Vec<_> = keys.difference(&self.seen).cloned().collect();
        let looks = join_all(new.iter().map(|key| shared.store.inspect(key))).await;
        let mut held = Vec::new();
        for (key, look) in new.into_iter().zip(looks) {
            match look {
                // It may have been released meanwhile.
                Ok(look) if !matches!(look.state, SnapshotState::Held { .. }) => {}
                Ok(look) => held.push((key, look)),
                // The user may have rights to some keys only.
                Err(StoreError::Misconfigured(_)) => {}
                Err(error) => return Err(error.into_lock_error()),
            }
        }
        self.seen.extend(keys);
        self.next = page.next;
        Ok(Some(held))
    }
}
