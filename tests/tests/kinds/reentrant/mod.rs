//! The reentrant lock: what it promises and no other lock, and Redisson's `RLock` on the wire.

mod apart;
mod bad_keys;
mod crowd;
mod defects;
mod foreign;
mod lone;
mod once;
mod owners;
mod redisson;
mod redisson_client;
mod shared_owner;
mod shared_refused;
mod soak;
mod states;
mod support;
mod unheard;
mod wakeups;
mod wire;
mod wire_wakeups;
