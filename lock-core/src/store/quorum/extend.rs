//! Renewal of leases on a majority, and healing of the minority.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::QuorumStore;
use super::ballot::Ballot;
use super::causes::{combined, is_waiting};
use super::clean_up::GivenUp;
use super::nodes::{MAXIMUM_NODES, Nodes};
use super::round::{Answered, How, Round, ask};
use super::sent_on::NONE;
use super::tokens::RunningRenewal;
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
        let tokens = renewals.iter().map(|it| members.tokens.current(it.token));
        let tokens: Vec<_> = tokens.collect();
        let renewals = renewals.iter().zip(&tokens);
        let renewals: Vec<_> = renewals
            .map(|(renewal, token)| Renewal { token, ..*renewal })
            .collect();
        // A renewal without an answer must leave time for another one.
        let ttls = renewals.iter().map(|renewal| renewal.ttl);
        let third = ttls.filter(|ttl| !ttl.is_zero()).map(|ttl| ttl / 3).min();
        let limit = third.unwrap_or(members.limit).min(members.limit);
        let end = self.members.timers().now() + limit;
        let renewing = members
            .tokens
            .renew(renewals.iter().map(|renewal| renewal.token));
        let kept: Vec<_> = renewals.iter().map(|it| self.kept(*it)).collect();
        let ballot = Ballot::extend(&kept);
        let patience = self.patience().min(limit);
        let mut round = ask(members, ballot, How::Renew, Nodes::default(), patience);
        let lost = self.lost(&mut round, &renewals, end).await;
        round.finish(|_| ());
        let (lost, renewing) = (lost?, Arc::new(renewing));
        for (renewal, lost) in renewals.iter().zip(&lost) {
            // A lease that is only confirmed gets no new vote: its ttl is not known here.
            if let Some(lost) = lost
                && !renewal.ttl.is_zero()
            {
                members.tokens.renewed(renewal.token, renewal.ttl);
                if !lost.is_empty() {
                    self.heal(*renewal, *lost, &renewing);
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
                    let on = members.all[node].server.generation().unwrap_or(NONE);
                    for (n, flag) in flags.into_iter().enumerate() {
                        // A vote that a late undo may remove does not count.
                        let counts = || members.tokens.renewed_on(renewals[n].token, node, on);
                        let side = if flag && counts() {
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
    fn heal(&self, renewal: Renewal<'_>, lost: Nodes, renewing: &Arc<RunningRenewal>) {
        if self.members.tokens.was_released(renewal.token) {
            return;
        }
        let release = Ballot::release(renewal.key, renewal.token, false);
        let members = &self.members;
        let others = members.nodes().but(lost);
        for node in members.all.iter().filter(|node| lost.has(node.index)) {
            tracing::debug!(
                node = node.index,
                key = renewal.key.name(),
                "healing a lost vote"
            );
        }
        let ballot = Ballot::heal(self.kept(renewal));
        let how = How::Vote(*renewal.token);
        let mut round = ask(members, ballot, how, others, members.limit);
        round.send();
        let (members, token) = (Arc::clone(members), *renewal.token);
        let renewing = Arc::clone(renewing);
        round.finish(move |_| {
            let _until_healed = &renewing;
            // The lock was released while it was being healed, and the release may have come first.
            if members.tokens.was_released(&token)
                && let Some(sent_on) = members.tokens.release(&token)
            {
                GivenUp::new(&members, Arc::clone(&release), token, sent_on).undo();
            }
        });
    }
}
