//! One master: its connection, its batches, and how a script runs on it.

use std::borrow::Borrow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};

use super::batch::Batcher;
use super::error::{classify, is_made_up, no_reply, outside_a_cluster};
use super::link::Link;
use super::script::{Script, is_lost};
use super::settings::RedisConfig;
use super::source::Source;
use super::url::Url;
use super::wire::{Arg, Name};
use crate::base::error::LockError;
use crate::base::slot::slot_of;
use crate::base::time::{Clock, Moment, SystemClock};
use crate::store::{Attached, StoreError};

/// A master of Redis or Valkey.
pub(in crate::store) struct Endpoint {
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
    /// What is enough for the usual case.
    pub(super) brief: Option<Brief>,
    pub(super) limit: Duration,
    pub(super) purpose: Purpose,
}

/// The answer to a brief form that was not enough: the full form follows.
const NOT_ENOUGH: Value = Value::Int(-1);

/// The first keys and arguments of a call, which go out alone. Each key and each argument costs the server as much as a small command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brief {
    pub(super) keys: usize,
    pub(super) args: usize,
    /// Whether the script then mints without the clock of the server (see [`floor`](super::floor)), and by the clock in full.
    pub(super) counts_on: bool,
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
    pub(super) fn lock(&self) -> &'a str {
        self.keys[0].of_user()
    }
}

/// The purpose of a script call: what depends on its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A grant, or the result of a guarded script: the answer of a former master would make a second holder.
    Grant,
    /// Leases: there must be time for another call on a new connection.
    Renewal,
    Other,
}

/// Why a call has no answer.
pub(super) enum CallFailure {
    Error(RedisError),
    Silence,
}

impl CallFailure {
    /// Whether the connection broke, or is silent.
    pub(super) fn is_broken(&self) -> bool {
        match self {
            Self::Error(error) => error.is_io_error(),
            Self::Silence => true,
        }
    }

    /// Whether there was no connection on which to send it.
    pub(super) fn was_not_sent(&self) -> bool {
        matches!(self, Self::Error(error) if error.is_connection_refusal())
    }

    /// Whether some keys of the request are on another node of the cluster.
    pub(super) fn is_half_moved(&self) -> bool {
        matches!(self, Self::Error(error) if error.code() == Some("TRYAGAIN") && !is_made_up(error))
    }

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

    /// A node of a quorum: the server behind a URL, which stays the same.
    pub(in crate::store) fn at(
        url: &Url<'_>,
        config: &RedisConfig,
        limit: Duration,
    ) -> Result<Self, LockError> {
        let source = Source::of_quorum(url.target(config)?);
        Ok(Self::open(source, limit))
    }

    /// Host and port, without the password.
    pub(in crate::store) fn address(&self) -> Arc<str> {
        self.link.address()
    }

    pub(in crate::store) fn attach(&self, engine: &Attached) {
        self.link.attach(engine);
    }

    /// Whether the server sends messages.
    pub(in crate::store) fn pushes(&self) -> bool {
        self.link.pushes()
    }

    /// The generation of the connection in use, if any. It only grows.
    pub(in crate::store) fn generation(&self) -> Option<u64> {
        self.link.generation()
    }

    /// The time before the connection of this generation was made, if it is still in use.
    pub(in crate::store) fn dialled(&self, generation: u64) -> Option<Moment> {
        let live = self.link.current();
        let live = live.filter(|live| live.generation == generation);
        live.map(|live| live.dialled)
    }

    /// Sends a command without a time limit. If there is a connection, the first poll of the future puts the command on its way,
    /// behind all earlier ones.
    pub(in crate::store) fn request<C: Borrow<Cmd> + Send + Sync>(
        &self,
        command: C,
    ) -> impl Future<Output = RedisResult<Value>> + Send + use<C> {
        self.link.request(command)
    }

    /// As [`request`](Self::request), on a connection of its own.
    pub(in crate::store) async fn request_anew(&self, command: &Cmd) -> RedisResult<Value> {
        self.link.request_anew(command).await
    }

