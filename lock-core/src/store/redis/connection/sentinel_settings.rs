//! The settings for sentinels.

use std::fmt;

use crate::base::credentials::Provider;

#[cfg(feature = "tls-rustls")]
use crate::base::tls::Tls;

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
