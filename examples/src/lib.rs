//! Shared pieces of the example programs: where locks live, a server or a cluster of one's own, tables.

mod cluster;
mod http;
mod server;
mod table;

use std::env;
use std::error::Error;
use std::process::ExitCode;

pub use cluster::{Cluster, Node, until};
pub use http::{Answer, ask, get, post};
pub use server::PrivateServer;
pub use table::Table;

/// What goes wrong in an example is told in a sentence and ends the program.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The URL in `REDIS_URL`, if it is set.
#[must_use]
pub fn redis_url() -> Option<String> {
    env::var("REDIS_URL").ok().filter(|url| !url.is_empty())
}

/// The server of `REDIS_URL`, else `memory://`; says which in one sentence.
#[must_use]
pub fn redis_url_or_memory() -> String {
    if let Some(url) = redis_url() {
        println!(
            "The locks live on the server of REDIS_URL, {}.",
            shown(&url)
        );
        url
    } else {
        println!("REDIS_URL is not set, so the locks live in this process (memory://).");
        "memory://".to_owned()
    }
}

/// The server of `REDIS_URL`, else one of our own, which runs as long as it is kept. Says which in one sentence: the "lock
/// lives", or whatever `what` is, on that server.
///
/// # Errors
///
/// Where there is no server program to run.
pub fn redis_url_or_own_server(what: &str) -> Outcome<(String, Option<PrivateServer>)> {
    if let Some(url) = redis_url() {
        println!("The {what} on the server of REDIS_URL, {}.", shown(&url));
        return Ok((url, None));
    }
    let server = PrivateServer::start()?;
    let (program, url) = (server.program(), server.url());
    println!("REDIS_URL is not set, so the {what} on a {program} of our own, {url}.");
    Ok((url, Some(server)))
}

/// A URL as it may be shown: without user, password and options.
#[must_use]
pub fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let address = rest.split(['?', '#']).next().unwrap_or_default();
    let host = address.rsplit('@').next().unwrap_or_default();
    if scheme.is_empty() {
        host.to_owned()
    } else {
        format!("{scheme}://{host}")
    }
}

/// Turns the outcome of a program into its exit code; an error is printed as one line.
#[must_use]
pub fn exit(program: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, safe) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://me:secret@host:1", "redis://host:1"),
            ("redis://me:se@cret@host", "redis://host"),
            (
                "redis+unix:///run/r.sock?pass=secret",
                "redis+unix:///run/r.sock",
            ),
            ("me:secret@host", "host"),
        ] {
            assert_eq!(shown(url), safe);
        }
    }
}
