use std::io;
use std::net::SocketAddr;

use redis::{Cmd, FromRedisValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::resp::Splitter;
use crate::wait::in_time;

/// Asks a server one thing, on a connection of its own that the faults of a
/// test cannot break, that says nothing else, and that the server has
/// forgotten when this returns. So what a test counts is its own doing.
pub(crate) async fn ask<T: FromRedisValue>(addr: SocketAddr, command: &Cmd) -> T {
    let text = String::from_utf8_lossy(&command.get_packed_command()).replace("\r\n", " ");
    let what = format!("the server's answer to {text}");
    let frame = in_time(&what, exchange(addr, command))
        .await
        .unwrap_or_else(|error| panic!("no answer to {text}: {error}"));
    redis::parse_redis_value(&frame)
        .and_then(|value| Ok(redis::from_redis_value(value.extract_error()?)?))
        .unwrap_or_else(|error: redis::RedisError| panic!("{text}: {error}"))
}

/// The reply to `command`, as it came.
pub(crate) async fn exchange(addr: SocketAddr, command: &Cmd) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(&command.get_packed_command()).await?;
    let mut splitter = Splitter::default();
    let mut buffer = vec![0; 16 * 1024];
    let frame = loop {
        let size = stream.read(&mut buffer).await?;
        if size == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        splitter.push(&buffer[..size]);
        if let Some(frame) = splitter.next_frame().map_err(io::Error::other)? {
            break frame;
        }
    };
    // Said aloud, as a mere close is not heard while a process that is just
    // being started by another test still has a copy of the socket. The server
    // closes its side once it has let go of the connection.
    stream.shutdown().await?;
    while stream.read(&mut buffer).await? > 0 {}
    Ok(frame)
}
