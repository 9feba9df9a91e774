//! Acquisition of several locks at once: all or none.

use std::collections::HashSet;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, pending, select_all};
use tokio::time::{Instant, timeout};

use crate::base::error::LockError;
use crate::base::observe::AcquiredHow;
use crate::base::owner::Owner;
use crate::engine::Limit;
use crate::face::guard::LockGuard;
use crate::face::handle::LockHandle;

/// Maximum time that a call which fails spends on the release of what it has. The rest is released in the background.
const GRACE: Duration = Duration::from_millis(100);

/// Maximum locks of one request. It blocks all other clients of the server while it runs.
const MOST: usize = 64;

/// Each of these keys once, in their order.
pub(crate) fn distinct<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Vec<K> {
    let mut known = HashSet::new();
    let keys = keys.into_iter();
    keys.filter(|key| known.insert(key.as_ref().to_owned()))
        .collect()
}

/// Acquires all of these locks of one manager, each of which is named once. The guards are in the order of the handles. The limit is
/// for all of them together.
pub(crate) async fn acquire_all(
    locks: Vec<LockHandle>,
    owner: Option<Owner>,
    limit: Limit,
    at: &'static Location<'static>,
) -> Result<Box<[LockGuard]>, LockError> {
    let Some(first) = locks.first() else {
        return Err(LockError::InvalidKey {
            key: String::new(),
            reason: "no key was given: name at least one",
        });
    };
    let engine = Arc::clone(&first.engine);
    let mut order: Vec<usize> = (0..locks.len()).collect();
    order.sort_by_key(|&n| locks[n].name());
    let wanted = Wanted {
        locks,
        order,
        owner,
        limit: limit.or(engine.shared.config.default_wait),
        started: Instant::now(),
        at,
    };
    let started = wanted.started;
    let acquired = engine.run(wanted.acquire()).await;
    acquired.map_err(|error| match error {
        // Not only for the last of them.
        LockError::TimedOut { key, holder, .. } => LockError::TimedOut {
            key,
            waited: started.elapsed(),
            holder,
        },
        error => error,
    })
}

/// The first of these guards that loses its lock.
pub(crate) async fn first_lost(guards: &[LockGuard]) -> &LockGuard {
    if guards.is_empty() {
        return pending().await;
    }
    let losses = guards.iter().map(|guard| {
        Box::pin(async move {
            guard.lost().await;
            guard
        })
    });
    select_all(losses).await.0
}

/// Releases all of them at once, after the work is done or because it cannot begin.
pub(crate) async fn release_all(guards: &[LockGuard]) {
    join_all(guards.iter().map(LockGuard::release_quietly)).await;
}

/// One call for several locks.
struct Wanted {
    locks: Vec<LockHandle>,
    /// The places of the locks, by their names. Each program waits in this order, so no two of them wait for each other.
    order: Vec<usize>,
    owner: Option<Owner>,
    limit: Limit,
    started: Instant,
    at: &'static Location<'static>,
}

impl Wanted {
    async fn acquire(self) -> Result<Box<[LockGuard]>, LockError> {
        for lock in &self.locks {
            lock.check(self.owner.clone(), self.limit, self.at)?;
        }
        let groups = self.groups()?;
        let is_try = matches!(self.limit, Limit::Try);
        if is_try {
            loop {
                if let Some(guards) = self.try_all(&groups, AcquiredHow::Tried).await? {
                    return Ok(guards);
                }
            }
        }
        // The last lock whose server has answered.
        let mut answered = None;
        // Usually all are free: then this saves the round trips of the wait. It must not take longer than the whole wait.
        let is_worth_it = groups.len() < self.order.len();
        if is_worth_it && !self.locks.iter().any(LockHandle::is_used_here) {
            let trying = self.try_all(&groups, AcquiredHow::Free);
            let tried = match self.left() {
                Some(left) => timeout(left, trying).await.ok(),
                None => Some(trying.await),
            };
            match tried {
                Some(Ok(Some(guards))) => return Ok(guards),
                Some(Ok(None) | Err(LockError::Busy { .. })) => answered = self.order.first(),
                Some(Err(LockError::Unavailable { .. })) | None => {}
                Some(Err(error)) => return Err(error),
            }
        }
        loop {
            if let Some(guards) = self.in_order(&mut answered).await? {
                return Ok(guards);
            }
        }
    }

