//! Several locks at once: all or none.

use std::panic::Location;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::base::error::LockError;
use crate::base::owner::Owner;
use crate::engine::Limit;
use crate::face::guard::LockGuard;
use crate::face::handle::LockHandle;

/// Acquires all of these locks, or none. Every caller acquires them in the order of their names, so no two callers can wait for each
/// other; a key that is named twice is acquired once. The guards are in the order of the handles. The limit is for all of them
/// together.
pub(crate) async fn acquire_all(
    locks: Vec<LockHandle>,
    owner: Option<Owner>,
    limit: Option<Duration>,
    at: &'static Location<'static>,
) -> Result<Box<[LockGuard]>, LockError> {
    if locks.is_empty() {
        return Err(LockError::InvalidKey {
            key: String::new(),
            reason: "no key was given: name at least one",
        });
    }
    let mut order: Vec<usize> = (0..locks.len()).collect();
    order.sort_by_key(|&n| (locks[n].name(), n));
    order.dedup_by_key(|n| locks[*n].name());
    let started = Instant::now();
    let mut taken: Vec<(usize, LockGuard)> = Vec::with_capacity(order.len());
    for n in order {
        // At least a millisecond: zero would mean one try, with the error `Busy` instead of `TimedOut`.
        let left = limit.map(|limit| match limit {
            Duration::ZERO => limit,
            limit => limit
                .saturating_sub(started.elapsed())
                .max(Duration::from_millis(1)),
        });
        let acquiring = locks[n].take(Limit::of(left), owner.clone(), at);
        match acquiring.await {
            Ok(guard) => taken.push((n, guard)),
            Err(error) => {
                release_all(taken.iter().map(|(_, guard)| guard)).await;
                return Err(error);
            }
        }
    }
    taken.sort_by_key(|(n, _)| *n);
    let guards: Box<[_]> = taken.into_iter().map(|(_, guard)| guard).collect();
    // The first lock may have been lost during the wait for the last one.
    if let Some(lost) = guards.iter().find(|guard| !guard.is_held()) {
        let error = lost.lost_error().await;
        release_all(guards.iter()).await;
        return Err(error);
    }
    Ok(guards)
}

async fn release_all<'a>(guards: impl Iterator<Item = &'a LockGuard>) {
    join_all(guards.map(LockGuard::release_quietly)).await;
}
