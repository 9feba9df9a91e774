//! A connection of the `redis` crate over a stream that the library makes.

#[cfg(feature = "cluster")]
pub(super) mod cluster_settings;
pub(super) mod floor;
pub(super) mod generation;
mod greeting;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(super) mod hosts;
#[cfg(feature = "sentinel")]
pub(super) mod sentinel_settings;
pub(super) mod settings;
mod silence;
pub(super) mod target;
#[cfg(feature = "tls-rustls")]
mod tls;
pub(super) mod url;

use std::collections::HashMap;
#[cfg(feature = "tls-rustls")]
use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use self::floor::Floors;
use self::generation::Generation;
use self::greeting::explained;
#[cfg(feature = "tls-rustls")]
use self::greeting::has_ended;
use self::silence::{Heard, Silence};
use self::target::Target;
#[cfg(feature = "tls-rustls")]
use self::tls::TlsClient;
#[cfg(feature = "tls-rustls")]
use crate::store::redis::error::{io_error, misconfigured};
use crate::store::redis::error::{is_reply, no_resp3, refuses_hello, said};
#[cfg(not(lock_sim))]
use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, Pipeline, ProtocolVersion, RedisConnectionInfo,
    RedisResult, Value, cmd, from_redis_value, parse_redis_value,
};
#[cfg(not(lock_sim))]
use redis::{ErrorKind, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(not(lock_sim))]
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;
#[cfg(feature = "tls-rustls")]
use tokio_rustls::client::TlsStream;

use crate::base::rt;
use crate::base::signal::Signal;
#[cfg(lock_sim)]
use crate::base::sim::tcp;
use crate::base::time::{Clock, Moment, SystemClock};

/// Maximum requests on their way to the socket. Further callers queue for a place.
const REQUESTS_READY: usize = 1024;

/// A connection, and the task that drives it. It never connects again: its successor is another one.
pub(in crate::store) struct Connection {
    pub(super) generation: Arc<Generation>,
    /// Host and port of the server, or the path of its socket.
    pub(super) address: Arc<str>,
    /// The time before it was made, and how long that took.
    pub(in crate::store) dialled: Moment,
    pub(super) made_in: Duration,
    pub(super) silence: Silence,
    pub(super) floors: Floors,
    /// Whether other nodes of the cluster have said since it was made that this one is a master.
    #[cfg(feature = "cluster")]
    pub(super) is_confirmed: AtomicBool,
    requests: MultiplexedConnection,
    /// Number of requests under way.
    load: AtomicUsize,
    end: Arc<End>,
    driver: AbortHandle,
}

/// The end of that task.
#[derive(Default)]
struct End {
    is_over: AtomicBool,
    over: Signal,
}

/// Dropped with that task, or by it.
struct Ends(Arc<End>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.over.notify_waiters();
    }
}

impl End {
    async fn is_reached(&self) {
        let is_over = || self.is_over.load(Ordering::SeqCst);
        self.over.until(is_over).await;
    }

    /// The answer to a request, or an error if the connection ends without one. A request that is sent at the moment of the end may be
    /// left in the queue to the task: nothing takes it out, and a handle of the caller keeps the queue.
    async fn or_over<T>(&self, request: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        tokio::select! {
            biased;
            answer = request => answer,
            () = self.is_reached() => {
                Err(io::Error::from(io::ErrorKind::BrokenPipe).into())
            }
        }
    }
}

