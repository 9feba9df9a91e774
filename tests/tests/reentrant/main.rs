//! The reentrant lock on real servers: Redisson's `RLock` on the wire, and the promises of every lock.

mod redisson_client;
mod support;
mod wire;
mod wire_wakeups;
mod redisson;
mod crowd;
mod defects;
mod once;
mod soak;
mod wakeups;
