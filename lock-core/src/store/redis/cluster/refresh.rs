//! What is known of the slots is asked for anew: the cluster does not tell its clients of a failover.
//!
//! One task asks, round after round, as long as the cluster is used by a manager:
//!
//! | Reason | Next round |
//! |---|---|
//! | a caller waits for it | 25 ms after the last one |
//! | a reply says that the table is out of date | 75 to 250 ms after the last one |
//! | a master has no connection or does not answer, and the engine is in use | the same, for [`IN_DOUBT`] |
//! | the engine is in use: it holds or waits for a lock, or has released one lately | [`IN_USE`] after the last one |
//! | none: nodes may be replaced, one after the other | [`IDLE`] after the last one |

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::masters::Cluster;
use super::rounds::{Refresh, RefreshState};
use crate::base::error::RUNTIME_ENDED;
use crate::base::single_flight::Flight;
use crate::base::sync::lock;
use crate::store::StoreError;
use crate::store::redis::error::no_reply;
use crate::store::redis::server::Server;

/// Pause before a round for which a caller waits.
const HURRY: Duration = Duration::from_millis(25);

/// Maximum time of the short intervals for a master in doubt: longer than a failover takes.
const IN_DOUBT: Duration = Duration::from_secs(30);

/// Intervals of the rounds while no master is in doubt.
const IN_USE: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(30);

/// The running task. Between two rounds it does not keep the cluster alive.
struct RunningRefresh {
    cluster: Weak<Cluster>,
    refresh: Arc<Refresh>,
    flight: Option<Flight>,
}

/// The runtime of the task may end: the next round has another task.
impl Drop for RunningRefresh {
    fn drop(&mut self) {
        drop(self.flight.take());
        let mut state = lock(&self.refresh.state);
        state.over = state.wanted.max(state.awaited);
        state.error = Some(StoreError::Misconfigured(RUNTIME_ENDED.into()));
        drop(state);
        self.refresh.over.notify_waiters();
    }
}

/// The cluster is not used any more: ends the task.
impl Drop for Cluster {
    fn drop(&mut self) {
        self.refresh.hurry.notify_one();
    }
}

impl Cluster {
    /// The table may be out of date: asks for the slots in the background.
    pub(super) fn refresh(&self) {
        self.want(RefreshState::wants_another);
    }

    /// As [`refresh`](Self::refresh), without the longer pause after rounds that brought no news.
    pub(super) fn refresh_soon(&self) {
        self.want(|state| {
            state.backoff.over();
            state.rest();
            state.wants_another();
        });
    }

    /// A request is made: the table may be as old as the last round of an idle engine.
    pub(super) fn is_used(&self) {
        if std::mem::take(&mut lock(&self.refresh.state).idle) {
            self.refresh.hurry.notify_one();
        }
    }

    /// Waits for a round that begins after this call. Nodes that are `doubted` are not asked.
    pub(super) async fn refreshed(&self, doubted: Option<&Arc<Server>>) -> Result<(), StoreError> {
        let mut round = 0;
        self.want(|state| {
            round = state.begun + 1;
            state.awaited = state.awaited.max(round);
            state.doubted.extend(doubted.cloned());
        });
        let over = self.refresh.over.find(|| {
            let state = lock(&self.refresh.state);
            let outcome = || state.error.clone().map_or(Ok(()), Err);
            (state.over >= round).then(outcome)
        });
        let limit = self.limit * 2;
        let late = |_| StoreError::NotNow(no_reply(limit));
        let over = self.engine.timers().timeout(limit, over);
        over.await.map_err(late)?
    }

    fn want(&self, what: impl FnOnce(&mut RefreshState)) {
        self.refresh.hurries(what);
        if let Some(flight) = self.refresh.task.begin() {
            let task = RunningRefresh {
                cluster: Weak::clone(&self.me),
                refresh: Arc::clone(&self.refresh),
                flight: Some(flight),
            };
            self.engine.spawn(task.run());
        }
    }

    /// The time of the next round.
    fn next_round(&self) -> Instant {
        // Before the look at the engine: a request that comes after the look finds it set.
        lock(&self.refresh.state).idle = true;
        let in_use = self.is_in_use();
        let late = self.late();
        let is_in_doubt = |node: &Arc<Server>| node.is_in_doubt(late);
        let in_doubt = in_use && self.masters().iter().any(is_in_doubt);
        let now = Instant::now();
        let mut state = lock(&self.refresh.state);
        let Some(last) = state.last else {
            return now;
        };
        let since = in_doubt.then(|| state.in_doubt.unwrap_or(now));
        state.in_doubt = since;
        state.idle &= !in_use;
        last + if state.awaited > state.begun {
            HURRY
        } else if state.wanted > state.begun || since.is_some_and(|at| now < at + IN_DOUBT) {
            state.pause
        } else if in_use {
            IN_USE
        } else {
            IDLE
        }
    }

    async fn round(&self) {
        let (doubted, is_routine) = {
            let mut state = lock(&self.refresh.state);
            let is_asked_for = state.awaited.max(state.wanted) > state.begun;
            state.begun += 1;
            let is_routine = !is_asked_for && state.in_doubt.is_none();
            (std::mem::take(&mut state.doubted), is_routine)
        };
        let learned = self.slots(&doubted, is_routine).await;
        let learned = learned.and_then(|ranges| self.apply(&ranges));
        if let Err(error) = &learned {
            tracing::debug!(%error, "the slots of the cluster are not known");
        }
        let mut state = lock(&self.refresh.state);
        state.last = Some(Instant::now());
        if matches!(learned, Ok(true)) {
            state.backoff.over();
        }
        state.rest();
        state.error = learned.err();
        state.over = state.begun;
        drop(state);
        self.refresh.over.notify_waiters();
    }
}

impl RunningRefresh {
    async fn run(self) {
        while let Some(cluster) = self.cluster.upgrade() {
            let next = cluster.next_round();
            if next <= Instant::now() {
                cluster.round().await;
                continue;
            }
            drop(cluster);
            tokio::select! {
                () = sleep_until(next) => {}
                // The next round may be earlier now.
                () = self.refresh.hurry.notified() => {}
            }
        }
    }
}
