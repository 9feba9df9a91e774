//! Locks on Redis or Valkey: on one master, or on the masters of a cluster.

mod agreement;
mod batch;
mod channels;
mod cluster;
mod connecting;
mod dial;
mod endpoint;
mod error;
mod exclusive;
mod guarded;
mod link;
mod list;
mod live;
mod look;
mod named;
mod reentrant;
mod reply;
mod script;
mod sentinel_url;
mod sentinels;
mod silence;
mod socket;
mod source;
mod stranger;
mod subscriptions;
mod target;
#[cfg(feature = "tls-rustls")]
mod tls;
mod user;

mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use once_cell::sync::OnceCell;
use redis::Value;
use tokio::time::{Instant, timeout};

use self::cluster::{Cluster, Node};
pub(super) use self::endpoint::Endpoint;
use self::endpoint::{Call, Purpose};
use self::error::no_reply;
pub(super) use self::error::{classify, garbled};
pub(super) use self::list::{page, scanned};
pub(super) use self::reply::{extended, forced, inspected, millis, name, text, word};
pub(super) use self::script::{Script, script, unless_lost};
use self::source::Source;
use self::target::Target;
pub(crate) use self::user::UserConnection;
use self::wire::FENCE;
pub(super) use self::wire::{Arg, CHANNELS, renewed};
use super::{
    Answer, Attempt, Cursor, EventSink, Forced, GuardedCall, Mode, Passed, Released, Renewal,
    Scanned, Snapshot, Store, StoreError, Subscription, to_each,
};
use crate::base::config::Config;
use crate::base::error::LockError;
use crate::base::key::{LockKey, Name, Names};
use crate::base::kind::Kind;
use crate::base::rt::Handle;
use crate::base::token::{ClientId, Token};

/// A lock store on Redis or Valkey.
pub(crate) struct RedisStore {
    servers: Servers,
    /// Maximum wait for a reply. A reply that takes longer is an error.
    limit: Duration,
    /// How long a waiter that polls counts as alive after each request.
    polls_for: Duration,
    /// The channel on which this client receives grants.
    channel: OnceCell<String>,
}

/// What carries the requests.
enum Servers {
    /// One master. The library makes its connection again after it breaks, and receives the grants on it.
    One(Endpoint),
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
    pub(crate) fn open(url: &str, config: &Config) -> Result<Self, LockError> {
        let limit = config.command_deadline;
        if let Some(seeds) = cluster::seeds(url, config) {
            let cluster = Cluster::new(seeds?, config);
            return Ok(Self::through(Servers::Cluster(cluster), config));
        }
        let source = match sentinel_url::source(url, config) {
            Some(source) => source?,
            None => Source::following(Target::parse(url, config)?),
        };
        let servers = Servers::One(Endpoint::open(source, limit));
        Ok(Self::through(servers, config))
    }

    pub(crate) fn over(connection: UserConnection, config: &Config) -> Self {
        Self::through(Servers::User(connection), config)
    }

    fn through(servers: Servers, config: &Config) -> Self {
        Self {
            servers,
            limit: config.command_deadline,
            polls_for: polls_for(config),
            channel: OnceCell::new(),
        }
    }

    pub(crate) fn attach(&self, client: &ClientId, sink: EventSink, runtime: Handle) {
        match &self.servers {
            Servers::One(endpoint) => endpoint.link.attach(client, sink, runtime),
            Servers::Cluster(cluster) => cluster.attach(client, sink, runtime),
            Servers::User(_) => {}
        }
        let channel = format!("{CHANNELS}{}", client.as_str());
        let _ = self.channel.set(channel);
    }

    /// Whether the library makes and drives the connections.
    pub(crate) fn is_driven_here(&self) -> bool {
        !matches!(self.servers, Servers::User(_))
    }

    /// Host and port, where there is one server. A connection of the user does not tell.
    pub(crate) fn server(&self) -> Option<Arc<str>> {
        match &self.servers {
            Servers::One(endpoint) => Some(endpoint.link.address()),
            Servers::Cluster(_) | Servers::User(_) => None,
        }
    }

    /// Host and port of the server of a lock, if it is known.
    pub(crate) fn server_of(&self, key: &LockKey) -> Option<Arc<str>> {
        self.endpoint(key).map(|endpoint| endpoint.link.address())
    }

