//! Locks behind Sentinel: the client follows the master, and says what became of each lock.

mod events;
mod fake;
mod hello;
mod mistakes;
mod survivors;
mod tls;
