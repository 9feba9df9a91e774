//! The URL of the nodes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionAddr;

use super::masters::Cluster;
use crate::base::error::LockError;
use crate::store::redis::connection::hosts::SLASH;
use crate::store::redis::connection::settings::RedisConfig;
use crate::store::redis::connection::target::{Target, shown};
use crate::store::redis::connection::url::Url;

const NODES: &str =
    "write `redis+cluster://user:password@host1:6379,host2:6379`, with two or more of its nodes";

impl Cluster {
    /// The cluster of `redis+cluster://[user:password@]h1:6379,h2:6379`.
    pub(in crate::store::redis) fn open(
        url: &Url<'_>,
        config: &RedisConfig,
        limit: Duration,
    ) -> Result<Arc<Self>, LockError> {
        Ok(Self::new(nodes(url, config)?, config, limit))
    }
}

fn nodes(url: &Url<'_>, config: &RedisConfig) -> Result<Vec<Target>, LockError> {
    let wrong = |what: &str| LockError::config(format!("{what}: {NODES}"));
    let place = url.hosts(6379);
    if place.path.contains('@') {
        return Err(wrong(SLASH));
    }
    if !matches!(place.path, "" | "0") {
        return Err(wrong("a cluster has one database, so the URL has no `/db`"));
    }
    if place.lacks_a_host() {
        return Err(wrong("the URL has a node without a host"));
    }
    let mut nodes: Vec<Target> = Vec::new();
    for host in &place.hosts {
        let (host, port) = host_and_port(host)
            .ok_or_else(|| wrong("the URL has a port that is no number from 1 to 65535"))?;
        nodes.push(match nodes.first() {
            None => {
                let address = ConnectionAddr::Tcp(host.to_owned(), port);
                url.server(place.login, &shown(&address), "", config)?
            }
            Some(first) => first.at(host, port)?,
        });
    }
    Ok(nodes)
}

/// The host without the brackets of an IPv6 address, and the port.
fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port > 0)?;
    let inside = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    Some((inside.unwrap_or(host), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<String, LockError> {
        let nodes = nodes(&Url::read(url)?, &RedisConfig::default())?;
        let nodes: Vec<_> = nodes.iter().map(|node| &*node.address).collect();
        Ok(nodes.join(" "))
    }

    #[test]
    fn the_nodes_of_a_url_are_read() {
        for (url, expected) in [
            ("redis+cluster://h", "h:6379"),
            ("redis-cluster://a:1,b:2", "a:1 b:2"),
            (
                "valkey+cluster://me:p%40@[::1],[::2]:7/",
                "[::1]:6379 [::2]:7",
            ),
            ("redis+cluster://a/0?protocol=resp2", "a:6379"),
        ] {
            assert_eq!(read(url).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn each_mistake_in_a_url_of_nodes_has_its_sentence() {
        let no_node = "the URL has a node without a host";
        let db = "a cluster has one database, so the URL has no `/db`";
        let port = "the URL has a port that is no number from 1 to 65535";
        for (url, what) in [
            ("redis+cluster://", no_node),
            ("redis+cluster://a,,b", no_node),
            ("redis+cluster://a,:7", no_node),
            ("redis+cluster://a:1/2", db),
            ("redis+cluster://a:x", port),
            ("redis+cluster://me:17/secret@s", SLASH),
        ] {
            let expected = format!("lock configuration: {what}: {NODES}");
            assert_eq!(read(url).unwrap_err().to_string(), expected, "{url}");
        }
    }
}
