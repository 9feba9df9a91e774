//! The task of an engine: renews leases in batches, refreshes waiters, announces losses, and releases the locks of dropped
//! guards.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::Instrument;

use super::acquisition::Acquisition;
use super::line_state::LineCheck;
use super::phase::Status;
use super::refreshes::Refreshes;
use super::release as releases;
use super::released::ReleasedLately;
use super::shared::{Command, Shared};
use super::state::{Action, Swept};
use crate::base::error::LossReason;
use crate::base::key::LockKey;
use crate::base::owner::Owner;
use crate::base::sync::lock;
use crate::base::terms::Terms;
use crate::base::time::BootTimer;
use crate::base::time::Moment;
use crate::base::token::Token;
use crate::store::{Renewal, Store, StoreError};

/// Maximum number of locks in one renewal call. One call occupies the server for about 1.7 µs a lock, which other clients must
/// not notice. Each call also wakes this process for the answer, which costs as much as some 200 locks.
const BATCH: usize = 350;

/// Maximum pause of a waiter after a failed request, with a margin.
const MAXIMUM_PAUSE: Duration = Duration::from_millis(600);

/// Maximum time that a batch delays the next one.
const PACE: Duration = Duration::from_millis(20);

type Job = BoxFuture<'static, ()>;

pub(super) async fn run(shared: Arc<Shared>, mut commands: UnboundedReceiver<Command>) {
    let mut timer = if shared.store.is_driven_here() {
        shared.clock.timer()
    } else {
        BootTimer::Heartbeat
    };
    let mut jobs: FuturesUnordered<Job> = FuturesUnordered::new();
    let mut refreshes = Refreshes::default();
    loop {
        let now = shared.now();
        let next = sweep(&shared, now, &mut jobs, &mut refreshes);
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Release(acquisition)) => release(&shared, acquisition, &mut jobs),
                Some(Command::ReleaseThen(acquisition, then)) => {
                    jobs.push(Box::pin(releases::until_confirmed_then(Arc::clone(&shared), acquisition, then)));
                }
                Some(Command::RepeatReleases(released)) => {
                    jobs.push(Box::pin(repeat(Arc::clone(&shared), released)));
                }
                None => break,
            },
            Some(()) = next_of(&mut jobs), if !jobs.is_empty() => {}
            () = refreshes.ended(&shared), if !refreshes.is_empty() => {}
            () = shared.wake.notified() => {}
            () = timer.wait(now, next) => {}
        }
    }
    // All handles are gone: finish the queued work, and clean up after the locks that were lost a moment ago.
    let now = shared.now();
    let left = lock(&shared.registry).all();
    for acquisition in left {
        if let Swept::Lost { clean_up_at } = acquisition.swept(now)
            && acquisition.life().state.begin_clean_up() == Action::CleanUp
        {
            let shared = Arc::clone(&shared);
            // The pause is part of the job: it must not delay the queued releases.
            jobs.push(Box::pin(async move {
                tokio::time::sleep(now.until(clean_up_at)).await;
                releases::until_confirmed(shared, acquisition).await;
            }));
        }
    }
    let rest = async {
        while !refreshes.is_empty() {
            refreshes.ended(&shared).await;
        }
    };
    let work = async { while next_of(&mut jobs).await.is_some() {} };
    tokio::join!(work, rest);
}

/// The next job that is over. Without the budget of tokio: where many jobs are ready, each poll would use it up on the first ones, and
/// wake all others in vain.
async fn next_of(jobs: &mut FuturesUnordered<Job>) -> Option<()> {
    tokio::task::unconstrained(jobs.next()).await
}

fn release(shared: &Arc<Shared>, acquisition: Arc<Acquisition>, jobs: &mut FuturesUnordered<Job>) {
    let action = acquisition.life().state.begin_clean_up();
    match action {
        Action::CleanUp => jobs.push(Box::pin(releases::until_confirmed(
            Arc::clone(shared),
            acquisition,
        ))),
        action => {
            shared.release_tried(&acquisition);
            shared.act(&acquisition, action);
        }
    }
}

/// Starts all work that is due. Returns the moment of the next work.
fn sweep(
    shared: &Arc<Shared>,
    now: Moment,
    jobs: &mut FuturesUnordered<Job>,
    refreshes: &mut Refreshes,
) -> Moment {
    if shared.leases_due.load(Ordering::SeqCst) <= now.0 {
        sweep_leases(shared, now, jobs);
    }
    if shared.lines_due.load(Ordering::SeqCst) <= now.0 {
        sweep_lines(shared, now, jobs, refreshes);
    }
    let leases = Moment(shared.leases_due.load(Ordering::SeqCst));
    let lines = Moment(shared.lines_due.load(Ordering::SeqCst));
    leases.min(lines)
}

