//! URLs that name several servers: sentinels with the name of a master, or nodes of a cluster.

use std::time::Duration;

use redis::ConnectionAddr;

use super::sentinels::Sentinels;
use super::settings::RedisConfig;
use super::source::Source;
use super::target::{Target, shown};
use crate::base::error::LockError;

const SENTINELS: &str = "write `redis+sentinel://user:password@s1:26379,s2:26379/name/db`, with the user and the password of the servers";
const NODES: &str =
    "write `redis+cluster://user:password@host1:6379,host2:6379`, with two or more of its nodes";
const SLASH: &str = "a `/` in the password is written `%2F`";

/// The parts of `redis+kind://[login@]hosts[/path][?options]`.
struct Url<'a> {
    /// `rediss` with TLS, else `redis`.
    scheme: &'static str,
    /// Ends with its `@`.
    login: &'a str,
    /// Each with its port.
    hosts: Vec<String>,
    path: &'a str,
    options: &'a str,
}

impl<'a> Url<'a> {
    /// The parts of a URL of this kind, `None` for any other URL. A host without a port gets this one.
    fn read(url: &'a str, kind: &str, port: u16) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let scheme = match scheme.strip_suffix(kind)? {
            "redis+" | "redis-" | "valkey+" | "valkey-" => "redis",
            "rediss+" | "rediss-" | "valkeys+" | "valkeys-" => "rediss",
            _ => return None,
        };
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = hosts.split_at(hosts.rfind('@').map_or(0, |at| at + 1));
        let hosts = hosts.split(',').map(|host| match host.rsplit_once(':') {
            // Else the colon is inside the brackets of an IPv6 address.
            Some((_, port)) if !port.ends_with(']') => host.to_owned(),
            _ => format!("{host}:{port}"),
        });
        Some(Self {
            scheme,
            login,
            hosts: hosts.collect(),
            path,
            options,
        })
    }

    fn lacks_a_host(&self) -> bool {
        self.hosts.iter().any(|host| host.starts_with(':'))
    }

    /// One server, with the login and the options of the URL.
    fn server(&self, host: &str, db: &str, config: &RedisConfig) -> Result<Target, LockError> {
        let (scheme, login, options) = (self.scheme, self.login, self.options);
        Target::parse(&format!("{scheme}://{login}{host}/{db}?{options}"), config)
    }
}

/// The master in `redis+sentinel://[user:password@]s1:26379,s2:26379/name[/db]`; `None` for any other URL.
pub(super) fn master(
    url: &str,
    config: &RedisConfig,
    limit: Duration,
) -> Result<Option<Source>, LockError> {
    let wrong = |what: &str| Err(LockError::config(format!("{what}: {SENTINELS}")));
    let Some(url) = Url::read(url, "sentinel", 26379) else {
        return Ok(None);
    };
    let (name, db) = url.path.split_once('/').unwrap_or((url.path, ""));
    if name.is_empty() {
        return wrong("the URL names no master");
    }
    if url.path.contains('@') {
        return wrong(SLASH);
    }
    if url.lacks_a_host() {
        return wrong("the URL has a sentinel without a host");
    }
    let own = config.sentinel.config(config);
    let is_tls = config.sentinel.speaks_tls(url.scheme == "rediss");
    let scheme = if is_tls { "rediss" } else { "redis" };
    let sentinels = url.hosts.iter().map(|host| {
        let mut target = Target::parse(&format!("{scheme}://{host}"), &own)?;
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
    let first = url.server(&url.hosts[0], db, config)?;
    Ok(Some(Source::sentinels(first, sentinels)))
}

/// The nodes in `redis+cluster://[user:password@]h1:6379,h2:6379`; `None` for any other URL.
pub(super) fn nodes(url: &str, config: &RedisConfig) -> Result<Option<Vec<Target>>, LockError> {
    let wrong = |what: &str| LockError::config(format!("{what}: {NODES}"));
    let Some(url) = Url::read(url, "cluster", 6379) else {
        return Ok(None);
    };
    if url.path.contains('@') {
        return Err(wrong(SLASH));
    }
    if !matches!(url.path, "" | "0") {
        return Err(wrong("a cluster has one database, so the URL has no `/db`"));
    }
    if url.lacks_a_host() {
        return Err(wrong("the URL has a node without a host"));
    }
    let mut nodes: Vec<Target> = Vec::new();
    for host in &url.hosts {
        let (host, port) = host_and_port(host)
            .ok_or_else(|| wrong("the URL has a port that is no number from 1 to 65535"))?;
        nodes.push(match nodes.first() {
            None => {
                let address = ConnectionAddr::Tcp(host.to_owned(), port);
                url.server(&shown(&address), "", config)?
            }
            Some(first) => first.at(host, port)?,
        });
    }
    Ok(Some(nodes))
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
        let config = RedisConfig::default();
        if let Some(master) = master(url, &config, Duration::ZERO)? {
            return Ok(master.address().to_string());
        }
        let Some(nodes) = nodes(url, &config)? else {
            return Ok("another kind".to_owned());
        };
        let nodes: Vec<_> = nodes.iter().map(|node| &*node.address).collect();
        Ok(nodes.join(" "))
    }

    #[test]
    fn the_servers_of_a_url_are_read() {
        let one = "orders (sentinels s:26379)";
        let two = "[::1]:6379 [::2]:7";
        let three = "orders (sentinels a:1, [::1]:26379, [::2]:2)";
        for (url, expected) in [
            ("redis://s:1", "another kind"),
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
        for (url, what, how) in [
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
}
