//! The lock of one manager on one server: its options, its line of waiters, its events, and the programs that it lives in.

mod bad_input;
mod batch;
mod blocking;
mod cancellation;
mod extend;
mod guarded;
mod line;
mod memory_server;
mod observer;
mod opentelemetry;
mod own_thread;
mod plain_thread;
mod races;
mod runtimes;
mod secrecy;
mod tenants;
mod traps;
mod wakers;
