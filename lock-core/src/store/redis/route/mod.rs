//! Chooses the server of a request: the only one, the master of a slot, or the user's connection.

pub(super) mod user;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use once_cell::sync::OnceCell;
use redis::Value;
use tokio::time::Instant;

use self::user::UserConnection;
use crate::base::config::Config;
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::slot::slot_of;
use crate::store::redis::cluster::Cluster;
use crate::store::redis::connection::settings::RedisConfig;
use crate::store::redis::connection::url::{LeadsTo, Url};
use crate::store::redis::error::{no_reply, over_users, with_patterns};
use crate::store::redis::script::Script;
use crate::store::redis::sentinel::followed::Followed;
use crate::store::redis::server::Server;
use crate::store::redis::server::batch::Batcher;
use crate::store::redis::server::call::{Brief, Call, CallFailure, Purpose};
use crate::store::redis::server::source::Source;
use crate::store::redis::wire::{self, Arg, Name};
use crate::store::{Attached, Attempt, Mode, Renewal, StoreError};

/// A lock store on Redis or Valkey.
pub(crate) struct RedisStore {
    pub(super) route: Route,
    /// The requests of one moment, if there is one server.
    pub(super) batcher: Arc<Batcher>,
    /// Maximum wait for a reply. A reply that takes longer is an error.
    pub(super) limit: Duration,
    /// How long a waiter that polls counts as alive after each request.
    pub(super) polls_for: Duration,
    /// The channel on which this client receives grants.
    channel: OnceCell<String>,
    namespace: Arc<str>,
    /// Namespace and prefix, which stand in front of the key of an exclusive lock.
    pub(super) prefix: Arc<str>,
}

/// The servers of the store, or the user's connection.
pub(super) enum Route {
    /// One master. The library reconnects to it, and receives the grants on that connection.
    One(Arc<Server>),
    /// The masters of a cluster, with connections of the same kind.
    Cluster(Arc<Cluster>),
    /// A connection of the user. The library cannot subscribe on it, so waiters find their grants by polling.
    User(UserConnection),
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Opens a store behind a URL. Sends nothing before [`ready`](Self::ready).
    pub(crate) fn open(url: &str, config: &Config, redis: &RedisConfig) -> Result<Self, LockError> {
        let limit = config.command_deadline;
        let url = Url::read(url)?;
        let one = |source| Route::One(Server::open(source, limit));
        let route = match url.leads_to {
            LeadsTo::Server | LeadsTo::Socket => one(Source::of_url(url.target(redis)?)),
            LeadsTo::Sentinels => {
                let master = Followed::behind_sentinels(&url, redis, limit)?;
                one(Source::behind_sentinels(master))
            }
            LeadsTo::Cluster => Route::Cluster(Cluster::open(&url, redis, limit)?),
        };
        Ok(Self::through(route, config))
    }

    pub(crate) fn over(connection: UserConnection, config: &Config) -> Self {
        Self::through(Route::User(connection), config)
    }

    fn through(route: Route, config: &Config) -> Self {
        Self {
            route,
            batcher: Arc::default(),
            limit: config.command_deadline,
            polls_for: polls_for(config),
            channel: OnceCell::new(),
            namespace: Arc::clone(&config.namespace),
            prefix: config.prefix().whole().into(),
        }
    }

    pub(crate) fn attach(&self, engine: Attached) {
        let _ = self
            .channel
            .set(wire::channel(&self.namespace, &engine.client));
        match &self.route {
            Route::One(server) => server.attach(&engine),
            Route::Cluster(cluster) => cluster.attach(engine),
            Route::User(connection) => connection.attach(engine.home.timers),
        }
    }

    /// Whether the library makes and drives the connections.
    pub(crate) fn is_driven_here(&self) -> bool {
        !matches!(self.route, Route::User(_))
    }

    /// Host and port of the server of a lock, if it is known.
    pub(crate) fn server_of(&self, key: &LockKey) -> Option<Arc<str>> {
        self.server(key).map(|server| server.address())
    }

