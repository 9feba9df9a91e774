//! What the server or the socket said, sorted by what it means for a lock.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::error::{Cause, LockError};
use crate::store::StoreError;

/// First words of replies that mean "not carried out, try later". Only the first word is compared: the rest
/// differs between Redis, Valkey and their versions.
const NOT_NOW: [&str; 13] = [
    "LOADING",
    "MASTERDOWN",
    "BUSY",
    "READONLY",
    "OOM",
    "NOREPLICAS",
    "MISCONF",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MOVED",
    "ASK",
    "NOSCRIPT",
    "UNKILLABLE",
];

pub(super) fn classify(error: RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Io if error.is_connection_refusal() => StoreError::NotNow(cause(error)),
        // It may have been sent, and then it may have been carried out.
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            StoreError::Ambiguous(cause(error))
        }
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => refused(&error),
        _ => {
            let text = error.to_string();
            if not_now(error.code().unwrap_or(""), &text) {
                StoreError::NotNow(cause(error))
            } else {
                refused(&error)
            }
        }
    }
}

fn not_now(code: &str, text: &str) -> bool {
    if NOT_NOW.contains(&code) || text.contains("max number of clients") {
        return true;
    }
    // Redis 6 hides the code of a command that failed inside a script: `ERR Error running script .. -OOM ..`.
    text.contains("Error running script")
        && NOT_NOW
            .iter()
            .any(|word| text.contains(&format!("-{word} ")))
}

fn refused(error: &RedisError) -> StoreError {
    StoreError::Misconfigured(format!(
        "the server refused ({error}): check the password, the ACL rules and that it is a Redis or Valkey master"
    ))
}

fn cause(error: RedisError) -> Cause {
    Cause::new(Arc::new(error))
}

pub(super) fn no_reply(limit: Duration) -> Cause {
    Cause::new(Arc::new(NoReply(limit)))
}

/// A reply that no script of ours gives: something else answers, or the stream is broken.
pub(super) fn garbled() -> StoreError {
    StoreError::Ambiguous(Cause::new(Arc::new(Garbled)))
}

pub(super) fn bad_url(error: &RedisError) -> LockError {
    if error.to_string().contains("TLS") && cfg!(not(feature = "tls-rustls")) {
        return LockError::config(
            "this build can not speak TLS: enable the feature `tls-rustls` of lock-core for `rediss://`",
        );
    }
    LockError::config(format!(
        "the URL is not understood ({error}): write `redis://host:port`, `rediss://`, `redis+unix:///path` or `memory://`"
    ))
}

#[derive(Debug, thiserror::Error)]
#[error("no reply within {0:?}")]
struct NoReply(Duration);

#[derive(Debug, thiserror::Error)]
#[error("a reply that is not one of the lock scripts'")]
struct Garbled;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_word_decides_and_old_servers_hide_it() {
        assert!(not_now("OOM", ""));
        assert!(not_now(
            "ERR",
            "ERR Error running script (call to f_ab): @user_script:1: -READONLY You can't write"
        ));
        assert!(not_now("ERR", "ERR max number of clients reached"));
        assert!(!not_now("NOPERM", "NOPERM this user has no permissions"));
        assert!(!not_now("ERR", "ERR ACL failure in script: no OOM here"));
    }
}
