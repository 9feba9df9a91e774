//! Acquisition of several locks at once: all or none.

use std::collections::HashSet;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all, pending, select_all};
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use crate::base::error::{LockError, LossReason};
use crate::base::observe::AcquiredHow;
use crate::base::owner::Owner;
use crate::base::timers::Timers;
use crate::engine::Limit;
use crate::face::guard::LockGuard;
use crate::face::handle::LockHandle;

/// Maximum time that a call which fails spends on the release of what it has. The rest is released in the background.
const GRACE: Duration = Duration::from_millis(100);

/// Maximum locks of one request. The request blocks all other clients of the server while it runs.
const MAX_LOCKS: usize = 64;

/// Each of these keys once, in their order.
pub(crate) fn distinct<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Vec<K> {
    let mut known = HashSet::new();
    let keys = keys.into_iter();
    keys.filter(|key| known.insert(key.as_ref().to_owned()))
        .collect()
}

/// Acquires all of these locks of one manager; each is named once. The guards are in the order of the handles. The limit is for all
/// of them together.
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
    let limit = limit.or(first.default_wait());
    let timers = &engine.shared.timers;
    let started = timers.now();
    let wanted = Wanted {
        locks,
        order,
        owner,
        limit,
        started,
        at,
    };
    let acquired = wanted.acquire().await;
    acquired.map_err(|error| match error {
        // The wait for all locks, not only for the last one.
        LockError::TimedOut { key, holder, .. } => LockError::TimedOut {
            key,
            waited: timers.elapsed(started),
            holder,
        },
        error => error,
    })
}

/// The first of these guards that loses its lock.
pub(crate) async fn first_lost(guards: &[LockGuard]) -> &LockGuard {
    match guards {
        [] => return pending().await,
        [one] => {
            one.lost().await;
            return one;
        }
        _ => {}
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
    match guards {
        [one] => one.release_quietly().await,
        many => drop(join_all(many.iter().map(LockGuard::release_quietly)).await),
    }
}

/// One call for several locks.
struct Wanted {
    locks: Vec<LockHandle>,
    /// The places of the locks, by their names. Each program waits in this order, so no two programs wait for each other.
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
        if matches!(self.limit, Limit::Try) {
            return self.try_all(&groups, AcquiredHow::Tried).await;
        }
        // The last lock whose server has answered.
        let mut answered = None;
        let mut lost = None;
        // Usually all locks are free: one try then saves the round trips of the wait. It must not take longer than the whole wait.
        let gives_time = self.locks[0].unavailable_after().is_none();
        let is_worth_it = groups.len() < self.order.len();
        if is_worth_it && !self.locks.iter().any(LockHandle::is_used_here) {
            let trying = self.try_all(&groups, AcquiredHow::Free);
            let tried = match self.time_left() {
                Some(left) => self.timers().timeout(left, trying).await.ok(),
                None => Some(trying.await),
            };
            match tried {
                Some(Err(LockError::Unavailable { .. })) if gives_time => {}
                None => {}
                Some(Err(error @ (LockError::Busy { .. } | LockError::Lost { .. }))) => {
                    answered = self.order.first();
                    lost = Some(error);
                }
                Some(outcome) => return outcome,
            }
        }
        loop {
            match (self.in_order(&mut answered).await, lost) {
                (Err(error @ LockError::Lost { .. }), _) if !self.is_over() => lost = Some(error),
                (Err(error), Some(lost)) if self.was_lost(&error, &lost) => return Err(lost),
                (outcome, _) => return outcome,
            }
        }
    }

    /// The places of the locks that one request can take.
    fn groups(&self) -> Result<Vec<Vec<usize>>, LockError> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        'locks: for &n in &self.order {
            for group in &mut groups {
                let other = &self.locks[group[0]];
                if group.len() < MAX_LOCKS && self.locks[n].is_taken_with(other)? {
                    group.push(n);
                    continue 'locks;
                }
            }
            groups.push(vec![n]);
        }
        Ok(groups)
    }

    /// One try for each group. Fails as lost if a lease ends before the last one.
    async fn try_all(
        &self,
        groups: &[Vec<usize>],
        how: AcquiredHow,
    ) -> Result<Box<[LockGuard]>, LockError> {
        let mut taken = Taken::default();
        for group in groups {
            let trying = Box::pin(async {
                if let [one] = group[..] {
                    let taking = self.locks[one].take(Limit::Try, self.owner.clone(), self.at);
                    taking.await.map(|guard| vec![guard])
                } else {
                    let locks: Vec<_> = group.iter().map(|&n| &self.locks[n]).collect();
                    LockHandle::take_together(&locks, how, self.at).await
                }
            });
            match taken.unless_lost(trying).await {
                Some(Ok(guards)) => taken.add(group, guards),
                Some(Err(error)) => return taken.fail(error, self).await,
                None => break,
            }
        }
        taken.complete(self).await
    }

    /// Waits for one lock after the other, and holds the earlier ones. Fails if one of these is lost: then the wait for the later ones is
    /// of no use.
    async fn in_order<'a>(
        &'a self,
        answered: &mut Option<&'a usize>,
    ) -> Result<Box<[LockGuard]>, LockError> {
        let mut taken = Taken::default();
        for n in &self.order {
            let (limit, mut lock) = (Limit::of(self.time_left()), self.locks[*n].clone());
            // Little may be left of the limit: a server that has answered this call is reachable.
            lock.is_answered =
                answered.is_some_and(|other| self.locks[*other].server() == lock.server());
            let acquiring = Box::pin(lock.take(limit, self.owner.clone(), self.at));
            match taken.unless_lost(acquiring).await {
                Some(Ok(guard)) => {
                    *answered = Some(n);
                    taken.add(&[*n], vec![guard]);
                }
                Some(Err(error)) => return taken.fail(error, self).await,
                None => break,
            }
        }
        taken.complete(self).await
    }

    /// The rest of the limit. At least a millisecond: zero would be one try, with the error `Busy` instead of `TimedOut`.
    fn time_left(&self) -> Option<Duration> {
        match self.limit {
            Limit::Try => Some(Duration::ZERO),
            Limit::Within(limit) => {
                let left = limit.saturating_sub(self.elapsed());
                Some(left.max(Duration::from_millis(1)))
            }
            Limit::Forever => None,
        }
    }

    fn timers(&self) -> &Timers {
        &self.locks[0].engine.shared.timers
    }

    fn elapsed(&self) -> Duration {
        self.timers().elapsed(self.started)
    }

    fn is_over(&self) -> bool {
        matches!(self.limit, Limit::Within(limit) if self.elapsed() >= limit)
    }

    /// Whether a wait has ended behind a lock that this call has lost: the leases are too short for the call, and no other client is in
    /// its way.
    fn was_lost(&self, timed_out: &LockError, lost: &LockError) -> bool {
        let ours = self.locks[0].engine.shared.client.name();
        match (timed_out, lost) {
            (LockError::TimedOut { key, holder, .. }, LockError::Lost { key: lost, .. }) => {
                key == lost && holder.as_deref().is_none_or(|holder| holder == ours)
            }
            _ => false,
        }
    }

    /// The time for the releases of a call that fails: the last request may have used a part of it.
    fn grace(&self) -> Duration {
        match self.limit {
            Limit::Within(limit) => {
                let end = limit.saturating_add(GRACE);
                end.saturating_sub(self.elapsed()).min(GRACE)
            }
            Limit::Try | Limit::Forever => GRACE,
        }
    }
}

