//! The settings for servers of Redis or Valkey.

use std::fmt;
use std::sync::Arc;

use crate::base::credentials::Provider;

#[cfg(feature = "tls-rustls")]
use crate::base::tls::Tls;

#[derive(Debug, Clone, Default)]
pub(crate) struct RedisConfig {
    /// In front of every name on a server.
    pub(crate) namespace: Arc<str>,
    /// In front of the key of an exclusive lock, with the namespace.
    pub(crate) prefix: Arc<str>,
    /// Whether the version of a server is not looked at.
    pub(crate) any_version: bool,
    #[cfg(feature = "tls-rustls")]
    pub(crate) tls: Option<Tls>,
    pub(crate) sentinel: SentinelConfig,
    pub(crate) cluster_addresses: Option<ClusterAddresses>,
    pub(crate) credentials: Option<Provider>,
}

/// Where the nodes of a cluster are for this client, by the host and port that the cluster names.
#[derive(Clone)]
pub(crate) struct ClusterAddresses(pub(crate) Arc<AddressOf>);

type AddressOf = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl ClusterAddresses {
    pub(crate) fn of(&self, host: &str, port: u16) -> (String, u16) {
        (self.0)(host, port)
    }
}

impl fmt::Debug for ClusterAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAddresses").finish_non_exhaustive()
    }
}

/// The settings for sentinels, if they differ from the settings for servers.
#[derive(Clone, Default)]
pub(crate) struct SentinelConfig {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) credentials: Option<Provider>,
    #[cfg(feature = "tls-rustls")]
    pub(crate) tls: SentinelTls,
}

/// TLS to sentinels.
#[cfg(feature = "tls-rustls")]
#[derive(Clone, Default)]
pub(crate) enum SentinelTls {
    #[default]
    AsServers,
    Without,
    With(Tls),
}

// The password is a secret.
impl fmt::Debug for SentinelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelConfig").finish_non_exhaustive()
    }
}

#[cfg(feature = "tls-rustls")]
impl SentinelConfig {
    /// Whether to use TLS with sentinels, given whether the servers use it.
    pub(crate) fn speaks_tls(&self, servers: bool) -> bool {
        match self.tls {
            SentinelTls::AsServers => servers,
            SentinelTls::Without => false,
            SentinelTls::With(_) => true,
        }
    }

    /// The settings for a sentinel.
    pub(crate) fn config(&self, servers: &RedisConfig) -> RedisConfig {
        let tls = match &self.tls {
            SentinelTls::AsServers => servers.tls.clone(),
            SentinelTls::Without => None,
            SentinelTls::With(tls) => Some(tls.clone()),
        };
        RedisConfig {
            tls,
            credentials: self.credentials.clone(),
            ..servers.clone()
        }
    }
}

#[cfg(not(feature = "tls-rustls"))]
impl SentinelConfig {
    #[expect(clippy::unused_self, reason = "the same with the feature")]
    pub(crate) fn speaks_tls(&self, servers: bool) -> bool {
        servers
    }

    pub(crate) fn config(&self, servers: &RedisConfig) -> RedisConfig {
        RedisConfig {
            credentials: self.credentials.clone(),
            ..servers.clone()
        }
    }
}
