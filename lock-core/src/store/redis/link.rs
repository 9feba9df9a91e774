//! The connection of the library: made when it is needed, made again after it breaks, and used for requests and messages.

use std::borrow::Borrow;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join3;
use once_cell::sync::OnceCell;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError,
    RedisResult, Value, cmd,
};

use super::dial::Dial;
use super::error::{is_from_replica, said};
use super::look::Look;
use super::reply::text;
use super::script::Script;
use super::socket::{self, Socket};
use super::subscriptions::Subscriptions;
use super::target::Target;
use super::wire::{Arg, CHANNELS, deliver};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::key::Name;
use crate::rt::{self, Handle};
use crate::store::{EventSink, Events};
use crate::sync::lock;
use crate::token::ClientId;

/// Minimum silence before a connection is replaced, however short the leases are that depend on it.
const HICCUP: Duration = Duration::from_millis(50);

/// Minimum interval between attempts to subscribe again after a refusal.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(60);

/// The connection is replaced as a whole. A clean-up goes out on the connection of its acquire as long as that connection
/// lives: on one connection it cannot overtake the acquire.
pub(super) struct Link {
    target: Target,
    /// Whether a connection was made before.
    was_connected: AtomicBool,
    /// Whether the server was found to hold locks.
    was_looked_at: AtomicBool,
    pub(super) connect_limit: Duration,
    live: Mutex<Option<Live>>,
    pub(super) dial: Dial,
    next_generation: AtomicU64,
    /// Generations below this one are discarded.
    discarded: AtomicU64,
    /// False where the server refused RESP3 or the subscription on the last connection.
    pushes: AtomicBool,
    /// Time of the last refusal of the subscription.
    refused_at: Mutex<Option<Instant>>,
    attached: OnceCell<Attached>,
    pub(super) subscriptions: Subscriptions,
}

/// Data of the engine that uses the link.
struct Attached {
    channel: String,
    /// The name of the client.
    name: String,
    sink: EventSink,
    runtime: Handle,
}

#[derive(Clone)]
pub(super) struct Live {
    generation: u64,
    socket: Socket,
}

impl Link {
    pub(super) fn open(target: Target, connect_limit: Duration) -> Arc<Self> {
        let resp3 = target.resp3;
        Arc::new(Self {
            target,
            was_connected: AtomicBool::new(false),
            was_looked_at: AtomicBool::new(false),
            connect_limit,
            live: Mutex::new(None),
            dial: Dial::default(),
            next_generation: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            pushes: AtomicBool::new(resp3),
            refused_at: Mutex::default(),
            attached: OnceCell::new(),
            subscriptions: Subscriptions::default(),
        })
    }

    /// Host and port.
    pub(super) fn address(&self) -> &Arc<str> {
        &self.target.address
    }

    pub(super) fn attach(&self, client: &ClientId, sink: EventSink, runtime: Handle) {
        let attached = Attached {
            channel: format!("{CHANNELS}{}", client.as_str()),
            name: client.name().to_owned(),
            sink,
            runtime,
        };
        let _ = self.attached.set(attached);
    }

    pub(super) fn pushes(&self) -> bool {
        self.pushes.load(Ordering::Relaxed)
    }

    pub(super) fn request<C: Borrow<Cmd> + Send + Sync>(
        self: &Arc<Self>,
        command: C,
    ) -> impl Future<Output = RedisResult<Value>> + Send + use<C> {
        let link = Arc::clone(self);
        async move {
            let current = link.current();
            let mut live = match current {
                Some(live) => live,
                // Boxed because it is rare and large: otherwise every request would carry room for it.
                None => Box::pin(link.connection()).await?,
            };
            let result = live.socket.request(command.borrow()).await;
            let result = result.and_then(Value::extract_error);
            match &result {
                Err(error) if error.is_connection_dropped() => link.discard(live.generation),
                // The address leads to another server by now, or will.
                Err(error) if is_from_replica(error) => link.discard(live.generation),
                _ => {}
            }
            result
        }
    }

    /// Runs a script by its hash, and by its text if the server has lost it.
    pub(super) async fn run(
        self: &Arc<Self>,
        script: &Script,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
    ) -> RedisResult<Value> {
        script.run(keys, args, |call| self.request(call)).await
    }

