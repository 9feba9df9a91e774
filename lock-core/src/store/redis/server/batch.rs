//! Batches of acquires and releases of free locks: the requests of one moment go out as one script call.
//!
//! A script call costs the server as much as one acquisition in it. A caller that is alone on the connection does not use a
//! batch, so a single task is never delayed. A lock that is not free is left to its own script.

use std::cell::Cell;
use std::future::poll_fn;
use std::iter::Chain;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use std::vec;

use futures_util::FutureExt;
use redis::{ErrorKind, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::Server;
use crate::base::key::LockKey;
use crate::base::signal::Signal;
use crate::base::sync::lock;
use crate::base::token::Token;
use crate::store::StoreError;
use crate::store::redis::error::{garbled, no_reply, outside_a_cluster};
use crate::store::redis::script;
use crate::store::redis::wire::{Arg, Name, fence, queue};

/// Maximum locks in one call. A call blocks all other clients of the server, so it has to stay well below a millisecond. Larger
/// batches gain little.
const MAX_LOCKS: usize = 64;

/// Maximum calls under way at a time; full calls do not count. The server works on one, while tasks that were just answered
/// fill the other. More calls would be smaller, and would cost more for each lock.
const TURNS: usize = 2;

/// Minimum size of a batch whose tasks are woken [together](Later).
const MANY: usize = 8;

thread_local! {
    /// Whether this thread is answering a batch of at least `MANY` requests.
    static ANSWERING_MANY: Cell<bool> = const { Cell::new(false) };
}

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Want {
    Acquire,
    Release,
}

/// Requests that wait for the next call.
#[derive(Default)]
pub(in crate::store::redis) struct Batcher {
    asks: Mutex<Asks>,
    /// Tokens of outstanding requests that no task waits for. The clean-up after such a request must not overtake it.
    orphans: Mutex<Vec<Token>>,
    settled: Signal,
}

#[derive(Default)]
struct Asks {
    waiting: Batch,
    /// Number of [turns](Turn) that run until no request waits.
    turns: usize,
}

/// The requests of one call.
#[derive(Default)]
struct Batch {
    acquires: Vec<Ask>,
    releases: Vec<Ask>,
}

impl Batch {
    fn len(&self) -> usize {
        self.acquires.len() + self.releases.len()
    }

    /// Takes all requests. The batch that is left has room for as many: usually the same number comes again.
    fn take(&mut self) -> Self {
        let next = Self {
            acquires: Vec::with_capacity(self.acquires.len()),
            releases: Vec::with_capacity(self.releases.len()),
        };
        std::mem::replace(self, next)
    }

    /// All requests: first the acquires, then the releases.
    fn iter(&self) -> impl Iterator<Item = &Ask> {
        self.acquires.iter().chain(&self.releases)
    }

    /// Removes the requests that no task waits for any more.
    fn given_up(&mut self) -> Vec<Ask> {
        let is_given_up = |ask: &mut Ask| ask.reply.is_closed();
        let mut gone: Vec<_> = self.acquires.extract_if(.., is_given_up).collect();
        gone.extend(self.releases.extract_if(.., is_given_up));
        gone
    }
}

impl IntoIterator for Batch {
    type Item = Ask;
    type IntoIter = Chain<vec::IntoIter<Ask>, vec::IntoIter<Ask>>;

    fn into_iter(self) -> Self::IntoIter {
        self.acquires.into_iter().chain(self.releases)
    }
}

/// The consequence of one more request.
enum Add {
    /// A turn that already runs sends the request.
    Waits,
    /// A new turn has to begin.
    Begins,
    /// The request completes a full batch.
    Fills(Batch),
}

struct Ask {
    key: Arc<LockKey>,
    token: Token,
    ttl: Duration,
    reply: oneshot::Sender<Result<u64, StoreError>>,
}

impl Batcher {
    /// Returns the fencing token of an acquired lock, 1 for a released lock, and 0 if nothing was done.
    pub(in crate::store::redis) async fn ask(
        self: &Arc<Self>,
        server: &Arc<Server>,
        limit: Duration,
        want: Want,
        key: &Arc<LockKey>,
        token: &Token,
        ttl: Duration,
    ) -> Result<u64, StoreError> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask {
            key: Arc::clone(key),
            token: *token,
            ttl,
            reply,
        };
        match self.add(want, ask) {
            Add::Waits => {}
            Add::Begins => drop(server.engine().spawn(self.turn(server, limit, None).run())),
            Add::Fills(call) => drop(
                server
                    .engine()
                    .spawn(self.turn(server, limit, Some(call)).run()),
            ),
        }
        let mut waiting = Waiting {
            batcher: self,
            token,
            answer,
            answered: false,
        };
        // On the runtime of the server, a turn answers within the limit, or within twice the limit if the request waits for a
        // later call. A caller on another runtime needs its own time limit: the runtime of the server may not be driven.
        let answer = if server.engine().is_driven() {
            in_turn(&mut waiting.answer).await
        } else if let Ok(answer) = server
            .engine()
            .timers()
            .timeout(limit * 2, &mut waiting.answer)
            .await
        {
            answer
        } else {
            server.went_silent(limit);
            return Err(StoreError::Ambiguous(no_reply(limit)));
        };
        // Mark it answered even if the turn was dropped: no other turn will settle this request.
        waiting.answered = true;
        answer.unwrap_or_else(|_| Err(StoreError::Ambiguous(no_reply(limit))))
    }

    fn add(&self, want: Want, ask: Ask) -> Add {
        let mut asks = lock(&self.asks);
        match want {
            Want::Acquire => asks.waiting.acquires.push(ask),
            Want::Release => asks.waiting.releases.push(ask),
        }
        if asks.waiting.len() >= MAX_LOCKS {
            Add::Fills(asks.waiting.take())
        } else if asks.waiting.len() == 1 && asks.turns < TURNS {
            asks.turns += 1;
            Add::Begins
        } else {
            Add::Waits
        }
    }

    fn turn(self: &Arc<Self>, server: &Arc<Server>, limit: Duration, full: Option<Batch>) -> Turn {
        Turn {
            batcher: Arc::clone(self),
            server: Arc::clone(server),
            limit,
            full,
            ended: false,
        }
    }

    /// Whether this token has an outstanding request that no task waits for.
    pub(in crate::store::redis) fn is_unsettled(&self, token: &Token) -> bool {
        lock(&self.orphans).contains(token)
    }

    /// Waits until this token has no outstanding request that no task waits for.
    pub(in crate::store::redis) async fn settled(&self, token: &Token) {
        self.settled.until(|| !self.is_unsettled(token)).await;
    }

    fn settle(&self, ask: Ask, answer: Result<u64, StoreError>) {
        if ask.reply.send(answer).is_err() {
            let mut orphans = lock(&self.orphans);
            // Remove only one entry: a token may have a second request before its first one is answered.
            if let Some(at) = orphans.iter().position(|orphan| *orphan == ask.token) {
                orphans.swap_remove(at);
            }
            drop(orphans);
            self.settled.notify_waiters();
        }
    }
}