    /// Handles a request without an answer within the command deadline.
    pub(in crate::store) fn went_silent(&self) {
        self.link.went_silent(self.limit);
    }

    /// Stops using the connection of this generation.
    pub(in crate::store) fn discard(&self, generation: u64) {
        self.link.discard(generation);
    }

    /// Makes the connection if there is none.
    pub(in crate::store) async fn ready(&self) -> Result<(), StoreError> {
        let timers = self.link.engine.timers();
        match timers.timeout(self.limit, self.link.connection()).await {
            Ok(connected) => connected.map(drop).map_err(|error| self.classify(error)),
            Err(_) => Err(StoreError::NotNow(no_reply(self.limit)).at(&self.address())),
        }
    }

    /// Runs a script by its hash, by its text if the server has lost it, and in full if its brief form was not enough. Waits for
    /// `left`, a part of the call's limit, for each of these. With `asks`, each follows an `ASKING`.
    pub(super) async fn run(
        &self,
        call: Call<'_>,
        left: Duration,
        asks: bool,
    ) -> Result<Value, CallFailure> {
        let timers = self.link.engine.timers();
        // Pinned here: it is large, and would be copied three times.
        let by_hash = pin!(self.ask_by_hash(call, asks));
        let mut answer = timers.timeout(left, by_hash).await;
        // With a limit of its own: a renewal far away has no time left. Boxed because it is rare.
        if let Ok(Err(error)) = &answer
            && is_lost(error)
        {
            let by_text = call.script.by_text(call.keys, call.args);
            let by_text = Box::pin(self.link.request_after(by_text, asks));
            answer = timers.timeout(left, by_text).await;
        }
        if call.brief.is_some() && matches!(answer, Ok(Ok(NOT_ENOUGH))) {
            let brief = None;
            return Box::pin(self.run(Call { brief, ..call }, left, asks)).await;
        }
        if let Ok(answer) = answer {
            return answer.map_err(CallFailure::Error);
        }
        // A call with a short rest of its limit tells nothing about the connection.
        if left >= call.limit / 2 {
            if call.purpose == Purpose::Renewal {
                self.link.renewal_went_silent(call.limit);
            } else {
                self.link.went_silent(call.limit);
            }
        }
        Err(CallFailure::Silence)
    }

    /// Sends a call by its hash, in its brief form if that is enough for the usual case.
    async fn ask_by_hash(&self, call: Call<'_>, asks: bool) -> RedisResult<Value> {
        let live = self.link.live().await?;
        let floor = call.counts_on().then(|| {
            let in_cluster = self.link.source.in_cluster.is_some();
            let slot = if in_cluster { slot_of(call.lock()) } else { 0 };
            (slot as u16, SystemClock.now())
        });
        let floors = Arc::clone(&live.floors);
        let holds = floor.is_none_or(|(slot, now)| floors.holds(slot, now));
        let brief = call.brief.filter(|_| holds && !asks);
        let (keys, args) = call.form(brief);
        let command = call.script.by_hash(keys, args);
        let answer = self.link.request_on(live, command, asks).await;
        if let (Some((slot, now)), None, Ok(Value::Int(_))) = (floor, brief, &answer) {
            floors.laid(slot, now);
        }
        answer
    }

    pub(super) fn classify(&self, error: RedisError) -> StoreError {
        let error = match self.link.source.in_cluster {
            Some(_) => classify(error),
            None => outside_a_cluster(error),
        };
        error.at(&self.address())
    }

    /// Sends one command.
    pub(in crate::store) async fn ask(&self, command: Cmd) -> Result<Value, StoreError> {
        let timers = self.link.engine.timers();
        let answer: Result<RedisResult<Value>, _> =
            timers.timeout(self.limit, self.link.request(command)).await;
        let answer = answer.map_err(|_| StoreError::NotNow(no_reply(self.limit)));
        let answer = answer.and_then(|answer| answer.map_err(classify));
        answer.map_err(|error| error.at(&self.address()))
    }
}
