//! A small Redis-compatible master without I/O, for simulations.
//!
//! It has no socket, no clock and no chance of its own: bytes and the time are arguments, and equal calls have equal results.
//! The scripts are run by the real interpreter, Lua 5.1. What it answers is what Redis 7.0 answers, byte for byte, for the
//! commands that it knows; `tests/agrees.rs` compares the two.
//!
//! - [`Master`]: the server. Bytes of connections go in, and what it writes comes out.
//! - [`Faults`]: a server that answers, and has something wrong with it.
//! - `keyspace`, `strings`, `lists`, `hashes`, `keys`: the data and their commands.
//! - `scripts`, `sandbox`, `convert`: the interpreter, what it can reach, and the way of values in and out.
//! - `state`, `admin`, `pubsub`, `connections`: who may do what, and who hears what.

mod admin;
mod commands;
mod connections;
mod convert;
mod faults;
mod hashes;
mod keys;
mod keyspace;
mod lists;
mod master;
mod number;
mod pubsub;
mod reply;
mod resp;
mod sandbox;
mod scripts;
mod state;
mod strings;

pub use faults::Faults;
pub use keyspace::Data;
pub use master::{Master, Observer, Output, Ttl};
pub use reply::{Protocol, Reply};

/// A connection, named by the caller.
pub type ConnectionId = u64;
