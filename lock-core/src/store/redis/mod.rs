//! Locks on Redis or Valkey: on one master, or on the masters of a cluster.

mod cluster;
mod connection;
mod error;
pub(super) mod kinds;
mod reply;
mod route;
mod script;
mod sentinel;
mod server;
mod wire;

#[cfg(feature = "tls-rustls")]
pub(crate) use self::connection::settings::SentinelTls;
pub(crate) use self::connection::settings::{ClusterAddresses, RedisConfig};
pub(super) use self::error::{classify, garbled};
pub(crate) use self::kinds::guarded::ReplyOfUser;
pub(super) use self::kinds::latch::count_down;
pub(super) use self::reply::{extended, forced, inspected, millis, name, text, word};
pub(crate) use self::route::RedisStore;
pub(crate) use self::route::user::UserConnection;
pub(super) use self::script::{Script, script, unless_lost};
pub(super) use self::server::Server;
pub(super) use self::server::examine::unreachable;
pub(super) use self::server::format::differs;
pub(super) use self::server::list::scanned;
pub(super) use self::server::url::Url;
pub(super) use self::wire::{Arg, Name, queue, renewed, waiters};