/// The locks that a call has so far, and their places. They are renewed only while the call runs.
#[derive(Default)]
struct Taken {
    guards: Vec<LockGuard>,
    places: Vec<usize>,
    losses: FuturesUnordered<BoxFuture<'static, LossReason>>,
}

impl Taken {
    fn add(&mut self, places: &[usize], guards: Vec<LockGuard>) {
        for guard in &guards {
            guard.set_part(true);
            let view = guard.view();
            self.losses.push(Box::pin(async move { view.lost().await }));
        }
        self.guards.extend(guards);
        self.places.extend(places);
    }

    /// The outcome of `work`, or `None` if a lock is lost before.
    async fn unless_lost<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            Some(_) = self.losses.next() => None,
            outcome = work => Some(outcome),
        }
    }

    async fn fail<T>(self, error: LockError, wanted: &Wanted) -> Result<T, LockError> {
        let releasing = release_all(&self.guards);
        let _ = wanted.timers().timeout(wanted.grace(), releasing).await;
        Err(error)
    }

    /// The guards by their places. If a lock was lost, all are released.
    async fn complete(self, wanted: &Wanted) -> Result<Box<[LockGuard]>, LockError> {
        if let Some(lost) = self.guards.iter().find(|guard| !guard.is_held()) {
            let error = lost.lost_error().await;
            return self.fail(error, wanted).await;
        }
        for guard in &self.guards {
            guard.set_part(false);
        }
        let mut taken: Vec<_> = self.places.into_iter().zip(self.guards).collect();
        taken.sort_by_key(|(place, _)| *place);
        Ok(taken.into_iter().map(|(_, guard)| guard).collect())
    }
}
