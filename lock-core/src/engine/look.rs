//! What is asked for beside acquisitions: the state of a lock, its forced release, and all locks of the prefix; a latch.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Engine;
use crate::base::claim::{Claim, PLAIN};
use crate::base::error::LockError;
use crate::base::finding::{Finding, Severity};
use crate::base::key::LockKey;
use crate::base::refusal::Refusal;
use crate::base::snapshot::{Snapshot, SnapshotState};
use crate::store::{Cursor, OrRefused, StoreError};

impl Engine {
    /// Host and port of the server of a lock, if known.
    pub(crate) fn server_of(&self, key: &LockKey) -> Option<Arc<str>> {
        self.shared.store.server_of(key)
    }

    /// Whether one request can take both locks.
    pub(crate) fn takes_together(&self, one: &LockKey, other: &LockKey) -> bool {
        self.shared.store.takes_together(one, other)
    }

    /// The state of a lock, with the waiters of this process.
    pub(crate) async fn inspect(&self, key: &LockKey) -> Result<Snapshot, LockError> {
        let snapshot = self.shared.store.inspect(key).await;
        let mut snapshot = snapshot.map_err(|error| self.blame(error))?;
        snapshot.waiting += self.shared.waiting_behind(key);
        Ok(snapshot)
    }

    /// The parts of the store, as ends of a key: one for each master of a cluster.
    pub(crate) async fn parts(&self) -> Result<Vec<&'static str>, LockError> {
        self.shared.check_open()?;
        let parts = self.shared.store.parts().await;
        parts.map_err(|error| self.blame(error))
    }

    /// Takes the lock from its holder. Returns whether there was one.
    pub(crate) async fn force_release(&self, key: &LockKey) -> Result<bool, LockError> {
        self.shared.check_open()?;
        let forced = self.shared.store.force_release(key).await;
        self.told(forced, key, &PLAIN)
    }

    /// Counts an id of a latch, and reads what is left. Without an id it only reads.
    pub(crate) async fn count_down(
        &self,
        key: &LockKey,
        count: u32,
        ttl: Duration,
        id: Option<&str>,
    ) -> Result<Result<u32, Refusal>, LockError> {
        id.map_or(Ok(()), |_| self.shared.check_open())?;
        let counted = self.shared.store.count_down(key, count, ttl, id).await;
        counted.map_err(|error| self.blame(error))
    }

    /// Examines the servers, and looks for names of locks with something else.
    pub(crate) async fn examine(self: &Arc<Self>) -> Vec<Finding> {
        let mut findings = self.shared.store.examine().await;
        // With the empty prefix any string is such a name.
        if self.shared.config.prefix.is_empty() {
            return findings;
        }
        let mut walk = Walk::new(Arc::clone(self));
        loop {
            match walk.next_page().await {
                Ok(Some(page)) => {
                    findings.extend(page.iter().filter_map(|(key, look)| leftover(key, look)));
                }
                Ok(None) => return findings,
                Err(error) => {
                    let what = format!("not all names were looked at: {error}");
                    findings.push(Finding::of(
                        "",
                        Severity::Advice,
                        what,
                        "permit `+scan` to the user, if that is missing",
                    ));
                    return findings;
                }
            }
        }
    }

    /// What a store has answered to a call with this claim.
    pub(super) fn told<T>(
        &self,
        answer: OrRefused<T>,
        key: &LockKey,
        asked: &Claim,
    ) -> Result<T, LockError> {
        let answer = answer.map_err(|error| self.blame(error))?;
        answer.map_err(|refusal| asked.refused(key, refusal))
    }

    /// After the end of the runtime its connection is broken, which is not an error of the server.
    fn blame(&self, error: StoreError) -> LockError {
        match self.shared.check_alive() {
            Ok(()) => error.into_lock_error(),
            Err(ended) => ended,
        }
    }
}

/// A name of a lock with something that never ends.
fn leftover(key: &LockKey, look: &Snapshot) -> Option<Finding> {
    let kind = look.state.is_stranger()?;
    let what = format!("`{}` is a {kind}, not a lock", key.lock().escape_debug());
    let advice = "nothing can lock this name. A holder that lives gives its lock a ttl again within a third of that: wait, and delete it if it stays and no program needs it";
    Some(Finding::of("", Severity::Problem, what, advice))
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

    /// The locks of the next page, each of them once: held ones, and names with something else. `None` after the last page. After an error, the next call reads the
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
        let mut found = Vec::new();
        for (key, look) in new.into_iter().zip(looks) {
            match look {
                // It may have been released meanwhile.
                Ok(look) if look.state == SnapshotState::Free => {}
                Ok(look) => found.push((key, look)),
                // The user may have rights to some keys only.
                Err(StoreError::Misconfigured(_)) => {}
                Err(error) => return Err(error.into_lock_error()),
            }
        }
        self.seen.extend(keys);
        self.next = page.next;
        Ok(Some(found))
    }
}
