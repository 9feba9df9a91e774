//! Removes the votes that an abandoned token may have left on the nodes: one set for each node.
//!
//! A release, or an undo, is sent to every node that was asked for the token. It is repeated until the node confirms it, or until the
//! vote has ended there by itself. On the connection of the vote any answer confirms the clean-up, because the node has carried out
//! the vote before. On another connection an answer confirms it from [a second](LATE) after the connection of the vote has ended,
//! because that vote may arrive a little later. Nothing is sent while a later attempt goes on with the token: that attempt cleans up.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::ballot::Ballot;
use super::leftovers::{Busy, LATE, Leftover};
use super::members::{Member, Members};
use super::round::{Answered, How, ask};
use super::sent_on::SentOn;
use crate::base::backoff::Backoff;
use crate::base::sync::lock;
use crate::base::token::Token;
use crate::store::Attempt;

/// Maximum pause before the first clean-up, and before one that follows another in which something was removed.
const PAUSE: Duration = Duration::from_millis(10);

/// The outcome of one pass over the clean-ups of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Nothing is left.
    Over,
    /// Some of the clean-ups were confirmed.
    Removed,
    Nothing,
}

/// A token that the client gives up.
pub(super) struct GivenUp {
    members: Arc<Members>,
    ballot: Arc<Ballot>,
    token: Token,
    ttl: Duration,
    sent_on: SentOn,
    _busy: Busy,
}

impl GivenUp {
    pub(super) fn new(
        members: &Arc<Members>,
        ballot: Arc<Ballot>,
        token: Token,
        sent_on: SentOn,
    ) -> Self {
        Self {
            members: Arc::clone(members),
            ballot,
            token,
            // No vote lasts longer.
            ttl: members.kept(members.wait / 2),
            sent_on,
            _busy: members.under_way.begin(),
        }
    }

    /// Removes the votes, without waiting for the answers.
    pub(super) fn undo(self) {
        let members = &self.members;
        let (others, how) = (
            members.nodes().but(self.sent_on.nodes()),
            How::Undo(self.token),
        );
        let mut round = ask(
            members,
            Arc::clone(&self.ballot),
            how,
            others,
            members.limit,
        );
        for answered in round.send() {
            self.note_answer(&answered);
        }
        round.finish(move |answered| self.note_answer(&answered));
    }

    /// Notes that a node has answered, or has not answered in time.
    pub(super) fn note_answer(&self, (index, answer): &Answered) {
        let node = &self.members.all[*index];
        let (ballot, now) = (Arc::clone(&self.ballot), Instant::now());
        let sent_on = self.sent_on.on(*index);
        let mut leftover = Leftover::new(ballot, self.token, now + self.ttl, sent_on);
        if !leftover.note_answer(answer, node.server.generation(), now) {
            self.members.remember(node, leftover);
        }
    }
}

impl Members {
    /// Removes all that a former token of the acquisition has left, on all nodes.
    pub(super) fn give_up(self: &Arc<Self>, attempt: Attempt<'_>, former: &Token) {
        let attempt = Attempt {
            token: former,
            ..attempt
        };
        self.undo(attempt, SentOn::unknown(self.all.len()));
    }

    /// Removes votes, after the requests for them, without waiting for the answers. If another attempt for the token has begun
    /// meanwhile, it keeps the votes.
    pub(super) fn undo(self: &Arc<Self>, attempt: Attempt<'_>, sent_on: SentOn) {
        let token = *attempt.token;
        let ballot = Ballot::release(attempt.key, &token, false);
        self.tokens.undo(&token);
        GivenUp::new(self, ballot, token, sent_on).undo();
    }

    fn remember(self: &Arc<Self>, node: &Member, leftover: Leftover) {
        if lock(&node.leftovers).add(leftover) {
            let busy = self.under_way.begin();
            let alive = self.alive.subscribe();
            let task = clean_up_on(Arc::downgrade(self), alive, node.index, busy);
            self.engine.spawn(task);
        }
    }

    /// Sends what is due.
    async fn clean_up(self: &Arc<Self>, node: &Arc<Member>) -> Pass {
        let connected = timeout(self.limit, node.ready()).await;
        let connection = connected.ok().and_then(Result::ok);
        let asked = Instant::now();
        let Some(due) = lock(&node.leftovers).due(connection, asked) else {
            return Pass::Over;
        };
        let answers = due.iter().map(async |(token, ballot)| {
            let undo = node.undo(self, ballot, asked, token);
            (token.number(), timeout(self.limit, undo).await)
        });
        let answers = join_all(answers).await;
        let now_on = node.server.generation();
        let mut left = lock(&node.leftovers);
        let mut pass = Pass::Nothing;
        for (number, answer) in answers {
            if let Ok(answer) = answer
                && left.note_answer(number, &answer, now_on, asked)
            {
                pass = Pass::Removed;
            }
        }
        pass
    }
}

/// Cleans up on a node until nothing is left. Does not keep the store alive.
async fn clean_up_on(
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
        match members.clean_up(&members.all[index]).await {
            Pass::Over => return,
            Pass::Removed => backoff.over(),
            Pass::Nothing => {}
        }
    }
}
