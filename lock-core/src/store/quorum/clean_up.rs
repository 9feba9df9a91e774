//! Takes back what the nodes have: by releases and undos. Each is sent at once, and again until the node has
//! [confirmed](super::leftovers) it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::ballot::Ballot;
use super::causes::late;
use super::leftovers::{Busy, LATE, Leftover};
use super::members::Members;
use super::node::Member;
use super::nodes::Nodes;
use super::tokens::Edition;
use crate::base::backoff::Backoff;
use crate::base::rt::before_send;
use crate::base::sync::lock;
use crate::store::StoreError;

/// Maximum pause before something is sent again, and before what follows something that was confirmed.
const PAUSE: Duration = Duration::from_millis(10);

/// A release, or an undo, that goes out now.
pub(super) struct TakenBack {
    members: Arc<Members>,
    ballot: Arc<Ballot>,
    edition: Edition,
    sent: Instant,
    _busy: Busy,
}

impl TakenBack {
    pub(super) fn new(members: &Arc<Members>, ballot: Arc<Ballot>, edition: Edition) -> Self {
        Self {
            members: Arc::clone(members),
            ballot,
            edition,
            sent: Instant::now(),
            _busy: members.under_way.begin(),
        }
    }

    /// Notes that a node has answered, or has not answered in time.
    pub(super) fn was_told(&self, index: usize, answer: &Result<Value, StoreError>) {
        let (members, node) = (&self.members, &self.members.all[index]);
        let mut leftovers = lock(&node.leftovers);
        if answer.is_ok() && leftovers.confirms(self.sent) {
            return;
        }
        let new = Leftover {
            ballot: Arc::clone(&self.ballot),
            edition: self.edition.number,
            // No vote lasts longer.
            end: Instant::now() + members.kept(members.wait / 2),
            answered: answer.is_ok().then_some(self.sent),
        };
        let begins = leftovers.add(self.edition.of, new);
        drop(leftovers);
        if begins {
            let (alive, busy) = (members.alive.subscribe(), members.under_way.begin());
            let task = send_to(Arc::downgrade(members), alive, index, busy);
            members.engine.spawn(task);
        }
    }
}

impl Members {
    /// Takes back votes, in the background.
    pub(super) fn take_back(self: &Arc<Self>, undo: Arc<Ballot>, edition: Edition, on: Nodes) {
        if on.is_empty() {
            return;
        }
        let taken_back = TakenBack::new(self, undo, edition);
        self.engine.spawn(async move {
            let TakenBack {
                members, ballot, ..
            } = &taken_back;
            let nodes = members.all.iter().filter(|node| on.has(node.index));
            let told = nodes.map(async |node| {
                before_send().await;
                members.tokens.undoes(edition.of);
                let sent = timeout(members.limit, node.send(ballot, None, || true)).await;
                let answer = sent.unwrap_or_else(|_| Err(late(members.limit)));
                taken_back.was_told(node.index, &answer);
            });
            join_all(told).await;
        });
    }

    /// Sends what is due. Returns whether anything was confirmed; `None` if nothing is left.
    async fn send_again(&self, node: &Member) -> Option<bool> {
        // What is due is known when there is a connection.
        let is_reached = node.server.is_reached().await;
        let now = Instant::now();
        let due = lock(&node.leftovers).due(now)?;
        if !is_reached {
            return Some(false);
        }
        let sent = due.iter().map(async |(number, ballot)| {
            self.tokens.undoes(*number);
            let sent = timeout(self.limit, node.send(ballot, None, || true)).await;
            let answer = sent.ok().and_then(Result::ok);
            answer.map(|_| (*number, ballot))
        });
        let answered = join_all(sent).await;
        let mut leftovers = lock(&node.leftovers);
        let confirmed = answered
            .into_iter()
            .flatten()
            .map(|(number, ballot)| leftovers.answered(number, ballot, now));
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
