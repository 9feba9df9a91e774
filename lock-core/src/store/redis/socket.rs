//! A connection of the `redis` crate over a stream that the library makes.

use std::collections::HashMap;
#[cfg(feature = "tls-rustls")]
use std::error::Error;
#[cfg(feature = "tls-rustls")]
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(feature = "tls-rustls")]
use std::time::Duration;

#[cfg(feature = "tls-rustls")]
use super::error::io_error;
use super::error::{is_reply, misconfigured, no_resp3, refuses_hello, said};
use super::silence::{Heard, Silence};
use super::stranger::{self, Stranger};
use super::target::Target;
#[cfg(feature = "tls-rustls")]
use super::tls::{TlsClient, not_tls};
#[cfg(not(lock_sim))]
use futures_util::future::select_ok;
#[cfg(not(lock_sim))]
use redis::ErrorKind;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, Pipeline, ProtocolVersion, RedisConnectionInfo,
    RedisError, RedisResult, Value, cmd, from_redis_value, parse_redis_value,
};
use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(not(lock_sim))]
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;
#[cfg(feature = "tls-rustls")]
use tokio::time::sleep;
#[cfg(feature = "tls-rustls")]
use tokio_rustls::client::TlsStream;

use crate::base::rt;
use crate::base::signal::Signal;
#[cfg(lock_sim)]
use crate::base::sim::tcp;

/// Maximum requests on their way to the socket. Further callers queue for a place.
const REQUESTS_READY: usize = 1024;

/// Time for a handshake before the port is asked whether it speaks TLS at all.
#[cfg(feature = "tls-rustls")]
const PLAIN_AFTER: Duration = Duration::from_millis(300);

/// A connection, and the task that drives it.
#[derive(Clone)]
pub(super) struct Socket {
    pub(super) requests: MultiplexedConnection,
    pub(super) silence: Silence,
    /// Number of requests under way.
    load: Arc<AtomicUsize>,
    driver: Arc<Driver>,
}

