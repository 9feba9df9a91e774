//! The reentrant lock on real servers: Redisson's `RLock` on the wire, and the promises of every lock.

mod acl;
mod apart;
mod bad_keys;
mod contract;
mod contract_states;
mod crowd;
mod defects;
mod foreign;
mod lone;
mod once;
mod redisson;
mod redisson_client;
mod redisson_more;
mod shared_owner;
mod shared_refused;
mod soak;
mod support;
mod unheard;
mod wakeups;
mod wire;
mod wire_wakeups;
