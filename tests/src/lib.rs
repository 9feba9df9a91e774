//! Harness of the integration tests: real servers, a proxy that misbehaves on
//! command, helper processes, and clocks that two processes can compare.
//!
//! Nothing here knows the library under test: it speaks to servers and
//! processes only, so a mistake in the library cannot hide in its own tests.
//!
//! Which part do you need?
//!
//! - [`TestServer`]: a real server of your own, which can be paused, killed
//!   and started again.
//! - [`ShiftedClock`]: the wall clock of such a server, which jumps on command.
//! - [`TestCluster`]: a cluster, whose slots move and whose masters fail.
//! - [`AclServer`]: one with a user who may do some things only.
//! - [`servers`]: every server the contract suite has to run on.
//! - [`Proxy`]: a network between client and server that loses, delays and
//!   holds messages.
//! - [`scripts::scripts`]: the library's scripts, by which requests are told apart.
//! - [`Child`]: another process, driven line by line.
//! - [`Capture`]: what is said through `tracing`.
//! - [`History`]: who held a lock when, and whether that was right.
//! - [`eventually`] and [`in_time`]: what comes soon, without a fixed sleep.
//! - [`kit`]: a warm server, a command in words, what is left on a server.

pub mod acl;
mod admin;
#[cfg(doctest)]
mod attribute;
pub mod binary;
pub mod capture;
pub mod clock;
pub mod cluster;
pub mod history;
pub mod kit;
mod port;
pub mod process;
pub mod proxy;
pub mod resp;
pub mod scripts;
pub mod sentinel;
pub mod server;
pub mod shifted;
mod supervise;
pub mod tls;
mod wait;

pub use acl::{AclServer, Rights, rights};
pub use binary::{ServerBinary, servers};
pub use capture::{Capture, Said};
pub use clock::{boottime_now, monotonic_now};
pub use cluster::{BusPort, ClusterNode, TestCluster};
pub use history::{History, Hold, Violation};
pub use process::Child;
pub use proxy::{DropMode, Dropped, Held, Proxy, Request};
pub use sentinel::{Sentinel, Watched};
pub use server::{TestServer, TestServerBuilder, connect};
pub use shifted::ShiftedClock;
pub use tls::{Authority, Identity, TlsServer};
pub use wait::{LIMIT, eventually, in_time};
