//! The tally of votes. No I/O: it gives a verdict as soon as the answers decide it.

use std::time::Duration;

use super::ballot::Vote;
use super::causes::{Failure, clocks_apart, combined};
use super::nodes::majority;
use crate::base::refusal::Refusal;
use crate::base::rt::HashMap;
use crate::store::StoreError;

/// The votes for one attempt to acquire a lock.
#[derive(Debug)]
pub(super) struct Tally {
    nodes: usize,
    votes: Vec<Option<Result<Vote, Failure>>>,
    /// Maximum difference between the clocks of nodes whose votes count together, ms.
    apart: i64,
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
        /// The name of this client, if it has one.
        holder: Option<Box<str>>,
        is_foreign: bool,
    },
    /// A majority answers, and no client is known to have a majority of the votes.
    Split,
    Refused(Refusal),
}

impl Tally {
    /// Votes count together if the clocks of their nodes agree to within `apart`.
    pub(super) fn new(nodes: usize, apart: Duration) -> Self {
        Self {
            nodes,
            votes: vec![None; nodes],
            apart: apart.as_millis() as i64,
        }
    }

    /// A node that timed out may still answer: its answer replaces the failure.
    pub(super) fn count(&mut self, node: usize, vote: Result<Vote, Failure>) {
        self.votes[node] = Some(vote);
    }

    /// `None` while the vote is undecided.
    pub(super) fn verdict(&self) -> Option<Result<Verdict, StoreError>> {
        let majority = majority(self.nodes);
        let (mut largest, mut smallest) = (0, u64::MAX);
        for vote in self.votes.iter().flatten() {
            if let Ok(Vote::Granted { minted, .. }) = vote {
                largest = largest.max(*minted);
                smallest = smallest.min(*minted);
            }
        }
        let granted = self.granted();
        if granted >= majority {
            return Some(Ok(Verdict::Won { largest, smallest }));
        }
        let open = self.votes.iter().filter(|vote| vote.is_none()).count();
        if granted + open >= majority {
            return None;
        }
        self.lost(granted, open)
    }

    /// The largest number of votes that count together. If clocks are too far apart, one has jumped, perhaps forward over the end
    /// of a vote for another client. It need not be known which one: the clocks that have not jumped are a majority.
    fn granted(&self) -> usize {
        let clocks = || self.clocks();
        let within =
            |first: i64| clocks().filter(move |clock| (0..=self.apart).contains(&(clock - first)));
        let counts = clocks().map(|first| within(first).count());
        counts.max().unwrap_or(0)
    }

    /// The clocks of the nodes that have voted for this attempt.
    fn clocks(&self) -> impl Iterator<Item = i64> {
        self.votes.iter().flatten().filter_map(|vote| match vote {
            Ok(Vote::Granted { clock, .. }) => Some(*clock),
            _ => None,
        })
    }

    /// The verdict once a majority for this attempt is out of reach.
    fn lost(&self, granted: usize, open: usize) -> Option<Result<Verdict, StoreError>> {
        let majority = majority(self.nodes);
        let mut left = Vec::new();
        let mut clients: HashMap<&str, (usize, &Option<Box<str>>, bool)> = HashMap::default();
        let mut refused = Vec::new();
        // Votes that do not count together with the others are failures.
        let void = self.void();
        let mut failed = void;
        for vote in self.votes.iter().flatten() {
            match vote {
                Ok(Vote::Granted { .. }) => {}
                Ok(Vote::Busy {
                    left: time,
                    client,
                    name,
                    is_foreign,
                }) => {
                    left.push(*time);
                    clients.entry(client).or_insert((0, name, *is_foreign)).0 += 1;
                }
                Ok(Vote::Refused(refusal)) => refused.push(refusal),
                Err(_) => failed += 1,
            }
        }
        if self.nodes - open - failed >= majority {
            // If the key is not a lock on a minority of the nodes, the others are enough.
            if refused.len() > self.nodes - majority {
                return Some(Ok(Verdict::Refused(refused[0].clone())));
            }
            let most = clients.into_values().max_by_key(|(votes, ..)| *votes);
            let (most, holder, is_foreign) = most.unwrap_or((0, &None, false));
            // The nodes without an answer may all have voted for one client. If even that is no majority, the votes are split.
            if most < majority {
                let is_split = open == 0 || most + open + failed < majority;
                return is_split.then_some(Ok(Verdict::Split));
            }
            // The attempt can win when `missing` more votes have come free.
            left.sort_unstable();
            let missing = majority.saturating_sub(granted).max(1);
            let left = left.get(missing - 1).or(left.last()).copied();
            return Some(Ok(Verdict::Busy {
                left: left.unwrap_or_default(),
                holder: holder.clone(),
                is_foreign,
            }));
        }
        if failed <= self.nodes - majority {
            return None;
        }
        let failed = combined(self.nodes, self.failures());
        // A late node may vote the next time.
        if void == 0 || matches!(failed, StoreError::Ambiguous(_)) {
            return Some(Err(failed));
        }
        let first = self.clocks().min().unwrap_or(0);
        let apart = self.clocks().max().unwrap_or(0).abs_diff(first);
        Some(Err(clocks_apart(Duration::from_millis(apart))))
    }

