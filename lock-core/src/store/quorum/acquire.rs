//! Acquisition of a lock: rounds of votes, until the lock is won or held by another client, or the nodes cannot be reached.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::QuorumStore;
use super::ballot::{Ballot, Vote, yes};
use super::causes::{not_ours, silent};
use super::members::Members;
use super::node::Member;
use super::nodes::Nodes;
use super::round::{Answered, How, Progress, Round, ask};
use super::tally::{Tally, Verdict};
use crate::base::time::{Clock, SystemClock};
use crate::store::{Answer, Attempt, Mode, QueuePlace, StoreError};

/// Maximum repetitions of a split vote before the caller gets an answer.
const SPLITS: u32 = 3;

/// Maximum pause of a waiter after a split vote.
const PAUSE: Duration = Duration::from_millis(40);

impl QuorumStore {
    pub(in crate::store) async fn acquire(
        &self,
        attempt: Attempt<'_>,
    ) -> Result<Answer, StoreError> {
        let answer = self.decided(attempt).await?;
        self.won(attempt, &answer);
        Ok(answer)
    }

    /// Repeats the rounds until one of them decides.
    async fn decided(&self, attempt: Attempt<'_>) -> Result<Answer, StoreError> {
        let timers = self.members.timers();
        let began = timers.now();
        let mut splits = 0;
        let mut skip = self.members.left_out();
        loop {
            let verdict = self.vote(attempt, skip).await;
            let skipped = std::mem::take(&mut skip);
            let pause = match &verdict {
                Ok(Verdict::Split) => {
                    splits += 1;
                    (splits <= SPLITS).then(|| self.jitter(splits))
                }
                // The nodes may have become slower: the next round waits longer for them. A longer wait does not help with a
                // node that refuses.
                Err(StoreError::Ambiguous(_)) => {
                    let hope = !has_no_majority(&self.members);
                    let hope = hope && timers.elapsed(began) < self.members.limit / 2;
                    hope.then(|| self.jitter(1).max(Duration::from_millis(1)))
                }
                // Now the silent nodes are needed: they may answer again.
                Err(StoreError::NotNow(_) | StoreError::NotYet(_)) if !skipped.is_empty() => {
                    continue;
                }
                _ => None,
            };
            if let Some(pause) = pause {
                timers.sleep(pause).await;
                skip = self.members.left_out();
                continue;
            }
            return Ok(match verdict? {
                Verdict::Won { largest, .. } => Answer::Granted {
                    fence: largest,
                    reserve: attempt.reserve,
                },
                Verdict::Busy {
                    left,
                    holder,
                    is_foreign,
                } => wait_or_leave(attempt.mode, left, holder, is_foreign),
                Verdict::Split => {
                    wait_or_leave(attempt.mode, PAUSE.mul_f64(fastrand::f64()), None, false)
                }
                Verdict::Refused(refusal) => Answer::Refused(refusal),
            });
        }
    }

    /// Full jitter over a few round trips. Each try doubles the range.
    fn jitter(&self, tries: u32) -> Duration {
        let usual = self.members.in_a_majority(|node| node.rtt.usual());
        let unit = usual.clamp(Duration::from_millis(1), Duration::from_millis(100));
        (unit * 2_u32.pow(tries)).mul_f64(fastrand::f64())
    }

    /// One round. A round that is won leaves its votes on the nodes. Any other round leaves a place in the queues if the
    /// attempt waits, and otherwise nothing.
    ///
    /// The nodes in `skip` are not asked.
    async fn vote(&self, attempt: Attempt<'_>, skip: Nodes) -> Result<Verdict, StoreError> {
        let members = &self.members;
        let kept = members.kept(attempt.ttl);
        // As for a renewal: a lock whose renewals would all be late is not granted.
        let most = (attempt.ttl / 3).max(Duration::from_millis(1));
        let claim = members.tokens.begin(attempt.token);
        let edition = claim.edition;
        let ballot = Ballot::acquire(attempt, &claim, kept, self.is_pushed_to());
        let waits = attempt.mode == Mode::Wait;
        let how = How::Vote { edition, waits };
        let mut round = ask(members, ballot, how, skip, most);
        let mut tally = Tally::new(members.all.len(), members.clock_skew / 2);
        for node in members.all.iter().filter(|node| skip.has(node.index)) {
            tally.count(node.index, Err(node.failed(silent())));
        }
        let verdict = self.counted(&mut round, &mut tally, attempt.mode).await;
        if let Ok(Verdict::Won { largest, smallest }) = verdict {
            members.has_minted(largest + attempt.reserve);
            if largest > smallest {
                let last = largest + attempt.reserve;
                self.raise(attempt, edition.number, last).await?;
            }
            if !claim.won(attempt.ttl) {
                return Ok(Verdict::Split);
            }
            self.complete(round, edition, attempt.ttl);
        } else {
            // The slower nodes are told that the votes were given up.
            drop(round);
            let undo = Ballot::undo(attempt.key, attempt.token, edition.number);
            members.take_back(undo, edition, claim.lost());
        }
        verdict
    }

