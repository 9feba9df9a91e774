//! Where a URL leads: its parts, checked, and what is wrong with it.

use std::sync::Arc;
use std::time::Duration;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    RedisResult,
};
use tokio::time::Instant;

use super::settings::RedisConfig;
#[cfg(feature = "tls-rustls")]
use super::tls::TlsClient;
use crate::base::credentials::{Credentials, Provider};
use crate::base::error::LockError;
use crate::store::redis::error::{advised, refuses_credentials, said};

const PROVIDER: &str = "check what the provider of credentials gives";

/// The options of a URL, for every server and for a Unix socket. A quorum takes its own out before.
const OPTIONS: [&str; 4] = ["protocol", "db", "user", "pass"];
const KNOWN: &str = "the URL has an option that is not known, or one twice: the options are `?protocol=resp2` or `resp3`, `node` for a node of a quorum, and `db`, `user` and `pass` for a Unix socket";

/// A server, and how to speak to it.
pub(in crate::store) struct Target {
    /// Host and port, or the path of the socket.
    pub(in crate::store::redis) address: Arc<str>,
    /// Without TLS, which is beside it.
    pub(in crate::store::redis) info: ConnectionInfo,
    #[cfg(feature = "tls-rustls")]
    pub(in crate::store::redis) tls: Option<TlsClient>,
    /// Provides user and password, in place of those in `info`.
    pub(super) credentials: Option<Provider>,
    /// In front of every name there.
    pub(in crate::store) namespace: Arc<str>,
    /// In front of the key of an exclusive lock, with the namespace.
    pub(in crate::store::redis) prefix: Arc<str>,
    /// Whether the URL permits RESP3. With RESP2 no messages arrive, so waiters poll.
    pub(in crate::store::redis) resp3: bool,
    /// Whether its version is not looked at.
    pub(in crate::store::redis) any_version: bool,
}

impl Target {
    /// The server at a place, which is of the form `[user:password@]host[:port][/db]`, or the path of a socket.
    pub(in crate::store::redis) fn read(
        scheme: &str,
        place: &str,
        options: &[&str],
        is_tls: bool,
        config: &RedisConfig,
    ) -> Result<Self, LockError> {
        if is_tls && cfg!(not(feature = "tls-rustls")) {
            return Err(LockError::config(
                "this build cannot speak TLS: enable the feature `tls-rustls` of lock-core for `rediss://`",
            ));
        }
        let query = options.join("&");
        if is_tls && (place.contains('#') || query.contains('#')) {
            return Err(LockError::config(
                "a URL with TLS has no part after `#`: use `Tls::insecure` with the feature `tls-insecure`, in tests only",
            ));
        }
        // The redis crate refuses `rediss` without a feature of its own, and TLS is ours.
        let info = format!("{scheme}://{place}?{query}").into_connection_info();
        let info = info.map_err(|error| unreadable(&error))?;
        let is_socket = matches!(info.addr(), ConnectionAddr::Unix(_));
        if !are_known(options, &OPTIONS[..if is_socket { 4 } else { 1 }]) {
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
    /// Connects with user and password, also those of the provider. If the server refuses the last ones, as it has `refused` these,
    /// the provider is asked for others. Also returns what the server has accepted.
    pub(in crate::store::redis) async fn logged_in<T, F>(
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
    pub(in crate::store::redis) fn user(&self) -> String {
        if let Some(provider) = &self.credentials {
            return provider.user();
        }
        let user = self.info.redis_settings().username();
        user.unwrap_or("default").to_owned()
    }

    #[cfg(feature = "tls-rustls")]
    pub(in crate::store::redis) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    #[cfg(not(feature = "tls-rustls"))]
    #[expect(clippy::unused_self, reason = "the same with the feature")]
    pub(in crate::store::redis) fn is_tls(&self) -> bool {
        false
    }
}

/// Host and port, or the path of the socket.
pub(in crate::store::redis) fn shown(address: &ConnectionAddr) -> Arc<str> {
    match address {
        ConnectionAddr::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}").into(),
        address => address.to_string().into(),
    }
}

/// Whether the URL has each of these options at most once, and no others. A part of it is not shown: it may be of a password.
fn are_known(options: &[&str], known: &[&str]) -> bool {
    let mut left = known.to_vec();
    let mut options = options.iter().filter(|it| !it.is_empty());
    options.all(|option| {
        let name = option.split(['=', '#']).next();
        let at = left.iter().position(|known| Some(*known) == name);
        at.map(|at| left.swap_remove(at)).is_some()
    })
}

fn unreadable(error: &RedisError) -> LockError {
    // The crate ends its sentence with the name of a kind.
    let said = error.to_string();
    let said = said.split(" - ").next().unwrap_or_default();
    LockError::config(format!(
        "the URL cannot be read ({said}): write `redis://user:password@host:port/db`, with `%2F` and the like for special characters"
    ))
}
