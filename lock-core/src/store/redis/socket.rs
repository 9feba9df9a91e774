//! A connection of the `redis` crate over a stream of ours.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError,
    RedisResult, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::coalesce::{Coalesced, Load};
use super::drive::Drive;
use super::request::Request;

/// So many requests may be on their way to the socket before a caller has to queue for a place there.
const REQUESTS_READY: usize = 1024;

/// A connection, and the task that drives it.
#[derive(Clone)]
pub(super) struct Socket {
    pub(super) requests: MultiplexedConnection,
    pub(super) load: Load,
    driver: Option<Arc<Driver>>,
}

/// Ends the task that drives the connection with the last handle, as the crate does for the connections that it makes itself.
struct Driver {
    drive: Weak<Drive>,
    task: AbortHandle,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Socket {
    /// Sends a request, and waits for its reply. Only on the runtime of the connection it may be written `at_once`: what a
    /// runtime that nobody drives has sent, it could not take back.
    pub(super) async fn request(
        &mut self,
        request: &impl Request,
        at_once: bool,
    ) -> RedisResult<Value> {
        let mut reply = pin!(request.send(&mut self.requests));
        let mut driver = self.driver.as_deref().filter(|_| at_once);
        poll_fn(|cx| {
            // The first time it is sent.
            match driver.take().and_then(|driver| driver.drive.upgrade()) {
                Some(drive) => drive.send(|| reply.as_mut().poll(cx)),
                None => reply.as_mut().poll(cx),
            }
        })
        .await
    }
}

/// Connects on the current runtime, which then drives the connection.
pub(super) async fn connect(
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
    limit: Duration,
) -> RedisResult<Socket> {
    let config = config
        .set_connection_timeout(Some(limit))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(REQUESTS_READY);
    timeout(limit, connect_to(info, config))
        .await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

async fn connect_to(info: &ConnectionInfo, config: AsyncConnectionConfig) -> RedisResult<Socket> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let stream = tcp(host, *port).await?;
            stream.set_nodelay(info.tcp_settings().nodelay())?;
            over(stream, info, config).await
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            over(tokio::net::UnixStream::connect(path).await?, info, config).await
        }
        // The crate keeps its TLS stream to itself, so requests go out as it sends them.
        _ => Ok(Socket {
            requests: Client::open(info.clone())?
                .get_multiplexed_async_connection_with_config(&config)
                .await?,
            load: Load::default(),
            driver: None,
        }),
    }
}

/// The first address that answers.
async fn tcp(host: &str, port: u16) -> RedisResult<TcpStream> {
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
    Ok(select_ok(attempts).await?.0)
}

async fn over<S>(
    stream: S,
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<Socket>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let load = Load::default();
    let stream = Coalesced::new(stream, load.clone());
    let (requests, driver) =
        MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await?;
    let drive = Arc::new(Drive::new(driver));
    let (task, drive) = (Arc::clone(&drive).run(), Arc::downgrade(&drive));
    let task = tokio::spawn(task).abort_handle();
    Ok(Socket {
        requests,
        load,
        driver: Some(Arc::new(Driver { drive, task })),
    })
}
