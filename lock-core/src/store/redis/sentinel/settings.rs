//! The settings for sentinels, made of those for servers.

use crate::store::redis::connection::sentinel_settings::SentinelConfig;
#[cfg(feature = "tls-rustls")]
use crate::store::redis::connection::sentinel_settings::SentinelTls;
use crate::store::redis::connection::settings::RedisConfig;

#[cfg(feature = "tls-rustls")]
impl SentinelConfig {
    /// Whether to use TLS with sentinels, given whether the servers use it.
    pub(super) fn speaks_tls(&self, servers: bool) -> bool {
        match self.tls {
            SentinelTls::AsServers => servers,
            SentinelTls::Without => false,
            SentinelTls::With(_) => true,
        }
    }

    /// The settings for a sentinel.
    pub(super) fn config(&self, servers: &RedisConfig) -> RedisConfig {
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
    pub(super) fn speaks_tls(&self, servers: bool) -> bool {
        servers
    }

    pub(super) fn config(&self, servers: &RedisConfig) -> RedisConfig {
        RedisConfig {
            credentials: self.credentials.clone(),
            ..servers.clone()
        }
    }
}
