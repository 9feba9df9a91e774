//! Where a URL leads: its parts, checked, and what is wrong with it.

use std::sync::Arc;
use std::time::Duration;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    RedisResult,
};
use tokio::time::Instant;

use super::error::{advised, refuses_credentials, said};
use super::settings::RedisConfig;
#[cfg(feature = "tls-rustls")]
use super::tls::TlsClient;
use crate::base::credentials::{Credentials, Provider};
use crate::base::error::LockError;

const PROVIDER: &str = "check what the provider of credentials gives";

const SCHEMES: &str = "`redis://host:port`, `rediss://host:port` (TLS), `redis+unix:///path`, `redis+sentinel://s1,s2,s3/name`, `redis+cluster://h1,h2`, `redis+quorum://a,b,c` or `memory://`";

/// The options of a URL, for every server and for a Unix socket. A quorum takes its own out before.
const OPTIONS: [&str; 4] = ["protocol", "db", "user", "pass"];
const KNOWN: &str = "the URL has an option that is not known, or one twice: the options are `?protocol=resp2` or `resp3`, `node` for a node of a quorum, and `db`, `user` and `pass` for a Unix socket";

/// A server, and how to speak to it.
pub(in crate::store) struct Target {
    /// Host and port, or the path of the socket.
    pub(super) address: Arc<str>,
    /// Without TLS, which is beside it.
    pub(super) info: ConnectionInfo,
    #[cfg(feature = "tls-rustls")]
    pub(super) tls: Option<TlsClient>,
    /// Provides user and password, in place of those in `info`.
    credentials: Option<Provider>,
    /// In front of every name there.
    pub(in crate::store) namespace: Arc<str>,
    /// In front of the key of an exclusive lock, with the namespace.
    pub(super) prefix: Arc<str>,
    /// Whether the URL permits RESP3. With RESP2 no messages arrive, so waiters poll.
    pub(super) resp3: bool,
    /// Whether its version is not looked at.
    pub(super) any_version: bool,
}

impl Target {
    pub(in crate::store) fn parse(url: &str, config: &RedisConfig) -> Result<Self, LockError> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| wrong("the URL has no scheme"))?;
        let is_tls = matches!(scheme, "rediss" | "valkeys");
        let plain = match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" => "redis",
            "unix" | "redis+unix" | "valkey+unix" => "redis+unix",
            _ => return Err(unknown(scheme)),
        };
        if plain == "redis" && names_several(rest) {
            return Err(wrong(
                "the URL names several servers: a cluster is `redis+cluster://`, a quorum `redis+quorum://`, and sentinels are `redis+sentinel://`",
            ));
        }
        if is_tls && cfg!(not(feature = "tls-rustls")) {
            return Err(LockError::config(
                "this build cannot speak TLS: enable the feature `tls-rustls` of lock-core for `rediss://`",
            ));
        }
        if is_tls && rest.contains('#') {
            return Err(LockError::config(
                "a URL with TLS has no part after `#`: use `Tls::insecure` with the feature `tls-insecure`, in tests only",
            ));
        }
        Self::read(plain, rest, is_tls, config)
    }

    /// The parts of a URL that leads to one server.
    #[cfg_attr(
        not(feature = "tls-rustls"),
        expect(unused_variables, reason = "the same with the feature")
    )]
    fn read(
        plain: &str,
        rest: &str,
        is_tls: bool,
        config: &RedisConfig,
    ) -> Result<Self, LockError> {
        // The redis crate refuses `rediss` without a feature of its own, and TLS is ours.
        let info = format!("{plain}://{rest}").into_connection_info();
        let info = info.map_err(|error| unreadable(&error))?;
        let is_socket = matches!(info.addr(), ConnectionAddr::Unix(_));
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        if !are_known(query, &OPTIONS[..if is_socket { 4 } else { 1 }]) {
            return Err(LockError::config(KNOWN));
        }
        // Without TCP_NODELAY a single command can wait for the acknowledgement of the previous one.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_tcp_settings(tcp);
        #[cfg(feature = "tls-rustls")]
        let tls = match info.addr() {
            ConnectionAddr::Tcp(host, _) if is_tls => {
                Some(TlsClient::new(config.tls.as_ref(), host)?)
            }
            _ if config.tls.is_some() => {
                return Err(LockError::config(
                    "there are settings for TLS and the URL is without TLS: write `rediss://`",
                ));
            }
            _ => None,
        };
        let settings = info.redis_settings();
        let resp3 = settings.protocol().supports_resp3() || !query.contains("protocol=");
        let is_given = settings.username().is_some() || settings.password().is_some();
        if config.credentials.is_some() && is_given {
            return Err(LockError::config(
                "there is a provider of credentials and the URL has a user or a password: leave them out of the URL",
            ));
        }
        Ok(Self {
            address: shown(info.addr()),
            info,
            credentials: config.credentials.clone(),
            namespace: Arc::clone(&config.namespace),
            prefix: Arc::clone(&config.prefix),
            #[cfg(feature = "tls-rustls")]
            tls,
            resp3,
            any_version: config.any_version,
        })
    }
}

