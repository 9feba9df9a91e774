//! The line of those in one process who wait for a lock: one contender on the server, and guards handed on without it.
//!
//! A lock's ttl tells which way it was passed on. Where a test says "without the server" the ttl is
//! [`support::LONG`], so no renewal comes in between.

mod bounds;
mod cancel;
mod cost;
mod crowd;
mod fencing;
mod foreign;
mod lease;
mod loss;
mod support;
mod unpolled;
