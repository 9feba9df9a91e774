//! A connection of the `redis` crate over a stream that the library makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::silence::{Heard, Silence};
#[cfg(not(lock_sim))]
use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, RedisResult, Value,
};
#[cfg(not(lock_sim))]
use redis::{ErrorKind, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(not(lock_sim))]
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;

use crate::rt;
#[cfg(lock_sim)]
use crate::sim::tcp;

/// Maximum requests on their way to the socket. Further callers queue for a place.
const REQUESTS_READY: usize = 1024;

/// A connection, and the task that drives it.
#[derive(Clone)]
pub(super) struct Socket {
    pub(super) requests: MultiplexedConnection,
    pub(super) silence: Silence,
    /// Number of requests under way.
    load: Arc<AtomicUsize>,
    driver: Option<Arc<Driver>>,
}

/// Ends the task that drives the connection with the last handle, as the crate does for its own connections.
struct Driver {
    task: AbortHandle,
    is_over: Arc<AtomicBool>,
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
        let driver = self.driver.as_deref();
        driver.is_some_and(|driver| driver.is_over.load(Ordering::SeqCst))
    }

    /// Whether a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.load.load(Ordering::Relaxed) > 0
    }

    /// Sends a request and waits for its reply.
    pub(super) async fn request(&mut self, command: &Cmd) -> RedisResult<Value> {
        let _counted = Counted::begin(&self.load);
        if self.driver.is_some() {
            return self.requests.send_packed_command(command).await;
        }
        // The crate drives this connection, and does not show its bytes.
        self.silence.asked();
        let answer = self.requests.send_packed_command(command).await;
        self.silence.heard();
        answer
    }
}

/// Connects on the current runtime, which then drives the connection. Calls `ended` when the connection has ended by itself.
/// Over TLS only a RESP3 message reports that end.
pub(super) async fn connect(
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
    ended: impl FnOnce() + Send + 'static,
) -> RedisResult<Socket> {
    let config = config
        // The caller sets one time limit for the whole attempt.
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(REQUESTS_READY);
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let stream = tcp(host, *port, info.tcp_settings().nodelay()).await?;
            over(stream, info, config, ended).await
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await?;
            over(stream, info, config, ended).await
        }
        // The crate does not expose its TLS stream, so it makes and drives this connection itself.
        _ => {
            #[cfg(feature = "tls-rustls")]
            choose_cryptography();
            Ok(Socket {
                requests: Client::open(info.clone())?
                    .get_multiplexed_async_connection_with_config(&config)
                    .await?,
                silence: Silence::new(),
                load: Arc::default(),
                driver: None,
            })
        }
    }
}

/// Without a provider for the process, rustls panics. A provider that the program has installed stays.
#[cfg(feature = "tls-rustls")]
fn choose_cryptography() {
    use rustls::crypto::{CryptoProvider, ring};
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been faster: then there is one.
        let _ = ring::default_provider().install_default();
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
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
    ended: impl FnOnce() + Send + 'static,
) -> RedisResult<Socket>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let silence = Silence::new();
    let stream = Heard {
        stream,
        silence: silence.clone(),
    };
    let (requests, driver) =
        MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let task = rt::spawn(async move {
        driver.await;
        over.store(true, Ordering::SeqCst);
        ended();
    });
    let driver = Driver {
        task: task.abort_handle(),
        is_over,
    };
    Ok(Socket {
        requests,
        silence,
        load: Arc::default(),
        driver: Some(Arc::new(driver)),
    })
}