    /// Counts the answers as they come, until there is a verdict.
    async fn counted(
        &self,
        round: &mut Round<impl Future<Output = Answered> + Send + 'static>,
        tally: &mut Tally,
        mode: Mode,
    ) -> Result<Verdict, StoreError> {
        let timers = self.members.timers();
        let soon = timers.now() + self.usual() * 2;
        loop {
            let verdict = tally.verdict();
            // A waiter needs a place in every queue, and time matters less, so all nodes that answer soon are counted.
            let lingers = mode == Mode::Wait && matches!(verdict, Some(Ok(Verdict::Busy { .. })));
            let is_final = !lingers || round.is_over() || timers.now() >= soon;
            if let Some(verdict) = verdict.filter(|_| is_final) {
                return verdict;
            }
            // The other nodes may be far away. A minority of votes that waits for them keeps all others from a majority.
            if tally.has_heard_a_majority() && timers.now() >= soon {
                return Ok(Verdict::Split);
            }
            let end = tally.has_heard_a_majority().then_some(soon);
            // Every node answers or times out in the end, and then the tally has a verdict.
            let (node, answer) = match round.next_until(end).await {
                Progress::Answered(answered) => answered,
                Progress::TimeIsUp => continue,
                Progress::Over => return Err(silent()),
            };
            let mut vote = answer.and_then(|value| Vote::read(&value));
            if let Ok(Vote::Granted { clock, .. }) = &mut vote {
                *clock -= round.took(node);
            }
            let failed = |error| self.members.all[node].failed(error);
            tally.count(node, vote.map_err(failed));
        }
    }

    /// Makes sure that no majority mints a token up to this one again: a majority of nodes that voted for this token must raise
    /// their counters. A later acquisition needs the vote of one of them, and gets it after the raise.
    async fn raise(&self, attempt: Attempt<'_>, edition: u64, last: u64) -> Result<(), StoreError> {
        let members = &self.members;
        let ballot = Ballot::raise(attempt.key, attempt.token, edition, last);
        let mut round = ask(members, ballot, How::Renew, Nodes::default(), members.limit);
        let (mut raised, mut failures) = (0, Vec::new());
        while let Some((node, answer)) = round.next().await {
            match answer.and_then(|value| yes(&value)) {
                Ok(true) => raised += 1,
                Ok(false) => failures.push(members.all[node].failed(not_ours())),
                Err(error) => failures.push(members.all[node].failed(error)),
            }
            if raised >= members.majority {
                round.finish(|_| ());
                return Ok(());
            }
            if failures.len() > members.all.len() - members.majority {
                break;
            }
        }
        // The votes stay with this token, and the next attempt finds them.
        Err(match super::causes::combined(members.all.len(), failures) {
            StoreError::NotNow(cause) => StoreError::Ambiguous(cause),
            other => other,
        })
    }
}

impl Members {
    /// The nodes to skip because they have not answered recently. They are probed in the background: a round that waited for a
    /// probe would keep its votes meanwhile, and so would the rounds of other clients. No node is skipped if the others are no
    /// majority.
    pub(super) fn left_out(self: &Arc<Self>) -> Nodes {
        let silent = silent_nodes(self);
        for index in (0..self.all.len()).filter(|node| silent.has(*node)) {
            self.begin_probe(index);
        }
        if has_no_majority(self) {
            return Nodes::default();
        }
        silent
    }

    /// Asks a silent node whether it answers again.
    fn begin_probe(self: &Arc<Self>, index: usize) {
        let members = Arc::clone(self);
        if !members.all[index].rtt.begin_probe(Instant::now()) {
            return;
        }
        self.engine.spawn(async move {
            let node = &members.all[index];
            members.probe(node).await;
            node.rtt.end_probe();
        });
    }
}

/// The answer to a waiter that is in the queues of the nodes. No node grants a lock by itself, so its place is not known.
fn wait_or_leave(
    mode: Mode,
    remaining: Duration,
    holder: Option<Box<str>>,
    is_foreign: bool,
) -> Answer {
    match mode {
        Mode::Try => Answer::Busy { remaining, holder },
        Mode::Wait => Answer::Queued(QueuePlace {
            remaining,
            last_fence: 0,
            holder,
            own_holder: None,
            is_foreign,
        }),
    }
}

/// The nodes that have not answered recently.
fn silent_nodes(members: &Members) -> Nodes {
    let silent = members.all.iter().filter(|node| node.rtt.is_silent());
    silent.fold(Nodes::default(), |nodes, node| nodes.with(node.index))
}

/// Whether too few nodes are left for a majority: the others are silent or wait.
fn has_no_majority(members: &Members) -> bool {
    let now = SystemClock.now();
    let able =
        |node: &&Arc<Member>| !node.rtt.is_silent() && node.sessions.wait_left(now).is_zero();
    members.all.iter().filter(able).count() < members.majority
}
