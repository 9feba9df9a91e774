//! The one task of a session: renews leases in batches, refreshes waiters, announces losses, releases what
//! guards have dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::Instrument;

use super::entry::Entry;
use super::lease::Status;
use super::{Shared, undo, wait};
use crate::LossReason;
use crate::clock::Moment;
use crate::store::{Answer, Mode, Renewal, Store};
use crate::sync::lock;

/// Locks in one renewal call. One call holds the server for about 2.4 µs a lock, and others must not feel it.
const BATCH: usize = 100;

/// While anything is held, the task looks at the clock this often: timers stand still while the machine is
/// suspended, and the lease clock does not.
const HEARTBEAT: Duration = Duration::from_millis(250);

type Job = BoxFuture<'static, ()>;

pub(super) async fn run(shared: Arc<Shared>, mut releases: UnboundedReceiver<Arc<Entry>>) {
    let mut jobs: FuturesUnordered<Job> = FuturesUnordered::new();
    loop {
        let pause = sweep(&shared, &mut jobs);
        tokio::select! {
            queued = releases.recv() => match queued {
                Some(entry) => release(&shared, entry, &mut jobs),
                None => break,
            },
            Some(()) = jobs.next(), if !jobs.is_empty() => {}
            () = shared.wake.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
    // Every handle is gone: finish what was queued.
    while jobs.next().await.is_some() {}
}

fn release(shared: &Arc<Shared>, entry: Arc<Entry>, jobs: &mut FuturesUnordered<Job>) {
    if !entry.undoing.swap(true, Ordering::Relaxed) {
        jobs.push(Box::pin(undo::until_confirmed(Arc::clone(shared), entry)));
    }
}

/// Starts everything that is due, and says how long there is nothing to do.
fn sweep(shared: &Arc<Shared>, jobs: &mut FuturesUnordered<Job>) -> Duration {
    let now = shared.now();
    if now.0 < shared.next_due.load(Ordering::SeqCst) {
        return pause(shared, now);
    }
    // From here on an earlier moment may come in; it must not be overwritten.
    shared.next_due.store(Moment::NEVER.0, Ordering::SeqCst);
    let mut next = Moment::NEVER;
    let mut due = Vec::new();
    let mut over = Vec::new();
    let asking;
    {
        let mut registry = lock(&shared.registry);
        for entry in registry.entries.values() {
            match entry.lease.status(now) {
                Status::Held => {
                    // What is due soon goes along, so that batches are full and sweeps are few.
                    if entry.renew_at() <= now + entry.terms.ttl / 12 {
                        entry.renewing();
                        due.push(Arc::clone(entry));
                    }
                    next = next.min(entry.renew_at()).min(entry.lease.end());
                }
                Status::Lost(_) => over.push(Arc::clone(entry)),
                Status::Pending | Status::Released => {}
            }
        }
        let (waiters, next_check) = registry.lines.due(now);
        asking = waiters;
        next = next.min(next_check);
    }
    for entry in over {
        tracing::debug!(key = entry.key.name(), "lost: cleaning up");
        release(shared, entry, jobs);
    }
    while !due.is_empty() {
        let rest = due.split_off(due.len().min(BATCH));
        jobs.push(Box::pin(renew(
            Arc::clone(shared),
            std::mem::replace(&mut due, rest),
        )));
    }
    for entry in asking {
        jobs.push(Box::pin(refresh(Arc::clone(shared), entry)));
    }
    shared.next_due.fetch_min(next.0, Ordering::SeqCst);
    pause(shared, now)
}

fn pause(shared: &Shared, now: Moment) -> Duration {
    match Moment(shared.next_due.load(Ordering::SeqCst)) {
        // Nothing is held or waited for: whoever changes that wakes the task.
        Moment::NEVER => Duration::from_secs(3600),
        next => now.until(next).min(HEARTBEAT),
    }
}

/// Renews a batch. What is not confirmed moves nothing.
async fn renew(shared: Arc<Shared>, batch: Vec<Arc<Entry>>) {
    let span = tracing::debug_span!(
        "lock.renew",
        locks = batch.len(),
        outcome = tracing::field::Empty
    );
    async {
        let renewals: Vec<Renewal<'_>> = batch
            .iter()
            .map(|entry| Renewal {
                key: &entry.key,
                token: &entry.token,
                ttl: entry.terms.ttl,
            })
            .collect();
        let sent_at = shared.now();
        let answer = shared.store.extend(&renewals).await;
        let now = shared.now();
        let mut next = Moment::NEVER;
        match answer {
            Ok(held) => {
                let lost = held.iter().filter(|held| !**held).count();
                tracing::Span::current()
                    .record("outcome", if lost == 0 { "renewed" } else { "some lost" });
                for (entry, held) in batch.iter().zip(held) {
                    if held {
                        next = next.min(entry.renewed(now, sent_at)).min(entry.lease.end());
                    } else if entry.lease.lose(LossReason::Taken) {
                        next = now;
                    }
                }
            }
            Err(error) => {
                tracing::Span::current().record("outcome", "failed");
                tracing::warn!(
                    locks = batch.len(),
                    ?error,
                    "leases could not be renewed: trying again"
                );
                for entry in &batch {
                    next = next.min(entry.not_renewed(now)).min(entry.lease.end());
                }
            }
        }
        shared.due_at(next);
    }
    .instrument(span)
    .await;
}

/// Asks on behalf of everybody in this process who waits for the same lock.
async fn refresh(shared: Arc<Shared>, entry: Arc<Entry>) {
    let sent_at = shared.now();
    let answer = shared.store.acquire(entry.attempt(Mode::Wait)).await;
    let now = shared.now();
    let mut remaining = Duration::MAX;
    match answer {
        Ok(Answer::Granted { fence }) => entry.tell(|wait| wait.answered(sent_at, fence)),
        Ok(Answer::Queued(place)) => {
            remaining = place.remaining;
            lock(&entry.wait).queued(sent_at, place.last_fence);
            // The holder is one of ours that does not know it yet: its message was lost.
            let registry = lock(&shared.registry);
            if let Some(holder) = place.own_holder.and_then(|own| registry.entries.get(&own))
                && holder.lease.status(now) == Status::Pending
            {
                holder.tell(wait::Wait::interrupted);
            }
        }
        // The waiter finds out for itself what is wrong.
        Ok(Answer::Foreign { .. } | Answer::Busy { .. }) => entry.tell(wait::Wait::interrupted),
        Err(error) => {
            for waiter in lock(&shared.registry).lines.of(&entry.key.lock) {
                lock(&waiter.wait).failed(error.clone());
            }
        }
    }
    if matches!(entry.lease.status(now), Status::Released) {
        // It left while we asked, and our question may have put it back into the queue.
        entry.released_by_refresh.store(true, Ordering::SeqCst);
        let _ = shared.store.release(&entry.key, &entry.token).await;
    }
    let after = shared.check_after(entry.terms, remaining.min(entry.terms.ttl));
    let next = lock(&shared.registry)
        .lines
        .checked(&entry.key.lock, now, after);
    if let Some(next) = next {
        shared.due_at(next);
    }
}
