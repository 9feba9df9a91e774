//! One connection of our own: made when needed, made again when it breaks, with our messages on it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use once_cell::sync::OnceCell;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, IntoConnectionInfo, ProtocolVersion,
    PushInfo, PushKind, RedisError, RedisResult, Value,
};

use super::error::bad_url;
use super::listen::Ears;
use super::request::Request;
use super::script::Script;
use super::socket::{self, Socket};
use super::{Arg, CHANNELS};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::LockError;
use crate::key::Name;
use crate::store::{EventSink, Events, Grant};
use crate::sync::lock;

/// So many requests in a row without any reply, and the connection is taken for dead.
const SILENT_LIMIT: u32 = 2;

/// The connection is replaced as a whole, and a clean-up is sent on the connection of its acquire as long as
/// that one lives: on one connection it can not overtake the acquire.
pub(super) struct Link {
    info: ConnectionInfo,
    pub(super) connect_limit: Duration,
    live: Mutex<Option<Live>>,
    /// Held while a connection is made, so that many callers make one.
    connecting: tokio::sync::Mutex<()>,
    next_generation: AtomicU64,
    /// False from the moment the server refuses RESP3 or the subscription.
    pushes: AtomicBool,
    attached: OnceCell<Attached>,
    pub(super) ears: Ears,
    writer: Writer,
}

/// Who writes a request to the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    /// Whoever sends it.
    Sender,
    /// The task of the connection. Where one question goes to several servers, their tasks write at the same time.
    Task,
}

/// What the link learns from the session that uses it.
struct Attached {
    channel: String,
    sink: EventSink,
    runtime: Handle,
}

#[derive(Clone)]
pub(super) struct Live {
    generation: u64,
    socket: Socket,
    made_at: Instant,
    /// Requests in a row that got no answer in time.
    unanswered: Arc<AtomicU32>,
}

impl Link {
    pub(super) fn open(
        url: &str,
        connect_limit: Duration,
        writer: Writer,
    ) -> Result<Arc<Self>, LockError> {
        let info = url
            .into_connection_info()
            .map_err(|error| bad_url(&error))?;
        // A URL that names RESP2 means it: no messages, so waiting is by asking.
        let resp3 = !(url.contains("protocol=resp2") || url.contains("protocol=2"));
        // Without TCP_NODELAY a lone command can wait for the acknowledgement of the one before it.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_tcp_settings(tcp);
        Client::open(info.clone()).map_err(|error| bad_url(&error))?;
        Ok(Arc::new(Self {
            info,
            connect_limit,
            live: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            next_generation: AtomicU64::new(0),
            pushes: AtomicBool::new(resp3),
            attached: OnceCell::new(),
            ears: Ears::default(),
            writer,
        }))
    }

    pub(super) fn attach(&self, channel: String, sink: EventSink, runtime: Handle) {
        let attached = Attached {
            channel,
            sink,
            runtime,
        };
        let _ = self.attached.set(attached);
    }

    pub(super) fn pushes(&self) -> bool {
        self.pushes.load(Ordering::Relaxed)
    }

    pub(super) fn request<R: Request>(
        self: &Arc<Self>,
        request: R,
    ) -> impl Future<Output = RedisResult<Value>> + Send + use<R> {
        let link = Arc::clone(self);
        async move {
            let current = link.current();
            let mut live = match current {
                Some(live) => live,
                // Rare and large, so in a box: every request would carry the room for it.
                None => Box::pin(link.connection()).await?,
            };
            let _under_way = live.socket.load.request();
            let at_once = link.writer == Writer::Sender && link.is_at_home();
            let result = live.socket.request(&request, at_once).await;
            let result = result.and_then(Value::extract_error);
            match &result {
                Err(error) if error.is_connection_dropped() => link.discard(live.generation),
                _ => live.unanswered.store(0, Ordering::Relaxed),
            }
            result
        }
    }

