//! Renewal of leases on a majority, and the votes of the minority.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::time::{Instant, timeout};

use super::QuorumStore;
use super::ballot::Ballot;
use super::causes::combined;
use super::members::Members;
use super::nodes::{MAXIMUM_NODES, Nodes};
use super::round::{Answered, How, Round, ask};
use super::tokens::{Edition, stored};
use crate::base::backoff::Backoff;
use crate::store::redis::extended;
use crate::store::{Renewal, StoreError};

/// Maximum pause before a node is asked again: the release of the former holder is on its way.
const SOON: Duration = Duration::from_millis(10);

/// For a lease, the nodes that have its vote, and those that have lost it; `None` if it is gone.
type Votes = Result<Option<(Nodes, Nodes)>, StoreError>;

impl QuorumStore {
    /// A lease is renewed if a majority still has its token. Only then the other nodes, which lost the vote or were away when
    /// it was cast, get it back: earlier, that could revive a lock that was taken away.
    pub(in crate::store) async fn extend(
        &self,
        renewals: &[Renewal<'_>],
    ) -> Vec<Result<bool, StoreError>> {
        let members = &self.members;
        let editions = renewals.iter().map(|it| members.tokens.edition(it.token));
        let editions: Vec<_> = editions.collect();
        let votes = renewals.iter().zip(&editions);
        let votes: Vec<_> = votes
            .map(|(it, edition)| stored(it.token, edition.number))
            .collect();
        // A renewal without an answer must leave time for another one.
        let ttls = renewals.iter().map(|renewal| renewal.ttl);
        let third = ttls.filter(|ttl| !ttl.is_zero()).map(|ttl| ttl / 3).min();
        let limit = third.unwrap_or(members.limit).min(members.limit);
        let end = self.members.timers().now() + limit;
        let kept: Vec<_> = renewals.iter().map(|it| self.kept(*it)).collect();
        let ballot = Ballot::extend(&kept, &votes);
        let patience = self.patience().min(limit);
        let mut round = ask(members, ballot, How::Renew, Nodes::default(), patience);
        let outcomes = self.outcomes(&mut round, &editions, end).await;
        round.finish(|_| ());
        let all = renewals.iter().zip(editions).zip(outcomes);
        all.map(|((renewal, edition), outcome)| {
            let votes = outcome?;
            if let Some(votes) = votes {
                self.renewed(*renewal, edition, votes);
            }
            Ok(votes.is_some())
        })
        .collect()
    }

    /// All nodes that answer in time are counted, and the others are awaited only as long as they are needed. A lease that stays
    /// undecided has an error of its own, and is asked for again.
    async fn outcomes(
        &self,
        round: &mut Round<impl Future<Output = Answered> + Send + 'static>,
        editions: &[Edition],
        end: Instant,
    ) -> Vec<Votes> {
        let (members, leases) = (&self.members, editions.len());
        let (nodes, majority) = (members.all.len(), members.majority);
        let mut failures = [const { None }; MAXIMUM_NODES];
        let mut held = vec![Nodes::default(); leases];
        let mut not_held = held.clone();
        loop {
            let is_held = |n: usize| held[n].len() >= majority;
            let is_gone = |n: usize| not_held[n].len() > nodes - majority;
            let next = match round.next().await {
                None if !(0..leases).all(|n| is_held(n) || is_gone(n)) => {
                    round.straggler(end).await
                }
                next => next,
            };
            let Some((node, answer)) = next else {
                let failures: Vec<_> = failures.into_iter().flatten().collect();
                let outcome = |n| match (is_held(n), is_gone(n)) {
                    (true, _) => Ok(Some((held[n], not_held[n]))),
                    (false, true) => Ok(None),
                    (false, false) => Err(combined(nodes, failures.clone())),
                };
                return (0..leases).map(outcome).collect();
            };
            failures[node] = None;
            match answer.and_then(|value| extended(value, leases)) {
                Ok(flags) => {
                    for (n, flag) in flags.into_iter().enumerate() {
                        let side = if flag {
                            members.tokens.confirmed(editions[n], node);
                            &mut held[n]
                        } else {
                            &mut not_held[n]
                        };
                        *side = side.with(node);
                    }
                }
                // A node that waits may have lost the vote, and gives it to no other client while the lease lasts.
                Err(error) => failures[node] = Some(members.all[node].failed(error)),
            }
        }
    }

    /// A majority has confirmed a lease, and some nodes have lost its vote.
    fn renewed(&self, renewal: Renewal<'_>, edition: Edition, (held, lost): (Nodes, Nodes)) {
        let tokens = &self.members.tokens;
        tokens.renewed(edition, renewal.ttl, held);
        self.named_again(renewal);
        if let Some(left) = tokens.left(edition).filter(|_| !lost.is_empty()) {
            let ttl = if renewal.ttl.is_zero() {
                left
            } else {
                renewal.ttl
            };
            self.heal(Renewal { ttl, ..renewal }, edition, lost);
        }
    }

    /// The renewal as the nodes are asked for it. A ttl of zero leaves a vote as it is.
    fn kept<'a>(&self, renewal: Renewal<'a>) -> Renewal<'a> {
        let ttl = match renewal.ttl {
            Duration::ZERO => Duration::ZERO,
            ttl => self.members.kept(ttl),
        };
        Renewal { ttl, ..renewal }
    }

    /// Casts the vote again, in the background, on the nodes that have lost it.
    fn heal(&self, renewal: Renewal<'_>, edition: Edition, lost: Nodes) {
        let members = &self.members;
        for node in members.all.iter().filter(|node| lost.has(node.index)) {
            tracing::debug!(
                node = node.index,
                key = renewal.key.name(),
                "healing a lost vote"
            );
        }
        let ballot = Ballot::heal(self.kept(renewal), edition.number);
        let mut round = ask_again(members, ballot, edition, members.nodes().but(lost));
        round.send();
        round.finish(|_| ());
    }

    /// A lock is won with the votes that have come so far. The other nodes vote later in this round, or are asked again.
    pub(super) fn complete(
        &self,
        round: Round<impl Future<Output = Answered> + Send + 'static>,
        edition: Edition,
        lease: Duration,
    ) {
        let members = &self.members;
        let is_complete = || members.tokens.bare(edition, members.nodes()).is_none();
        if round.is_answered() && is_complete() {
            return;
        }
        let completed = completed(Arc::downgrade(members), round.ballot(), edition, lease);
        let rest = round.rest(|_| ());
        members.engine.spawn(rest.then(|()| completed));
    }
}

