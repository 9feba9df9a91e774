//! Requests for free locks that are made at the same moment go out as one script call.
//!
//! To call a script costs the server as much as to take a lock in it. Whoever is alone on the connection does not
//! come here, so a single task is never put off; and a lock that is not free is left to its own script.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{ErrorKind, Value};
use tokio::sync::Notify;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::error::{classify, garbled, no_reply};
use super::link::Link;
use super::script::{self, Script};
use super::{Arg, FENCE};
use crate::key::Name;
use crate::store::StoreError;
use crate::sync::lock;
use crate::token::Token;

/// So many locks in one call. A call holds up everybody else on the server, so it stays well below a millisecond; and
/// more of them gain little over that.
const MOST: usize = 32;

/// So many calls are under way at a time, unless they are full: one that the server works on, and one that is on its way.
/// More would be smaller ones, and cost more for each lock.
const TURNS: usize = 2;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Acquire,
    Release,
}

/// Who waits for the next call.
#[derive(Default)]
pub(super) struct Gather {
    asks: Mutex<Asks>,
    /// Tokens whose request nobody waits for any more, though it may still be sent or answered. Whoever cleans up behind
    /// such a request must not overtake it.
    orphans: Mutex<Vec<Box<str>>>,
    settled: Notify,
}

#[derive(Default)]
struct Asks {
    waiting: Vec<Ask>,
    /// How many [turns](Turn) go on until nobody waits.
    turns: usize,
}

/// What one more who asks leads to.
enum Add {
    /// It goes along with others: those who are sent come back for those who wait.
    Waits,
    /// A turn has to begin.
    Begins,
    /// These fill a call.
    Fills(Vec<Ask>),
}

struct Ask {
    want: Want,
    /// Lock, queue and token, one behind the other: one allocation.
    names: String,
    ends: [usize; 2],
    ttl: Duration,
    reply: oneshot::Sender<Result<u64, StoreError>>,
}

impl Ask {
    fn name(&self, n: usize) -> &str {
        let start = if n == 0 { 0 } else { self.ends[n - 1] };
        let end = self.ends.get(n).copied().unwrap_or(self.names.len());
        &self.names[start..end]
    }

    fn token(&self) -> &str {
        self.name(2)
    }
}

impl Gather {
    /// The fencing token of the lock that was taken, 1 for a lock that was released, and 0 where nothing was done.
    pub(super) async fn ask(
        self: &Arc<Self>,
        link: &Arc<Link>,
        limit: Duration,
        want: Want,
        parts: [Name<'_>; 2],
        token: &Token,
        ttl: Duration,
    ) -> Result<u64, StoreError> {
        let mut names = String::with_capacity(
            parts.iter().map(|p| p.len()).sum::<usize>() + token.as_str().len(),
        );
        let ends = parts.map(|part| {
            names.push_str(part.head);
            names.push_str(part.tail);
            names.len()
        });
        names.push_str(token.as_str());
        let (reply, answer) = oneshot::channel();
        let ask = Ask {
            want,
            names,
            ends,
            ttl,
            reply,
        };
        match self.add(ask) {
            Add::Waits => {}
            Add::Begins => drop(link.spawn(self.turn(link, limit, None).run())),
            Add::Fills(call) => drop(link.spawn(self.turn(link, limit, Some(call)).run())),
        }
        let mut waiting = Waiting {
            gather: self,
            token,
            answer,
        };
        (&mut waiting.answer)
            .await
            .unwrap_or_else(|_| Err(StoreError::Ambiguous(no_reply(limit))))
    }

    fn add(&self, ask: Ask) -> Add {
        let mut asks = lock(&self.asks);
        asks.waiting.push(ask);
        if asks.waiting.len() >= MOST {
            Add::Fills(std::mem::take(&mut asks.waiting))
        } else if asks.waiting.len() == 1 && asks.turns < TURNS {
            asks.turns += 1;
            Add::Begins
        } else {
            Add::Waits
        }
    }

    fn turn(self: &Arc<Self>, link: &Arc<Link>, limit: Duration, full: Option<Vec<Ask>>) -> Turn {
        Turn {
            gather: Arc::clone(self),
            link: Arc::clone(link),
            limit,
            full,
            ended: false,
        }
    }

    /// Whether a request of this token is under way that nobody waits for.
    pub(super) fn is_unsettled(&self, token: &Token) -> bool {
        lock(&self.orphans).iter().any(|t| **t == *token.as_str())
    }

    /// Waits until no request of this token is under way that nobody waits for.
    pub(super) async fn settled(&self, token: &Token) {
        loop {
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            if !self.is_unsettled(token) {
                return;
            }
            settled.await;
        }
    }

    fn settle(&self, ask: Ask, answer: Result<u64, StoreError>) {
        // Under the lock: whoever leaves does so before this or after it.
        let mut orphans = lock(&self.orphans);
        let Ask { reply, .. } = ask;
        if reply.send(answer).is_err() {
            let token = &ask.names[ask.ends[1]..];
            orphans.retain(|orphan| **orphan != *token);
            drop(orphans);
            self.settled.notify_waiters();
        }
    }
}

/// One who waits for an answer.
struct Waiting<'a> {
    gather: &'a Gather,
    token: &'a Token,
    answer: oneshot::Receiver<Result<u64, StoreError>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut orphans = lock(&self.gather.orphans);
        if matches!(self.answer.try_recv(), Err(TryRecvError::Empty)) {
            orphans.push(self.token.as_str().into());
        }
        // Before the lock is free again, so that an answer finds nobody from now on.
        self.answer.close();
    }
}