    /// Whether a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        let live = lock(&self.live);
        live.as_ref().is_some_and(|live| live.socket.is_busy())
    }

    /// A request was not answered within `limit`. The socket may look healthy for many minutes, so a silence of twice the limit
    /// replaces the connection.
    pub(super) fn went_silent(self: &Arc<Self>, limit: Duration) {
        self.was_silent_for(limit, |_| limit.saturating_mul(2));
    }

    /// As [`went_silent`](Self::went_silent), for a renewal: there has to be time for another one on a new connection. What
    /// came since half of its limit shows that the connection lives. Where a round trip takes as long as the limit, a new
    /// connection is no faster.
    pub(super) fn renewal_went_silent(self: &Arc<Self>, limit: Duration) {
        self.was_silent_for(limit, |round_trip| {
            if round_trip >= limit / 2 {
                limit.max(round_trip * 4)
            } else {
                HICCUP.max(limit / 2)
            }
        });
    }

    fn was_silent_for(
        self: &Arc<Self>,
        limit: Duration,
        maximum: impl FnOnce(Duration) -> Duration,
    ) {
        let Some(live) = self.current() else { return };
        let silence = &live.socket.silence;
        // The request may have been sent a little later than its limit began.
        if silence.lasts(limit) + limit / 8 >= maximum(silence.round_trip()) {
            self.discard(live.generation);
        } else if let Some(probe) = silence.probe() {
            // What comes may be no answers, or those to other requests: after garbage the connection can be out of step.
            let link = Arc::clone(self);
            self.spawn(async move {
                let (mut socket, mut ping) = (live.socket, cmd("PING"));
                let word = fastrand::u64(..).to_string();
                ping.arg(&word);
                let limit = link.connect_limit.saturating_mul(2);
                let answer = timeout(limit, socket.request(&ping)).await;
                let is_refused = matches!(answer, Ok(Err(_) | Ok(Value::ServerError(_))));
                if !is_refused && answer != Ok(Ok(Value::BulkString(word.into_bytes()))) {
                    link.discard(live.generation);
                }
                drop(probe);
            });
        }
    }

    /// Makes this connection the one in use.
    pub(super) fn adopt(self: &Arc<Self>, made: Live) {
        let (generation, socket) = (made.generation, made.socket.clone());
        {
            let mut current = lock(&self.live);
            self.adopt_channels(generation);
            *current = Some(made);
        }
        if socket.is_over() {
            // The connection may have ended before it was in use.
            self.discard(generation);
            return;
        }
        let replaces = generation > 0;
        if let Some(events) = self.events().filter(|_| replaces) {
            events.reconnected();
        }
    }

    /// Whether the engine holds or waits for a lock.
    pub(super) fn is_in_use(&self) -> bool {
        self.events().is_some_and(|events| events.is_in_use())
    }

    /// Runs a task on the engine's runtime.
    pub(super) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match self.attached.get() {
            Some(attached) => attached.runtime.spawn(task),
            None => rt::spawn(task),
        }
    }

    /// Whether the caller is on the engine's runtime.
    pub(super) fn is_at_home(&self) -> bool {
        let home = self.attached.get().map(|attached| attached.runtime.id());
        home.is_none() || Handle::try_current().ok().map(|here| here.id()) == home
    }

    /// The connection in use and its generation.
    pub(super) fn in_use(&self) -> Option<(u64, MultiplexedConnection)> {
        self.current()
            .map(|live| (live.generation, live.socket.requests))
    }

    /// The generation of the connection in use, if any. It only grows.
    pub(super) fn generation(&self) -> Option<u64> {
        lock(&self.live).as_ref().map(|live| live.generation)
    }

    pub(super) fn current(&self) -> Option<Live> {
        lock(&self.live).clone()
    }

    /// Makes one attempt to connect.
    pub(super) async fn connect(self: &Arc<Self>) -> RedisResult<Live> {
        let attempt = timeout(self.connect_limit, self.connect_either_way());
        let late = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
        attempt.await.unwrap_or_else(|_| late())
    }

    /// Sends a request on a connection of its own, which ends with it.
    pub(super) async fn request_anew(&self, command: &Cmd) -> RedisResult<Value> {
        let config = AsyncConnectionConfig::new();
        let settings = self.target.info.redis_settings();
        let mut socket = socket::connect(&self.target, settings, config, false, || {}).await?;
        socket.request(command).await?.extract_error()
    }

    async fn connect_either_way(self: &Arc<Self>) -> RedisResult<Live> {
        match self.connect_as(self.target.resp3).await {
            Err(error) if error.kind() == ErrorKind::RESP3NotSupported => {
                self.poll_instead(&error);
                self.connect_as(false).await
            }
            made => made,
        }
    }

    async fn connect_as(self: &Arc<Self>, pushes: bool) -> RedisResult<Live> {
        let generation = self.next_generation.fetch_add(1, Ordering::Relaxed);
        let mut config = AsyncConnectionConfig::new();
        let protocol = if pushes {
            config = config.set_push_sender(self.receiver(generation));
            ProtocolVersion::RESP3
        } else {
            ProtocolVersion::RESP2
        };
        let settings = self.target.info.redis_settings().clone();
        let settings = settings.set_protocol(protocol);
        let first = !self.was_connected.load(Ordering::Relaxed);
        let link = Arc::downgrade(self);
        let ended = move || {
            if let Some(link) = link.upgrade() {
                link.discard(generation);
            }
        };
        let socket = socket::connect(&self.target, &settings, config, first, ended).await?;
        self.was_connected.store(true, Ordering::Relaxed);
        let attached = self.attached.get();
        let (mut named, mut requests) = (socket.clone(), socket.requests.clone());
        let name = async {
            if let Some(attached) = attached {
                let mut name = cmd("CLIENT");
                // A name that is refused is only not shown by `CLIENT LIST`.
                let _ = named.request(name.arg("SETNAME").arg(&attached.name)).await;
            }
        };
        let subscribe = async {
            match attached.filter(|_| pushes) {
                Some(attached) => Some(requests.subscribe(&attached.channel).await),
                None => None,
            }
        };
        // One round trip for all.
        let (looked, (), subscribed) = join3(self.look(&socket), name, subscribe).await;
        looked?;
        match subscribed {
            None => {}
            Some(Ok(())) => self.pushes.store(true, Ordering::Relaxed),
            // A connection without messages is better than no connection.
            Some(Err(error)) if error.code() == Some("NOPERM") => {
                *lock(&self.refused_at) = Some(Instant::now());
                self.poll_instead(&error);
            }
            Some(Err(error)) => return Err(error),
        }
        Ok(Live { generation, socket })
    }

    /// Looks at the server, unless it has passed before.
    async fn look(&self, socket: &Socket) -> RedisResult<()> {
        if self.was_looked_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        let settings = self.target.info.redis_settings();
        let look = Look {
            at: &self.target.address,
            user: settings.username().unwrap_or("default"),
            socket: socket.clone(),
        };
        Box::pin(look.look()).await?;
        self.was_looked_at.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn poll_instead(&self, error: &RedisError) {
        // One warning, not one for each connection.
        if self.pushes.swap(false, Ordering::Relaxed) {
            let why = said(error);
            tracing::warn!(
                server = &**self.address(),
                why,
                "the server does not push messages to us: waiting for locks will poll"
            );
        }
    }

    /// Called for a waiter without messages. Subscribes again from time to time.
    pub(super) fn subscribe_again(self: &Arc<Self>) {
        if is_due(&mut lock(&self.refused_at), Instant::now())
            && let Some(mut live) = self.current()
        {
            let link = Arc::clone(self);
            self.spawn(async move {
                let Some(attached) = link.attached.get() else {
                    return;
                };
                let subscribed = live.socket.requests.subscribe(&attached.channel).await;
                if subscribed.is_ok() && link.generation() == Some(live.generation) {
                    link.pushes.store(true, Ordering::Relaxed);
                    tracing::info!("the server pushes messages to us again");
                    // A waiter has to name the channel, and a holder may have missed that its lock was taken away.
                    if let Some(events) = link.events() {
                        events.interrupted();
                        events.reconnected();
                    }
                }
            });
        }
    }

    /// Handles the messages of the server. The connection calls it, so it must not block.
    fn receiver(
        self: &Arc<Self>,
        generation: u64,
    ) -> impl Fn(PushInfo) -> Result<(), RedisError> + Send + Sync + 'static {
        let link: Weak<Self> = Arc::downgrade(self);
        move |push| {
            let Some(link) = link.upgrade() else {
                return Ok(());
            };
            match push.kind {
                // While an old connection lives beside its successor, both receive the same messages. Late messages of the old
                // one have been handled already.
                PushKind::Message if link.is_discarded(generation) => {}
                PushKind::Message => {
                    let mut words = push.data.iter().map(|part| text(Some(part)));
                    if let (Some(events), Some(Some(channel)), Some(Some(message))) =
                        (link.events(), words.next(), words.next())
                    {
                        if channel.starts_with(CHANNELS) {
                            deliver(&*events, message);
                        } else {
                            link.subscriptions.heard(&*events, channel, message);
                        }
                    }
                }
                PushKind::Disconnection => link.discard(generation),
                _ => {}
            }
            Ok(())
        }
    }

    fn is_discarded(&self, generation: u64) -> bool {
        generation < self.discarded.load(Ordering::SeqCst)
    }

    pub(super) fn events(&self) -> Option<Arc<dyn Events>> {
        self.attached.get()?.sink.upgrade()
    }

    /// Forgets a connection, unless a newer one has replaced it, and wakes the waiters that depend on it.
    pub(super) fn discard(self: &Arc<Self>, generation: u64) {
        {
            let mut live = lock(&self.live);
            if live.as_ref().is_none_or(|l| l.generation != generation) {
                return;
            }
            *live = None;
            self.discarded.fetch_max(generation + 1, Ordering::SeqCst);
            self.subscriptions.lost(generation);
        }
        tracing::debug!(generation, "lost the connection to the lock server");
        self.dial.lost();
        if let Some(events) = self.events() {
            events.interrupted();
            if events.is_in_use() {
                self.dial();
            }
        }
    }
}

/// Whether to subscribe again after a refusal; then the next time is as long after `now`.
fn is_due(refused_at: &mut Option<Instant>, now: Instant) -> bool {
    match refused_at {
        Some(at) if now.saturating_duration_since(*at) >= SUBSCRIBE_AGAIN => {
            *at = now;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_subscription_is_tried_again_every_minute() {
        let now = Instant::now();
        assert!(!is_due(&mut None, now), "it was never refused");
        let mut refused_at = Some(now);
        let just_before = SUBSCRIBE_AGAIN.mul_f64(0.999);
        assert!(!is_due(&mut refused_at, now + just_before));
        let later = now + SUBSCRIBE_AGAIN;
        assert!(is_due(&mut refused_at, later));
        assert!(!is_due(&mut refused_at, later + just_before));
        assert!(is_due(&mut refused_at, later + SUBSCRIBE_AGAIN));
    }
}