    fn failures(&self) -> Vec<Failure> {
        let votes = self.votes.iter().flatten();
        votes
            .filter_map(|vote| vote.as_ref().err().cloned())
            .collect()
    }

    /// Whether a majority has answered, without votes that do not count together with the others.
    pub(super) fn has_heard_a_majority(&self) -> bool {
        let heard = self.votes.iter().flatten().filter(|vote| vote.is_ok());
        heard.count() - self.void() >= majority(self.nodes)
    }

    /// The number of votes that do not count together with the others.
    fn void(&self) -> usize {
        self.clocks().count() - self.granted()
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
        Ok(Vote::Granted { minted, clock: 0 })
    }

    #[allow(
        clippy::unnecessary_wraps,
        reason = "the votes of a list have one type"
    )]
    fn busy(client: &str, left: u32) -> Result<Vote, Failure> {
        Ok(Vote::Busy {
            left: MS * left,
            client: client.to_owned(),
            name: None,
            is_foreign: false,
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
        let mut tally = Tally::new(5, MS * 250);
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
        assert_eq!(
            busy_now.unwrap().unwrap(),
            Verdict::Busy {
                left: MS * 30,
                holder: None,
                is_foreign: false,
            }
        );
        // One node has voted for this attempt already: two more have to come free.
        let votes = [busy("a", 30), busy("a", 10), busy("a", 20), granted(1)];
        assert_eq!(
            verdict(&votes).unwrap().unwrap(),
            Verdict::Busy {
                left: MS * 20,
                holder: None,
                is_foreign: false,
            }
        );
    }

    #[test]
    fn votes_without_a_majority_are_split() {
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
        let mut tally = Tally::new(3, MS * 250);
        tally.count(0, granted(1));
        assert!(tally.verdict().is_none());
    }

    #[allow(
        clippy::unnecessary_wraps,
        reason = "the votes of a list have one type"
    )]
    fn at(clock: i64) -> Result<Vote, Failure> {
        Ok(Vote::Granted { minted: 1, clock })
    }

    #[test]
    fn votes_count_together_if_the_clocks_of_their_nodes_agree() {
        let won = [at(1_000), at(750), at(900)];
        assert!(matches!(verdict(&won), Some(Ok(Verdict::Won { .. }))));
        assert!(verdict(&[at(1_000), at(749), at(900)]).is_none());
        let one_has_jumped = [at(0), at(60_000), at(10), at(20)];
        assert!(matches!(
            verdict(&one_has_jumped),
            Some(Ok(Verdict::Won { .. }))
        ));
        // The holder has the others: a majority, or one less as the clock that has jumped has ended its vote.
        let busy_now = [at(0), at(60_000), busy("a", 1), busy("a", 1), busy("a", 1)];
        assert!(matches!(verdict(&busy_now), Some(Ok(Verdict::Busy { .. }))));
        let bare = [at(0), at(60_000), at(0), busy("a", 1), busy("a", 1)];
        assert_eq!(verdict(&bare).unwrap().unwrap(), Verdict::Split);
        // Those that have jumped together are no majority.
        let together = [at(0), at(60_000), at(60_010), busy("a", 1), busy("a", 1)];
        assert_eq!(verdict(&together).unwrap().unwrap(), Verdict::Split);
    }

    #[test]
    fn a_clock_that_has_jumped_leaves_a_far_node_its_time_to_vote() {
        let mut tally = Tally::new(3, MS * 250);
        tally.count(0, at(60_000));
        tally.count(1, at(0));
        assert!(tally.verdict().is_none());
        assert!(!tally.has_heard_a_majority(), "the third decides");
        tally.count(2, at(10));
        assert!(tally.has_heard_a_majority());
        assert!(matches!(tally.verdict(), Some(Ok(Verdict::Won { .. }))));
    }

    #[test]
    fn clocks_that_all_differ_are_an_error_that_says_so() {
        let error = verdict(&[at(0), at(-7_000), at(60_000), at(80_000), at(9_000)]);
        let Some(Err(StoreError::NotNow(cause))) = error else {
            panic!("{error:?}")
        };
        assert!(cause.to_string().contains("87s apart"), "{cause}");
    }

    #[test]
    fn a_foreign_key_shows_where_it_stands_in_the_way() {
        let foreign = || {
            let kind = "list".to_owned();
            Ok(Vote::Refused(Refusal::Foreign(kind)))
        };
        let won = verdict(&[foreign(), granted(1), granted(2), granted(3)]);
        assert!(matches!(won, Some(Ok(Verdict::Won { .. }))));
        let lost = verdict(&[foreign(), foreign(), foreign()]);
        assert!(matches!(lost, Some(Ok(Verdict::Refused(_)))));
        let busy_now = [foreign(), busy("a", 1), busy("a", 1), busy("a", 1)];
        assert!(matches!(verdict(&busy_now), Some(Ok(Verdict::Busy { .. }))));
        let others = [foreign(), foreign(), granted(1), granted(1), busy("a", 1)];
        assert_eq!(verdict(&others).unwrap().unwrap(), Verdict::Split);
    }
}