/// A task that sends what has gathered, again and again until nobody waits. It belongs to none of those who wait, so none of
/// them can cancel it.
struct Turn {
    gather: Arc<Gather>,
    link: Arc<Link>,
    limit: Duration,
    /// Those that fill a call: it goes out at once, and nothing comes after it.
    full: Option<Vec<Ask>>,
    ended: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Nobody must wait for a task that its runtime has dropped. Afterwards the next turn is somebody else's.
        let asks = match self.full.take() {
            Some(asks) => asks,
            None if self.ended => return,
            None => {
                let mut asks = lock(&self.gather.asks);
                asks.turns -= 1;
                std::mem::take(&mut asks.waiting)
            }
        };
        for ask in asks {
            let error = StoreError::Ambiguous(no_reply(self.limit));
            self.gather.settle(ask, Err(error));
        }
    }
}

impl Turn {
    async fn run(mut self) {
        if let Some(asks) = self.full.take() {
            self.ended = true;
            return self.send(asks).await;
        }
        loop {
            // Those that were woken together with the first one have their turn before us.
            yield_now().await;
            let Some(asks) = self.take() else { return };
            self.send(asks).await;
        }
    }

    /// Those who wait. Where there is nobody, this turn has ended.
    fn take(&mut self) -> Option<Vec<Ask>> {
        let mut asks = lock(&self.gather.asks);
        if asks.waiting.is_empty() {
            asks.turns -= 1;
            self.ended = true;
            return None;
        }
        Some(std::mem::take(&mut asks.waiting))
    }

    async fn send(&self, asks: Vec<Ask>) {
        let (gone, asks): (Vec<_>, Vec<_>) =
            asks.into_iter().partition(|ask| ask.reply.is_closed());
        for ask in gone {
            self.gather.settle(ask, Ok(0));
        }
        let (acquires, releases): (Vec<_>, Vec<_>) =
            asks.into_iter().partition(|ask| ask.want == Want::Acquire);
        let calls = [
            (&*script::ACQUIRE_MANY, acquires),
            (&*script::RELEASE_MANY, releases),
        ];
        let calls = calls.into_iter().filter(|(_, asks)| !asks.is_empty());
        join_all(calls.map(|(script, asks)| self.call(script, asks))).await;
    }

    async fn call(&self, script: &Script, asks: Vec<Ask>) {
        let acquires = asks[0].want == Want::Acquire;
        let mut keys = Vec::with_capacity(1 + 2 * asks.len());
        let mut args = Vec::with_capacity(2 * asks.len());
        if acquires {
            keys.push(FENCE);
        }
        keys.extend(asks.iter().map(|ask| Name::from(ask.name(0))));
        keys.extend(asks.iter().map(|ask| Name::from(ask.name(1))));
        for ask in &asks {
            args.push(Arg::Text(ask.token()));
            if acquires {
                args.push(Arg::Millis(ask.ttl));
            }
        }
        let answer = timeout(self.limit, self.link.run(script, &keys, &args)).await;
        let count = asks.len();
        let answers = match answer {
            Ok(Ok(Value::Array(parts))) if parts.len() == count => {
                parts.iter().map(number).collect()
            }
            Ok(Ok(_)) => vec![Err(garbled()); count],
            // What the server says against one of them, it may not say against the others.
            Ok(Err(error)) if !matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse) => {
                vec![Ok(0); count]
            }
            Ok(Err(error)) => vec![Err(classify(error)); count],
            Err(_) => vec![Err(StoreError::Ambiguous(no_reply(self.limit))); count],
        };
        for (ask, answer) in asks.into_iter().zip(answers) {
            self.gather.settle(ask, answer);
        }
    }
}

fn number(value: &Value) -> Result<u64, StoreError> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| garbled()),
        _ => Err(garbled()),
    }
}
