//! The leader of an election, as a majority of the nodes knows it.

use std::sync::Arc;
use std::time::Duration;

use once_cell::sync::Lazy;

use super::QuorumStore;
use super::ballot::Ballot;
use super::causes::combined;
use super::nodes::Nodes;
use super::round::{How, ask};
use super::tokens::stored;
use crate::base::election::LeaderSnapshot;
use crate::base::key::LockKey;
use crate::base::refusal::Refusal;
use crate::base::token::Token;
use crate::store::redis::kinds::election;
use crate::store::redis::{Arg, Script, script};
use crate::store::{Answer, Attempt, OrRefused, Renewal};

static ANNOUNCE: Lazy<Script> = script!(
    "quorum announce",
    "prelude.lua",
    "quorum/vote.lua",
    "quorum/announce.lua"
);

impl QuorumStore {
    /// Names the leader once it has a majority: a vote alone does not tell the term.
    pub(super) fn won(&self, attempt: Attempt<'_>, answer: &Answer) {
        if let (Answer::Granted { fence, .. }, Some(value)) = (answer, attempt.claim.value()) {
            self.announce(attempt.key, attempt.token, Some((*fence, value)));
        }
    }

    /// Names a leader again whose lease was renewed.
    pub(super) fn named_again(&self, renewal: Renewal<'_>) {
        // Zero once it has ended.
        if let Some(value) = renewal.claim.value().filter(|_| renewal.fence > 0) {
            let leads = Some((renewal.fence, value));
            self.announce(renewal.key, renewal.token, leads);
        }
    }

    /// Tells every node who leads, or that the leader has resigned. Each keeps the record as long as its vote.
    pub(super) fn announce(&self, key: &LockKey, token: &Token, leads: Option<(u64, &str)>) {
        let edition = self.members.tokens.edition(token);
        let mut round = ask(
            &self.members,
            Ballot::announce(key, token, edition.number, leads),
            How::Tell,
            Nodes::default(),
            self.patience(),
        );
        round.send();
        round.finish(|_| ());
    }

    /// The leader that a majority names, with the lease that a majority still keeps.
    pub(in crate::store) async fn leader(&self, key: &LockKey) -> OrRefused<LeaderSnapshot> {
        let members = &self.members;
        let (nodes, majority) = (members.all.len(), members.majority);
        let ballot = Ballot::leader(key);
        let mut round = ask(
            members,
            ballot,
            How::Tell,
            Nodes::default(),
            self.patience(),
        );
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        while let Some((node, answer)) = round.next_or_late(answers.len() >= majority).await {
            match answer.and_then(|value| election::read(&value)) {
                Ok(answer) => answers.push(answer),
                Err(error) => failures.push(members.all[node].failed(error)),
            }
        }
        round.finish(|_| ());
        if answers.len() < majority {
            return Err(combined(nodes, failures));
        }
        Ok(named_by(majority, answers))
    }
}

impl Ballot {
    /// Announces that the holder of this token leads an election, with its term and value, or that it has released the lock.
    fn announce(
        key: &LockKey,
        token: &Token,
        edition: u64,
        leads: Option<(u64, &str)>,
    ) -> Arc<Self> {
        let vote = stored(token, edition);
        let mut args = vec![Arg::Text(&vote)];
        if let Some((term, value)) = leads {
            args.extend([Arg::Number(term), Arg::Text(value)]);
        }
        Self::new(&ANNOUNCE, &election::lock_and_record(key), &args)
    }

    fn leader(key: &LockKey) -> Arc<Self> {
        Self::new(&election::READ, &election::lock_and_record(key), &[])
    }
}

/// What this number of nodes, or more, say.
fn named_by(
    majority: usize,
    answers: Vec<Result<LeaderSnapshot, Refusal>>,
) -> Result<LeaderSnapshot, Refusal> {
    let mut lefts: Vec<Duration> = answers.iter().flatten().filter_map(remaining).collect();
    lefts.sort_unstable_by(|a, b| b.cmp(a));
    let Some(remaining) = lefts.get(majority - 1).copied() else {
        let refused = answers.into_iter().filter(Result::is_err).nth(majority - 1);
        return refused.unwrap_or(Ok(LeaderSnapshot::Free));
    };
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    let said = |answer: &LeaderSnapshot| match answer {
        LeaderSnapshot::Leads { term, value, .. } => Some((*term, value.clone())),
        _ => None,
    };
    for (term, value) in answers.iter().filter_map(said) {
        let leads = Some((term, value.clone()));
        if answers.iter().filter(|it| said(it) == leads).count() >= majority {
            return Ok(LeaderSnapshot::Leads {
                term,
                value,
                remaining,
            });
        }
    }
    Ok(LeaderSnapshot::Unknown { remaining })
}

fn remaining(answer: &LeaderSnapshot) -> Option<Duration> {
    match answer {
        LeaderSnapshot::Unknown { remaining } | LeaderSnapshot::Leads { remaining, .. } => {
            Some(*remaining)
        }
        LeaderSnapshot::Free => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(term: u64, seconds: u64) -> LeaderSnapshot {
        LeaderSnapshot::Leads {
            term,
            value: "a".to_owned(),
            remaining: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn a_leader_is_the_one_that_a_majority_names() {
        let named = |answers: Vec<_>| {
            let answers = answers.into_iter().map(Ok).collect();
            named_by(2, answers).unwrap()
        };
        assert_eq!(
            named(vec![leads(7, 3), leads(7, 1), LeaderSnapshot::Free]),
            leads(7, 1)
        );
        let other = named(vec![leads(7, 3), leads(6, 2), LeaderSnapshot::Free]);
        let remaining = Duration::from_secs(2);
        assert_eq!(other, LeaderSnapshot::Unknown { remaining });
        let minority = named(vec![leads(7, 3), LeaderSnapshot::Free]);
        assert_eq!(minority, LeaderSnapshot::Free);
    }
}
