//! Requests for free locks that are made at the same moment go out as one script call.
//!
//! To call a script costs the server as much as to take a lock in it. Whoever is alone on the connection does not
//! come here, so a single task is never put off; and a lock that is not free is left to its own script.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{ErrorKind, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::error::{classify, garbled, no_reply};
use super::link::Link;
use super::script::{self, Script};
use super::{Arg, FENCE};
use crate::key::LockKey;
use crate::store::StoreError;
use crate::sync::lock;
use crate::token::Token;

/// So many locks in one call. A call holds up everybody else on the server, so it stays well below a millisecond; and
/// more of them gain little over that.
const MOST: usize = 32;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Acquire,
    Release,
}

/// Who waits for the next call.
#[derive(Default)]
pub(super) struct Gather {
    waiting: Mutex<Vec<Ask>>,
}

struct Ask {
    want: Want,
    /// Lock, queue, waiters and token, one behind the other: one allocation.
    names: String,
    ends: [usize; 3],
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
        self.name(3)
    }
}

impl Gather {
    /// The fencing token of the lock that was taken, 1 for a lock that was released, and 0 where nothing was done.
    pub(super) async fn ask(
        self: &Arc<Self>,
        link: &Arc<Link>,
        limit: Duration,
        want: Want,
        key: &LockKey,
        token: &Token,
        ttl: Duration,
    ) -> Result<u64, StoreError> {
        let parts = [&*key.lock, &key.queue, &key.waiters];
        let mut names = String::with_capacity(
            parts.iter().map(|p| p.len()).sum::<usize>() + token.as_str().len(),
        );
        let ends = parts.map(|part| {
            names.push_str(part);
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
        let (first, full) = {
            let mut waiting = lock(&self.waiting);
            waiting.push(ask);
            let full = waiting.len() >= MOST;
            (
                waiting.len() == 1,
                full.then(|| std::mem::take(&mut *waiting)),
            )
        };
        if first || full.is_some() {
            let turn = Turn {
                gather: Arc::clone(self),
                link: Arc::clone(link),
                limit,
                full,
                ran: false,
            };
            link.spawn(turn.run());
        }
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::Ambiguous(no_reply(limit))))
    }
}

/// One task that sends what has gathered by its turn. It belongs to none of those who wait, so none of them can cancel it.
struct Turn {
    gather: Arc<Gather>,
    link: Arc<Link>,
    limit: Duration,
    /// Those to send at once. Without them it sends what has gathered by its turn.
    full: Option<Vec<Ask>>,
    ran: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Nobody must wait for a task that its runtime has dropped. Afterwards the next turn is somebody else's.
        if !self.ran && self.full.is_none() {
            drop(self.take());
        }
    }
}

impl Turn {
    fn take(&self) -> Vec<Ask> {
        std::mem::take(&mut *lock(&self.gather.waiting))
    }

    async fn run(mut self) {
        let asks = if let Some(asks) = self.full.take() {
            asks
        } else {
            // Those that were woken together with the first one have their turn before us.
            yield_now().await;
            self.take()
        };
        self.ran = true;
        let (acquires, releases): (Vec<_>, Vec<_>) = asks
            .into_iter()
            // Whoever has gone must not get a lock: the clean-up may be ahead of us.
            .filter(|ask| !ask.reply.is_closed())
            .partition(|ask| ask.want == Want::Acquire);
        let calls = chunks(acquires)
            .map(|asks| (&*script::ACQUIRE_MANY, asks))
            .chain(chunks(releases).map(|asks| (&*script::RELEASE_MANY, asks)))
            .map(|(script, asks)| self.call(script, asks));
        join_all(calls).await;
    }

    async fn call(&self, script: &Script, asks: Vec<Ask>) {
        let acquires = asks[0].want == Want::Acquire;
        let mut keys = Vec::with_capacity(1 + 2 * asks.len());
        let mut args = Vec::with_capacity(2 * asks.len());
        if acquires {
            keys.push(FENCE);
        }
        for ask in &asks {
            keys.extend([ask.name(0), ask.name(1)]);
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
        let mut left_behind = Vec::new();
        for (ask, answer) in asks.into_iter().zip(answers) {
            if acquires && ask.reply.is_closed() && !matches!(answer, Ok(0)) {
                left_behind.push(ask);
            } else {
                // Whoever goes from now on cleans up behind this call.
                let _ = ask.reply.send(answer);
            }
        }
        join_all(left_behind.iter().map(|ask| self.give_back(ask))).await;
    }

    /// Whoever asked has gone meanwhile, and his clean-up may have come before the call that it was to clean up behind.
    async fn give_back(&self, ask: &Ask) {
        let keys = [ask.name(0), ask.name(1), ask.name(2), FENCE];
        let args = [Arg::Text(ask.token()), Arg::Number(0)];
        let release = self.link.run(&script::RELEASE, &keys, &args);
        let _ = timeout(self.limit, release).await;
    }
}

fn number(value: &Value) -> Result<u64, StoreError> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| garbled()),
        _ => Err(garbled()),
    }
}

fn chunks(asks: Vec<Ask>) -> impl Iterator<Item = Vec<Ask>> {
    let mut asks = asks.into_iter().peekable();
    std::iter::from_fn(move || {
        asks.peek()?;
        Some(asks.by_ref().take(MOST).collect())
    })
}
