//! What the nodes have not confirmed: releases and undos. One set for each node.
//!
//! Each is sent at once. An answer confirms it, if it was sent on a connection that is older than [`LATE`]: a request on the connection
//! before may still arrive for that time. Otherwise it is sent again on each new connection, and once more after that time, until the vote
//! has ended by itself. It removes no vote of a later attempt, however late it arrives.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::ballot::Ballot;
use super::members::{Member, Members};
use super::nodes::Nodes;
use super::round::{Answered, How, ask};
use crate::base::backoff::Backoff;
use crate::base::signal::Signal;
use crate::base::sync::lock;
use crate::base::time::{Clock, SystemClock};
use crate::store::StoreError;

/// Maximum delay of a request on a broken connection: after this time the server does not carry it out any more.
const LATE: Duration = Duration::from_secs(1);

/// Maximum pause before something is sent again, and before what follows something that was confirmed.
const PAUSE: Duration = Duration::from_millis(10);

/// Maximum that is sent at once.
const BATCH: usize = 64;

/// Maximum that is kept for one node. The votes of any others end with their ttl.
const MOST: usize = 16_384;

/// What one node has not confirmed, by the numbers of the acquisitions.
#[derive(Default)]
pub(super) struct CleanUps {
    all: HashMap<u64, CleanUp>,
    /// Whether a task sends them.
    running: bool,
}

struct CleanUp {
    ballot: Arc<Ballot>,
    /// The end of the vote, if the node has it.
    end: Instant,
    /// The connection on which it was answered.
    answered_on: Option<u64>,
}

/// The connection to a node, and whether an answer on it confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct On {
    generation: u64,
    confirms: bool,
}

