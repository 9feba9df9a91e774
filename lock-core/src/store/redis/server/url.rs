//! The URL of a server, of the sentinels of a master, or of the nodes of a cluster.

use std::time::Duration;

use redis::ConnectionAddr;

use crate::base::error::LockError;
use crate::store::redis::connection::settings::RedisConfig;
use crate::store::redis::connection::target::{Target, shown};
use crate::store::redis::sentinel::board::Sentinels;
use crate::store::redis::sentinel::source::Source;

const SCHEMES: &str = "write `redis://host:port`, `rediss://host:port` (TLS), `redis+unix:///path`, `redis+sentinel://s1,s2,s3/name`, `redis+cluster://h1,h2`, `redis+quorum://a,b,c` or `memory://`";

const SENTINELS: &str = "write `redis+sentinel://user:password@s1:26379,s2:26379/name/db`, with the user and the password of the servers";
const NODES: &str =
    "write `redis+cluster://user:password@host1:6379,host2:6379`, with two or more of its nodes";
const SLASH: &str = "a `/` in the password is written `%2F`";

/// The parts of `scheme://place[?options]`.
pub(in crate::store) struct Url<'a> {
    pub(in crate::store::redis) leads_to: LeadsTo,
    is_tls: bool,
    place: &'a str,
    options: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum LeadsTo {
    Server,
    /// A server in a file system.
    Socket,
    Sentinels,
    Cluster,
}

/// The parts of a place with several hosts: `[login@]hosts[/path]`.
struct HostList<'a> {
    /// Ends with its `@`.
    login: &'a str,
    /// Each with its port.
    hosts: Vec<String>,
    path: &'a str,
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

    /// Takes out the value of an option. A second one stays, and is refused as unknown.
    pub(in crate::store) fn take(&mut self, option: &str) -> Option<&'a str> {
        let value = |it: &&'a str| it.strip_prefix(option)?.strip_prefix('=');
        let at = self.options.iter().position(|it| value(it).is_some())?;
        value(&self.options.remove(at))
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

    /// The place with several hosts. A host without a port gets this one.
    fn hosts(&self, port: u16) -> HostList<'a> {
        let (hosts, path) = self.place.split_once('/').unwrap_or((self.place, ""));
        let (login, hosts) = hosts.split_at(hosts.rfind('@').map_or(0, |at| at + 1));
        let hosts = hosts.split(',').map(|host| match host.rsplit_once(':') {
            // Else the colon is inside the brackets of an IPv6 address.
            Some((_, port)) if !port.ends_with(']') => host.to_owned(),
            _ => format!("{host}:{port}"),
        });
        HostList {
            login,
            hosts: hosts.collect(),
            path,
        }
    }

    /// One of several servers, with the login and the options of the URL.
    fn server(
        &self,
        login: &str,
        host: &str,
        db: &str,
        config: &RedisConfig,
    ) -> Result<Target, LockError> {
        let place = format!("{login}{host}/{db}");
        Target::read("redis", &place, &self.options, self.is_tls, config)
    }

    /// The master in `redis+sentinel://[user:password@]s1:26379,s2:26379/name[/db]`.
    pub(in crate::store::redis) fn master(
        &self,
        config: &RedisConfig,
        limit: Duration,
    ) -> Result<Source, LockError> {
        let wrong = |what: &str| Err(LockError::config(format!("{what}: {SENTINELS}")));
        let place = self.hosts(26379);
        let (name, db) = place.path.split_once('/').unwrap_or((place.path, ""));
        if name.is_empty() {
            return wrong("the URL names no master");
        }
        if place.path.contains('@') {
            return wrong(SLASH);
        }
        if place.lacks_a_host() {
            return wrong("the URL has a sentinel without a host");
        }
        let own = config.sentinel.config(config);
        let is_tls = config.sentinel.speaks_tls(self.is_tls);
        let sentinels = place.hosts.iter().map(|host| {
            let mut target = Target::read("redis", host, &[], is_tls, &own)?;
            let mut settings = target.info.redis_settings().clone();
            if let Some(user) = &config.sentinel.user {
                settings = settings.set_username(user);
            }
            if let Some(password) = &config.sentinel.password {
                settings = settings.set_password(password);
            }
            target.info = target.info.set_redis_settings(settings);
            Ok(target)
        });
        let sentinels = sentinels.collect::<Result<Vec<_>, LockError>>()?;
        let sentinels = Sentinels::new(name, sentinels, limit);
        let first = self.server(place.login, &place.hosts[0], db, config)?;
        Ok(Source::sentinels(first, sentinels))
    }

    /// The nodes in `redis+cluster://[user:password@]h1:6379,h2:6379`.
    pub(in crate::store::redis) fn nodes(
        &self,
        config: &RedisConfig,
    ) -> Result<Vec<Target>, LockError> {
        let wrong = |what: &str| LockError::config(format!("{what}: {NODES}"));
        let place = self.hosts(6379);
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
                    self.server(place.login, &shown(&address), "", config)?
                }
                Some(first) => first.at(host, port)?,
            });
        }
        Ok(nodes)
    }
}

