//! Acquires the lock, or the locks, of one call.

use std::panic::Location;
use std::time::Duration;

use tokio::time::Instant;

use super::{Boxed, Guards, Options};
use crate::base::error::LockError;
use crate::base::owner::Owner;
use crate::face::guard::LockGuard;
use crate::face::lock::Lock;
use crate::face::manager::LockManager;
use crate::face::reentrant::ReentrantLock;

/// Acquires the lock: the reentrant one for an owner, otherwise the exclusive one.
#[track_caller]
pub fn enter<'a>(
    client: Option<&LockManager>,
    options: &'a Options,
    owner: Option<Owner>,
    key: impl AsRef<str>,
) -> Boxed<'a, Result<Guards, LockError>> {
    let lock = match client {
        Some(manager) => Ok(Either::new(manager, options, owner, key.as_ref())),
        None => crate::default_manager()
            .map(|manager| Either::new(&manager, options, owner, key.as_ref())),
    };
    let at = Location::caller();
    Box::pin(async move {
        let guard = lock?.take(options.wait, at).await?;
        Ok(Guards::from([guard]))
    })
}

/// Acquires several locks: all or none. Every caller acquires them in the order of their names, so no two callers can wait for each
/// other; a key that is named twice is acquired once.
#[must_use]
#[track_caller]
pub fn enter_all<'a>(
    client: Option<&LockManager>,
    options: &'a Options,
    owner: Option<Owner>,
    keys: Vec<String>,
) -> Boxed<'a, Result<Guards, LockError>> {
    let manager = match client {
        Some(manager) => Ok(manager.clone()),
        None => crate::default_manager(),
    };
    let at = Location::caller();
    Box::pin(async move { take_all(&manager?, options, owner, keys, at).await })
}

async fn take_all(
    manager: &LockManager,
    options: &Options,
    owner: Option<Owner>,
    keys: Vec<String>,
    at: &'static Location<'static>,
) -> Result<Guards, LockError> {
    if keys.is_empty() {
        return Err(LockError::InvalidKey {
            key: String::new(),
            reason: "no key was given: name at least one",
        });
    }
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|&at| (&keys[at], at));
    order.dedup_by_key(|at| &keys[*at]);
    let started = Instant::now();
    let mut taken: Vec<(usize, LockGuard)> = Vec::with_capacity(order.len());
    for n in order {
        // At least a millisecond: zero would mean one try, with the error `Busy` instead of `TimedOut`.
        let wait = options.wait.map(|limit| match limit {
            Duration::ZERO => limit,
            limit => limit
                .saturating_sub(started.elapsed())
                .max(Duration::from_millis(1)),
        });
        match Either::new(manager, options, owner.clone(), &keys[n])
            .take(wait, at)
            .await
        {
            Ok(guard) => taken.push((n, guard)),
            Err(error) => {
                let releases = taken.iter().map(|(_, guard)| guard.release_quietly());
                futures_util::future::join_all(releases).await;
                return Err(error);
            }
        }
    }
    taken.sort_by_key(|(at, _)| *at);
    let guards: Guards = taken.into_iter().map(|(_, guard)| guard).collect();
    // The first lock may have been lost during the wait for the last one.
    if let Some(lost) = guards.iter().find(|guard| !guard.is_held()) {
        let error = lost.lost_error().await;
        futures_util::future::join_all(guards.iter().map(LockGuard::release_quietly)).await;
        return Err(error);
    }
    Ok(guards)
}

/// A lock of one kind or the other, with the options of the attribute.
enum Either {
    Exclusive(Lock),
    Reentrant(ReentrantLock),
}

impl Either {
    fn new(manager: &LockManager, options: &Options, owner: Option<Owner>, key: &str) -> Self {
        match owner {
            None => Self::Exclusive(options.exclusive(manager, key)),
            Some(owner) => Self::Reentrant(options.reentrant(manager, &owner, key)),
        }
    }

    async fn take(
        &self,
        wait: Option<Duration>,
        at: &'static Location<'static>,
    ) -> Result<LockGuard, LockError> {
        match self {
            Self::Exclusive(lock) => lock.acquire_at(wait, at).await,
            Self::Reentrant(lock) => lock.acquire_at(wait, at).await,
        }
    }
}

impl Options {
    fn exclusive(&self, manager: &LockManager, key: &str) -> Lock {
        let mut lock = manager.lock(key).renew(self.renew);
        if let Some(ttl) = self.ttl {
            lock = lock.ttl(ttl);
        }
        if let Some(most) = self.max_hold {
            lock = lock.max_hold(most);
        }
        if let Some(least) = self.at_least {
            lock = lock.at_least(least);
        }
        lock
    }

    /// Without `at_least`, which the attribute refuses beside `reentrant`.
    fn reentrant(&self, manager: &LockManager, owner: &Owner, key: &str) -> ReentrantLock {
        let mut lock = manager.reentrant_lock(key).owner(owner).renew(self.renew);
        if let Some(ttl) = self.ttl {
            lock = lock.ttl(ttl);
        }
        if let Some(most) = self.max_hold {
            lock = lock.max_hold(most);
        }
        lock
    }
}