/// A caller that waits for its answer.
struct Waiting<'a> {
    batcher: &'a Batcher,
    token: &'a Token,
    answer: oneshot::Receiver<Result<u64, StoreError>>,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        // Close and register under the lock: an answer that finds no receiver then finds the orphan.
        let mut orphans = lock(&self.batcher.orphans);
        self.answer.close();
        if self.answer.try_recv().is_err() {
            orphans.push(*self.token);
        }
    }
}

/// A task that sends the waiting requests, call after call, until no request waits. It belongs to no caller, so no caller
/// can cancel it.
struct Turn {
    batcher: Arc<Batcher>,
    server: Arc<Server>,
    limit: Duration,
    /// A full batch. The turn sends it at once, and ends.
    full: Option<Batch>,
    ended: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Answer the callers: they would wait for a task that its runtime has dropped. A later request begins the next turn.
        let asks = match self.full.take() {
            Some(asks) => asks,
            None if self.ended => return,
            None => {
                let mut asks = lock(&self.batcher.asks);
                asks.turns -= 1;
                std::mem::take(&mut asks.waiting)
            }
        };
        for ask in asks {
            let error = StoreError::Ambiguous(no_reply(self.limit));
            self.batcher.settle(ask, Err(error));
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
            // Tasks that were woken together with the first caller add their requests before the call.
            yield_now().await;
            let Some(asks) = self.take() else { return };
            self.send(asks).await;
        }
    }

    /// Takes the waiting requests. Returns `None`, and ends this turn, if no request waits.
    fn take(&mut self) -> Option<Batch> {
        let mut asks = lock(&self.batcher.asks);
        if asks.waiting.len() == 0 {
            asks.turns -= 1;
            self.ended = true;
            return None;
        }
        Some(asks.waiting.take())
    }

    async fn send(&self, mut batch: Batch) {
        for gone in batch.given_up() {
            self.batcher.settle(gone, Ok(0));
        }
        if batch.len() == 0 {
            return;
        }
        let answers = self.call(&batch).await;
        ANSWERING_MANY.set(batch.len() >= MANY);
        for (place, ask) in batch.into_iter().enumerate() {
            self.batcher.settle(ask, answers.of(place));
        }
        ANSWERING_MANY.set(false);
    }

    async fn call(&self, batch: &Batch) -> Answers {
        let (count, acquires) = (batch.len(), batch.acquires.len());
        let mut keys = Vec::with_capacity(1 + 2 * count);
        let namespace = batch.iter().next().map(|ask| ask.key.namespace());
        keys.push(fence(namespace.unwrap_or_default()));
        keys.extend(batch.iter().map(|ask| Name::from(ask.key.lock())));
        keys.extend(batch.iter().map(|ask| queue(&ask.key)));
        let mut args = Vec::with_capacity(1 + count + acquires);
        args.push(Arg::Number(acquires as u64));
        args.extend(batch.iter().map(|ask| Arg::Bytes(ask.token.as_bytes())));
        // Send one ttl if all acquires have the same: each argument has a cost.
        let mut ttls = batch.acquires.iter().map(|ask| ask.ttl);
        if let Some(first) = ttls.next() {
            let alike = ttls.all(|ttl| ttl == first);
            let said = if alike { 1 } else { acquires };
            args.extend(
                batch.acquires[..said]
                    .iter()
                    .map(|ask| Arg::Millis(ask.ttl)),
            );
        }
        let call = self.server.run(&script::BATCH, &keys, &args);
        match timeout(self.limit, call).await {
            Ok(Ok(Value::Int(first))) => match u64::try_from(first) {
                Ok(first) => Answers::All { acquires, first },
                Err(_) => Answers::Failed(garbled()),
            },
            Ok(Ok(Value::Array(parts))) if parts.len() == count => Answers::Each(parts),
            Ok(Ok(_)) => Answers::Failed(garbled()),
            // The error may concern only some of the locks, so each lock is left to its own script.
            Ok(Err(error)) if !matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse) => {
                Answers::Nothing
            }
            Ok(Err(error)) => Answers::Failed(outside_a_cluster(error)),
            Err(_) => {
                self.server.went_silent(self.limit);
                Answers::Failed(StoreError::Ambiguous(no_reply(self.limit)))
            }
        }
    }
}