    /// Makes the first connection, so that a wrong address, password or server shows at start-up.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        match &self.servers {
            Servers::One(endpoint) => endpoint.ready().await,
            Servers::Cluster(cluster) => Box::pin(cluster.ready()).await,
            Servers::User(_) => Ok(()),
        }
    }

    /// The server of a lock, if it is known and the library drives its connection.
    fn endpoint(&self, key: &LockKey) -> Option<Reached<'_>> {
        match &self.servers {
            Servers::One(endpoint) => Some(Reached::Only(endpoint)),
            Servers::Cluster(cluster) => cluster.owner(key.lock()).map(Reached::Owner),
            Servers::User(_) => None,
        }
    }

    /// The key of the counter of fencing tokens.
    fn fence(&self, key: &LockKey) -> Name<'static> {
        match &self.servers {
            Servers::Cluster(_) => cluster::fence_of(key.lock()),
            Servers::One(_) | Servers::User(_) => FENCE,
        }
    }

    fn channel(&self, key: &LockKey) -> &str {
        let pushed = self.pushes(key);
        self.channel
            .get()
            .filter(|_| pushed)
            .map_or("", String::as_str)
    }

    /// Runs a script by its hash, and by its text if the server has lost it.
    async fn run(
        &self,
        script: &Script,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
    ) -> Result<Value, StoreError> {
        self.run_for(Purpose::Other, script, keys, args).await
    }

    async fn run_for(
        &self,
        purpose: Purpose,
        script: &Script,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
    ) -> Result<Value, StoreError> {
        self.call(Call {
            script,
            keys,
            args,
            limit: self.limit,
            purpose,
        })
        .await
    }

    /// Runs a script that renews leases. A renewal without an answer must leave time for another one.
    async fn run_renewal(
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
            limit: shortest.map_or(self.limit, |third| third.min(self.limit)),
            purpose: Purpose::Renewal,
        })
        .await
    }

    async fn call(&self, call: Call<'_>) -> Result<Value, StoreError> {
        let started = tracing::enabled!(tracing::Level::TRACE).then(Instant::now);
        let limit = call.limit;
        let result = match &self.servers {
            Servers::One(endpoint) => {
                let answer = endpoint.run(call, limit, false).await;
                answer.map_err(|none| none.into_error(limit))
            }
            Servers::Cluster(cluster) => Box::pin(cluster.run(call)).await,
            Servers::User(connection) => {
                let request = |command| connection.request(command);
                let answer = call.script.run(call.keys, call.args, request);
                match timeout(limit, answer).await {
                    Ok(answer) => answer.map_err(classify),
                    Err(_) => Err(StoreError::Ambiguous(no_reply(limit))),
                }
            }
        };
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

    async fn extend_together(&self, renewals: &[Renewal<'_>]) -> Result<Vec<bool>, StoreError> {
        match renewals.first().map(|renewal| renewal.key.kind()) {
            Some(Kind::Reentrant) => self.extend_reentrant(renewals).await,
            _ => self.extend_exclusive(renewals).await,
        }
    }
}

/// The server of a lock.
enum Reached<'a> {
    Only(&'a Endpoint),
    Owner(Arc<Node>),
}

impl std::ops::Deref for Reached<'_> {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        match self {
            Self::Only(endpoint) => endpoint,
            Self::Owner(node) => &node.endpoint,
        }
    }
}

/// Crashed waiters that poll block a lock for as long as the server counts them as alive, all of them together. So this time is
/// short, but several poll intervals: a waiter that polls late loses its place to the waiters behind it.
fn polls_for(config: &Config) -> Duration {
    (config.poll_interval * 4).max(Duration::from_millis(750))
}

