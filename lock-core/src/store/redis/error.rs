//! Errors of the server and of the socket, sorted by their meaning for a lock.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, ProtocolVersion, RedisError};

use super::wire::Name;
use crate::base::error::{Advised, Cause};
use crate::base::time::in_millis;
use crate::store::{Misconfiguration, StoreError};

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

/// First words of errors about a request as a whole. A script that raises one of them has made it up.
const OF_A_REQUEST: [&str; 6] = [
    "CLUSTERDOWN",
    "MASTERDOWN",
    "TRYAGAIN",
    "MOVED",
    "ASK",
    "NOSCRIPT",
];

/// First words of replies from a replica.
const REPLICA: [&str; 2] = ["READONLY", "MASTERDOWN"];

/// First words of replies that refuse the client, not only RESP3.
const OF_A_CLIENT: [&str; 4] = ["NOAUTH", "WRONGPASS", "NOPERM", "DENIED"];

/// First words of replies that only a node of a cluster gives.
const OF_A_NODE: [&str; 5] = ["MOVED", "ASK", "CROSSSLOT", "CLUSTERDOWN", "TRYAGAIN"];
const A_NODE: &str = if cfg!(feature = "cluster") {
    "it is a node of a cluster, so connect with `redis+cluster://host1,host2`"
} else {
    "it is a node of a cluster, so enable the feature `cluster` of lock-core, and connect with `redis+cluster://host1,host2`"
};

/// What to do about a refusal, by its code. The last one is for any other code.
const ADVICE: [(&str, &str); 6] = [
    (
        "NOAUTH ",
        "it asks for a password, so write `user:password@` in front of the host in the URL",
    ),
    ("WRONGPASS ", "check the user and the password in the URL"),
    (
        "Password authentication failed",
        "check the user and the password in the URL",
    ),
    (
        "ERR DB index is out of range",
        "it has no database of the number in the URL, so leave out `/db` or name another",
    ),
    (
        "DENIED ",
        "give it a password, or end its protected mode with `protected-mode no`",
    ),
    (
        "",
        "check the rights of its user, which `docs/operating.md` lists, and that it is a Redis or Valkey master",
    ),
];

/// What to do if a connection of the user has not logged in, or is lost.
const USERS_LOGIN: &str =
    "give `from_connection` a connection that has logged in, to a database that exists";
const USERS_OWN: &str = "check that its server runs, and give `from_connection` a connection that connects again, as a `ConnectionManager`";

/// The text before the Lua error of a script that does not compile.
const COMPILING: &str = "Error compiling script ";
/// Texts in an error that a script raised. The last one is that of Redis 6 and earlier.
const RUNNING: [&str; 2] = [", on @user_script:", "Error running script "];
/// Beginnings of errors that kept a script from running at all.
const SHUT_OUT: [&str; 2] = ["NOPERM ", "NOAUTH "];

pub(in crate::store) fn classify(error: RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Io if error.is_connection_refusal() => StoreError::NotNow(cause(error)),
        // The server may have carried out the request.
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            StoreError::Ambiguous(cause(error))
        }
        _ if is_misconfigured(&error) => {
            StoreError::Misconfigured(error.detail().unwrap_or_default().into())
        }
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => refused(&said(&error)),
        _ => {
            let text = said(&error);
            if not_now(error.code().unwrap_or(""), &text) {
                StoreError::NotNow(cause(error))
            } else {
                refused(&text)
            }
        }
    }
}

/// As [`classify`], for a server that should not be a node of a cluster: the error says that it is one.
pub(super) fn outside_a_cluster(error: RedisError) -> StoreError {
    if OF_A_NODE.contains(&error.code().unwrap_or_default()) && !is_made_up(&error) {
        let advice = A_NODE.to_owned();
        return refused_with(said(&error), advice);
    }
    classify(error)
}

/// As [`classify`], for a connection of the user, which has no URL.
pub(super) fn over_users(error: RedisError) -> StoreError {
    let is_login = refuses_credentials(&error) || said(&error).contains("DB index");
    match outside_a_cluster(error) {
        StoreError::Misconfigured(Misconfiguration::Refused { said, .. }) if is_login => {
            refused_with(said, USERS_LOGIN.to_owned())
        }
        other => other.with_cause(|cause| cause.advised(Some(USERS_OWN))),
    }
}

