//! The URL of a server, of the sentinels of a master, or of the nodes of a cluster.

use super::settings::RedisConfig;
use super::target::Target;
use crate::base::error::LockError;

const SCHEMES: &str = "write `redis://host:port`, `rediss://host:port` (TLS), `redis+unix:///path`, `redis+sentinel://s1,s2,s3/name`, `redis+cluster://h1,h2`, `redis+quorum://a,b,c` or `memory://`";

/// The node URLs in `redis+quorum://a,b,c` or `rediss+quorum://a,b,c`; `None` for any other URL.
///
/// Each part between the commas is a URL of its own, with or without its scheme. So each node may have its own user, password,
/// port and database. A comma in a password is written `%2C`.
pub(crate) fn node_urls(url: &str) -> Option<Vec<String>> {
    let (scheme, nodes) = url.split_once("+quorum://")?;
    if !matches!(scheme, "redis" | "rediss") {
        return None;
    }
    let nodes = nodes.split(',').map(|node| {
        if node.contains("://") {
            node.to_owned()
        } else {
            format!("{scheme}://{node}")
        }
    });
    Some(nodes.collect())
}

/// The parts of `scheme://place[?options]`.
pub(in crate::store) struct Url<'a> {
    pub(in crate::store::redis) leads_to: LeadsTo,
    pub(in crate::store::redis) is_tls: bool,
    pub(super) place: &'a str,
    pub(in crate::store::redis) options: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum LeadsTo {
    Server,
    /// A server in a file system.
    Socket,
    Sentinels,
    Cluster,
}

impl<'a> Url<'a> {
    pub(in crate::store) fn read(url: &'a str) -> Result<Self, LockError> {
        let parts = url.split_once("://");
        let (scheme, rest) = parts.ok_or_else(|| wrong("the URL has no scheme"))?;
        let (family, kind) = scheme.split_once(['+', '-']).unwrap_or((scheme, ""));
        let is_tls = matches!(family, "rediss" | "valkeys");
        let leads_to = match (family, kind) {
            ("redis" | "rediss" | "valkey" | "valkeys", "") => LeadsTo::Server,
            ("unix", "") | ("redis" | "valkey", "unix") => LeadsTo::Socket,
            ("redis" | "rediss" | "valkey" | "valkeys", "sentinel") => LeadsTo::Sentinels,
            ("redis" | "rediss" | "valkey" | "valkeys", "cluster") => LeadsTo::Cluster,
            _ => return Err(unknown(scheme)),
        };
        if leads_to == LeadsTo::Server && names_several(rest) {
            return Err(wrong(
                "the URL names several servers: a cluster is `redis+cluster://`, a quorum `redis+quorum://`, and sentinels are `redis+sentinel://`",
            ));
        }
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        Ok(Self {
            leads_to,
            is_tls,
            place,
            options: options.split('&').collect(),
        })
    }

    /// The server to which it leads.
    pub(in crate::store) fn target(&self, config: &RedisConfig) -> Result<Target, LockError> {
        let scheme = match self.leads_to {
            LeadsTo::Server => "redis",
            LeadsTo::Socket => "redis+unix",
            LeadsTo::Sentinels | LeadsTo::Cluster => {
                return Err(wrong("the URL leads to several servers"));
            }
        };
        Target::read(scheme, self.place, &self.options, self.is_tls, config)
    }
}

/// Whether there is a comma between the password and the path.
fn names_several(rest: &str) -> bool {
    let hosts = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let hosts = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
    hosts.contains(',')
}

fn unknown(scheme: &str) -> LockError {
    match scheme {
        // Anything else may be a part of a password.
        "sentinel" | "cluster" | "http" | "https" | "tcp" | "tls" | "ssl" | "postgres"
        | "postgresql" | "mysql" => {
            wrong(&format!("`{scheme}://` is not the scheme of a lock server"))
        }
        _ => wrong("the URL has an unknown scheme"),
    }
}

fn wrong(what: &str) -> LockError {
    LockError::config(format!("{what}: {SCHEMES}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<String, LockError> {
        let server = Url::read(url)?.target(&RedisConfig::default())?;
        Ok(server.address.to_string())
    }

    #[test]
    fn the_server_of_a_url_is_read() {
        for (url, expected) in [
            ("redis://h", "h:6379"),
            ("valkey://h:1?protocol=resp3", "h:1"),
            ("redis://[::1]:7", "[::1]:7"),
            ("redis://user:a%2Cb@h:1/2", "h:1"),
            ("redis://:a,b@h:1/2", "h:1"),
            ("unix:///run/s", "/run/s"),
        ] {
            assert_eq!(read(url).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn every_node_may_have_its_own_password_port_and_database() {
        let url = "redis+quorum://me:p%2Cw@a:1/2,b,rediss://c:3?protocol=resp2";
        assert_eq!(
            node_urls(url).unwrap(),
            [
                "redis://me:p%2Cw@a:1/2",
                "redis://b",
                "rediss://c:3?protocol=resp2"
            ]
        );
        assert_eq!(node_urls("rediss+quorum://a,b,c").unwrap()[1], "rediss://b");
        assert!(node_urls("redis://a,b,c").is_none());
        assert!(node_urls("memory+quorum://a,b,c").is_none());
    }

    #[test]
    fn each_mistake_has_its_sentence() {
        let sentinel = "`sentinel://` is not the scheme of a lock server";
        let several = "the URL names several servers: a cluster is `redis+cluster://`, a quorum `redis+quorum://`, and sentinels are \
                       `redis+sentinel://`";
        let unreadable = "the URL cannot be read (Invalid database number)";
        let parts = "write `redis://user:password@host:port/db`, with `%2F` and the like for special characters";
        for (url, what, how) in [
            ("localhost:6379", "the URL has no scheme", SCHEMES),
            ("s3cret://h", "the URL has an unknown scheme", SCHEMES),
            ("sentinel://s/mymaster", sentinel, SCHEMES),
            ("redis://a,b", several, SCHEMES),
            ("redis://h/x", unreadable, parts),
        ] {
            let expected = format!("lock configuration: {what}: {how}");
            assert_eq!(read(url).unwrap_err().to_string(), expected, "{url}");
        }
    }

    #[test]
    #[cfg(not(feature = "tls-rustls"))]
    fn tls_without_its_feature_names_the_feature() {
        let expected = "lock configuration: this build cannot speak TLS: enable the feature `tls-rustls` of lock-core for `rediss://`";
        assert_eq!(read("rediss://h").unwrap_err().to_string(), expected);
    }
}