/// As the crate does for its own connections.
impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A request under way.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn begin(load: &'a AtomicUsize) -> Self {
        load.fetch_add(1, Ordering::Relaxed);
        Self(load)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// Whether it is known to have ended.
    pub(super) fn is_over(&self) -> bool {
        self.end.is_over.load(Ordering::SeqCst)
    }

    /// Resolves with its end. Does not keep it.
    pub(super) fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let end = Arc::clone(&self.end);
        async move { end.is_reached().await }
    }

    /// Whether a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.load.load(Ordering::Relaxed) > 0
    }

    /// Whether a request that is sent now goes out behind all earlier ones, and does not queue for a place.
    #[cfg(feature = "quorum")]
    pub(in crate::store) fn has_room(&self) -> bool {
        self.load.load(Ordering::Relaxed) < REQUESTS_READY / 2
    }

    /// What the greeting has said, under the names of INFO. With RESP2 there is none, and no other HELLO is sent: a proxy may end the
    /// connection at it.
    pub(super) fn greeted(&self) -> HashMap<String, Value> {
        let greeting = self.silence.greeting();
        let greeting = greeting.and_then(|bytes| parse_redis_value(bytes).ok());
        let hello = greeting.and_then(|hello| from_redis_value(hello).ok());
        hello.unwrap_or_default()
    }

    /// Ends it for all its users.
    pub(super) fn end(&self) {
        self.driver.abort();
    }

    /// A handle for subscriptions.
    pub(super) fn requests(&self) -> MultiplexedConnection {
        self.requests.clone()
    }

    /// Sends a request and waits for its reply.
    pub(super) async fn request(&self, command: &Cmd) -> RedisResult<Value> {
        let _counted = Counted::begin(&self.load);
        let mut requests = self.requests.clone();
        let request = pin!(requests.send_packed_command(command));
        self.end.or_over(request).await
    }

    /// As [`request`](Self::request), to a node of a cluster that is taking over the slot. The word that permits it is spent by the
    /// next command of the connection, so both go out in one piece.
    pub(super) async fn request_asking(&self, command: &Cmd) -> RedisResult<Value> {
        let _counted = Counted::begin(&self.load);
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        let mut requests = self.requests.clone();
        let request = pin!(requests.send_packed_commands(&both, 1, 1));
        let mut answers = self.end.or_over(request).await?;
        Ok(answers.pop().unwrap_or(Value::Nil))
    }
}

/// Connects on the current runtime, which then drives the connection. Calls `ended` when the connection has ended by itself.
/// With `first`, a failure is looked into: another server may be meant.
pub(super) async fn connect(
    target: &Target,
    settings: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
    first: bool,
    ended: impl FnOnce() + Send + 'static,
) -> RedisResult<Connection> {
    let config = config
        // The caller sets one time limit for the whole attempt.
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(REQUESTS_READY);
    let greet = Greet {
        // Some proxies end the connection at `CLIENT SETINFO`.
        settings: &settings.clone().set_skip_set_lib_name(),
        config,
        silence: Silence::new(),
        address: &target.address,
        dialled: SystemClock.now(),
    };
    let silence = greet.silence.clone();
    let made = match target.info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let stream = tcp(host, *port, target.info.tcp_settings().nodelay()).await?;
            #[cfg(feature = "tls-rustls")]
            let tls = target.tls.as_ref();
            #[cfg(not(feature = "tls-rustls"))]
            let tls = None::<&std::convert::Infallible>;
            match tls {
                #[cfg(feature = "tls-rustls")]
                Some(tls) => {
                    let at = &target.address;
                    over_tls(tls, stream, at, first, |stream| greet.over(stream, ended)).await
                }
                _ => greet.over(stream, ended).await,
            }
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await?;
            greet.over(stream, ended).await
        }
        _ => unreachable!("a target is TCP or a Unix socket"),
    };
    match made {
        Err(error) if refuses_hello(&error, settings.protocol(), silence.greeting()) => {
            Err(no_resp3(said(&error)))
        }
        Err(error) if first => Err(explained(error, &target.address, target.is_tls(), &silence)),
        // Some servers and proxies accept HELLO 3 and go on with RESP2.
        Ok(connection)
            if settings.protocol().supports_resp3()
                && connection.greeted().get("proto") == Some(&Value::Int(2)) =>
        {
            Err(no_resp3("it answers HELLO 3 with RESP2".to_owned()))
        }
        made => made,
    }
}