/// Adds the patterns of all keys of the request to a refusal of keys.
pub(super) fn with_patterns(error: StoreError, keys: &[Name<'_>], prefix: &str) -> StoreError {
    match error {
        StoreError::Misconfigured(Misconfiguration::Refused { said, server, .. })
            if is_about_keys(&said) =>
        {
            let mut patterns: Vec<_> = keys.iter().map(|key| key.pattern(prefix)).collect();
            patterns.dedup();
            let advice = format!(
                "the user may not use its keys, so permit them with `ACL SETUSER <user> ~{}`",
                patterns.join(" ~")
            );
            StoreError::Misconfigured(Misconfiguration::Refused {
                server,
                said,
                advice,
            })
        }
        other => other,
    }
}

/// Whether the server refuses user and password.
pub(super) fn refuses_credentials(error: &RedisError) -> bool {
    let code = error.code().unwrap_or_default();
    ["WRONGPASS", "NOAUTH"].contains(&code) || error.kind() == ErrorKind::AuthenticationFailed
}

/// Whether the error is a reply of the server, not the lack of a reply.
pub(super) fn is_reply(error: &RedisError) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::UnexpectedReturnType
    )
}

/// Whether a server or a proxy without RESP3 refused HELLO, in whatever words. `greeting` is the first reply.
pub(super) fn refuses_hello(
    error: &RedisError,
    protocol: ProtocolVersion,
    greeting: Option<&[u8]>,
) -> bool {
    let is_refused = protocol.supports_resp3()
        && greeting.is_some_and(|reply| reply.starts_with(b"-"))
        && is_reply(error);
    let code = error.code().unwrap_or_default();
    is_refused && !OF_A_CLIENT.contains(&code) && !not_now(code, &said(error))
}

/// The refusal of HELLO, in the form in which the `redis` crate reports the refusals that it knows.
pub(super) fn no_resp3(why: String) -> RedisError {
    (ErrorKind::RESP3NotSupported, "no RESP3", why).into()
}

/// Whether a replica sent the error: then the address does not lead to the master.
pub(super) fn is_from_replica(error: &RedisError) -> bool {
    is_reply(error) && begins_with(&REPLICA, error.code().unwrap_or(""), &error.to_string())
}

/// Whether a script has raised an error that only the server may raise.
pub(super) fn is_made_up(error: &RedisError) -> bool {
    let code = error.code().unwrap_or_default();
    OF_A_REQUEST.contains(&code) && said(error).contains(RUNNING[0])
}

fn not_now(code: &str, text: &str) -> bool {
    if OF_A_REQUEST.contains(&code) && text.contains(RUNNING[0]) {
        return false;
    }
    begins_with(&NOT_NOW, code, text) || text.contains("max number of clients")
}

fn begins_with(words: &[&str], code: &str, text: &str) -> bool {
    // Redis 6 hides the code of a command that failed inside a script: `ERR Error running script .. -OOM ..`.
    let is_hidden = |word: &&str| text.contains(&format!("-{word} "));
    words.contains(&code) || (text.contains("Error running script") && words.iter().any(is_hidden))
}

fn refused(said: &str) -> StoreError {
    let advice = ADVICE.iter().find(|(code, _)| said.starts_with(code));
    let advice = advice.map_or("", |(_, advice)| advice);
    let right = said.strip_prefix("NOPERM ").and_then(missing_right);
    refused_with(said.to_owned(), right.unwrap_or_else(|| advice.to_owned()))
}

fn refused_with(said: String, advice: String) -> StoreError {
    let server = None;
    StoreError::Misconfigured(Misconfiguration::Refused {
        server,
        said,
        advice,
    })
}

/// Whether the keys of a command are not the user's.
pub(super) fn is_about_keys(refusal: &str) -> bool {
    refusal.contains("one of the keys") || refusal.contains("access a key")
}

/// The right that the user lacks according to a refusal, as advice.
fn missing_right(refusal: &str) -> Option<String> {
    let (_, quoted) = refusal.split_once("run the '")?;
    let (command, _) = quoted.split_once('\'')?;
    Some(format!("permit it with `ACL SETUSER <user> +{command}`"))
}

/// The server's own words. The `redis` crate shows the names of its own types instead of the code.
pub(super) fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        // A server quotes an unknown command with its arguments.
        (Some(code), Some(detail)) => {
            let detail = detail.split(", with args beginning with").next();
            format!("{code} {}", detail.unwrap_or_default())
        }
        (Some(code), None) => code.to_owned(),
        // rustls adds the address of its documentation. Below, the `redis` crate puts the name of a kind in the middle.
        (None, _) if error.to_string().contains("close_notify") => {
            "the server ended the connection".to_owned()
        }
        (None, _) => {
            let kind = format!(" - {:?}", error.kind());
            error.to_string().replacen(&kind, "", 1)
        }
    }
}

/// Classifies an error that a script returned as its reply.
pub(super) fn passed_on(text: &str) -> StoreError {
    if not_now(text.split(' ').next().unwrap_or(""), text) {
        StoreError::NotNow(Cause::text(text.to_owned()))
    } else {
        refused(text)
    }
}

