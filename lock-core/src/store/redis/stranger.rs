//! Finds out what answers at an address where no connection could be made: a port with or without TLS, or no Redis at all.
//!
//! Redis does not say whether it speaks TLS. Its TLS port resets a connection without TLS, and its port without TLS waits for the
//! end of a command that never comes. So a second connection tries the other way.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Beginning of the answer of an HTTP server.
pub(super) const HTTP: &[u8] = b"HTTP/";

/// Maximum wait for an error that a server sends unasked.
const UNASKED: Duration = Duration::from_millis(50);

/// Maximum wait for an answer.
const ANSWER_WAIT: Duration = Duration::from_millis(250);

/// A `ClientHello` of TLS 1.2 with an empty session id and two cipher suites: any TLS server answers, with its hello or an alert.
const CLIENT_HELLO: [u8; 52] = {
    let mut hello = [0x5a; 52];
    // Record: handshake, version 3.1, 47 bytes. Message: ClientHello, 43 bytes, version 3.3, then 32 random bytes.
    let head = [0x16, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3];
    // No session id; ECDHE with AES-128 and RSA or ECDSA; no compression.
    let tail = [0, 0, 4, 0xc0, 0x2f, 0xc0, 0x2b, 1, 0];
    let mut at = 0;
    while at < head.len() {
        hello[at] = head[at];
        at += 1;
    }
    at = 0;
    while at < tail.len() {
        hello[hello.len() - tail.len() + at] = tail[at];
        at += 1;
    }
    hello
};

/// The program behind a port where no connection could be made.
pub(super) enum Stranger {
    Tls,
    /// An error of a server without TLS, without the dash.
    Refusal(String),
}

/// Asks as a TLS client does.
pub(super) async fn meet(host: &str, port: u16) -> Option<Stranger> {
    let answer = answer(host, port, &CLIENT_HELLO).await?;
    match answer.first()? {
        // A handshake or an alert.
        0x16 | 0x15 => Some(Stranger::Tls),
        _ => refusal(&answer).map(Stranger::Refusal),
    }
}

/// Whether an answer begins neither like a reply of the protocol nor like an alert of TLS.
pub(super) fn is_no_redis(answer: &[u8]) -> bool {
    let kind = answer.first();
    kind.is_some_and(|kind| !b"+-:$*_,#(!=%~>|\x15".contains(kind))
}

/// The error with which a server refuses a connection before it ends it.
pub(super) fn refusal(answer: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(answer.strip_prefix(b"-")?).into_owned();
    line.lines().next().map(str::to_owned)
}

/// Whether the port answers a Redis command without TLS.
#[cfg(feature = "tls-rustls")]
pub(super) async fn speaks_plain(host: &str, port: u16) -> bool {
    let answer = answer(host, port, b"PING\r\n").await;
    answer.is_some_and(|answer| answer.starts_with(b"+") || answer.starts_with(b"-"))
}

/// The first bytes that come.
async fn answer(host: &str, port: u16, question: &[u8]) -> Option<Vec<u8>> {
    if cfg!(lock_sim) {
        // A simulation has no sockets.
        return None;
    }
    let asked = async {
        let mut stream = TcpStream::connect((host, port)).await?;
        let mut answer = Vec::with_capacity(256);
        // A server that refuses the connection says so at once. A question would make the system discard its text.
        if timeout(UNASKED, stream.read_buf(&mut answer))
            .await
            .is_err()
        {
            stream.write_all(question).await?;
            stream.read_buf(&mut answer).await?;
        }
        Ok::<_, std::io::Error>(answer)
    };
    timeout(ANSWER_WAIT, asked).await.ok()?.ok()
}
