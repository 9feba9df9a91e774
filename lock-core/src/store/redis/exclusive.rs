//! The exclusive kind: a string for the lock, and a queue of waiters beside it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::batch::Want;
use super::endpoint::{Endpoint, Purpose};
use super::wire::{Arg, CHANNELS, renewed};
use super::{RedisStore, Servers, reply, script};
use crate::base::key::{LockKey, Name};
use crate::base::token::Token;
use crate::store::{
    Answer, Attempt, Forced, Mode, Passed, Released, Renewal, Snapshot, StoreError,
};

impl RedisStore {
    // A separate script call is large, so it is boxed. A request in a batch needs no such call.
    pub(super) async fn acquire_exclusive(
        &self,
        attempt: Attempt<'_>,
        queue: Name<'_>,
        waiters: Name<'_>,
    ) -> Result<Answer, StoreError> {
        // Reserved tokens are for waiters. A request with waiters behind it does not meet a free lock without a queue,
        // as a batch does.
        if attempt.reserve == 0
            && let Some(call) = self.batched(Want::Acquire, attempt.key, attempt.token, attempt.ttl)
        {
            let fence = call.await?;
            if fence > 0 {
                return Ok(Answer::Granted { fence, reserve: 0 });
            }
        }
        Box::pin(self.ask_alone(attempt, queue, waiters)).await
    }

    pub(super) async fn pass_exclusive(
        &self,
        attempt: Attempt<'_>,
        from: &Token,
        queue: Name<'_>,
        waiters: Name<'_>,
    ) -> Result<Passed, StoreError> {
        let keys = [
            attempt.key.lock().into(),
            queue,
            waiters,
            self.fence(attempt.key),
        ];
        let [token, ttl, mode, alive_for, channel, reserve] = self.args(attempt);
        let from = Arg::Bytes(from.as_bytes());
        let args = [token, ttl, mode, alive_for, channel, reserve, from];
        let value = self
            .run_for(Purpose::Grant, &script::PASS, &keys, &args)
            .await?;
        reply::passed(value, attempt.reserve)
    }

    pub(super) async fn release_exclusive(
        &self,
        key: &Arc<LockKey>,
        token: &Token,
        queue: Name<'_>,
        waiters: Name<'_>,
    ) -> Result<Released, StoreError> {
        if let Servers::One(Endpoint { batcher, .. }) = &self.servers
            && batcher.is_unsettled(token)
        {
            // A clean-up goes behind the request that it cleans up after. Boxed because it is rare.
            let _ = timeout(self.limit, Box::pin(batcher.settled(token))).await;
        }
        if let Some(call) = self.batched(Want::Release, key, token, Duration::ZERO)
            && call.await? > 0
        {
            return Ok(Released::Free);
        }
        Box::pin(self.release_alone(key, token, queue, waiters)).await
    }

    pub(super) async fn inspect_exclusive(
        &self,
        key: &LockKey,
        queue: Name<'_>,
    ) -> Result<Snapshot, StoreError> {
        let keys = [key.lock().into(), queue, self.fence(key)];
        let value = self.run(&script::INSPECT, &keys, &[]).await?;
        reply::inspected(value)
    }

    pub(super) async fn force_exclusive(
        &self,
        key: &LockKey,
        queue: Name<'_>,
        waiters: Name<'_>,
    ) -> Result<Forced, StoreError> {
        let keys = [key.lock().into(), queue, waiters, self.fence(key)];
        let value = self
            .run(&script::FORCE_RELEASE, &keys, &[Arg::Text(CHANNELS)])
            .await?;
        reply::forced(value)
    }

    /// The arguments of an attempt.
    fn args<'a>(&'a self, attempt: Attempt<'a>) -> [Arg<'a>; 6] {
        let channel = self.channel(attempt.key);
        let alive_for = if channel.is_empty() {
            self.polls_for
        } else {
            attempt.alive_for
        };
        [
            Arg::Bytes(attempt.token.as_bytes()),
            Arg::Millis(attempt.ttl),
            Arg::Text(match attempt.mode {
                Mode::Try => "try",
                Mode::Wait => "wait",
            }),
            Arg::Millis(alive_for),
            Arg::Text(channel),
            Arg::Number(attempt.reserve),
        ]
    }

    async fn ask_alone(
        &self,
        attempt: Attempt<'_>,
        queue: Name<'_>,
        waiters: Name<'_>,
    ) -> Result<Answer, StoreError> {
        let keys = [
            attempt.key.lock().into(),
            queue,
            waiters,
            self.fence(attempt.key),
        ];
        let args = self.args(attempt);
        let value = self
            .run_for(Purpose::Grant, &script::ACQUIRE, &keys, &args)
            .await?;
        reply::acquired(value, attempt.reserve)
    }

    async fn release_alone(
        &self,
        key: &LockKey,
        token: &Token,
        queue: Name<'_>,
        waiters: Name<'_>,
    ) -> Result<Released, StoreError> {
        let keys = [key.lock().into(), queue, waiters, self.fence(key)];
        let args = [Arg::Bytes(token.as_bytes())];
        let value = self.run(&script::RELEASE, &keys, &args).await?;
        reply::released(&value)
    }

    pub(super) async fn extend_exclusive(
        &self,
        renewals: &[Renewal<'_>],
    ) -> Result<Vec<bool>, StoreError> {
        let (keys, args) = renewed(renewals);
        let value = self
            .run_renewal(renewals, &script::EXTEND, &keys, &args)
            .await?;
        reply::extended(value, renewals.len())
    }

    /// Sends a request in a batch with the others of this moment: see [`batch`](super::batch). `None` for a caller that is
    /// alone on the connection, and in a cluster, where a call may have the keys of one slot only.
    ///
    /// Boxed, so that the future of a caller that is alone stays small.
    fn batched<'a>(
        &'a self,
        want: Want,
        key: &'a Arc<LockKey>,
        token: &'a Token,
        ttl: Duration,
    ) -> Option<BoxFuture<'a, Result<u64, StoreError>>> {
        let Servers::One(Endpoint { link, batcher, .. }) = &self.servers else {
            return None;
        };
        if !link.is_busy() {
            return None;
        }
        Some(Box::pin(
            batcher.ask(link, self.limit, want, key, token, ttl),
        ))
    }
}
