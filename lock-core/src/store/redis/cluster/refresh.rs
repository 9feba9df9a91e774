//! What is known of the slots is asked for anew: when a reply or a broken connection says that it is out of date.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::Cluster;
use super::slots::{Range, ask_for_slots, read_slots};
use crate::rt;
use crate::store::StoreError;
use crate::store::redis::connecting::ask_once;
use crate::store::redis::error::{classify, no_reply};
use crate::store::redis::target::Target;
use crate::sync::lock;

/// Minimum interval between two of them: first, and while they bring no news.
const EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

/// The time after which what is known is old, also without a sign: a node that serves nothing any more says nothing.
const OLD: Duration = Duration::from_secs(30);

/// Maximum wait for the nodes with a connection, before others are asked.
const PATIENCE: Duration = Duration::from_millis(500);

/// Maximum nodes that are asked at once.
const MOST: usize = 3;

#[derive(Default)]
pub(super) struct Refresh {
    state: Mutex<RefreshState>,
    /// Notified when one is over.
    over: Notify,
}

struct RefreshState {
    running: bool,
    wanted: bool,
    last: Option<Instant>,
    /// The interval until the next one.
    pause: Duration,
    error: Option<StoreError>,
}

impl Default for RefreshState {
    fn default() -> Self {
        Self {
            running: false,
            wanted: false,
            last: None,
            pause: EVERY.0,
            error: None,
        }
    }
}

/// The running task. Its drop notifies the waiting callers, also if the runtime has ended.
struct RunningRefresh(Arc<Cluster>);

impl Drop for RunningRefresh {
    fn drop(&mut self) {
        lock(&self.0.refresh.state).running = false;
        self.0.refresh.over.notify_waiters();
    }
}

impl Cluster {
    /// Asks for the slots in the background.
    pub(super) fn refresh(&self) {
        let Some(me) = self.me.upgrade() else { return };
        {
            let mut state = lock(&self.refresh.state);
            state.wanted = true;
            if std::mem::replace(&mut state.running, true) {
                return;
            }
        }
        let task = async move {
            let running = RunningRefresh(me);
            running.0.keep_refreshing().await;
        };
        match self.attached.get() {
            Some(attached) => drop(attached.runtime.spawn(task)),
            None => drop(rt::spawn(task)),
        }
    }

    /// As [`refresh`](Self::refresh), without the longer pause after those that brought no news.
    pub(super) fn refresh_soon(&self) {
        lock(&self.refresh.state).pause = EVERY.0;
        self.refresh();
    }

    /// Asks for the slots if that was a while ago.
    pub(super) fn refresh_if_old(&self) {
        let last = lock(&self.refresh.state).last;
        if last.is_some_and(|last| last.elapsed() >= OLD) {
            self.refresh_soon();
        }
    }

    /// As [`refresh_soon`](Self::refresh_soon), and waits for the outcome.
    pub(super) async fn refreshed(&self) -> Result<(), StoreError> {
        let over = self.refresh.over.notified();
        tokio::pin!(over);
        over.as_mut().enable();
        self.refresh_soon();
        let limit = self.limit * 2;
        if timeout(limit, over).await.is_err() {
            return Err(StoreError::NotNow(no_reply(limit)));
        }
        lock(&self.refresh.state).error.clone().map_or(Ok(()), Err)
    }

    async fn keep_refreshing(&self) {
        loop {
            let next = {
                let state = lock(&self.refresh.state);
                state.last.map(|last| last + state.pause)
            };
            if let Some(next) = next {
                sleep_until(next).await;
            }
            lock(&self.refresh.state).wanted = false;
            let learned = self.slots().await.and_then(|ranges| self.apply(&ranges));
            if let Err(error) = &learned {
                tracing::debug!(%error, "the slots of the cluster are not known");
            }
            let mut state = lock(&self.refresh.state);
            state.last = Some(Instant::now());
            state.pause = match learned {
                Ok(true) => EVERY.0,
                _ => EVERY.1.min(state.pause * 2),
            };
            state.error = learned.err();
            let goes_on = state.wanted;
            drop(state);
            self.refresh.over.notify_waiters();
            if !goes_on {
                return;
            }
        }
    }

    /// The slots, as the first node says that answers.
    async fn slots(&self) -> Result<Vec<Range>, StoreError> {
        let mut connected: Vec<_> = lock(&self.table).nodes.values().cloned().collect();
        connected.retain(|node| node.endpoint.link.generation().is_some());
        fastrand::shuffle(&mut connected);
        let asked = connected.iter().take(MOST).map(async |node| {
            let answer = node.endpoint.ask(ask_for_slots()).await?;
            let ranges = read_slots(&answer, &node.address.0)?;
            Ok(if self.is_ours(&ranges) {
                ranges
            } else {
                Vec::new()
            })
        });
        if let Ok(Ok(ranges)) = timeout(PATIENCE, first_of(asked)).await {
            return Ok(ranges);
        }
        let nodes = lock(&self.table).nodes.keys().cloned().collect::<Vec<_>>();
        let known = nodes.iter().filter_map(|address| self.target(address).ok());
        let known: Vec<_> = known.collect();
        let targets = self.seeds.iter().chain(&known);
        first_of(targets.map(|target| self.ask_at(target))).await
    }

    async fn ask_at(&self, target: &Target) -> Result<Vec<Range>, StoreError> {
        let asked = timeout(self.limit, ask_once(target, &ask_for_slots())).await;
        let answer = match asked {
            Ok(answer) => answer.map_err(|error| {
                if error
                    .detail()
                    .is_some_and(|detail| detail.contains("cluster support disabled"))
                {
                    let at = &target.address;
                    return StoreError::Misconfigured(format!(
                        "the server at {at} is no node of a cluster: write `redis://{at}`"
                    ));
                }
                classify(error).at(&target.address)
            })?,
            Err(_) => return Err(StoreError::NotNow(no_reply(self.limit)).at(&target.address)),
        };
        read_slots(&answer, target.host())
    }
}

/// The first answer that is no error, or the last error, if one says what is wrong that one.
async fn first_of<F>(asked: impl Iterator<Item = F>) -> Result<Vec<Range>, StoreError>
where
    F: Future<Output = Result<Vec<Range>, StoreError>>,
{
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut failure = None;
    while let Some(answer) = asked.next().await {
        match (answer, &failure) {
            (Ok(ranges), _) if !ranges.is_empty() => return Ok(ranges),
            (Ok(_), _) | (Err(_), Some(StoreError::Misconfigured(_))) => {}
            (Err(error), _) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(super::no_slots))
}