    /// Makes the first connection, so that a wrong address, password or server shows at start-up.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        match &self.route {
            Route::One(server) => server.ready().await,
            Route::Cluster(cluster) => Box::pin(cluster.ready()).await,
            Route::User(_) => Ok(()),
        }
    }

    /// A tag in a slot of each master of a cluster.
    pub(crate) async fn parts(&self) -> Result<Vec<&'static str>, StoreError> {
        match &self.route {
            Route::Cluster(cluster) => Box::pin(cluster.parts()).await,
            Route::One(_) | Route::User(_) => Ok(vec![""]),
        }
    }

    /// The server of a lock, if it is known and the library drives its connection.
    pub(super) fn server(&self, key: &LockKey) -> Option<Arc<Server>> {
        match &self.route {
            Route::One(server) => Some(Arc::clone(server)),
            Route::Cluster(cluster) => cluster.owner(key.lock()),
            Route::User(_) => None,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.route, Route::Cluster(_))
    }

    /// Whether one script can have the keys of both locks.
    pub(in crate::store) fn has_in_one_slot(&self, one: &LockKey, other: &LockKey) -> bool {
        !self.is_cluster() || slot_of(one.lock()) == slot_of(other.lock())
    }

    /// The key of the counter of fencing tokens.
    pub(super) fn fence<'a>(&self, key: &'a LockKey) -> Name<'a> {
        match &self.route {
            Route::Cluster(cluster) => cluster.fence(key.namespace(), key.lock()),
            Route::One(_) | Route::User(_) => wire::fence(key.namespace()),
        }
    }

    /// Whether the grants of a lock arrive as messages.
    pub(in crate::store) fn is_told(&self, key: &LockKey) -> bool {
        self.server(key).is_some_and(|server| server.pushes())
    }

    /// The channel for the grants of a lock, empty if they do not arrive as messages.
    pub(super) fn channel(&self, key: &LockKey) -> &str {
        let pushed = self.is_told(key);
        self.channel
            .get()
            .filter(|_| pushed)
            .map_or("", String::as_str)
    }

    /// How this client waits for a lock.
    pub(super) fn waits<'a>(&'a self, attempt: Attempt<'_>) -> Arg<'a> {
        let channel = self.channel(attempt.key);
        Arg::Waits {
            mode: match attempt.mode {
                Mode::Try => "try",
                Mode::Wait => "wait",
            },
            alive_for: if channel.is_empty() {
                self.polls_for
            } else {
                attempt.alive_for
            },
            channel,
        }
    }

    /// Runs a script by its hash, and by its text if the server has lost it.
    pub(super) async fn run(
        &self,
        script: &Script,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
    ) -> Result<Value, StoreError> {
        self.run_for(Purpose::Other, script, keys, args).await
    }

    pub(super) async fn run_for(
        &self,
        purpose: Purpose,
        script: &Script,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
    ) -> Result<Value, StoreError> {
        self.run_first(None, purpose, script, keys, args).await
    }

    /// As [`run_for`](Self::run_for), first in this form.
    pub(super) async fn run_first(
        &self,
        brief: Option<Brief>,
        purpose: Purpose,
        script: &Script,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
    ) -> Result<Value, StoreError> {
        self.call(Call {
            script,
            keys,
            args,
            brief,
            limit: self.limit,
            purpose,
        })
        .await
    }

    /// Runs a script that renews leases. A renewal without an answer must leave time for another one.
    pub(super) async fn run_renewal(
        &self,
        renewals: &[Renewal<'_>],
        script: &Script,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
    ) -> Result<Value, StoreError> {
        let ttls = renewals.iter().map(|renewal| renewal.ttl);
        let shortest = ttls.filter(|ttl| !ttl.is_zero()).map(|ttl| ttl / 3).min();
        self.call(Call {
            script,
            keys,
            args,
            brief: None,
            limit: shortest.map_or(self.limit, |third| third.min(self.limit)),
            purpose: Purpose::Renewal,
        })
        .await
    }

    async fn call(&self, call: Call<'_>) -> Result<Value, StoreError> {
        let started = tracing::enabled!(tracing::Level::TRACE).then(Instant::now);
        let limit = call.limit;
        let result = match &self.route {
            Route::One(server) => {
                let answer = server.call(call, limit, false).await;
                answer.map_err(|none| match none {
                    CallFailure::Error(error) => server.classify(error),
                    silence @ CallFailure::Silence => {
                        silence.into_error(limit).at(&server.address())
                    }
                })
            }
            Route::Cluster(cluster) => Box::pin(cluster.run(call)).await,
            Route::User(connection) => {
                // In full: it is not known what happens under the connection, so no counter counts on, and no message tells of waiters.
                let request = |command| connection.request(command);
                let answer = call.script.run(call.keys, call.args, request);
                match connection.timers().timeout(limit, answer).await {
                    Ok(answer) => answer.map_err(over_users),
                    Err(_) => Err(StoreError::Ambiguous(no_reply(limit))),
                }
            }
        };
        let result = result.map_err(|error| with_patterns(error, call.keys, &self.prefix));
        if let Some(started) = started {
            let micros = started.elapsed().as_micros() as u64;
            tracing::trace!(
                script = call.script.name,
                micros,
                ok = result.is_ok(),
                "script call"
            );
        }
        result
    }
}

/// Time for which a waiter that polls counts as alive. Short, because all crashed waiters together block the lock for that long.
/// Several poll intervals, because a waiter that polls late loses its place to the waiters behind it.
fn polls_for(config: &Config) -> Duration {
    (config.poll_interval * 4).max(Duration::from_millis(750))
}
