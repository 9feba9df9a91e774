//! Where the locks live: how a manager finds its servers, and follows them.

mod acl;
mod cluster;
mod connect;
mod failover;
mod quorum;
mod sentinel;
mod tls;
mod versions;