/// Wakes a task. If this thread is answering many tasks, the runtime runs the task only when it next looks for work.
///
/// On a runtime of several threads, each wake-up wakes another thread, which finds that one task and sleeps again. Deferred
/// tasks are woken one after the other, and then one thread is woken for all of them. The cost: if the next task of this thread
/// blocks, other threads cannot help before it ends.
struct Later(Waker);

impl Wake for Later {
    fn wake(self: Arc<Self>) {
        if ANSWERING_MANY.get() {
            // The runtime defers the waker of a task that yields.
            let mut turn = pin!(yield_now());
            let _ = turn.as_mut().poll(&mut Context::from_waker(&self.0));
        } else {
            self.0.wake_by_ref();
        }
    }
}

/// Waits for an answer. The task is woken together with the others that are answered at the same time.
async fn in_turn<F: Future + Unpin>(mut answer: F) -> F::Output {
    let mut known: Option<(Waker, Waker)> = None;
    poll_fn(|cx| {
        let (_, later) = match &mut known {
            Some(known) if known.0.will_wake(cx.waker()) => known,
            known => {
                let task = cx.waker().clone();
                let later = Waker::from(Arc::new(Later(task.clone())));
                known.insert((task, later))
            }
        };
        answer.poll_unpin(&mut Context::from_waker(later))
    })
    .await
}

/// The outcome of a call.
enum Answers {
    /// All requests were carried out. The acquired locks have consecutive fencing tokens.
    All {
        acquires: usize,
        first: u64,
    },
    Each(Vec<Value>),
    /// No request was carried out.
    Nothing,
    Failed(StoreError),
}

impl Answers {
    fn of(&self, place: usize) -> Result<u64, StoreError> {
        match self {
            Self::All { acquires, first } if place < *acquires => Ok(first + place as u64),
            Self::All { .. } => Ok(1),
            Self::Each(parts) => number(&parts[place]),
            Self::Nothing => Ok(0),
            Self::Failed(error) => Err(error.clone()),
        }
    }
}

fn number(value: &Value) -> Result<u64, StoreError> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| garbled()),
        _ => Err(garbled()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::token::ClientId;

    #[test]
    fn each_request_that_was_given_up_is_settled_by_itself() {
        let batcher = Batcher::default();
        let key = Arc::new(LockKey::new("", "a").unwrap());
        let token = ClientId::random("test").token(1);
        let given_up = || {
            let (reply, answer) = oneshot::channel();
            drop(Waiting {
                batcher: &batcher,
                token: &token,
                answer,
                answered: false,
            });
            Ask {
                key: Arc::clone(&key),
                token,
                ttl: Duration::from_secs(1),
                reply,
            }
        };
        let (first, second) = (given_up(), given_up());
        batcher.settle(first, Ok(1));
        assert!(batcher.is_unsettled(&token), "the second may be on its way");
        batcher.settle(second, Ok(1));
        assert!(!batcher.is_unsettled(&token));
    }
}
