//! Locks on one Redis or Valkey master.

mod batch;
mod channels;
mod connecting;
mod dial;
mod error;
mod exclusive;
mod guarded;
mod link;
mod list;
mod look;
mod master;
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
mod vetting;
mod vote;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either};
use once_cell::sync::OnceCell;
use redis::{Cmd, RedisResult, Value};
use tokio::time::{Instant, timeout};

use self::batch::Batcher;
pub(super) use self::error::at;
use self::error::{classify, garbled, no_reply};
use self::link::Link;
pub(crate) use self::master::{Ballot, Master, yes};
pub(crate) use self::reply::{extended, forced, inspected};
use self::script::Script;
use self::source::Source;
use self::target::Target;
pub(crate) use self::user::UserConnection;
pub(crate) use self::vetting::{Run, Statement, Vetted, Vetting, counter_of};
pub(crate) use self::vote::{Vote, is_unknown};
use self::wire::{Arg, CHANNELS};
use super::{
    Answer, Attempt, Cursor, EventSink, Forced, GuardedCall, Mode, Passed, Released, Renewal,
    Scanned, Snapshot, Store, StoreError, Subscription,
};
use crate::LockError;
use crate::config::Config;
use crate::key::{Kind, LockKey, Name, Names};
use crate::rt::Handle;
use crate::token::{ClientId, Token};

/// A lock store on a Redis server.
pub(crate) struct RedisStore {
    conduit: Conduit,
    /// Maximum wait for a reply. A reply that takes longer is an error.
    limit: Duration,
    /// How long a waiter that polls counts as alive after each request.
    polls_for: Duration,
    /// The channel on which this client receives grants.
    channel: OnceCell<String>,
}

