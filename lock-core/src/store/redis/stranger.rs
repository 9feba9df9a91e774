//! What answers at an address where no connection could be made: a port that speaks TLS, or does not.
//!
//! Redis says neither. Its TLS port resets a connection without TLS, and its port without TLS waits for the end of a command
//! that never comes. So a second connection asks in the other way.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Beginning of the answer of an HTTP server.
pub(super) const HTTP: &[u8] = b"HTTP/";

/// Maximum wait for each step of the question.
const PATIENCE: Duration = Duration::from_millis(250);

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

/// Whether the port speaks TLS.
pub(super) async fn speaks_tls(host: &str, port: u16) -> bool {
    // A handshake or an alert.
    matches!(
        first_byte(host, port, &CLIENT_HELLO).await,
        Some(0x16 | 0x15)
    )
}

/// Whether the port answers a Redis command without TLS.
#[cfg(feature = "tls-rustls")]
pub(super) async fn speaks_plain(host: &str, port: u16) -> bool {
    matches!(first_byte(host, port, b"PING\r\n").await, Some(b'+' | b'-'))
}

async fn first_byte(host: &str, port: u16, question: &[u8]) -> Option<u8> {
    let asked = async {
        let mut stream = TcpStream::connect((host, port)).await?;
        stream.write_all(question).await?;
        stream.read_u8().await
    };
    timeout(PATIENCE, asked).await.ok()?.ok()
}