impl Store for RedisStore {
    fn connecting(&self, key: &LockKey) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        let endpoint = self.endpoint(key)?;
        if endpoint.link.generation().is_some() {
            return None;
        }
        let name = key.lock().to_owned();
        Some(Box::pin(async move {
            match &self.servers {
                Servers::Cluster(cluster) => cluster.connected(&name).await,
                _ => endpoint.ready().await,
            }
        }))
    }

    // A separate script call is large, so it is boxed. A request in a batch needs no such call.
    async fn acquire(&self, attempt: Attempt<'_>) -> Result<Answer, StoreError> {
        if attempt.mode == Mode::Wait
            && let Some(endpoint) = self.endpoint(attempt.key)
            && !endpoint.link.pushes()
        {
            endpoint.link.subscribe_again();
        }
        match attempt.key.names() {
            Names::Exclusive { queue, waiters } => {
                self.acquire_exclusive(attempt, queue, waiters).await
            }
            Names::Reentrant { holds, .. } => Box::pin(self.reenter(attempt, holds)).await,
        }
    }

    async fn pass(&self, attempt: Attempt<'_>, from: &Token) -> Result<Passed, StoreError> {
        match attempt.key.names() {
            Names::Exclusive { queue, waiters } => {
                self.pass_exclusive(attempt, from, queue, waiters).await
            }
            Names::Reentrant { .. } => Err(garbled()),
        }
    }

    async fn release(
        &self,
        key: &Arc<LockKey>,
        token: &Token,
        owner: Option<&str>,
    ) -> Result<Released, StoreError> {
        match key.names() {
            Names::Exclusive { queue, waiters } => {
                self.release_exclusive(key, token, queue, waiters).await
            }
            Names::Reentrant { holds, channel } => {
                let keys = [key.lock().into(), holds, channel];
                Box::pin(self.leave(keys, token, owner)).await
            }
        }
    }

    fn part_of(&self, key: &LockKey) -> usize {
        match &self.servers {
            Servers::Cluster(cluster) => {
                let owner = cluster.owner(key.lock());
                owner.map_or(0, |node| Arc::as_ptr(&node).addr())
            }
            Servers::One(_) | Servers::User(_) => 0,
        }
    }

    async fn extend(&self, renewals: &[Renewal<'_>]) -> Vec<Result<bool, StoreError>> {
        if let Servers::Cluster(_) = &self.servers {
            // One call each: they may be of different masters, and a slot that moves refuses calls for several keys.
            let each = renewals.iter().map(async |renewal| {
                let held = Box::pin(self.extend_together(std::slice::from_ref(renewal))).await?;
                Ok(held == [true])
            });
            return join_all(each).await;
        }
        to_each(self.extend_together(renewals).await, renewals.len())
    }

    async fn inspect(&self, key: &LockKey) -> Result<Snapshot, StoreError> {
        match key.names() {
            Names::Exclusive { queue, .. } => self.inspect_exclusive(key, queue).await,
            Names::Reentrant { holds, .. } => self.inspect_reentrant(key.lock(), holds).await,
        }
    }

    async fn scan(&self, prefix: &str, cursor: Cursor) -> Result<Scanned, StoreError> {
        let page = list::page(prefix, cursor.on_node);
        let answer = match &self.servers {
            Servers::One(endpoint) => endpoint.ask(page).await?,
            Servers::Cluster(cluster) => return cluster.scan(prefix, cursor).await,
            Servers::User(connection) => {
                let answer = timeout(self.limit, connection.request(page)).await;
                let answer = answer.map_err(|_| StoreError::NotNow(no_reply(self.limit)))?;
                answer.map_err(classify)?
            }
        };
        let (keys, on_node) = list::scanned(answer)?;
        let next = (on_node != 0).then_some(Cursor { on_node, ..cursor });
        Ok(Scanned { keys, next })
    }

    async fn force_release(&self, key: &LockKey) -> Result<Forced, StoreError> {
        match key.names() {
            Names::Exclusive { queue, waiters } => self.force_exclusive(key, queue, waiters).await,
            Names::Reentrant { holds, channel } => {
                let keys = [key.lock().into(), holds, channel];
                self.force_reentrant(keys).await
            }
        }
    }

    async fn subscribe(&self, key: &LockKey) -> Result<Option<Subscription>, StoreError> {
        match (key.names(), self.endpoint(key)) {
            (Names::Reentrant { channel, .. }, Some(endpoint)) if endpoint.link.pushes() => {
                let channel = channel.to_string();
                endpoint.link.listen(&channel, key.lock()).await
            }
            _ => Ok(None),
        }
    }

    async fn guarded(
        &self,
        call: GuardedCall<'_>,
    ) -> Result<Result<Option<Value>, String>, StoreError> {
        self.run_guarded(call).await
    }

    fn pushes(&self, key: &LockKey) -> bool {
        self.endpoint(key)
            .is_some_and(|endpoint| endpoint.link.pushes())
    }
}
