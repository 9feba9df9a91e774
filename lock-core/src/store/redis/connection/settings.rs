//! The settings for servers of Redis or Valkey.

use std::sync::Arc;

#[cfg(feature = "cluster")]
use super::cluster_settings::ClusterAddresses;
#[cfg(feature = "sentinel")]
use super::sentinel_settings::SentinelConfig;
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
    #[cfg(feature = "sentinel")]
    pub(crate) sentinel: SentinelConfig,
    #[cfg(feature = "cluster")]
    pub(crate) cluster_addresses: Option<ClusterAddresses>,
    pub(crate) credentials: Option<Provider>,
}
