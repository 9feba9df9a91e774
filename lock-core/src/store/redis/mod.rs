//! Locks on Redis or Valkey: on one master, or on the masters of a cluster.

#[cfg(feature = "cluster")]
mod cluster;
#[cfg(not(feature = "cluster"))]
#[path = "cluster/absent.rs"]
mod cluster;
mod connection;
mod error;
pub(super) mod kinds;
mod reply;
mod route;
mod script;
#[cfg(feature = "sentinel")]
mod sentinel;
#[cfg(not(feature = "sentinel"))]
#[path = "sentinel/absent.rs"]
mod sentinel;
mod server;
mod wire;

#[cfg(feature = "cluster")]
pub(crate) use self::connection::cluster_settings::ClusterAddresses;
#[cfg(all(feature = "sentinel", feature = "tls-rustls"))]
pub(crate) use self::connection::sentinel_settings::SentinelTls;
pub(crate) use self::connection::settings::RedisConfig;
pub(crate) use self::connection::url::node_urls;
pub(crate) use self::kinds::guarded::ReplyOfUser;
pub(super) use self::kinds::latch::count_down;
pub(crate) use self::route::RedisStore;
pub(crate) use self::route::user::UserConnection;
pub(super) use self::script::{Script, script};
#[cfg(feature = "quorum")]
pub(super) use self::{
    connection::Connection,
    connection::url::Url,
    error::{classify, garbled},
    reply::{extended, forced, inspected, millis, name, text, word},
    script::unless_lost,
    server::Server,
    server::examine::unreachable,
    server::format::differs,
    server::list::scanned,
    wire::{Arg, Name, queue, renewed, waiters},
};
