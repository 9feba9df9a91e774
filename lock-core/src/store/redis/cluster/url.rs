//! A URL that names nodes of a cluster: `redis+cluster://[user:password@]h1:6379,h2:6379`.

use crate::base::error::LockError;
use crate::store::redis::settings::RedisConfig;
use crate::store::redis::target::{Target, host_and_port};

const HOW: &str =
    "write `redis+cluster://user:password@host1:6379,host2:6379`, with two or more of its nodes";

/// Port of a node, unless the URL names another one.
const PORT: u16 = 6379;

/// The nodes behind a URL of this kind; `None` for any other URL.
pub(in crate::store::redis) fn seeds(
    url: &str,
    config: &RedisConfig,
) -> Option<Result<Vec<Target>, LockError>> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme {
        "redis+cluster" | "redis-cluster" | "valkey+cluster" | "valkey-cluster" => "redis",
        "rediss+cluster" | "rediss-cluster" | "valkeys+cluster" | "valkeys-cluster" => "rediss",
        _ => return None,
    };
    Some(parsed(scheme, rest, config))
}

fn parsed(scheme: &str, rest: &str, config: &RedisConfig) -> Result<Vec<Target>, LockError> {
    let wrong = |what: &str| Err(LockError::config(format!("{what}: {HOW}")));
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.contains('@') {
        return wrong("a `/` in the password is written `%2F`");
    }
    if !matches!(path, "" | "0") {
        return wrong("a cluster has one database, so the URL has no `/db`");
    }
    let (login, hosts) = match hosts.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), hosts),
    };
    if hosts
        .split(',')
        .any(|host| host.is_empty() || host.starts_with(':'))
    {
        return wrong("the URL has a node without a host");
    }
    let mut targets = Vec::new();
    for host in hosts.split(',') {
        let Some((host, port)) = host_and_port(host, PORT) else {
            return wrong("the URL has a port that is no number from 1 to 65535");
        };
        targets.push(match targets.first() {
            None => {
                let host = if host.contains(':') {
                    format!("[{host}]")
                } else {
                    host.to_owned()
                };
                let url = format!("{scheme}://{login}{host}:{port}?{options}");
                Target::parse(&url, config)?
            }
            Some(first) => Target::at(first, host, port)?,
        });
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        match seeds(url, &RedisConfig::default()) {
            None => "another kind".to_owned(),
            Some(Err(error)) => error.to_string(),
            Some(Ok(targets)) => {
                let shown: Vec<_> = targets.iter().map(|target| &*target.address).collect();
                shown.join(" ")
            }
        }
    }

    #[test]
    fn nodes_are_read() {
        for (url, expected) in [
            ("redis://h:1", "another kind"),
            ("redis+cluster://h", "h:6379"),
            ("redis-cluster://a:1,b:2", "a:1 b:2"),
            (
                "valkey+cluster://me:p%40@[::1],[::2]:7/",
                "[::1]:6379 [::2]:7",
            ),
            ("redis+cluster://a/0?protocol=resp2", "a:6379"),
        ] {
            assert_eq!(shown(url), expected, "{url}");
        }
        for (url, what) in [
            (
                "redis+cluster://a:1/2",
                "a cluster has one database, so the URL has no `/db`",
            ),
            ("redis+cluster://", "the URL has a node without a host"),
            ("redis+cluster://a,,b", "the URL has a node without a host"),
            ("redis+cluster://a,:7", "the URL has a node without a host"),
            (
                "redis+cluster://a:x",
                "the URL has a port that is no number from 1 to 65535",
            ),
            (
                "redis+cluster://me:17/secret@s",
                "a `/` in the password is written `%2F`",
            ),
        ] {
            assert_eq!(
                shown(url),
                format!("lock configuration: {what}: {HOW}"),
                "{url}"
            );
        }
    }
}
