//! Several servers: the hosts in one URL, and a server that is spoken to as another one.

use std::sync::Arc;

use redis::ConnectionAddr;

use super::settings::RedisConfig;
use super::target::{Target, shown};
use super::url::Url;
use crate::base::error::LockError;

pub(in crate::store::redis) const SLASH: &str = "a `/` in the password is written `%2F`";

/// The parts of a place with several hosts: `[login@]hosts[/path]`.
pub(in crate::store::redis) struct HostList<'a> {
    /// Ends with its `@`.
    pub(in crate::store::redis) login: &'a str,
    /// Each with its port.
    pub(in crate::store::redis) hosts: Vec<String>,
    pub(in crate::store::redis) path: &'a str,
}

impl<'a> Url<'a> {
    /// The place with several hosts. A host without a port gets this one.
    pub(in crate::store::redis) fn hosts(&self, port: u16) -> HostList<'a> {
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
    pub(in crate::store::redis) fn server(
        &self,
        login: &str,
        host: &str,
        db: &str,
        config: &RedisConfig,
    ) -> Result<Target, LockError> {
        let place = format!("{login}{host}/{db}");
        Target::read("redis", &place, &self.options, self.is_tls, config)
    }
}

impl HostList<'_> {
    pub(in crate::store::redis) fn lacks_a_host(&self) -> bool {
        self.hosts.iter().any(|host| host.starts_with(':'))
    }
}

impl Target {
    /// Another server, spoken to in the same way.
    #[cfg_attr(
        not(feature = "tls-rustls"),
        expect(clippy::unnecessary_wraps, reason = "the same with the feature")
    )]
    pub(in crate::store::redis) fn at(&self, host: &str, port: u16) -> Result<Self, LockError> {
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
}
