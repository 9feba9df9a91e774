//! What a node has not confirmed, and the count of the clean-ups under way. No I/O.
//!
//! An answer confirms it, unless a request for a vote had no answer shortly before: that request may still arrive. Then, or without an
//! answer, it is sent again, until the vote has ended by itself. It removes no vote of a later attempt, however late it arrives.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::ballot::Ballot;
use crate::base::signal::Signal;

/// Maximum delay of a request without an answer: after this time the server does not carry it out any more.
pub(super) const LATE: Duration = Duration::from_secs(1);

/// Maximum that is sent at once.
const BATCH: usize = 64;

/// Maximum that is kept for one node. The votes of any others end with their ttl.
const MOST: usize = 16_384;

/// What one node has not confirmed, by the numbers of the acquisitions.
#[derive(Default)]
pub(super) struct Leftovers {
    all: HashMap<u64, Leftover>,
    /// Whether a task sends them.
    running: bool,
    /// The last time that a request for a vote had no answer.
    unanswered: Option<Instant>,
}

pub(super) struct Leftover {
    pub(super) ballot: Arc<Ballot>,
    /// It removes votes up to this edition.
    pub(super) edition: u64,
    /// The end of the vote, if the node has it.
    pub(super) end: Instant,
    /// When it was last sent, if that was answered.
    pub(super) answered: Option<Instant>,
}

impl Leftover {
    /// A later edition removes more, and of one edition a release.
    fn removes(&self) -> (u64, bool) {
        (self.edition, self.ballot.is_release())
    }
}

impl Leftovers {
    /// A request for a vote had no answer.
    pub(super) fn is_unanswered(&mut self, now: Instant) {
        self.unanswered = Some(now);
    }

    /// Whether an answer to what was sent at this time confirms it.
    pub(super) fn confirms(&self, sent: Instant) -> bool {
        self.unanswered.is_none_or(|at| at + LATE <= sent)
    }

    /// Returns whether a task has to begin to send. What removes more stays, in whichever order they come.
    pub(super) fn add(&mut self, number: u64, new: Leftover) -> bool {
        let is_full = self.all.len() >= MOST;
        match self.all.get_mut(&number) {
            Some(known) if known.removes() > new.removes() => known.answered = None,
            None if is_full => return false,
            _ => drop(self.all.insert(number, new)),
        }
        !std::mem::replace(&mut self.running, true)
    }

    /// What to send now. `None` if nothing is left: the task ends.
    pub(super) fn due(&mut self, now: Instant) -> Option<Vec<(u64, Arc<Ballot>)>> {
        self.all.retain(|_, it| now < it.end);
        if self.all.is_empty() {
            self.running = false;
            return None;
        }
        let confirms = self.confirms(now);
        let due = self.all.iter();
        let due = due.filter(|(_, it)| confirms || it.answered.is_none());
        let due = due.map(|(number, it)| (*number, Arc::clone(&it.ballot)));
        Some(due.take(BATCH).collect())
    }

    /// The node has answered what was sent at this time. Returns whether that confirms it.
    pub(super) fn answered(&mut self, number: u64, ballot: &Arc<Ballot>, sent: Instant) -> bool {
        let confirms = self.confirms(sent);
        let known = self.all.get_mut(&number);
        let Some(it) = known.filter(|it| Arc::ptr_eq(&it.ballot, ballot)) else {
            return false;
        };
        it.answered = Some(sent);
        if confirms {
            self.all.remove(&number);
        }
        confirms
    }
}

/// Counts the clean-ups under way, of all nodes.
#[derive(Default)]
pub(super) struct UnderWay {
    count: AtomicUsize,
    over: Signal,
}

/// A clean-up under way.
pub(super) struct Busy(Arc<UnderWay>);

impl UnderWay {
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.count.fetch_add(1, Ordering::SeqCst);
        Busy(Arc::clone(self))
    }

    /// Waits until no clean-up is under way.
    pub(super) async fn until_over(&self) {
        let is_over = || self.count.load(Ordering::SeqCst) == 0;
        self.over.until(is_over).await;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.over.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::LockKey;
    use crate::base::token::ClientId;

    const MINUTE: Duration = Duration::from_secs(60);

    fn ballots() -> (Arc<Ballot>, Arc<Ballot>) {
        let (key, token) = (
            LockKey::new("lock:", "a").unwrap(),
            ClientId::random("test").token(1),
        );
        let release = Ballot::release(&key, &token, 3);
        (Ballot::undo(&key, &token, 3), release)
    }

    fn leftover(ballot: &Arc<Ballot>, now: Instant) -> Leftover {
        Leftover {
            ballot: Arc::clone(ballot),
            edition: 3,
            end: now + MINUTE,
            answered: None,
        }
    }

    /// C3: a late vote may come behind what is sent at the reconnect.
    #[test]
    fn an_answer_confirms_a_second_after_a_vote_without_an_answer() {
        let (undo, _) = ballots();
        let (mut all, broke) = (Leftovers::default(), Instant::now());
        assert!(all.confirms(broke));
        all.is_unanswered(broke);
        assert!(all.add(1, leftover(&undo, broke)));
        assert!(!all.add(2, leftover(&undo, broke)), "one task is enough");
        let soon = broke + LATE.mul_f64(0.9);
        assert_eq!(all.due(soon).unwrap().len(), 2);
        assert!(!all.answered(1, &undo, soon));
        assert_eq!(all.due(soon).unwrap().len(), 1, "the other one");
        let later = broke + LATE;
        assert_eq!(all.due(later).unwrap().len(), 2);
        assert!(all.answered(1, &undo, later));
        all.is_unanswered(later);
        assert!(!all.answered(2, &undo, later), "another vote may come");
        assert!(all.due(broke + MINUTE).is_none());
        assert!(all.add(1, leftover(&undo, later)), "the task has ended");
    }

    /// An answer that comes late brings the earlier one.
    #[test]
    fn a_later_edition_stays_in_the_place_of_an_earlier_one() {
        let ((undo, release), now) = (ballots(), Instant::now());
        for ballot in [&undo, &release] {
            for order in [[3, 7], [7, 3]] {
                let mut all = Leftovers::default();
                for edition in order {
                    let new = leftover(ballot, now);
                    all.add(1, Leftover { edition, ..new });
                }
                assert_eq!(all.all[&1].edition, 7);
            }
        }
    }

    #[test]
    fn a_release_stays_in_the_place_of_an_undo() {
        let (undo, release) = ballots();
        let (mut all, now) = (Leftovers::default(), Instant::now());
        all.add(1, leftover(&undo, now));
        all.add(1, leftover(&release, now));
        assert!(!all.answered(1, &undo, now), "of the undo");
        all.is_unanswered(now);
        assert!(!all.answered(1, &release, now));
        all.add(1, leftover(&undo, now));
        assert!(all.due(now).unwrap()[0].1.is_release(), "sent once more");
    }
}
