//! Release of a lock, on every node.

use std::sync::Arc;
use std::time::Duration;

use super::QuorumStore;
use super::ballot::{Ballot, yes};
use super::causes::{combined, overtaken};
use super::clean_up::TakenBack;
use super::nodes::{MAXIMUM_NODES, Nodes};
use super::round::{How, ask};
use crate::base::key::LockKey;
use crate::base::token::Token;
use crate::store::redis::forced;
use crate::store::{OrRefused, Released, SnapshotState, StoreError};

/// Factor by which other answers are awaited longer than votes: giving up early gains nothing.
const ANSWER_FACTOR: u32 = 4;

impl QuorumStore {
    /// Sends the release to every node that was asked for the token, also to a node that gave no answer. The lock is released when
    /// no majority has the token any more. The remaining answers come in the background.
    pub(in crate::store) async fn release(
        &self,
        key: &LockKey,
        token: &Token,
    ) -> Result<Released, StoreError> {
        let released = self.given_back(key, token).await?;
        if key.traits().named_in.is_some() {
            self.announce(key, token, None);
        }
        Ok(released)
    }

    async fn given_back(&self, key: &LockKey, token: &Token) -> Result<Released, StoreError> {
        let members = &self.members;
        let (nodes, majority) = (members.all.len(), members.majority);
        let given = members.tokens.release(token);
        let ballot = Ballot::release(key, token, given.edition.number);
        let spared = given
            .nodes
            .map_or_else(Nodes::default, |it| members.nodes().but(it));
        let taken_back = TakenBack::new(members, Arc::clone(&ballot), given.edition);
        let mut round = ask(members, ballot, How::Tell, spared, self.usual());
        // A node that was never asked has nothing of the token.
        let (mut held, mut not_held, mut forgotten) = (0, spared.len(), 0);
        let mut failures = [const { None }; MAXIMUM_NODES];
        let outcome = loop {
            if held >= majority {
                break Ok(Released::Free);
            }
            if not_held > nodes - majority {
                let is_lost = !given.is_undone();
                break is_lost.then_some(Released::NotHeld).ok_or_else(overtaken);
            }
            // A node without an answer, or one that has forgotten its votes, may have had the vote that is missing. No majority has
            // the token any more, and that node receives the release when it can.
            let free = held > 0 && held + not_held + forgotten >= majority;
            let Some((node, answer)) = round.next_or_late(free).await else {
                if free {
                    break Ok(Released::Free);
                }
                if not_held + forgotten > nodes - majority {
                    break Ok(Released::NotHeld);
                }
                break Err(combined(nodes, failures.into_iter().flatten().collect()));
            };
            failures[node] = None;
            if !round.is_open(node) {
                taken_back.was_told(node, &answer);
            }
            match answer.and_then(|value| yes(&value)) {
                Ok(true) => held += 1,
                Ok(false) if members.all[node].sessions.votes(members.wait) => not_held += 1,
                Ok(false) => forgotten += 1,
                Err(error) => failures[node] = Some(members.all[node].failed(error)),
            }
        };
        round.finish(move |(node, answer)| taken_back.was_told(node, &answer));
        // Some nodes may have released already: the next attempt finds fewer votes than were held, so the outcome is ambiguous.
        match outcome {
            Err(StoreError::NotNow(cause)) if held > 0 => Err(StoreError::Ambiguous(cause)),
            outcome => outcome,
        }
    }

    /// The forced release, for operators. It waits for the answer of every node.
    pub(in crate::store) async fn force_release(&self, key: &LockKey) -> OrRefused<bool> {
        let members = &self.members;
        let nodes = members.all.len();
        // Only the current holder loses the lock, not a later holder that has it when the request reaches the slowest node.
        let holder = match self.inspect(key).await?.state {
            // A client name that is not text has replaced parts, and would match no client.
            SnapshotState::Held { client, .. } if !client.contains('\u{FFFD}') => Some(client),
            _ => None,
        };
        let ballot = Ballot::force_release(key, holder.as_deref());
        let mut round = ask(
            members,
            ballot,
            How::Tell,
            Nodes::default(),
            self.patience(),
        );
        let (mut taken_away, mut answered, mut refused) = (false, 0, None);
        let mut failures: Vec<_> = std::iter::repeat_with(|| None).take(nodes).collect();
        while let Some((node, answer)) = round.next_or_late(answered >= members.majority).await {
            failures[node] = None;
            match answer.and_then(forced) {
                Ok(Ok(taken)) => taken_away |= taken,
                Ok(Err(refusal)) => refused = Some(refusal),
                Err(error) => {
                    failures[node] = Some(members.all[node].failed(error));
                    continue;
                }
            }
            answered += 1;
        }
        round.finish(|_| ());
        if answered < members.majority {
            return Err(combined(nodes, failures.into_iter().flatten().collect()));
        }
        Ok(match refused {
            Some(refusal) if !taken_away => Err(refusal),
            // One vote is enough: a holder that learns of the first loss releases the other votes by itself.
            _ => Ok(taken_away),
        })
    }

    /// Maximum wait for an answer that is not a vote.
    pub(super) fn patience(&self) -> Duration {
        (self.usual() * ANSWER_FACTOR)
            .max(Duration::from_millis(100))
            .min(self.members.limit)
    }

    /// The time in which a majority usually answers.
    pub(super) fn usual(&self) -> Duration {
        let limit = self.members.limit;
        self.members.in_a_majority(|node| node.rtt.limit(limit))
    }
}
