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
use super::wait::Wait;
use super::{Shared, undo};
use crate::LossReason;
use crate::clock::Moment;
use crate::store::{Answer, Mode, Renewal, Store, StoreError};
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
    // Every handle is gone: finish what was queued, and clean up behind the locks that were lost a moment ago.
    let left: Vec<_> = lock(&shared.registry).entries.values().cloned().collect();
    for entry in left {
        let lost = matches!(entry.lease.status(shared.now()), Status::Lost(_));
        if lost && !entry.undoing.swap(true, Ordering::Relaxed) {
            let shared = Arc::clone(&shared);
            // The pause is part of the job: it must not hold up the releases that are queued.
            jobs.push(Box::pin(async move {
                tokio::time::sleep(shared.now().until(entry.clean_up_at())).await;
                undo::until_confirmed(shared, entry).await;
            }));
        }
    }
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
    if shared.leases_due.load(Ordering::SeqCst) <= now.0 {
        sweep_leases(shared, now, jobs);
    }
    if shared.lines_due.load(Ordering::SeqCst) <= now.0 {
        sweep_lines(shared, now, jobs);
    }
    let leases = Moment(shared.leases_due.load(Ordering::SeqCst));
    let lines = Moment(shared.lines_due.load(Ordering::SeqCst));
    match leases.min(lines) {
        // Nothing is held or waited for: whoever changes that wakes the task.
        Moment::NEVER => Duration::from_secs(3600),
        next => now.until(next).min(HEARTBEAT),
    }
}

fn sweep_leases(shared: &Arc<Shared>, now: Moment, jobs: &mut FuturesUnordered<Job>) {
    // From here on an earlier moment may come in; it must not be overwritten.
    shared.leases_due.store(Moment::NEVER.0, Ordering::SeqCst);
    let mut next = Moment::NEVER;
    let mut due = Vec::new();
    let mut over = Vec::new();
    for entry in lock(&shared.registry).entries.values() {
        match entry.lease.status(now) {
            Status::Held => {
                // What is due soon goes along, so that batches are full and sweeps are few.
                if entry.renew_at() <= now + entry.terms.ttl / 12 {
                    entry.renewing();
                    due.push(Arc::clone(entry));
                }
                next = next.min(entry.renew_at()).min(entry.lease.end());
            }
            Status::Lost(_) if !entry.undoing.load(Ordering::Relaxed) => {
                let clean_up_at = entry.clean_up_at();
                if clean_up_at <= now {
                    over.push(Arc::clone(entry));
                } else {
                    next = next.min(clean_up_at);
                }
            }
            Status::Lost(_) | Status::Pending | Status::Released => {}
        }
    }
    for entry in over {
        tracing::debug!(key = entry.key.name(), "lost: cleaning up");
        release(shared, entry, jobs);
    }
    // The shortest ttl of a batch bounds how long its answer may take.
    due.sort_unstable_by_key(|entry| entry.terms.ttl);
    for batch in due.chunks(BATCH) {
        jobs.push(Box::pin(renew(Arc::clone(shared), batch.to_vec())));
    }
    shared.leases_due.fetch_min(next.0, Ordering::SeqCst);
}

fn sweep_lines(shared: &Arc<Shared>, now: Moment, jobs: &mut FuturesUnordered<Job>) {
    shared.lines_due.store(Moment::NEVER.0, Ordering::SeqCst);
    let (asking, next) = lock(&shared.registry).lines.due(now);
    for entry in asking {
        jobs.push(Box::pin(refresh(Arc::clone(shared), entry)));
    }
    shared.lines_due.fetch_min(next.0, Ordering::SeqCst);
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
                owner: None,
            })
            .collect();
        let sent_at = shared.now();
        let answer = shared.store.extend(&renewals).await;
        let now = shared.now();
        let mut next = Moment::NEVER;
        match answer {
            Ok(held) => {
                let lost = held.iter().filter(|held| !**held).count();
                span.record("outcome", if lost == 0 { "renewed" } else { "some lost" });
                for (entry, held) in batch.iter().zip(held) {
                    if held {
                        next = next.min(entry.renewed(now, sent_at)).min(entry.lease.end());
                    } else if entry.lease.lose(LossReason::Taken) {
                        next = now;
                    }
                }
            }
            Err(error) => {
                span.record("outcome", "failed");
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
        shared.lease_due_at(next);
    }
    .instrument(span.clone())
    .await;
}

/// Asks on behalf of everybody in this process who waits for the same lock.
pub(super) async fn refresh(shared: Arc<Shared>, entry: Arc<Entry>) {
    let sent_at = shared.now();
    let mut remaining = Duration::MAX;
    if entry.lease.status(sent_at) == Status::Pending {
        let answer = shared.store.acquire(entry.attempt(Mode::Wait)).await;
        remaining = refreshed(&shared, &entry, sent_at, answer);
        clean_up_if_gone(&shared, &entry).await;
    }
    let after = shared.check_after(entry.terms, remaining.min(entry.terms.ttl));
    let next = lock(&shared.registry)
        .lines
        .checked(&entry.key.lock, shared.now(), after);
    if let Some(next) = next {
        shared.line_due_at(next);
    }
}

/// An entry that left while we asked for it may have been put back into the queue by our question. Releasing it again
/// may also overtake its own release, which must not take that for a loss.
pub(super) async fn clean_up_if_gone(shared: &Arc<Shared>, entry: &Arc<Entry>) {
    let status = entry.lease.status(shared.now());
    if !matches!(status, Status::Pending | Status::Held) {
        entry.released_by_refresh.store(true, Ordering::SeqCst);
        undo::again(Arc::clone(shared), Arc::clone(entry)).await;
    }
}

/// Passes an answer on to everybody whom it concerns. Returns what is left of the holder's lease.
fn refreshed(
    shared: &Shared,
    entry: &Arc<Entry>,
    sent_at: Moment,
    answer: Result<Answer, StoreError>,
) -> Duration {
    let now = shared.now();
    let registry = lock(&shared.registry);
    let line = || registry.lines.of(&entry.key.lock);
    match answer {
        Ok(Answer::Granted { fence, .. }) => entry.tell(|wait| wait.answered(sent_at, fence)),
        Ok(Answer::Queued(place)) => {
            for waiter in line() {
                lock(&waiter.wait).refreshed(sent_at, place.last_fence);
                // The server had forgotten this one (its data was lost, or it took us for dead): so it has the others.
                if place.joined && waiter.sequence != entry.sequence {
                    waiter.tell(Wait::interrupted);
                }
            }
            if let Some(own) = place.own_holder {
                match registry.entries.get(&own) {
                    // It does not know yet that it was granted the lock: its message was lost.
                    Some(holder) if holder.lease.status(now) == Status::Pending => {
                        holder.tell(Wait::interrupted);
                    }
                    Some(_) => {}
                    None => {
                        drop(registry);
                        shared.decline(own, &entry.key.lock);
                    }
                }
            }
            return place.remaining;
        }
        // The waiter finds out for itself what is wrong.
        Ok(Answer::Foreign { .. } | Answer::Busy { .. }) => entry.tell(Wait::interrupted),
        Err(error) => {
            if let StoreError::Ambiguous(_) = error {
                entry.ambiguous.store(true, Ordering::Relaxed);
            }
            for waiter in line() {
                waiter.tell(|wait| wait.failed(now, error.clone()));
            }
        }
    }
    Duration::MAX
}
