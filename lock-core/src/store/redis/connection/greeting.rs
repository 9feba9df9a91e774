//! What the first bytes of a server say about a connection that could not be made.

use std::io;

use redis::RedisError;

use super::silence::Silence;
use crate::store::redis::error::{advised, misconfigured, said};

/// Beginning of the answer of an HTTP server.
const HTTP: &[u8] = b"HTTP/";

/// The TLS port of a server resets a connection without TLS. A server that refuses a connection says why in a line, and ends it: that
/// line is lost if our greeting comes after the end.
const WITHOUT_TLS: &str = "if this port speaks TLS, write `rediss://`, else see whether the server refuses clients (`maxclients`, `protected-mode`)";

const OVER_TLS: &str = "see why in the log of the server";

/// An error that says which other server was met, if one was.
pub(super) fn explained(
    error: RedisError,
    at: &str,
    is_tls: bool,
    silence: &Silence,
) -> RedisError {
    match silence.greeting() {
        Some(greeting) if greeting.starts_with(HTTP) => misconfigured(format!(
            "an HTTP server answers at {at}: name the port of the Redis or Valkey server"
        )),
        Some(greeting) if is_no_redis(greeting) => misconfigured(format!(
            "the server at {at} is no Redis or Valkey server: name the port of one"
        )),
        _ if !has_ended(&error) => error,
        Some(greeting) => match refusal(greeting) {
            Some(why) => io::Error::other(why).into(),
            None => error,
        },
        None => advised(said(&error), if is_tls { OVER_TLS } else { WITHOUT_TLS }),
    }
}

pub(super) fn has_ended(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_io_error()
}

/// Whether an answer begins neither like a reply of the protocol nor like an alert of TLS.
fn is_no_redis(answer: &[u8]) -> bool {
    let kind = answer.first();
    kind.is_some_and(|kind| !b"+-:$*_,#(!=%~>|\x15".contains(kind))
}

/// The error with which a server refuses a connection before it ends it.
fn refusal(answer: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(answer.strip_prefix(b"-")?).into_owned();
    line.lines().next().map(str::to_owned)
}
