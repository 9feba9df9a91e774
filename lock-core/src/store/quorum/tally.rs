//! The tally of votes. No I/O: it gives a verdict as soon as the answers decide it.

use std::time::Duration;

use super::causes::{Failure, combined};
use super::nodes::majority;
use crate::rt::HashMap;
use crate::store::StoreError;
use crate::store::redis::Vote;

/// The votes for one attempt to acquire a lock.
#[derive(Debug)]
pub(super) struct Tally {
    nodes: usize,
    votes: Vec<Option<Result<Vote, Failure>>>,
}

/// The verdict of the votes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This attempt has a majority. The largest and the smallest of the tokens that it minted.
    Won {
        largest: u64,
        smallest: u64,
    },
    /// A majority answers, and one client has a majority of the votes.
    Busy {
        left: Duration,
    },
    /// A majority answers, and no client is known to have a majority of the votes.
    Split,
    Foreign {
        kind: String,
    },
}

impl Tally {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            nodes,
            votes: vec![None; nodes],
        }
    }

    /// A node that timed out may still answer: its answer replaces the failure.
    pub(super) fn count(&mut self, node: usize, vote: Result<Vote, Failure>) {
        self.votes[node] = Some(vote);
    }

    /// `None` while the vote is undecided.
    pub(super) fn verdict(&self) -> Option<Result<Verdict, StoreError>> {
        let majority = majority(self.nodes);
        let (mut heard, mut granted) = (0, 0);
        let (mut largest, mut smallest) = (0, u64::MAX);
        for vote in self.votes.iter().flatten() {
            heard += 1;
            if let Ok(Vote::Granted { minted }) = vote {
                granted += 1;
                largest = largest.max(*minted);
                smallest = smallest.min(*minted);
            }
        }
        if granted >= majority {
            return Some(Ok(Verdict::Won { largest, smallest }));
        }
        let open = self.nodes - heard;
        if granted + open >= majority {
            return None;
        }
        self.lost(granted, open)
    }

    /// The verdict once a majority for this attempt is out of reach.
    fn lost(&self, granted: usize, open: usize) -> Option<Result<Verdict, StoreError>> {
        let majority = majority(self.nodes);
        let mut left = Vec::new();
        let mut clients: HashMap<&str, usize> = HashMap::default();
        let mut foreign = None;
        let mut failed = 0;
        for vote in self.votes.iter().flatten() {
            match vote {
                Ok(Vote::Granted { .. }) => {}
                Ok(Vote::Busy { left: time, client }) => {
                    left.push(*time);
                    *clients.entry(client).or_default() += 1;
                }
                Ok(Vote::Foreign { kind }) => foreign = Some(kind),
                Err(_) => failed += 1,
            }
        }
        let heard = self.nodes - open;
        if heard - failed >= majority {
            if let Some(kind) = foreign {
                return Some(Ok(Verdict::Foreign { kind: kind.clone() }));
            }
            let most = clients.values().max().copied().unwrap_or(0);
            // The nodes without an answer may all have voted for one client. If even that is no majority, the votes are split.
            if most + open + failed < majority {
                return Some(Ok(Verdict::Split));
            }
            if most < majority && open > 0 {
                return None;
            }
            if most < majority {
                return Some(Ok(Verdict::Split));
            }
            // The attempt can win when `missing` more votes have come free.
            left.sort_unstable();
            let missing = majority.saturating_sub(granted).max(1);
            let left = left.get(missing - 1).or(left.last()).copied();
            return Some(Ok(Verdict::Busy {
                left: left.unwrap_or_default(),
            }));
        }
        if failed > self.nodes - majority {
            let failures = self.votes.iter().flatten();
            let failures = failures.filter_map(|vote| vote.as_ref().err().cloned());
            return Some(Err(combined(self.nodes, failures.collect())));
        }
        None
    }

    /// Whether this node has refused its vote.
    pub(super) fn refused(&self, node: usize) -> bool {
        matches!(
            self.votes[node],
            Some(Ok(Vote::Busy { .. } | Vote::Foreign { .. }))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::causes::silent;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[allow(
        clippy::unnecessary_wraps,
        reason = "the votes of a list have one type"
    )]
    fn granted(minted: u64) -> Result<Vote, Failure> {
        Ok(Vote::Granted { minted })
    }

    #[allow(
        clippy::unnecessary_wraps,
        reason = "the votes of a list have one type"
    )]
    fn busy(client: &str, left: u32) -> Result<Vote, Failure> {
        Ok(Vote::Busy {
            left: MS * left,
            client: client.to_owned(),
        })
    }

    fn failed() -> Result<Vote, Failure> {
        Err(Failure {
            node: 0,
            address: "a".into(),
            error: silent(),
        })
    }

    fn verdict(votes: &[Result<Vote, Failure>]) -> Option<Result<Verdict, StoreError>> {
        let mut tally = Tally::new(5);
        for (node, vote) in votes.iter().enumerate() {
            tally.count(node, vote.clone());
        }
        tally.verdict()
    }

    #[test]
    fn a_majority_is_enough_and_the_largest_token_counts() {
        assert!(verdict(&[granted(5), granted(9)]).is_none());
        let won = verdict(&[granted(5), failed(), granted(9), busy("a", 1), granted(7)]);
        let (largest, smallest) = (9, 5);
        assert_eq!(won.unwrap().unwrap(), Verdict::Won { largest, smallest });
    }

    #[test]
    fn a_holder_of_a_majority_decides_before_the_slow_nodes_answer() {
        let busy_now = verdict(&[busy("a", 30), busy("a", 10), busy("a", 20)]);
        assert_eq!(busy_now.unwrap().unwrap(), Verdict::Busy { left: MS * 30 });
        // One node has voted for this attempt already: two more have to come free.
        let votes = [busy("a", 30), busy("a", 10), busy("a", 20), granted(1)];
        assert_eq!(
            verdict(&votes).unwrap().unwrap(),
            Verdict::Busy { left: MS * 20 }
        );
    }

    #[test]
    fn votes_that_nobody_has_most_of_are_split() {
        let votes = [
            busy("a", 1),
            busy("b", 1),
            granted(1),
            busy("a", 1),
            granted(2),
        ];
        assert_eq!(verdict(&votes).unwrap().unwrap(), Verdict::Split);
        // The last two votes may be those of the second client.
        assert!(verdict(&[busy("a", 1), busy("b", 1), busy("c", 1), granted(1)]).is_some());
        assert!(verdict(&[busy("a", 1), busy("b", 1), busy("b", 1)]).is_none());
    }

    #[test]
    fn without_a_majority_of_answers_there_is_none_to_give() {
        assert!(verdict(&[failed(), failed()]).is_none());
        assert!(verdict(&[failed(), failed(), granted(1), granted(2)]).is_none());
        let error = verdict(&[failed(), failed(), granted(1), failed()]);
        assert!(matches!(error, Some(Err(StoreError::NotNow(_)))));
        let mut tally = Tally::new(3);
        tally.count(0, granted(1));
        assert!(tally.verdict().is_none());
    }

    #[test]
    fn a_foreign_key_shows_where_it_stands_in_the_way() {
        let foreign = || {
            Ok(Vote::Foreign {
                kind: "list".to_owned(),
            })
        };
        let won = verdict(&[foreign(), granted(1), granted(2), granted(3)]);
        assert!(matches!(won, Some(Ok(Verdict::Won { .. }))));
        let lost = verdict(&[foreign(), foreign(), foreign()]);
        assert!(matches!(lost, Some(Ok(Verdict::Foreign { .. }))));
    }
}