impl CleanUps {
    /// Returns whether a task has to begin to send.
    fn add(&mut self, number: u64, new: CleanUp) -> bool {
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
    fn due(&mut self, on: Option<On>, now: Instant) -> Option<Vec<(u64, Arc<Ballot>)>> {
        self.all.retain(|_, it| now < it.end);
        if self.all.is_empty() {
            self.running = false;
            return None;
        }
        let Some(on) = on else {
            return Some(Vec::new());
        };
        let is_due = |it: &CleanUp| on.confirms || it.answered_on != Some(on.generation);
        let due = self.all.iter().filter(|(_, it)| is_due(it));
        let due = due.map(|(number, it)| (*number, Arc::clone(&it.ballot)));
        Some(due.take(BATCH).collect())
    }

    /// The node has answered. Returns whether that confirms it.
    fn answered(&mut self, number: u64, ballot: &Arc<Ballot>, on: On) -> bool {
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

impl Member {
    fn on(&self) -> Option<On> {
        let generation = self.server.generation()?;
        let age = || Some(self.server.dialled(generation)?.until(SystemClock.now()));
        let confirms = generation == 0 || age().is_some_and(|age| age >= LATE);
        Some(On {
            generation,
            confirms,
        })
    }
}

/// A release, or an undo, that goes out now.
pub(super) struct TakenBack {
    members: Arc<Members>,
    ballot: Arc<Ballot>,
    number: u64,
    on: Vec<Option<On>>,
    _busy: Busy,
}

impl TakenBack {
    pub(super) fn new(members: &Arc<Members>, ballot: Arc<Ballot>, number: u64) -> Self {
        Self {
            members: Arc::clone(members),
            ballot,
            number,
            on: members.all.iter().map(|node| node.on()).collect(),
            _busy: members.under_way.begin(),
        }
    }

    /// Notes that a node has answered, or has not answered in time.
    pub(super) fn was_told(&self, index: usize, answer: &Result<Value, StoreError>) {
        let (members, node) = (&self.members, &self.members.all[index]);
        let on = self.on[index].filter(|on| answer.is_ok() && node.on() == Some(*on));
        if on.is_some_and(|on| on.confirms) {
            return;
        }
        let new = CleanUp {
            ballot: Arc::clone(&self.ballot),
            // No vote lasts longer.
            end: Instant::now() + members.kept(members.wait / 2),
            answered_on: on.map(|on| on.generation),
        };
        if lock(&node.clean_ups).add(self.number, new) {
            let (alive, busy) = (members.alive.subscribe(), members.under_way.begin());
            let task = send_to(Arc::downgrade(members), alive, index, busy);
            members.engine.spawn(task);
        }
    }
}

impl Members {
    /// Takes back votes, without waiting for the answers.
    pub(super) fn take_back(self: &Arc<Self>, undo: Arc<Ballot>, number: u64, on: Nodes) {
        if on.is_empty() {
            return;
        }
        let taken_back = TakenBack::new(self, Arc::clone(&undo), number);
        let others = self.nodes().but(on);
        let mut round = ask(self, undo, How::Tell, others, self.limit);
        let was_told = move |(node, answer): Answered| taken_back.was_told(node, &answer);
        round.send().into_iter().for_each(&was_told);
        round.finish(was_told);
    }

    /// Sends what is due. Returns whether anything was confirmed; `None` if nothing is left.
    async fn send_again(&self, node: &Member) -> Option<bool> {
        let connected = timeout(self.limit, node.ready()).await;
        let on = connected.ok().and_then(Result::ok).and_then(|_| node.on());
        let due = lock(&node.clean_ups).due(on, Instant::now())?;
        let sent = due.iter().map(async |(number, ballot)| {
            let sent = timeout(self.limit, node.send(ballot, None, || true)).await;
            let answer = sent.ok().and_then(Result::ok);
            answer.map(|_| (*number, ballot))
        });
        let answered = join_all(sent).await;
        let on = on.filter(|on| node.server.generation() == Some(on.generation));
        let mut clean_ups = lock(&node.clean_ups);
        let confirmed = answered
            .into_iter()
            .flatten()
            .map(|(number, ballot)| on.is_some_and(|on| clean_ups.answered(number, ballot, on)));
        Some(confirmed.fold(false, |any, one| any | one))
    }
}

/// Sends to a node until nothing is left. Does not keep the store alive.
async fn send_to(
    members: Weak<Members>,
    mut alive: watch::Receiver<()>,
    index: usize,
    _busy: Busy,
) {
    let mut backoff = Backoff::new(PAUSE, LATE);
    loop {
        let _ = timeout(backoff.failed(), alive.changed()).await;
        let Some(members) = members.upgrade() else {
            return;
        };
        match members.send_again(&members.all[index]).await {
            None => return,
            Some(true) => backoff.over(),
            Some(false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::LockKey;
    use crate::base::token::ClientId;

    fn ballots() -> (Arc<Ballot>, Arc<Ballot>) {
        let (key, token) = (
            LockKey::new("lock:", "a").unwrap(),
            ClientId::random("test").token(1),
        );
        let release = Ballot::release(&key, &token, 4);
        (Ballot::undo(&key, &token, 3), release)
    }

    fn clean_up(ballot: &Arc<Ballot>, now: Instant) -> CleanUp {
        CleanUp {
            ballot: Arc::clone(ballot),
            end: now + LATE * 60,
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
        let (mut all, now) = (CleanUps::default(), Instant::now());
        assert!(all.add(1, clean_up(&undo, now)));
        assert!(!all.add(2, clean_up(&undo, now)), "one task is enough");
        assert_eq!(all.due(None, now).unwrap().len(), 0);
        assert_eq!(all.due(Some(on(5, false)), now).unwrap().len(), 2);
        assert!(!all.answered(1, &undo, on(5, false)));
        assert_eq!(all.due(Some(on(5, false)), now).unwrap().len(), 1);
        assert_eq!(all.due(Some(on(6, false)), now).unwrap().len(), 2);
        assert_eq!(all.due(Some(on(5, true)), now).unwrap().len(), 2);
        assert!(all.answered(1, &undo, on(5, true)));
        assert!(all.due(Some(on(5, true)), now + LATE * 60).is_none());
        assert!(all.add(1, clean_up(&undo, now)), "the task has ended");
    }

    #[test]
    fn a_release_stays_in_the_place_of_an_undo() {
        let (undo, release) = ballots();
        let (mut all, now) = (CleanUps::default(), Instant::now());
        all.add(1, clean_up(&undo, now));
        all.add(1, clean_up(&release, now));
        assert!(!all.answered(1, &undo, on(5, true)), "of the undo");
        assert!(!all.answered(1, &release, on(5, false)));
        all.add(1, clean_up(&undo, now));
        let due = all.due(Some(on(5, false)), now).unwrap();
        assert!(due[0].1.is_release(), "sent once more");
    }
}