impl HostList<'_> {
    fn lacks_a_host(&self) -> bool {
        self.hosts.iter().any(|host| host.starts_with(':'))
    }
}

/// The host without the brackets of an IPv6 address, and the port.
fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port > 0)?;
    let inside = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    Some((inside.unwrap_or(host), port))
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
        let config = RedisConfig::default();
        let url = Url::read(url)?;
        let servers = match url.leads_to {
            LeadsTo::Server | LeadsTo::Socket => vec![url.target(&config)?],
            LeadsTo::Sentinels => {
                let master = url.master(&config, Duration::ZERO)?;
                return Ok(master.address().to_string());
            }
            LeadsTo::Cluster => url.nodes(&config)?,
        };
        let servers: Vec<_> = servers.iter().map(|server| &*server.address).collect();
        Ok(servers.join(" "))
    }

    #[test]
    fn the_servers_of_a_url_are_read() {
        let one = "orders (sentinels s:26379)";
        let two = "[::1]:6379 [::2]:7";
        let three = "orders (sentinels a:1, [::1]:26379, [::2]:2)";
        for (url, expected) in [
            ("redis://h", "h:6379"),
            ("valkey://h:1?protocol=resp3", "h:1"),
            ("redis://[::1]:7", "[::1]:7"),
            ("redis://user:a%2Cb@h:1/2", "h:1"),
            ("redis://:a,b@h:1/2", "h:1"),
            ("unix:///run/s", "/run/s"),
            ("redis+sentinel://s/orders", one),
            ("redis-sentinel://s/orders/3", one),
            ("valkey+sentinel://me:p%40@s/orders?protocol=resp2", one),
            ("redis+sentinel://a:1,[::1],[::2]:2/orders", three),
            ("redis+cluster://h", "h:6379"),
            ("redis-cluster://a:1,b:2", "a:1 b:2"),
            ("valkey+cluster://me:p%40@[::1],[::2]:7/", two),
            ("redis+cluster://a/0?protocol=resp2", "a:6379"),
        ] {
            assert_eq!(read(url).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn each_mistake_has_its_sentence() {
        let slash = "a `/` in the password is written `%2F`";
        let no_master = "the URL names no master";
        let no_sentinel = "the URL has a sentinel without a host";
        let no_node = "the URL has a node without a host";
        let db = "a cluster has one database, so the URL has no `/db`";
        let port = "the URL has a port that is no number from 1 to 65535";
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
            ("redis+sentinel://s:1,t:2", no_master, SENTINELS),
            ("redis+sentinel://s:1,t:2/", no_master, SENTINELS),
            ("redis+sentinel://s,,t/orders", no_sentinel, SENTINELS),
            ("redis+sentinel:///orders", no_sentinel, SENTINELS),
            ("redis+sentinel://me:17/secret@s", slash, SENTINELS),
            ("redis+cluster://", no_node, NODES),
            ("redis+cluster://a,,b", no_node, NODES),
            ("redis+cluster://a,:7", no_node, NODES),
            ("redis+cluster://a:1/2", db, NODES),
            ("redis+cluster://a:x", port, NODES),
            ("redis+cluster://me:17/secret@s", slash, NODES),
        ] {
            let expected = format!("lock configuration: {what}: {how}");
            assert_eq!(read(url).unwrap_err().to_string(), expected, "{url}");
        }
    }

    #[test]
    fn an_option_is_taken_out_once() {
        let mut url = Url::read("redis://u:p@a/1?protocol=resp2&node=b:7&node=c").unwrap();
        assert_eq!(url.take("node"), Some("b:7"));
        let config = RedisConfig::default();
        assert!(url.target(&config).is_err(), "the other one is not known");
        assert_eq!(url.take("node"), Some("c"));
        assert_eq!(url.take("node"), None);
        assert_eq!(&*url.target(&config).unwrap().address, "a:6379");
    }

    #[test]
    #[cfg(not(feature = "tls-rustls"))]
    fn tls_without_its_feature_names_the_feature() {
        let expected = "lock configuration: this build cannot speak TLS: enable the feature `tls-rustls` of lock-core for `rediss://`";
        assert_eq!(read("rediss://h").unwrap_err().to_string(), expected);
    }
}
