//! The settings for a cluster.

use std::fmt;
use std::sync::Arc;

/// Host and port of a node, as its cluster names it.
pub(in crate::store::redis) type Address = (Box<str>, u16);

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