fn sweep_leases(shared: &Arc<Shared>, now: Moment, jobs: &mut FuturesUnordered<Job>) {
    // From here on an earlier moment may be stored; it must not be overwritten.
    shared.leases_due.store(Moment::NEVER.0, Ordering::SeqCst);
    let mut next = Moment::NEVER;
    let mut due = Vec::new();
    let (mut lost, mut over, mut not_taken) = (Vec::new(), Vec::new(), Vec::new());
    let mut ending = Vec::new();
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
                // Leases that are due soon join the batch, so that batches are full and sweeps are few.
                let terms = lease.terms();
                if lease.renew_at() <= now + terms.ttl() / 12
                    && let Some((terms, prolongs)) = lease.renewing(now)
                {
                    not_taken.extend(acquisition.not_taken());
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
        lock(&shared.registry).gone(&acquisition);
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
        release(shared, acquisition, jobs);
    }
    for hold in not_taken {
        tracing::debug!(
            key = hold.request.key.name(),
            "a waiter does not run: the lock goes to the next waiter"
        );
        if hold.release(now) == Status::Held
            && let Some(acquisition) = shared.pass_on(&hold, now)
        {
            release(shared, acquisition, jobs);
        }
        hold.wake_cell.wake();
    }
    // The shortest ttl of a batch limits the time for its answer, so sort by ttl. The sort is stable, so that one ttl keeps about
    // the order of memory: fetching the lock from memory is most of what a renewal costs here.
    due.sort_by_key(|due| due.terms.ttl());
    for due in together(shared, due, |due| &due.acquisition.key) {
        jobs.push(Box::pin(renew_all(Arc::clone(shared), due)));
    }
    shared.leases_due.fetch_min(next.0, Ordering::SeqCst);
}

fn sweep_lines(
    shared: &Arc<Shared>,
    now: Moment,
    jobs: &mut FuturesUnordered<Job>,
    refreshes: &mut Refreshes,
) {
    shared.lines_due.store(Moment::NEVER.0, Ordering::SeqCst);
    // The time of a request, and of the pause after its failure.
    let limit = shared.config.command_deadline.saturating_add(MAXIMUM_PAUSE);
    let mut registry = lock(&shared.registry);
    let due = registry.due(now, limit);
    for (line, _) in &due {
        if let Some(terms) = line.wants_check() {
            shared.watch_line(&mut registry, line, terms);
        }
    }
    let next = registry.first_check().unwrap_or(Moment::NEVER);
    drop(registry);
    for (line, what) in due {
        match what {
            Some(LineCheck::Refresh(acquisition)) => {
                refreshes.add(shared, line, acquisition);
            }
            Some(LineCheck::PassedOver(left)) => {
                tracing::debug!(
                    key = line.key.name(),
                    "a waiter does not run: the next waiter overtakes it"
                );
                if let Some(acquisition) = left {
                    release(shared, acquisition, jobs);
                }
            }
            Some(LineCheck::Release(acquisition)) => {
                let action = acquisition.life().state.client_stands_still();
                shared.act(&acquisition, action);
            }
            None => {}
        }
    }
    shared.lines_due.fetch_min(next.0, Ordering::SeqCst);
}

/// A lease to renew.
struct Due {
    acquisition: Arc<Acquisition>,
    /// The terms of the renewal, which must not change while the answer is under way.
    terms: Terms,
    /// False if the renewal only confirms a fixed lease after messages may have been missed.
    prolongs: bool,
    /// Whether an extension asks for an earlier end.
    shortens: bool,
}

/// Each server apart, since one that hangs must not delay the requests to another one. And each kind apart, since each has a script
/// of its own: what is refused to one says nothing of the other.
fn together<T>(shared: &Shared, all: Vec<T>, key: impl Fn(&T) -> &LockKey) -> Vec<Vec<T>> {
    let mut parts: Vec<(_, Vec<T>)> = Vec::new();
    for one in all {
        let part = (shared.store.part_of(key(&one)), key(&one).kind());
        match parts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, others)) => others.push(one),
            None => parts.push((part, vec![one])),
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

/// Renews batch after batch, so that the server serves other clients in between. A batch without an answer does not delay the
/// next ones for long.
async fn renew_all(shared: Arc<Shared>, mut due: Vec<Due>) {
    let mut under_way = FuturesUnordered::new();
    while !due.is_empty() {
        let rest = due.split_off(due.len().min(BATCH));
        under_way.push(renew(
            Arc::clone(&shared),
            std::mem::replace(&mut due, rest),
        ));
        let _ = tokio::time::timeout(PACE, under_way.next()).await;
    }
    while under_way.next().await.is_some() {}
}

