//! What the nodes have not confirmed: releases and undos. One set for each node.
//!
//! Each is sent at once. An answer confirms it, if it was sent on a connection that is older than [`LATE`]: a request on the connection
//! before may still arrive for that time. Otherwise it is sent again on each new connection, and once more after that time, until the vote
//! has ended by itself. It removes no vote of a later attempt, however late it arrives.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::ballot::Ballot;
use super::causes::late;
use super::leftovers::{Busy, Leftover, On};
use super::members::{Member, Members};
use super::nodes::Nodes;
use crate::base::backoff::Backoff;
use crate::base::sync::lock;
use crate::base::time::{Clock, SystemClock};
use crate::store::StoreError;

/// Maximum delay of a request on a broken connection: after this time the server does not carry it out any more.
const LATE: Duration = Duration::from_secs(1);

/// Maximum pause before something is sent again, and before what follows something that was confirmed.
const PAUSE: Duration = Duration::from_millis(10);

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
        let new = Leftover {
            ballot: Arc::clone(&self.ballot),
            // No vote lasts longer.
            end: Instant::now() + members.kept(members.wait / 2),
            answered_on: on.map(|on| on.generation),
        };
        if lock(&node.leftovers).add(self.number, new) {
            let (alive, busy) = (members.alive.subscribe(), members.under_way.begin());
            let task = send_to(Arc::downgrade(members), alive, index, busy);
            members.engine.spawn(task);
        }
    }
}

impl Members {
    /// Takes back votes, in the background.
    pub(super) fn take_back(self: &Arc<Self>, undo: Arc<Ballot>, number: u64, on: Nodes) {
        if on.is_empty() {
            return;
        }
        let taken_back = TakenBack::new(self, undo, number);
        self.engine.spawn(async move {
            let TakenBack {
                members, ballot, ..
            } = &taken_back;
            let nodes = members.all.iter().filter(|node| on.has(node.index));
            let told = nodes.map(async |node| {
                let sent = timeout(members.limit, node.send(ballot, None, || true)).await;
                let answer = sent.unwrap_or_else(|_| Err(late(members.limit)));
                taken_back.was_told(node.index, &answer);
            });
            join_all(told).await;
        });
    }

    /// Sends what is due. Returns whether anything was confirmed; `None` if nothing is left.
    async fn send_again(&self, node: &Member) -> Option<bool> {
        let connected = timeout(self.limit, node.ready()).await;
        let on = connected.ok().and_then(Result::ok).and_then(|_| node.on());
        let due = lock(&node.leftovers).due(on, Instant::now())?;
        let sent = due.iter().map(async |(number, ballot)| {
            let sent = timeout(self.limit, node.send(ballot, None, || true)).await;
            let answer = sent.ok().and_then(Result::ok);
            answer.map(|_| (*number, ballot))
        });
        let answered = join_all(sent).await;
        let on = on.filter(|on| node.server.generation() == Some(on.generation));
        let mut leftovers = lock(&node.leftovers);
        let confirmed = answered
            .into_iter()
            .flatten()
            .map(|(number, ballot)| on.is_some_and(|on| leftovers.answered(number, ballot, on)));
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