    /// The places of the locks that one request can take.
    fn groups(&self) -> Result<Vec<Vec<usize>>, LockError> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        'locks: for &n in &self.order {
            for group in &mut groups {
                let other = &self.locks[group[0]];
                if group.len() < MOST && self.locks[n].is_taken_with(other)? {
                    group.push(n);
                    continue 'locks;
                }
            }
            groups.push(vec![n]);
        }
        Ok(groups)
    }

    /// One try for each group. `None` if a lock was lost meanwhile.
    async fn try_all(
        &self,
        groups: &[Vec<usize>],
        how: AcquiredHow,
    ) -> Result<Option<Box<[LockGuard]>>, LockError> {
        let mut taken = Taken::default();
        for group in groups {
            let tried = if let [one] = group[..] {
                let taking = self.locks[one].take(Limit::Try, self.owner.clone(), self.at);
                Box::pin(taking).await.map(|guard| vec![guard])
            } else {
                let locks: Vec<_> = group.iter().map(|&n| &self.locks[n]).collect();
                Box::pin(LockHandle::take_together(&locks, how, self.at)).await
            };
            match tried {
                Ok(guards) => taken.add(group, guards),
                Err(error) => return taken.fail(error).await,
            }
        }
        Ok(taken.complete().await)
    }

    /// Waits for one lock after the other, and holds the earlier ones. `None` if one of these was lost: then the wait for the later ones
    /// is of no use.
    async fn in_order<'a>(
        &'a self,
        answered: &mut Option<&'a usize>,
    ) -> Result<Option<Box<[LockGuard]>>, LockError> {
        let mut taken = Taken::default();
        for n in &self.order {
            let (limit, mut lock) = (Limit::of(self.left()), self.locks[*n].clone());
            // Little may be left of the limit: a server that has answered this call is reachable.
            lock.is_answered =
                answered.is_some_and(|other| self.locks[*other].server() == lock.server());
            let acquiring = Box::pin(lock.take(limit, self.owner.clone(), self.at));
            let outcome = tokio::select! {
                biased;
                _ = first_lost(&taken.guards) => break,
                outcome = acquiring => outcome,
            };
            match outcome {
                Ok(guard) => {
                    *answered = Some(n);
                    taken.add(&[*n], vec![guard]);
                }
                Err(error) => return taken.fail(error).await,
            }
        }
        Ok(taken.complete().await)
    }

    /// The rest of the limit. At least a millisecond: zero would be one try, with the error `Busy` instead of `TimedOut`.
    fn left(&self) -> Option<Duration> {
        match self.limit {
            Limit::Try => Some(Duration::ZERO),
            Limit::Within(limit) => {
                let left = limit.saturating_sub(self.started.elapsed());
                Some(left.max(Duration::from_millis(1)))
            }
            Limit::Forever => None,
        }
    }
}

/// The locks that a call has so far, and their places.
#[derive(Default)]
struct Taken {
    guards: Vec<LockGuard>,
    places: Vec<usize>,
}

impl Taken {
    fn add(&mut self, places: &[usize], guards: Vec<LockGuard>) {
        for guard in &guards {
            guard.set_part(true);
        }
        self.guards.extend(guards);
        self.places.extend(places);
    }

    async fn release(&self) {
        let _ = timeout(GRACE, release_all(&self.guards)).await;
    }

    async fn fail<T>(self, error: LockError) -> Result<T, LockError> {
        self.release().await;
        Err(error)
    }

    /// The guards by their places. `None` if a lock was lost: then all are released.
    async fn complete(self) -> Option<Box<[LockGuard]>> {
        if !self.guards.iter().all(LockGuard::is_held) {
            self.release().await;
            return None;
        }
        for guard in &self.guards {
            guard.set_part(false);
        }
        let mut taken: Vec<_> = self.places.into_iter().zip(self.guards).collect();
        taken.sort_by_key(|(place, _)| *place);
        Some(taken.into_iter().map(|(_, guard)| guard).collect())
    }
}