/// Renews a batch. An unconfirmed renewal changes no deadline. Locks that are refused together may be so for one key of them, so
/// their halves are renewed apart.
async fn renew(shared: Arc<Shared>, mut batch: Vec<Due>) {
    let span = tracing::debug_span!(
        target: "lock_core",
        "lock.renew",
        locks = batch.len(),
        outcome = tracing::field::Empty
    );
    async {
        // A lock that was let go since the sweep may be kept until a certain time. An owner may use the lease by another guard.
        let is_due =
            |due: &Due| due.acquisition.key.traits().has_owners || !due.acquisition.is_over();
        batch.retain(is_due);
        if batch.is_empty() {
            return;
        }
        let sent_at = shared.now();
        let answers = extend(&shared, &batch).await;
        let now = shared.now();
        let (mut next, mut lost, mut failed) = (Moment::NEVER, 0, None);
        let (many, mut refused) = (batch.len() > 1, Vec::new());
        for (due, answer) in batch.into_iter().zip(answers) {
            if many && matches!(answer, Err(StoreError::Misconfigured(_))) {
                refused.push(due);
                continue;
            }
            let acquisition = &due.acquisition;
            let Some(lease) = acquisition.lease() else {
                continue;
            };
            let end = lease.end();
            match answer {
                Ok(true) if due.prolongs => {
                    shared.answered(&acquisition.key);
                    shared.observe_renewal(acquisition, now, end, None);
                    next = next
                        .min(lease.renewed(now, sent_at, due.terms))
                        .min(lease.end());
                }
                Ok(true) => next = next.min(lease.confirmed(now)).min(lease.end()),
                // The acquisition was released in between; other acquisitions of the same owner may still use the lease.
                Ok(false) if acquisition.is_over() => next = next.min(lease.not_renewed(now)),
                Ok(false) => {
                    lost += 1;
                    if lease.lose(LossReason::Gone) {
                        next = now;
                    }
                }
                Err(error) => {
                    next = next.min(lease.failed(now, &error)).min(end);
                    shared.observe_renewal(acquisition, now, end, Some(&error));
                    failed.get_or_insert_with(|| (Arc::clone(&acquisition.key), error));
                }
            }
        }
        span.record("outcome", outcome(lost, failed.is_some(), &refused));
        if let Some((key, error)) = failed {
            shared.renewals_failed(&key, sent_at, &error);
        }
        if !refused.is_empty() {
            let half = refused.split_off(refused.len() / 2);
            let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
            Box::pin(async { tokio::join!(renew(one, refused), renew(other, half)) }).await;
        }
        shared.lease_due_at(next);
    }
    .instrument(span.clone())
    .await;
}

/// The outcome of a batch, for its span.
fn outcome(lost: usize, failed: bool, refused: &[Due]) -> &'static str {
    match (lost, failed, refused) {
        (_, true, _) => "failed",
        (_, false, [_, ..]) => "refused, in halves",
        (1.., false, []) => "some lost",
        (0, false, []) => "renewed",
    }
}

async fn extend(shared: &Shared, batch: &[Due]) -> Vec<Result<bool, StoreError>> {
    let token = |due: &Due| shared.token(&due.acquisition);
    let tokens: Vec<Token> = batch.iter().map(token).collect();
    let renewals = batch.iter().zip(&tokens).map(|(due, token)| Renewal {
        key: &due.acquisition.key,
        token,
        ttl: if due.prolongs {
            due.terms.ttl()
        } else {
            Duration::ZERO
        },
        shortens: due.shortens,
        owner: due.acquisition.owner(),
    });
    let renewals: Vec<_> = renewals.collect();
    shared.store.extend(&renewals).await
}

/// Releases again what is held at a server that has not heard of the release. It asks first, for many locks at once: mostly there
/// are none.
async fn repeat(shared: Arc<Shared>, released: Vec<ReleasedLately>) {
    let released = together(&shared, released, |one| &one.key);
    for batch in released.iter().flat_map(|part| part.chunks(BATCH)) {
        let tokens: Vec<Token> = batch
            .iter()
            .map(|one| shared.client.token(one.sequence))
            .collect();
        let asked = batch.iter().zip(&tokens).map(|(one, token)| Renewal {
            key: &one.key,
            token,
            ttl: Duration::ZERO,
            shortens: false,
            owner: one.owner.as_ref().map(Owner::as_str),
        });
        let asked: Vec<_> = asked.collect();
        // After the next reconnect it is asked again.
        let held = shared.store.extend(&asked).await;
        for (one, _) in batch
            .iter()
            .zip(held)
            .filter(|(_, held)| matches!(held, Ok(true)))
        {
            let ReleasedLately {
                sequence,
                key,
                terms,
                owner,
                ..
            } = one.clone();
            shared.release_again(Acquisition::new(sequence, key, terms, owner));
        }
    }
}

impl Shared {
    /// The server says that a token of this client holds the lock that the line waits for.
    pub(super) fn check_own_holder(&self, sequence: u64, key: &Arc<LockKey>, remaining: Duration) {
        let now = self.now();
        let registry = lock(&self.registry);
        match registry.acquisitions.get(&sequence) {
            // Its grant message was lost, so it does not know yet that it has the lock.
            Some(holder) if holder.status(now) == Status::Pending => {
                let holder = Arc::clone(holder);
                drop(registry);
                let action = holder.life().state.freed();
                self.act(&holder, action);
            }
            Some(_) => {}
            None if registry.is_kept(sequence, now) => {}
            None => {
                drop(registry);
                self.decline(sequence, Arc::clone(key), remaining);
            }
        }
    }
}