/// The connection that carries the requests.
enum Conduit {
    /// A connection of the library, made again after it breaks. Grants arrive on it.
    Link(Arc<Link>, Arc<Batcher>),
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
        let source = match sentinel_url::source(url, config) {
            Some(source) => source?,
            None => Source::following(Target::parse(url, config)?),
        };
        Ok(Self {
            conduit: Conduit::Link(Link::open(source, limit), Arc::default()),
            limit,
            polls_for: polls_for(config),
            channel: OnceCell::new(),
        })
    }

    pub(crate) fn over(connection: UserConnection, config: &Config) -> Self {
        Self {
            conduit: Conduit::User(connection),
            limit: config.command_deadline,
            polls_for: polls_for(config),
            channel: OnceCell::new(),
        }
    }

    pub(crate) fn attach(&self, client: &ClientId, sink: EventSink, runtime: Handle) {
        if let Conduit::Link(link, _) = &self.conduit {
            link.attach(client, sink, runtime);
        }
        let channel = format!("{CHANNELS}{}", client.as_str());
        let _ = self.channel.set(channel);
    }

    /// Whether the library makes and drives the connection.
    pub(crate) fn is_driven_here(&self) -> bool {
        matches!(self.conduit, Conduit::Link(..))
    }

    /// Host and port. A connection of the user does not tell.
    pub(crate) fn server(&self) -> Option<Arc<str>> {
        match &self.conduit {
            Conduit::Link(link, _) => Some(link.address()),
            Conduit::User(_) => None,
        }
    }

    /// Makes the first connection, so that a wrong address, password or server shows at start-up.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        let Conduit::Link(link, _) = &self.conduit else {
            return Ok(());
        };
        match timeout(self.limit, link.connection()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(classify(error)),
            Err(_) => Err(StoreError::NotNow(no_reply(self.limit))),
        }
    }

    fn channel(&self) -> &str {
        let pushed = self.pushes();
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
        let went_silent = |link: &Arc<Link>| link.went_silent(self.limit);
        self.run_within(self.limit, went_silent, script, keys, args)
            .await
    }

    /// Runs a script that renews leases.
    async fn run_renewal(
        &self,
        renewals: &[Renewal<'_>],
        script: &Script,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
    ) -> Result<Value, StoreError> {
        let limit = self.renewal_limit(renewals);
        let went_silent = |link: &Arc<Link>| link.renewal_went_silent(limit);
        self.run_within(limit, went_silent, script, keys, args)
            .await
    }

    async fn run_within(
        &self,
        limit: Duration,
        went_silent: impl Fn(&Arc<Link>),
        script: &Script,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
    ) -> Result<Value, StoreError> {
        let started = tracing::enabled!(tracing::Level::TRACE).then(Instant::now);
        let call = script.run(keys, args, |call| self.request(call));
        let answer = timeout(limit, call).await;
        let result = if let Ok(answer) = answer {
            answer.map_err(classify)
        } else {
            if let Conduit::Link(link, _) = &self.conduit {
                went_silent(link);
            }
            Err(StoreError::Ambiguous(no_reply(limit)))
        };
        if let Some(started) = started {
            let micros = started.elapsed().as_micros() as u64;
            tracing::trace!(
                script = script.name,
                micros,
                ok = result.is_ok(),
                "script call"
            );
        }
        result
    }

    /// A renewal without an answer must leave time for another one.
    fn renewal_limit(&self, renewals: &[Renewal<'_>]) -> Duration {
        let ttls = renewals.iter().map(|renewal| renewal.ttl);
        let shortest = ttls.filter(|ttl| !ttl.is_zero()).map(|ttl| ttl / 3).min();
        shortest.map_or(self.limit, |third| third.min(self.limit))
    }

    fn request(&self, command: Cmd) -> impl Future<Output = RedisResult<Value>> + Send {
        match &self.conduit {
            Conduit::Link(link, _) => Either::Left(link.request(command)),
            Conduit::User(connection) => Either::Right(connection.request(command)),
        }
    }
}

/// Crashed waiters that poll block a lock for as long as the server counts them as alive, all of them together. So this time is
/// short, but several poll intervals: a waiter that polls late loses its place to the waiters behind it.
fn polls_for(config: &Config) -> Duration {
    (config.poll_interval * 4).max(Duration::from_millis(750))
}

impl Store for RedisStore {
    fn connecting(&self) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        let Conduit::Link(link, _) = &self.conduit else {
            return None;
        };
        if link.generation().is_some() {
            return None;
        }
        Some(Box::pin(async {
            match timeout(self.limit, link.connection()).await {
                Ok(connected) => connected.map(drop).map_err(classify),
                Err(_) => Err(StoreError::NotNow(no_reply(self.limit))),
            }
        }))
    }

    // A separate script call is large, so it is boxed. A request in a batch needs no such call.
    async fn acquire(&self, attempt: Attempt<'_>) -> Result<Answer, StoreError> {
        if attempt.mode == Mode::Wait
            && let Conduit::Link(link, _) = &self.conduit
            && !link.pushes()
        {
            link.subscribe_again();
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

    async fn extend(&self, renewals: &[Renewal<'_>]) -> Result<Vec<bool>, StoreError> {
        match renewals.first().map(|renewal| renewal.key.kind()) {
            Some(Kind::Reentrant) => self.extend_reentrant(renewals).await,
            _ => self.extend_exclusive(renewals).await,
        }
    }

    async fn inspect(&self, key: &LockKey) -> Result<Snapshot, StoreError> {
        match key.names() {
            Names::Exclusive { queue, .. } => self.inspect_exclusive(key, queue).await,
            Names::Reentrant { holds, .. } => self.inspect_reentrant(key.lock(), holds).await,
        }
    }

    async fn scan(&self, prefix: &str, cursor: Cursor) -> Result<Scanned, StoreError> {
        let answer = timeout(self.limit, self.request(list::page(prefix, cursor.on_node))).await;
        let answer = answer.map_err(|_| StoreError::NotNow(no_reply(self.limit)))?;
        let (keys, on_node) = list::scanned(answer.map_err(classify)?)?;
        let next = (on_node != 0).then_some(Cursor { node: 0, on_node });
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
        match (key.names(), &self.conduit) {
            (Names::Reentrant { channel, .. }, Conduit::Link(link, _)) if link.pushes() => {
                link.listen(&channel.to_string(), key.lock()).await
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

    fn pushes(&self) -> bool {
        match &self.conduit {
            Conduit::Link(link, _) => link.pushes(),
            Conduit::User(_) => false,
        }
    }
}