/// The fault of a user's script, if a [refusal](StoreError::Misconfigured) is about the script: its author has to repair it, not
/// the operator of the server.
pub(super) fn fault_of_script(wrong: &Misconfiguration) -> Option<String> {
    let Misconfiguration::Refused { said, .. } = wrong else {
        return None;
    };
    if let Some((_, why)) = said.split_once(COMPILING) {
        let why = why.trim_start_matches("(new function): ").trim_end();
        return Some(format!("the server does not understand its Lua ({why})"));
    }
    let ran = RUNNING.iter().any(|words| said.contains(words));
    let shut_out = SHUT_OUT.iter().any(|words| said.starts_with(words))
        || said.contains("authentication failed");
    (ran || !shut_out).then(|| said.trim_end().to_owned())
}

fn cause(error: RedisError) -> Cause {
    let (shown, advised) = (said(&error), error.source().and_then(io_error));
    let advised = advised.and_then(|error| error.get_ref()?.downcast_ref::<Advised>());
    let advice = advised.map(|it| it.advice);
    Cause::shown_as(&shown, Arc::new(error)).advised(advice)
}

/// The `redis` crate keeps its causes in an `Arc`.
pub(super) fn io_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let shared = cause.downcast_ref::<Arc<dyn Error + Send + Sync>>();
    shared.map_or_else(|| cause.downcast_ref(), |shared| shared.downcast_ref())
}

/// An error that may end by itself, with what to do about it.
pub(super) fn advised(said: String, advice: &'static str) -> RedisError {
    io::Error::other(Advised { said, advice }).into()
}

pub(in crate::store) fn no_reply(limit: Duration) -> Cause {
    Cause::of(Arc::new(NoReply(limit)))
}

/// As [`no_reply`], while connecting.
pub(super) fn not_connected_within(limit: Duration) -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, NoReply(limit)).into()
}

/// The error for a reply that no script of the library gives: another program answers, or the stream is broken.
pub(in crate::store) fn garbled() -> StoreError {
    let server = "check that a Redis or Valkey server answers there";
    StoreError::Ambiguous(Cause::of(Arc::new(Garbled)).advised(Some(server)))
}

/// What [`misconfigured`] begins with in the `redis` crate.
const SET_UP: &str = "set-up";

/// An error that a retry does not help, as a whole sentence.
pub(super) fn misconfigured(sentence: String) -> RedisError {
    (ErrorKind::InvalidClientConfig, SET_UP, sentence).into()
}

pub(super) fn is_misconfigured(error: &RedisError) -> bool {
    error.kind() == ErrorKind::InvalidClientConfig && error.to_string().starts_with(SET_UP)
}

#[derive(Debug, thiserror::Error)]
#[error("no reply within {:?}", in_millis(*.0))]
struct NoReply(Duration);

#[derive(Debug, thiserror::Error)]
#[error("a reply that no lock script gives")]
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

    #[test]
    #[cfg(not(feature = "cluster"))]
    fn a_redirection_without_the_feature_of_clusters_names_the_feature() {
        let value = redis::parse_redis_value(b"-MOVED 7 h:1\r\n").unwrap();
        let said = outside_a_cluster(value.extract_error().unwrap_err()).to_string();
        assert!(
            said.contains("enable the feature `cluster` of lock-core"),
            "{said}"
        );
    }

    /// The fault that is found in an error reply to a user's script.
    fn fault(reply: &str) -> Option<String> {
        let value = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
        match classify(value.extract_error().unwrap_err()) {
            StoreError::Misconfigured(refusal) => fault_of_script(&refusal),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_script_is_blamed_for_its_own_faults_only() {
        assert_eq!(
            fault(
                "ERR Error compiling script (new function): user_script:2: '=' expected near 'is'"
            )
            .unwrap(),
            "the server does not understand its Lua (user_script:2: '=' expected near 'is')"
        );
        for its_own in [
            "ERR user_script:1: on purpose script: af2e, on @user_script:1.",
            "NOPERM ACL failure in script: no permissions to run 'get' script: af2e, on @user_script:1.",
            "ERR Error running script (call to f_af2e): @user_script:1: @user_script: 1: on purpose",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
        ] {
            assert!(fault(its_own).is_some(), "{its_own}");
        }
        for shut_out in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "NOPERM No permissions to access a key",
            "NOAUTH Authentication required.",
        ] {
            assert_eq!(fault(shut_out), None, "{shut_out}");
        }
    }

    #[test]
    fn an_error_that_a_script_passes_on_is_sorted_as_any_other() {
        let not_now = "OOM command not allowed when used memory > 'maxmemory'.";
        assert!(matches!(passed_on(not_now), StoreError::NotNow(_)));
        let refusal = "ERR The user executing the script can't run this command";
        assert!(matches!(passed_on(refusal), StoreError::Misconfigured(_)));
    }
}