impl Target {
    /// Another server, spoken to in the same way.
    #[cfg_attr(
        not(feature = "tls-rustls"),
        expect(clippy::unnecessary_wraps, reason = "the same with the feature")
    )]
    pub(super) fn at(&self, host: &str, port: u16) -> Result<Self, LockError> {
        let address = ConnectionAddr::Tcp(host.to_owned(), port);
        Ok(Self {
            address: shown(&address),
            #[cfg(feature = "tls-rustls")]
            tls: match &self.tls {
                Some(tls) => Some(tls.to(host)?),
                None => None,
            },
            info: self.info.clone().set_addr(address),
            credentials: self.credentials.clone(),
            namespace: Arc::clone(&self.namespace),
            prefix: Arc::clone(&self.prefix),
            resp3: self.resp3,
            any_version: self.any_version,
        })
    }

    /// Connects with user and password, also those of the provider. If the server refuses the last ones, as it has `refused` these,
    /// the provider is asked for others. Also returns what the server has accepted.
    pub(super) async fn logged_in<T, F>(
        &self,
        limit: Duration,
        mut refused: Option<Arc<Credentials>>,
        connect: impl Fn(RedisConnectionInfo) -> F,
    ) -> RedisResult<(T, Option<Arc<Credentials>>)>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let settings = self.info.redis_settings();
        let Some(provider) = &self.credentials else {
            return Ok((connect(settings.clone()).await?, None));
        };
        let begun = Instant::now();
        loop {
            // The caller, which waits as long as for a connection, is to hear of it.
            let given = provider.credentials(limit.mul_f64(0.9), refused.as_ref());
            let given = given.await.map_err(|why| advised(why, PROVIDER))?;
            let settings = settings.clone().set_username(&given.user);
            let made = connect(settings.set_password(&given.password)).await;
            match made {
                // The provider may have others by now.
                Err(error) if refuses_credentials(&error) && given.at < begun => {
                    refused = Some(given);
                }
                Err(error) if refuses_credentials(&error) => {
                    let why = said(&error);
                    return Err(advised(
                        format!("it refuses the credentials of the provider ({why})"),
                        PROVIDER,
                    ));
                }
                made => {
                    let made = made?;
                    provider.was_right();
                    return Ok((made, Some(given)));
                }
            }
        }
    }

    /// The user of the last connection.
    pub(super) fn user(&self) -> String {
        if let Some(provider) = &self.credentials {
            return provider.user();
        }
        let user = self.info.redis_settings().username();
        user.unwrap_or("default").to_owned()
    }

    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) => host,
            _ => "",
        }
    }

    #[cfg(feature = "tls-rustls")]
    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    #[cfg(not(feature = "tls-rustls"))]
    #[expect(clippy::unused_self, reason = "the same with the feature")]
    pub(super) fn is_tls(&self) -> bool {
        false
    }
}

/// Host and port, or the path of the socket.
pub(super) fn shown(address: &ConnectionAddr) -> Arc<str> {
    match address {
        ConnectionAddr::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}").into(),
        address => address.to_string().into(),
    }
}

/// Whether the URL has each of these options at most once, and no others. A part of it is not shown: it may be of a password.
fn are_known(query: &str, options: &[&str]) -> bool {
    let mut left = options.to_vec();
    query.split('&').filter(|it| !it.is_empty()).all(|option| {
        let name = option.split(['=', '#']).next();
        let at = left.iter().position(|known| Some(*known) == name);
        at.map(|at| left.swap_remove(at)).is_some()
    })
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

fn unreadable(error: &RedisError) -> LockError {
    // The crate ends its sentence with the name of a kind.
    let said = error.to_string();
    let said = said.split(" - ").next().unwrap_or_default();
    LockError::config(format!(
        "the URL cannot be read ({said}): write `redis://user:password@host:port/db`, with `%2F` and the like for special characters"
    ))
}

fn wrong(what: &str) -> LockError {
    LockError::config(format!("{what}: write {SCHEMES}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(url: &str) -> String {
        match Target::parse(url, &RedisConfig::default()) {
            Err(error) => error.to_string(),
            Ok(target) => format!("leads to {}", target.address),
        }
    }

    #[test]
    fn each_mistake_in_a_url_has_its_sentence() {
        let several = "the URL names several servers: a cluster is `redis+cluster://`, a quorum `redis+quorum://`, and sentinels are \
                       `redis+sentinel://`";
        let sentinel = "`sentinel://` is not the scheme of a lock server";
        for (url, what) in [
            ("localhost:6379", "the URL has no scheme"),
            ("http://h", "`http://` is not the scheme of a lock server"),
            ("s3cret://h", "the URL has an unknown scheme"),
            ("redis://a,b", several),
            ("sentinel://s/mymaster", sentinel),
        ] {
            let expected = format!("lock configuration: {what}: write {SCHEMES}");
            assert_eq!(said(url), expected, "{url}");
        }
        for (url, expected) in [
            ("redis://h", "leads to h:6379"),
            ("valkey://h:1", "leads to h:1"),
            ("redis://[::1]:7", "leads to [::1]:7"),
            ("redis://user:a%2Cb@h:1/2", "leads to h:1"),
            ("redis://:a,b@h:1/2", "leads to h:1"),
            (
                "redis://h/x",
                "lock configuration: the URL cannot be read (Invalid database number): write \
                 `redis://user:password@host:port/db`, with `%2F` and the like for special characters",
            ),
        ] {
            assert_eq!(said(url), expected, "{url}");
        }
    }

    #[test]
    #[cfg(not(feature = "tls-rustls"))]
    fn tls_without_its_feature_names_the_feature() {
        assert_eq!(
            said("rediss://h"),
            "lock configuration: this build cannot speak TLS: enable the feature `tls-rustls` of lock-core for `rediss://`"
        );
    }
}
