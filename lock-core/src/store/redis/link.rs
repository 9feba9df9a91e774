//! One connection of our own: made when needed, made again when it breaks, with our messages on it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use once_cell::sync::OnceCell;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisResult, Value,
};

use super::error::bad_url;
use crate::LockError;
use crate::store::{EventSink, Events};
use crate::sync::lock;

/// So many requests in a row without any reply, and the connection is taken for dead.
const SILENT_LIMIT: u32 = 2;

/// The connection is replaced as a whole, and a clean-up is sent on the connection of its acquire as long as
/// that one lives: on one connection it can not overtake the acquire.
pub(super) struct Link {
    client: Client,
    connect_limit: Duration,
    live: Mutex<Option<Live>>,
    /// Held while a connection is made, so that many callers make one.
    connecting: tokio::sync::Mutex<()>,
    next_generation: AtomicU64,
    unanswered: AtomicU32,
    /// False from the moment the server refuses RESP3 or the subscription.
    pushes: AtomicBool,
    subscription: OnceCell<(String, EventSink)>,
}

#[derive(Clone)]
pub(super) struct Live {
    generation: u64,
    connection: MultiplexedConnection,
}

impl Link {
    pub(super) fn open(url: &str, connect_limit: Duration) -> Result<Arc<Self>, LockError> {
        let info = url
            .into_connection_info()
            .map_err(|error| bad_url(&error))?;
        // A URL that names RESP2 means it: no messages, so waiting is by asking.
        let resp3 = !(url.contains("protocol=resp2") || url.contains("protocol=2"));
        let protocol = if resp3 {
            ProtocolVersion::RESP3
        } else {
            ProtocolVersion::RESP2
        };
        // Without TCP_NODELAY a lone command can wait for the acknowledgement of the one before it.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let settings = info.redis_settings().clone().set_protocol(protocol);
        let info = info.set_tcp_settings(tcp).set_redis_settings(settings);
        let client = Client::open(info).map_err(|error| bad_url(&error))?;
        Ok(Arc::new(Self {
            client,
            connect_limit,
            live: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            next_generation: AtomicU64::new(0),
            unanswered: AtomicU32::new(0),
            pushes: AtomicBool::new(resp3),
            subscription: OnceCell::new(),
        }))
    }

    pub(super) fn attach(&self, channel: String, sink: EventSink) {
        let _ = self.subscription.set((channel, sink));
    }

    pub(super) fn pushes(&self) -> bool {
        self.pushes.load(Ordering::Relaxed)
    }

    pub(super) fn request(
        self: &Arc<Self>,
        command: Cmd,
    ) -> impl Future<Output = RedisResult<Value>> + Send + use<> {
        let link = Arc::clone(self);
        async move {
            let mut live = link.connection().await?;
            let result = command.query_async(&mut live.connection).await;
            match &result {
                Err(error) if error.is_connection_dropped() => link.discard(live.generation),
                _ => link.unanswered.store(0, Ordering::Relaxed),
            }
            result
        }
    }

    /// A request timed out. The socket may look healthy for many minutes, so a few of these in a row end it.
    pub(super) fn went_silent(&self) {
        if self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT_LIMIT {
            let generation = lock(&self.live).as_ref().map(|live| live.generation);
            if let Some(generation) = generation {
                self.discard(generation);
            }
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
        // Boxed: it runs once, and its size would be in the future of every acquire.
        let live = Box::pin(self.connect()).await?;
        *lock(&self.live) = Some(live.clone());
        self.unanswered.store(0, Ordering::Relaxed);
        Ok(live)
    }

    fn current(&self) -> Option<Live> {
        lock(&self.live).clone()
    }

    async fn connect(self: &Arc<Self>) -> RedisResult<Live> {
        let generation = self.next_generation.fetch_add(1, Ordering::Relaxed);
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_limit))
            .set_response_timeout(None);
        if self.pushes() {
            config = config.set_push_sender(self.receiver(generation));
        }
        let connected = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await;
        let mut connection = match connected {
            Err(error) if self.pushes() && error.kind() == ErrorKind::RESP3NotSupported => {
                return self.connect_without_pushes(generation).await;
            }
            other => other?,
        };
        if let Some((channel, _)) = self.subscription.get().filter(|_| self.pushes())
            && let Err(error) = connection.subscribe(channel).await
        {
            if error.is_io_error() {
                return Err(error);
            }
            self.poll_instead(&error);
        }
        Ok(Live {
            generation,
            connection,
        })
    }

    async fn connect_without_pushes(&self, generation: u64) -> RedisResult<Live> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_limit))
            .set_response_timeout(None);
        let mut info = self.client.get_connection_info().clone();
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP2);
        info = info.set_redis_settings(settings);
        let connection = Client::open(info)?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        self.poll_instead(&"RESP3 is not supported");
        Ok(Live {
            generation,
            connection,
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
                    if let Some((events, message)) =
                        link.events().zip(push.data.get(1).and_then(payload))
                    {
                        deliver(&*events, message);
                    }
                }
                PushKind::Disconnection => link.discard(generation),
                _ => {}
            }
            Ok(())
        }
    }

    fn events(&self) -> Option<Arc<dyn Events>> {
        self.subscription.get()?.1.upgrade()
    }

    /// Forgets a connection, unless a newer one has already taken its place, and wakes those who wait on it.
    fn discard(&self, generation: u64) {
        {
            let mut live = lock(&self.live);
            if live.as_ref().is_none_or(|l| l.generation != generation) {
                return;
            }
            *live = None;
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

/// Messages are `granted <token> <fence> <lock>` and `revoked <token>`; anything else is not for us.
fn deliver(events: &dyn Events, message: &str) {
    // The name of a lock may hold spaces, so it is last.
    let mut words = message.splitn(4, ' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some("granted"), Some(token), Some(fence), Some(lock)) => {
            if let Ok(fence) = fence.parse() {
                events.granted(token, fence, lock);
            }
        }
        (Some("revoked"), Some(token), None, None) => events.revoked(token),
        _ => tracing::debug!("a message on our channel is not understood"),
    }
}
