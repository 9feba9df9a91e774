//! What is due: renewals and losses of leases, and checks of acquisitions that wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::acquisition::Acquisition;
use super::jobs::Jobs;
use super::renewals::{Due, by_server_and_kind, renew_all};
use super::shared::Shared;
use super::state::{Asker, Swept};
use crate::base::sync::lock;
use crate::base::time::Moment;

/// Maximum pause of a waiter after a failed request, with a margin.
const MAXIMUM_PAUSE: Duration = Duration::from_millis(600);

/// Starts all work that is due. Returns the moment of the next work.
pub(super) fn sweep(shared: &Arc<Shared>, now: Moment, jobs: &mut Jobs) -> Moment {
    if shared.leases_due.load(Ordering::SeqCst) <= now.0 {
        sweep_leases(shared, now, jobs);
    }
    if shared.checks_due.load(Ordering::SeqCst) <= now.0 {
        sweep_checks(shared, now, jobs);
    }
    let leases = Moment(shared.leases_due.load(Ordering::SeqCst));
    let checks = Moment(shared.checks_due.load(Ordering::SeqCst));
    leases.min(checks)
}

fn sweep_leases(shared: &Arc<Shared>, now: Moment, jobs: &mut Jobs) {
    // From here on an earlier moment may be stored; it must not be overwritten.
    shared.leases_due.store(Moment::NEVER.0, Ordering::SeqCst);
    let mut next = Moment::NEVER;
    let mut due = Vec::new();
    let (mut lost, mut over) = (Vec::new(), Vec::new());
    let (mut untaken, mut ending) = (Vec::new(), Vec::new());
    let (outages, mut in_doubt) = (shared.outages.is_any(), Vec::new());
    for acquisition in lock(&shared.registry).acquisitions.values() {
        let Some(lease) = acquisition.lease() else {
            continue;
        };
        match acquisition.swept(now) {
            Swept::Lost { clean_up_at } => {
                if clean_up_at <= now {
                    over.push(Arc::clone(acquisition));
                } else {
                    next = next.min(clean_up_at);
                }
                if lease.counts_as_lost() {
                    shared.lease_lost(&acquisition.key);
                }
                lost.push(Arc::clone(acquisition));
            }
            Swept::Held { cap } => {
                if outages && lease.is_failing() {
                    in_doubt.push(Arc::clone(&acquisition.key));
                }
                // Leases that are due soon join the batch, so that batches are full and sweeps are few.
                let terms = lease.terms();
                let is_due = lease.renew_at() <= now + terms.ttl() / 12;
                if is_due && acquisition.is_untaken() {
                    lease.renews_later(now);
                    untaken.push(Arc::clone(&acquisition.key));
                } else if is_due && let Some((terms, prolongs)) = lease.renewing(now) {
                    due.push(Due {
                        acquisition: Arc::clone(acquisition),
                        terms,
                        prolongs,
                        shortens: lease.shortens(),
                    });
                }
                next = next.min(lease.renew_at()).min(lease.end().min(cap));
                match lease.is_named_at() {
                    Some(at) if at <= now => {
                        lease.name();
                        ending.push((Arc::clone(acquisition), lease.end()));
                    }
                    Some(at) => next = next.min(at),
                    None => {}
                }
            }
            Swept::Unreleased => {
                next = next.min(now + shared.config.command_deadline + MAXIMUM_PAUSE);
            }
            Swept::CleanUp => over.push(Arc::clone(acquisition)),
            Swept::Nothing => {}
        }
    }
    for acquisition in lost {
        shared.gone(&acquisition);
    }
    if outages {
        shared.tell_ended(&in_doubt);
    }
    for key in untaken {
        tracing::debug!(
            key = key.name(),
            "a renewal waits until the caller of the lock runs"
        );
    }
    for (acquisition, end) in ending {
        let lost_in_ms = now.until(end).as_millis() as u64;
        tracing::warn!(
            key = acquisition.key.name(),
            lost_in_ms,
            "a lock will be lost unless the server confirms it"
        );
    }
    for acquisition in over {
        tracing::debug!(key = acquisition.key.name(), "lost: cleaning up");
        jobs.release(acquisition);
    }
    // A batch has ttls of about one length. The sort is stable, so that one ttl keeps about
    // the order of memory: fetching the lock from memory is most of what a renewal costs here.
    due.sort_by_key(|due| due.terms.ttl());
    for due in by_server_and_kind(shared, due, |due| &due.acquisition.key) {
        jobs.push(renew_all(Arc::clone(shared), due));
    }
    shared.leases_due.fetch_min(next.0, Ordering::SeqCst);
}

fn sweep_checks(shared: &Arc<Shared>, now: Moment, jobs: &mut Jobs) {
    shared.checks_due.store(Moment::NEVER.0, Ordering::SeqCst);
    // The time of a request, and of the pause after its failure.
    let limit = shared.config.command_deadline.saturating_add(MAXIMUM_PAUSE);
    let due = lock(&shared.registry).due(now);
    for acquisition in due {
        if let Some(left) = shared.pass_over(&acquisition, now, limit) {
            jobs.release(left);
        }
        shared.watch_waiter(lock(&shared.registry), &acquisition);
        if lock(&acquisition.life).state.begins_refresh() {
            jobs.refresh(acquisition);
        }
    }
    let next = lock(&shared.registry).first_check();
    let next = next.unwrap_or(Moment::NEVER);
    shared.checks_due.fetch_min(next.0, Ordering::SeqCst);
}

impl Shared {
    /// Lets another caller ask, if the one of this acquisition does not run. Returns the acquisition if no waiter needs it then.
    fn pass_over(
        &self,
        acquisition: &Arc<Acquisition>,
        now: Moment,
        limit: Duration,
    ) -> Option<Arc<Acquisition>> {
        let line = self.line_of(acquisition)?;
        if line.is_overdue(now) {
            acquisition.wake();
        }
        match acquisition.stalled_caller(now, limit)? {
            // That caller cannot read the answer or repeat its release: the sweeps find what it should have released.
            Asker::Release => {
                lock(&acquisition.life).state.stalled();
                acquisition.wake();
                None
            }
            Asker::Waiter | Asker::Refresh => {
                let (passed_over, left) = line.pass_over(acquisition)?;
                tracing::debug!(
                    key = line.key.name(),
                    "a waiter does not run: the next waiter overtakes it"
                );
                self.lead_next(&line);
                passed_over.wake_cell.wake();
                left
            }
        }
    }
}
