//! Renewal of leases on a majority, and healing of the minority.

use std::time::Duration;

use tokio::time::Instant;

use super::QuorumStore;
use super::ballot::Ballot;
use super::causes::{combined, is_waiting};
use super::nodes::{MAXIMUM_NODES, Nodes};
use super::round::{Answered, How, Round, ask};
use super::tokens::{Edition, stored};
use crate::store::redis::extended;
use crate::store::{Renewal, StoreError, to_each};

impl QuorumStore {
    pub(in crate::store) async fn extend(
        &self,
        renewals: &[Renewal<'_>],
    ) -> Vec<Result<bool, StoreError>> {
        let held = self.extended(renewals).await;
        if let Ok(held) = &held {
            self.renewed(renewals, held);
        }
        to_each(held, renewals.len())
    }

    /// A lease is renewed if a majority still has its token. Only then the other nodes, which lost the vote or were away when
    /// it was cast, get it back: earlier, that could revive a lock that was taken away.
    async fn extended(&self, renewals: &[Renewal<'_>]) -> Result<Vec<bool>, StoreError> {
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
        let lost = self.lost(&mut round, renewals, &editions, end).await;
        round.finish(|_| ());
        let lost = lost?;
        for ((renewal, edition), lost) in renewals.iter().zip(editions).zip(&lost) {
            // A lease that is only confirmed gets no new vote: its ttl is not known here.
            if let Some(lost) = lost
                && !renewal.ttl.is_zero()
            {
                members.tokens.renewed(edition, renewal.ttl);
                if !lost.is_empty() && members.tokens.is_open(edition) {
                    self.heal(*renewal, edition, *lost);
                }
            }
        }
        Ok(lost.iter().map(Option::is_some).collect())
    }

    /// For each lease, the nodes that have lost its vote and can be healed; `None` if it is not renewed. All nodes that answer in
    /// time are counted, and the others are awaited only as long as they are needed. An error if no lease is decided.
    async fn lost(
        &self,
        round: &mut Round<impl Future<Output = Answered> + Send + 'static>,
        renewals: &[Renewal<'_>],
        editions: &[Edition],
        end: Instant,
    ) -> Result<Vec<Option<Nodes>>, StoreError> {
        let members = &self.members;
        let (nodes, majority) = (members.all.len(), members.majority);
        let mut failures = [const { None }; MAXIMUM_NODES];
        let mut held = vec![Nodes::default(); renewals.len()];
        let (mut not_held, mut waiting) = (held.clone(), Nodes::default());
        loop {
            let won = |n: usize| held[n].len() >= majority;
            let decided = |n: usize| won(n) || not_held[n].len() > nodes - majority;
            let next = match round.next().await {
                None if !(0..renewals.len()).all(decided) => round.straggler(end).await,
                next => next,
            };
            let Some((node, answer)) = next else {
                if !renewals.is_empty() && !(0..renewals.len()).any(decided) {
                    return Err(combined(nodes, failures.into_iter().flatten().collect()));
                }
                // A lease without a majority for or against it, in a round that has decided others, has lost votes besides the
                // nodes that cannot be asked. It counts as lost, which is safe.
                let lost = |n| won(n).then(|| not_held[n].but(waiting));
                return Ok((0..renewals.len()).map(lost).collect());
            };
            failures[node] = None;
            match answer.and_then(|value| extended(value, renewals.len())) {
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
                Err(error) => {
                    // It has no vote of any lock, and is not healed before it votes.
                    if is_waiting(&error) {
                        for not_held in &mut not_held {
                            *not_held = not_held.with(node);
                        }
                        waiting = waiting.with(node);
                    }
                    failures[node] = Some(members.all[node].failed(error));
                }
            }
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
        let others = members.nodes().but(lost);
        for node in members.all.iter().filter(|node| lost.has(node.index)) {
            tracing::debug!(
                node = node.index,
                key = renewal.key.name(),
                "healing a lost vote"
            );
        }
        let ballot = Ballot::heal(self.kept(renewal), edition.number);
        let waits = false;
        let how = How::Vote { edition, waits };
        let mut round = ask(members, ballot, how, others, members.limit);
        round.send();
        round.finish(|_| ());
    }
}
