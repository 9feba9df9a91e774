//! A quorum whose nodes die, stop, forget, and see the time jump.

mod begin;
mod clean_up;
mod clock;
mod contention;
mod fencing;
mod forgets;
mod holes;
mod nodes;
mod one_node;
mod replaced;
mod restart;
mod rig;
mod rights;
mod stopped;
mod undo;