    /// Runs a script by its hash, and by its text where the server has lost it.
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
        live.as_ref().is_some_and(|live| live.socket.load.is_busy())
    }

    /// A request was not answered within `limit`. The socket may look healthy for many minutes, so a few of these in a
    /// row end it.
    pub(super) fn went_silent(&self, limit: Duration) {
        let Some(live) = self.current() else { return };
        // A younger connection is not the one that the request was sent on.
        let old_enough = live.made_at.elapsed() >= limit;
        if old_enough && live.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT_LIMIT {
            self.discard(live.generation);
        }
    }

    /// The connection, made if there is none.
    pub(super) async fn connection(self: &Arc<Self>) -> RedisResult<Live> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        // The connection is driven by the runtime that makes it: that must be the session's, not whichever happens to
        // ask first after a break.
        let link = Arc::clone(self);
        let made = self.spawn(async move { link.connect().await });
        let live = made.await.map_err(|_| {
            RedisError::from((ErrorKind::Io, "the runtime of the connection has ended"))
        })??;
        {
            let mut current = lock(&self.live);
            self.adopt_channels(live.generation);
            *current = Some(live.clone());
        }
        Ok(live)
    }

    /// Runs something on the session's runtime.
    pub(super) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match self.attached.get() {
            Some(attached) => attached.runtime.spawn(task),
            None => tokio::spawn(task),
        }
    }

    /// Whether the caller is on the session's runtime.
    pub(super) fn is_at_home(&self) -> bool {
        let home = self.attached.get().map(|attached| attached.runtime.id());
        home.is_none() || Handle::try_current().ok().map(|here| here.id()) == home
    }

    /// The connection in use and its generation.
    pub(super) fn in_use(&self) -> Option<(u64, MultiplexedConnection)> {
        self.current()
            .map(|live| (live.generation, live.socket.requests))
    }

    /// Which connection is in use, if any. It only grows.
    pub(super) fn generation(&self) -> Option<u64> {
        lock(&self.live).as_ref().map(|live| live.generation)
    }

    fn current(&self) -> Option<Live> {
        lock(&self.live).clone()
    }

    async fn connect(self: &Arc<Self>) -> RedisResult<Live> {
        match self.connect_as(self.pushes()).await {
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
        let settings = self.info.redis_settings().clone().set_protocol(protocol);
        let info = self.info.clone().set_redis_settings(settings);
        let mut socket = socket::connect(&info, config, self.connect_limit).await?;
        if let Some(attached) = self.attached.get().filter(|_| pushes)
            && let Err(error) = socket.requests.subscribe(&attached.channel).await
        {
            // Only a permission that is missing is there to stay; else the next connection may do better.
            if error.code() != Some("NOPERM") {
                return Err(error);
            }
            self.poll_instead(&error);
        }
        if pushes && self.pushes() {
            self.prepare_channels(generation, &socket.requests).await?;
        }
        Ok(Live {
            generation,
            socket,
            made_at: Instant::now(),
            unanswered: Arc::new(AtomicU32::new(0)),
        })
    }

    fn poll_instead(&self, why: &dyn std::fmt::Display) {
        self.pushes.store(false, Ordering::Relaxed);
        tracing::warn!(%why, "the server does not push messages to us: waiting for locks will poll");
    }

    /// Handles what the server sends unasked. Called by the connection, so it must not block.
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
                PushKind::Message => {
                    let mut words = push.data.iter().map(payload);
                    if let (Some(events), Some(Some(channel)), Some(Some(message))) =
                        (link.events(), words.next(), words.next())
                    {
                        if channel.starts_with(CHANNELS) {
                            deliver(&*events, message);
                        } else {
                            link.ears.heard(&*events, channel, message);
                        }
                    }
                }
                PushKind::Disconnection => link.discard(generation),
                _ => {}
            }
            Ok(())
        }
    }

    fn events(&self) -> Option<Arc<dyn Events>> {
        self.attached.get()?.sink.upgrade()
    }

    /// Forgets a connection, unless a newer one has already taken its place, and wakes those who wait on it.
    pub(super) fn discard(&self, generation: u64) {
        {
            let mut live = lock(&self.live);
            if live.as_ref().is_none_or(|l| l.generation != generation) {
                return;
            }
            *live = None;
            self.ears.lost(generation);
        }
        tracing::debug!(generation, "lost the connection to the lock server");
        if let Some(events) = self.events() {
            events.interrupted();
        }
    }
}

fn payload(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// What the scripts send, and anybody could: what is not understood is not for us.
///
/// - `granted <token> <fence> <spare> <0|1 others queue> <lock>`
/// - `contended <token>`
/// - `soon <token>`: it is first in the queue, and the turn of the holder's process will end with the hold that has begun
/// - `revoked <token>`
/// - `free <token>`, from a node of a quorum
/// - `behind`, which says nothing: it lets the server write to the client that was granted a lock before it writes to us
fn deliver(events: &dyn Events, message: &str) {
    // The name of a lock may hold spaces, so it is last.
    let mut words = message.splitn(6, ' ');
    let mut next = || words.next();
    let understood = match (next(), next(), next(), next(), next(), next()) {
        (Some("granted"), Some(token), Some(fence), Some(spare), Some(others), Some(lock)) => {
            let numbers = fence.parse().ok().zip(spare.parse().ok());
            if let Some((fence, spare)) = numbers {
                let grant = Grant {
                    fence,
                    spare,
                    contended: others == "1",
                };
                events.granted(token, grant, lock);
            }
            numbers.is_some()
        }
        (Some("contended"), Some(token), None, ..) => {
            events.contended(token);
            true
        }
        (Some("soon"), Some(token), None, ..) => {
            events.soon(token);
            true
        }
        (Some("revoked"), Some(token), None, ..) => {
            events.revoked(token);
            true
        }
        (Some("free"), Some(token), None, ..) => {
            events.freed(token);
            true
        }
        (Some("behind"), None, ..) => true,
        _ => false,
    };
    if !understood {
        tracing::debug!("a message on our channel is not understood");
    }
}