/// Asks the nodes that refused, were skipped or were silent, until all have voted or the first renewal is due: a lock with a bare
/// majority would be lost with one more node.
async fn completed(members: Weak<Members>, won: Arc<Ballot>, edition: Edition, lease: Duration) {
    let end = Instant::now() + lease / 3;
    let mut backoff = Backoff::new(SOON, lease / 12);
    while let Some(there) = members.upgrade() {
        let bare = there.tokens.bare(edition, there.nodes());
        let Some((voted, left)) = bare.filter(|_| Instant::now() < end) else {
            return;
        };
        if backoff.failures() > 0 {
            let ballot = won.completed(there.kept(left));
            let mut round = ask_again(&there, ballot, edition, there.left_out().and(voted));
            while round.next().await.is_some() {}
        }
        let mut alive = there.alive.subscribe();
        drop(there);
        let _ = timeout(backoff.failed(), alive.changed()).await;
    }
}

/// Asks for votes for a lock that a majority has.
fn ask_again(
    members: &Arc<Members>,
    ballot: Arc<Ballot>,
    edition: Edition,
    skip: Nodes,
) -> Round<impl Future<Output = Answered> + Send + 'static> {
    let waits = false;
    ask(
        members,
        ballot,
        How::Vote { edition, waits },
        skip,
        members.limit,
    )
}