/// Starts TLS, and says what is wrong with a certificate.
#[cfg(feature = "tls-rustls")]
async fn over_tls<F>(
    tls: &TlsClient,
    stream: TcpStream,
    at: &str,
    first: bool,
    connect: impl FnOnce(TlsStream<TcpStream>) -> F,
) -> RedisResult<Connection>
where
    F: Future<Output = RedisResult<Connection>>,
{
    let (stream, asked) = tls.start(stream).await;
    let explained = |error: &io::Error| tls.misconfigured(error, &asked, at).map(misconfigured);
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => return Err(explained(&error).unwrap_or_else(|| error.into())),
    };
    connect(stream).await.map_err(|error| {
        // With TLS 1.3 a client certificate is refused after the handshake.
        let cause = error.source().and_then(io_error);
        let why = cause.and_then(explained).or_else(|| {
            let ended = first && has_ended(&error);
            ended
                .then(|| tls.ended(&asked, at))
                .flatten()
                .map(misconfigured)
        });
        why.unwrap_or(error)
    })
}

/// Connects to the first address that answers.
#[cfg(not(lock_sim))]
async fn tcp(host: &str, port: u16, nodelay: bool) -> RedisResult<TcpStream> {
    let attempts: Vec<_> = lookup_host((host, port))
        .await?
        .map(|address| Box::pin(TcpStream::connect(address)))
        .collect();
    if attempts.is_empty() {
        return Err(RedisError::from((
            ErrorKind::InvalidClientConfig,
            "No address found for host",
        )));
    }
    let stream = select_ok(attempts).await?.0;
    stream.set_nodelay(nodelay)?;
    Ok(stream)
}

/// What the greeting on a new stream needs.
struct Greet<'a> {
    settings: &'a RedisConnectionInfo,
    config: AsyncConnectionConfig,
    silence: Silence,
    address: &'a Arc<str>,
    dialled: Moment,
}

impl Greet<'_> {
    async fn over<S>(
        self,
        stream: S,
        ended: impl FnOnce() + Send + 'static,
    ) -> RedisResult<Connection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let silence = self.silence.clone();
        let stream = Heard { stream, silence };
        let (requests, driver) =
            MultiplexedConnection::new_with_config(self.settings, stream, self.config).await?;
        let end = Arc::<End>::default();
        let ends = Ends(Arc::clone(&end));
        let task = rt::spawn(async move {
            driver.await;
            drop(ends);
            ended();
        });
        let connection = Connection {
            generation: Arc::default(),
            address: Arc::clone(self.address),
            dialled: self.dialled,
            made_in: Duration::ZERO,
            silence: self.silence,
            floors: Floors::default(),
            #[cfg(feature = "cluster")]
            is_confirmed: AtomicBool::new(false),
            requests,
            load: AtomicUsize::new(0),
            end,
            driver: task.abort_handle(),
        };
        // Without HELLO nothing may have been sent so far, and what answers is not known. Any reply will do.
        if self.settings.protocol() == ProtocolVersion::RESP2
            && let Err(error) = connection.request(&cmd("PING")).await
            && !is_reply(&error)
        {
            return Err(error);
        }
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_request_in_the_queue_of_a_connection_that_has_ended_is_told() {
        let (stream, _server) = tokio::io::duplex(64);
        let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new();
        let made = MultiplexedConnection::new_with_config(&settings, stream, config);
        // It is not polled: nothing takes a request out of the queue.
        let (requests, _driver) = made.await.unwrap();
        let end = Arc::<End>::default();
        let ends = Ends(Arc::clone(&end));
        let task = tokio::spawn(async {}).abort_handle();
        let connection = Connection {
            generation: Arc::default(),
            address: "".into(),
            dialled: Moment(0),
            made_in: Duration::ZERO,
            silence: Silence::new(),
            floors: Floors::default(),
            #[cfg(feature = "cluster")]
            is_confirmed: AtomicBool::new(false),
            requests,
            load: AtomicUsize::new(0),
            end,
            driver: task,
        };
        let ping = cmd("PING");
        let mut request = pin!(connection.request(&ping));
        assert!(request.as_mut().now_or_never().is_none());
        drop(ends);
        assert!(request.await.unwrap_err().is_connection_dropped());
    }
}
