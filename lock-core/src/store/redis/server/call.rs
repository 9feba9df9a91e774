//! Calls of a server: how a script runs there, and how long its answer may take.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};

use super::Server;
use crate::base::slot::slot_of;
use crate::base::time::{Clock, SystemClock};
use crate::store::StoreError;
use crate::store::redis::connection::Connection;
use crate::store::redis::error::{classify, no_reply, outside_a_cluster};
use crate::store::redis::script::{Script, is_lost};
use crate::store::redis::wire::{Arg, Name};

/// A script call, and how long its answer may take.
#[derive(Clone, Copy)]
pub(in crate::store::redis) struct Call<'a> {
    pub(in crate::store::redis) script: &'a Script,
    pub(in crate::store::redis) keys: &'a [Name<'a>],
    pub(in crate::store::redis) args: &'a [Arg<'a>],
    /// What is enough for the usual case.
    pub(in crate::store::redis) brief: Option<Brief>,
    pub(in crate::store::redis) limit: Duration,
    pub(in crate::store::redis) purpose: Purpose,
}

/// The answer to a brief form that was not enough: the full form follows.
const NOT_ENOUGH: Value = Value::Int(-1);

/// The first keys and arguments of a call, which go out alone. Each key and each argument costs the server as much as a small command.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::redis) struct Brief {
    pub(in crate::store::redis) keys: usize,
    pub(in crate::store::redis) args: usize,
    /// Whether the script then mints without the clock of the server (see [`floor`](crate::store::redis::connection::floor)), and by the clock in full.
    pub(in crate::store::redis) counts_on: bool,
}

impl<'a> Call<'a> {
    /// Keys and arguments of the full form, or of the brief one.
    fn form(&self, brief: Option<Brief>) -> (&'a [Name<'a>], &'a [Arg<'a>]) {
        match brief {
            Some(Brief { keys, args, .. }) => (&self.keys[..keys], &self.args[..args]),
            None => (self.keys, self.args),
        }
    }

    /// Whether the script mints, and its brief form without the clock.
    fn counts_on(&self) -> bool {
        self.brief.is_some_and(|brief| brief.counts_on)
    }

    /// The name of the lock, which is the first key.
    pub(in crate::store::redis) fn lock(&self) -> &'a str {
        self.keys[0].of_user()
    }
}

/// The purpose of a script call: what depends on its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Purpose {
    /// A grant, or the result of a guarded script: the answer of a former master would make a second holder.
    Grant,
    /// Leases: there must be time for another call on a new connection.
    Renewal,
    Other,
}

/// Why a call has no answer.
pub(in crate::store::redis) enum CallFailure {
    Error(RedisError),
    Silence,
}

impl CallFailure {
    pub(in crate::store::redis) fn into_error(self, limit: Duration) -> StoreError {
        match self {
            Self::Error(error) => classify(error),
            Self::Silence => StoreError::Ambiguous(no_reply(limit)),
        }
    }
}

impl Server {
    /// Makes the connection if there is none.
    pub(in crate::store) async fn ready(self: &Arc<Self>) -> Result<(), StoreError> {
        self.connected().await.map(drop)
    }

    /// The connection in use, made if there is none.
    pub(in crate::store) async fn connected(
        self: &Arc<Self>,
    ) -> Result<Arc<Connection>, StoreError> {
        let timers = self.engine().timers();
        match timers.timeout(self.limit(), self.connection()).await {
            Ok(connected) => connected.map_err(|error| self.classify(error)),
            Err(_) => Err(StoreError::NotNow(no_reply(self.limit())).at(&self.address())),
        }
    }

    /// Runs a script by its hash, by its text if the server has lost it, and in full if its brief form was not enough. Waits for
    /// `left`, a part of the call's limit, for each of these. With `asks`, each follows an `ASKING`.
    pub(in crate::store::redis) async fn call(
        self: &Arc<Self>,
        call: Call<'_>,
        left: Duration,
        asks: bool,
    ) -> Result<Value, CallFailure> {
        let timers = self.engine().timers();
        // Pinned here: it is large, and would be copied three times.
        let by_hash = pin!(self.ask_by_hash(call, asks));
        let mut answer = timers.timeout(left, by_hash).await;
        // With a limit of its own: a renewal far away has no time left. Boxed because it is rare.
        if let Ok(Err(error)) = &answer
            && is_lost(error)
        {
            let by_text = call.script.by_text(call.keys, call.args);
            let by_text = Box::pin(self.request_after(by_text, asks));
            answer = timers.timeout(left, by_text).await;
        }
        if call.brief.is_some() && matches!(answer, Ok(Ok(NOT_ENOUGH))) {
            let brief = None;
            return Box::pin(self.call(Call { brief, ..call }, left, asks)).await;
        }
        if let Ok(answer) = answer {
            return answer.map_err(CallFailure::Error);
        }
        // A call with a short rest of its limit tells nothing about the connection.
        if left >= call.limit / 2 {
            if call.purpose == Purpose::Renewal {
                self.renewal_went_silent(call.limit);
            } else {
                self.went_silent(call.limit);
            }
        }
        Err(CallFailure::Silence)
    }

    /// Sends a call by its hash, in its brief form if that is enough for the usual case.
    async fn ask_by_hash(self: &Arc<Self>, call: Call<'_>, asks: bool) -> RedisResult<Value> {
        let connection = self.connection().await?;
        let floor = call.counts_on().then(|| {
            let in_cluster = self.source().in_cluster.is_some();
            let slot = if in_cluster { slot_of(call.lock()) } else { 0 };
            (slot as u16, SystemClock.now())
        });
        let floors = &connection.floors;
        let holds = floor.is_none_or(|(slot, now)| floors.holds(slot, now));
        let brief = call.brief.filter(|_| holds && !asks);
        let (keys, args) = call.form(brief);
        let command = call.script.by_hash(keys, args);
        let answer = self.request_on(&connection, &command, asks).await;
        if let (Some((slot, now)), None, Ok(Value::Int(_))) = (floor, brief, &answer) {
            floors.laid(slot, now);
        }
        answer
    }

    pub(in crate::store::redis) fn classify(&self, error: RedisError) -> StoreError {
        let error = match self.source().in_cluster {
            Some(_) => classify(error),
            None => outside_a_cluster(error),
        };
        error.at(&self.address())
    }

    /// Sends one command.
    pub(in crate::store) async fn ask(self: &Arc<Self>, command: Cmd) -> Result<Value, StoreError> {
        let timers = self.engine().timers();
        let answer: Result<RedisResult<Value>, _> =
            timers.timeout(self.limit(), self.request(command)).await;
        let answer = answer.map_err(|_| StoreError::NotNow(no_reply(self.limit())));
        let answer = answer.and_then(|answer| answer.map_err(classify));
        answer.map_err(|error| error.at(&self.address()))
    }
}
