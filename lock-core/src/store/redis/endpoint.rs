//! One master: its connection, its batches, and how a script runs on it.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::time::timeout;

use super::batch::Batcher;
use super::error::{classify, no_reply};
use super::link::Link;
use super::script::Script;
use super::source::Source;
use super::wire::Arg;
use crate::key::Name;
use crate::store::StoreError;

/// A master of Redis or Valkey.
pub(super) struct Endpoint {
    pub(super) link: Arc<Link>,
    pub(super) batcher: Arc<Batcher>,
    limit: Duration,
}

/// A script call, and how long its answer may take.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) script: &'a Script,
    pub(super) keys: &'a [Name<'a>],
    pub(super) args: &'a [Arg<'a>],
    pub(super) limit: Duration,
    /// Whether it renews leases: there must be time for another call on a new connection.
    pub(super) renews: bool,
}

/// Why a call has no answer.
pub(super) enum CallFailure {
    Error(RedisError),
    Silence,
}

impl CallFailure {
    pub(super) fn into_error(self, limit: Duration) -> StoreError {
        match self {
            Self::Error(error) => classify(error),
            Self::Silence => StoreError::Ambiguous(no_reply(limit)),
        }
    }
}

impl Endpoint {
    /// Sends nothing before [`ready`](Self::ready).
    pub(super) fn open(source: Source, limit: Duration) -> Self {
        Self {
            link: Link::open(source, limit),
            batcher: Arc::default(),
            limit,
        }
    }

    /// Makes the connection if there is none.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        match timeout(self.limit, self.link.connection()).await {
            Ok(connected) => connected.map(drop).map_err(classify),
            Err(_) => Err(StoreError::NotNow(no_reply(self.limit))),
        }
    }

    /// Runs a script by its hash, and by its text if the server has lost it. Waits for `left`, a part of the call's limit. With
    /// `asks`, each request follows an `ASKING`.
    pub(super) async fn run(
        &self,
        call: Call<'_>,
        left: Duration,
        asks: bool,
    ) -> Result<Value, CallFailure> {
        let Call {
            script, keys, args, ..
        } = call;
        let request = |command: Cmd| self.link.request_after(command, asks);
        if let Ok(answer) = timeout(left, script.run(keys, args, request)).await {
            return answer.map_err(CallFailure::Error);
        }
        // A short rest of the limit tells nothing of the connection.
        if left >= call.limit / 2 {
            if call.renews {
                self.link.renewal_went_silent(call.limit);
            } else {
                self.link.went_silent(call.limit);
            }
        }
        Err(CallFailure::Silence)
    }

    /// Sends one command.
    pub(super) async fn ask(&self, command: Cmd) -> Result<Value, StoreError> {
        let answer: Result<RedisResult<Value>, _> =
            timeout(self.limit, self.link.request(command)).await;
        let answer = answer.map_err(|_| StoreError::NotNow(no_reply(self.limit)))?;
        answer.map_err(classify)
    }
}
