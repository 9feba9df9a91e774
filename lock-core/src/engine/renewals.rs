//! Renews leases in batches, and reports servers that do not renew to the log.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tracing::Instrument;

use super::acquisition::Acquisition;
use super::lease::Status;
use super::shared::Shared;
use crate::base::error::LossReason;
use crate::base::key::LockKey;
use crate::base::sync::lock;
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::base::token::Token;
use crate::store::{Renewal, StoreError};

/// Maximum number of locks in one renewal call. One call occupies the server for about 1.7 µs a lock, which other clients must
/// not notice. Each call also wakes this process for the answer, which costs as much as some 200 locks.
pub(super) const BATCH: usize = 350;

/// How much longer a ttl in a batch may be than the shortest one, which limits the wait for its answer.
const SPREAD: u32 = 2;

/// Maximum time that a batch delays the next one.
const PACE: Duration = Duration::from_millis(20);

/// A lease to renew.
pub(super) struct Due {
    pub(super) acquisition: Arc<Acquisition>,
    /// The terms of the renewal, which must not change while the answer is under way.
    pub(super) terms: Terms,
    /// False if the renewal only confirms a fixed lease after messages may have been missed.
    pub(super) prolongs: bool,
    /// Whether an extension asks for an earlier end.
    pub(super) shortens: bool,
}

/// Groups by server, because a server that hangs must not delay the requests to another one; and by kind, because each kind has its
/// own script, and a refusal of one script says nothing of another.
pub(super) fn by_server_and_kind<T>(
    shared: &Shared,
    all: Vec<T>,
    key: impl Fn(&T) -> &LockKey,
) -> Vec<Vec<T>> {
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

/// Renews batch after batch, the shortest ttl first, so that the server serves other clients in between. A batch without an answer
/// does not delay the next ones for long.
pub(super) async fn renew_all(shared: Arc<Shared>, mut due: Vec<Due>) {
    let mut under_way = FuturesUnordered::new();
    while let Some(first) = due.first() {
        let longest = first.terms.ttl() * SPREAD;
        let alike = due.iter().take(BATCH);
        let alike = alike.take_while(|due| due.terms.ttl() <= longest).count();
        let rest = due.split_off(alike);
        under_way.push(renew(
            Arc::clone(&shared),
            std::mem::replace(&mut due, rest),
        ));
        let _ = shared.timers.timeout(PACE, under_way.next()).await;
    }
    while under_way.next().await.is_some() {}
}

/// Renews a batch. An unconfirmed renewal changes no deadline. A server may refuse a batch for one of its keys, so its halves are
/// then renewed apart.
async fn renew(shared: Arc<Shared>, mut batch: Vec<Due>) {
    let span = tracing::debug_span!(
        target: "lock_core",
        "lock.renew",
        locks = batch.len(),
        outcome = tracing::field::Empty
    );
    async {
        // A lock that was let go since the sweep may be kept until a certain time. An owner may use the lease through another guard.
        let is_due =
            |due: &Due| due.acquisition.key.traits().has_owners || !due.acquisition.is_over();
        batch.retain(is_due);
        if batch.is_empty() {
            return;
        }
        let sent_at = shared.clock.now();
        let answers = extend(&shared, &batch).await;
        let now = shared.clock.now();
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
                    if shared.outages.is_any() {
                        shared.answered(&acquisition.key);
                    }
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
        fence: due.acquisition.number(),
        shortens: due.shortens,
        claim: &due.acquisition.claim,
    });
    let renewals: Vec<_> = renewals.collect();
    shared.store.extend(&renewals).await
}

impl Shared {
    /// Whether both locks are on one server.
    fn is_beside(&self, key: &LockKey) -> impl Fn(&LockKey) -> bool {
        let part = self.store.part_of(key);
        move |other| self.store.part_of(other) == part
    }

    /// Notes that renewals of this lock and of others on its server, sent at `since`, have failed.
    pub(super) fn renewals_failed(&self, key: &Arc<LockKey>, since: Moment, error: &StoreError) {
        let (now, is_there) = (self.clock.now(), self.is_beside(key));
        let is_refused = matches!(error, StoreError::Misconfigured(_));
        let outages = if is_refused {
            &self.refusals
        } else {
            &self.outages
        };
        if !outages.failed(key, &is_there, since, now, false) {
            return;
        }
        // If the server is away, the other leases fail as well. A refusal may concern only one key.
        let registry = lock(&self.registry);
        let on_server = registry
            .acquisitions
            .values()
            .filter(|it| is_there(&it.key));
        let ends = on_server.filter_map(|acquisition| {
            let lease = acquisition.lease()?;
            let concerned = lease.is_failing() || !is_refused;
            (concerned && acquisition.status(now) == Status::Held).then(|| lease.end())
        });
        let (locks, end) = ends.fold((0_u64, Moment::NEVER), |(locks, nearest), end| {
            (locks + 1, nearest.min(end))
        });
        drop(registry);
        let lost_in_ms = now.until(end).as_millis() as u64;
        let server = self.store.server_of(key);
        let server = server.as_deref();
        tracing::warn!(server, locks, lost_in_ms, %error, "leases could not be renewed: trying again");
    }

    /// Notes that a waiter got no answer, and asks again.
    pub(super) fn asked_in_vain(&self, key: &Arc<LockKey>, error: &StoreError) {
        let (now, is_there) = (self.clock.now(), self.is_beside(key));
        if self.outages.failed(key, is_there, now, now, true) {
            let server = self.store.server_of(key);
            let server = server.as_deref();
            tracing::warn!(server, %error, "locks could not be asked for: trying again");
        }
    }

    /// Notes that a lease of this lock is over.
    pub(super) fn lease_lost(&self, key: &LockKey) {
        if self.outages.is_any() {
            self.outages.lost(self.is_beside(key));
        }
    }

    /// Notes that the server of this lock has answered.
    pub(super) fn answered(&self, key: &LockKey) {
        self.outages_end(self.is_beside(key));
    }

    /// Notes that the servers of these locks answer again.
    pub(super) fn outages_end(&self, is_there: impl Fn(&LockKey) -> bool) {
        let now = self.clock.now();
        if self.outages.is_any() && self.outages.answered(is_there, now) {
            self.lease_due_at(now);
        }
    }

    /// Tells the log which outages have ended. These leases are in doubt.
    pub(super) fn tell_ended(&self, in_doubt: &[Arc<LockKey>]) {
        let is_in_doubt = |key: &LockKey| in_doubt.iter().any(|it| self.is_beside(it)(key));
        for ended in self.outages.ended(is_in_doubt) {
            let server = self.store.server_of(&ended.key);
            let away_ms = ended.lasted.as_millis() as u64;
            tracing::info!(
                server = server.as_deref(),
                away_ms,
                lost = ended.lost,
                "the server answers again"
            );
        }
    }
}