/// Ends the task that drives the connection with the last handle, as the crate does for its own connections.
struct Driver {
    task: AbortHandle,
    end: Arc<End>,
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
    /// The answer to a request, or an error if the connection ends without one. A request that is sent at the moment of the end may be
    /// left in the queue to the task: nothing takes it out, and a handle of the caller keeps the queue.
    async fn or_over<T>(&self, request: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        tokio::select! {
            biased;
            answer = request => answer,
            () = self.over.until(|| self.is_over.load(Ordering::SeqCst)) => {
                Err(io::Error::from(io::ErrorKind::BrokenPipe).into())
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
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

impl Socket {
    /// Whether the connection is known to have ended.
    pub(super) fn is_over(&self) -> bool {
        self.driver.end.is_over.load(Ordering::SeqCst)
    }

    /// Whether a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.load.load(Ordering::Relaxed) > 0
    }

    /// What the greeting has said, under the names of INFO. With RESP2 there is none, and no other HELLO is sent: a proxy may end the
    /// connection at it.
    pub(super) fn greeted(&self) -> HashMap<String, Value> {
        let greeting = self.silence.greeting();
        let greeting = greeting.and_then(|bytes| parse_redis_value(bytes).ok());
        let hello = greeting.and_then(|hello| from_redis_value(hello).ok());
        hello.unwrap_or_default()
    }

    /// Ends the connection for all its users.
    pub(super) fn end(&self) {
        self.driver.task.abort();
    }

    /// Sends a request and waits for its reply.
    pub(super) async fn request(&mut self, command: &Cmd) -> RedisResult<Value> {
        let _counted = Counted::begin(&self.load);
        let request = pin!(self.requests.send_packed_command(command));
        self.driver.end.or_over(request).await
    }

    /// As [`request`](Self::request), to a node of a cluster that is taking over the slot. The word that permits it is spent by the
    /// next command of the connection, so both go out in one piece.
    pub(super) async fn request_asking(&mut self, command: &Cmd) -> RedisResult<Value> {
        let _counted = Counted::begin(&self.load);
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        let request = pin!(self.requests.send_packed_commands(&both, 1, 1));
        let mut answers = self.driver.end.or_over(request).await?;
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
) -> RedisResult<Socket> {
    let config = config
        // The caller sets one time limit for the whole attempt.
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(REQUESTS_READY);
    // Some proxies end the connection at `CLIENT SETINFO`.
    let settings = &settings.clone().set_skip_set_lib_name();
    let silence = Silence::new();
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
                    let (silence, at) = (silence.clone(), &target.address);
                    let made = over_tls(tls, stream, at, first, |stream| {
                        over(stream, settings, config, silence, ended)
                    });
                    tokio::select! {
                        made = made => made,
                        () = is_plain(host, *port), if first => Err(misconfigured(not_tls(at))),
                    }
                }
                _ => over(stream, settings, config, silence.clone(), ended).await,
            }
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await?;
            over(stream, settings, config, silence.clone(), ended).await
        }
        _ => unreachable!("a target is TCP or a Unix socket"),
    };
    match made {
        Err(error) if refuses_hello(&error, settings.protocol(), silence.greeting()) => {
            Err(no_resp3(said(&error)))
        }
        Err(error) if first => Err(explained(error, target, &silence).await),
        // Some servers and proxies accept HELLO 3 and go on with RESP2.
        Ok(socket)
            if settings.protocol().supports_resp3()
                && socket.greeted().get("proto") == Some(&Value::Int(2)) =>
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
) -> RedisResult<Socket>
where
    F: Future<Output = RedisResult<Socket>>,
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

/// Resolves if the port answers without TLS: it may never answer a handshake.
#[cfg(feature = "tls-rustls")]
async fn is_plain(host: &str, port: u16) {
    sleep(PLAIN_AFTER).await;
    if !stranger::speaks_plain(host, port).await {
        pending::<()>().await;
    }
}

fn has_ended(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_io_error()
}

/// An error that says which other server was met, if one was.
async fn explained(error: RedisError, target: &Target, silence: &Silence) -> RedisError {
    let at = &target.address;
    match silence.greeting() {
        Some(greeting) if greeting.starts_with(stranger::HTTP) => misconfigured(format!(
            "an HTTP server answers at {at}: name the port of the Redis or Valkey server"
        )),
        Some(greeting) if stranger::is_no_redis(greeting) => misconfigured(format!(
            "the server at {at} is no Redis or Valkey server: name the port of one"
        )),
        Some(greeting) if has_ended(&error) => match stranger::refusal(greeting) {
            Some(why) => io::Error::other(why).into(),
            None => error,
        },
        None if has_ended(&error) => match target.info.addr() {
            ConnectionAddr::Tcp(host, port) => match stranger::meet(host, *port).await {
                Some(Stranger::Tls) if !target.is_tls() => misconfigured(format!(
                    "the server at {at} speaks TLS on this port: write `rediss://`"
                )),
                // It refuses a connection in a line, and ends it before the line is read.
                Some(Stranger::Refusal(why)) => io::Error::other(why).into(),
                _ => error,
            },
            _ => error,
        },
        _ => error,
    }
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

async fn over<S>(
    stream: S,
    settings: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
    silence: Silence,
    ended: impl FnOnce() + Send + 'static,
) -> RedisResult<Socket>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = Heard {
        stream,
        silence: silence.clone(),
    };
    let (requests, driver) =
        MultiplexedConnection::new_with_config(settings, stream, config).await?;
    let end = Arc::<End>::default();
    let ends = Ends(Arc::clone(&end));
    let task = rt::spawn(async move {
        driver.await;
        drop(ends);
        ended();
    });
    let driver = Driver {
        task: task.abort_handle(),
        end,
    };
    let mut socket = Socket {
        requests,
        silence,
        load: Arc::default(),
        driver: Arc::new(driver),
    };
    // Without HELLO nothing may have been sent so far, and what answers is not known. Any reply will do.
    if settings.protocol() == ProtocolVersion::RESP2
        && let Err(error) = socket.request(&cmd("PING")).await
        && !is_reply(&error)
    {
        return Err(error);
    }
    Ok(socket)
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
        let mut socket = Socket {
            requests,
            silence: Silence::new(),
            load: Arc::default(),
            driver: Arc::new(Driver { task, end }),
        };
        let ping = cmd("PING");
        let mut request = pin!(socket.request(&ping));
        assert!(request.as_mut().now_or_never().is_none());
        drop(ends);
        assert!(request.await.unwrap_err().is_connection_dropped());
    }
}
