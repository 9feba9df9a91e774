//! What only some kinds of lock are asked for.

mod election;
mod latch;
mod permits;
