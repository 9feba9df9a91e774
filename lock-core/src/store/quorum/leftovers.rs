//! What a node has not confirmed, and the count of the clean-ups under way. No I/O.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::ballot::Ballot;
use crate::base::signal::Signal;

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
}

pub(super) struct Leftover {
    pub(super) ballot: Arc<Ballot>,
    /// The end of the vote, if the node has it.
    pub(super) end: Instant,
    /// The connection on which it was answered.
    pub(super) answered_on: Option<u64>,
}

/// The connection to a node, and whether an answer on it confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct On {
    pub(super) generation: u64,
    pub(super) confirms: bool,
}

impl Leftovers {
    /// Returns whether a task has to begin to send.
    pub(super) fn add(&mut self, number: u64, new: Leftover) -> bool {
        let is_full = self.all.len() >= MOST;
        match self.all.get_mut(&number) {
            // A release removes what any undo would.
            Some(known) if known.ballot.is_release() && !new.ballot.is_release() => {
                known.answered_on = None;
            }
            None if is_full => return false,
            _ => drop(self.all.insert(number, new)),
        }
        !std::mem::replace(&mut self.running, true)
    }

    /// What to send now. `None` if nothing is left: the task ends.
    pub(super) fn due(&mut self, on: Option<On>, now: Instant) -> Option<Vec<(u64, Arc<Ballot>)>> {
        self.all.retain(|_, it| now < it.end);
        if self.all.is_empty() {
            self.running = false;
            return None;
        }
        let Some(on) = on else {
            return Some(Vec::new());
        };
        let is_due = |it: &Leftover| on.confirms || it.answered_on != Some(on.generation);
        let due = self.all.iter().filter(|(_, it)| is_due(it));
        let due = due.map(|(number, it)| (*number, Arc::clone(&it.ballot)));
        Some(due.take(BATCH).collect())
    }

    /// The node has answered. Returns whether that confirms it.
    pub(super) fn answered(&mut self, number: u64, ballot: &Arc<Ballot>, on: On) -> bool {
        let known = self.all.get_mut(&number);
        let Some(it) = known.filter(|it| Arc::ptr_eq(&it.ballot, ballot)) else {
            return false;
        };
        it.answered_on = Some(on.generation);
        if on.confirms {
            self.all.remove(&number);
        }
        on.confirms
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
    use std::time::Duration;

    use super::*;
    use crate::base::key::LockKey;
    use crate::base::token::ClientId;

    const MINUTE: Duration = Duration::from_secs(60);

    fn ballots() -> (Arc<Ballot>, Arc<Ballot>) {
        let (key, token) = (
            LockKey::new("lock:", "a").unwrap(),
            ClientId::random("test").token(1),
        );
        let release = Ballot::release(&key, &token, 4);
        (Ballot::undo(&key, &token, 3), release)
    }

    fn leftover(ballot: &Arc<Ballot>, now: Instant) -> Leftover {
        Leftover {
            ballot: Arc::clone(ballot),
            end: now + MINUTE,
            answered_on: None,
        }
    }

    fn on(generation: u64, confirms: bool) -> On {
        On {
            generation,
            confirms,
        }
    }

    /// C3: a late vote may come behind what is sent at the reconnect.
    #[test]
    fn an_answer_on_a_new_connection_confirms_after_a_second() {
        let (undo, _) = ballots();
        let (mut all, now) = (Leftovers::default(), Instant::now());
        assert!(all.add(1, leftover(&undo, now)));
        assert!(!all.add(2, leftover(&undo, now)), "one task is enough");
        assert_eq!(all.due(None, now).unwrap().len(), 0);
        assert_eq!(all.due(Some(on(5, false)), now).unwrap().len(), 2);
        assert!(!all.answered(1, &undo, on(5, false)));
        assert_eq!(all.due(Some(on(5, false)), now).unwrap().len(), 1);
        assert_eq!(all.due(Some(on(6, false)), now).unwrap().len(), 2);
        assert_eq!(all.due(Some(on(5, true)), now).unwrap().len(), 2);
        assert!(all.answered(1, &undo, on(5, true)));
        assert!(all.due(Some(on(5, true)), now + MINUTE).is_none());
        assert!(all.add(1, leftover(&undo, now)), "the task has ended");
    }

    #[test]
    fn a_release_stays_in_the_place_of_an_undo() {
        let (undo, release) = ballots();
        let (mut all, now) = (Leftovers::default(), Instant::now());
        all.add(1, leftover(&undo, now));
        all.add(1, leftover(&release, now));
        assert!(!all.answered(1, &undo, on(5, true)), "of the undo");
        assert!(!all.answered(1, &release, on(5, false)));
        all.add(1, leftover(&undo, now));
        let due = all.due(Some(on(5, false)), now).unwrap();
        assert!(due[0].1.is_release(), "sent once more");
    }
}
