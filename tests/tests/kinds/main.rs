//! What each kind of lock promises beyond the contract of all: permits, several at once, elections and latches, reentrant locks, and
//! segments.

mod elections;
mod permits;
mod reentrant;
mod rig;
mod segmented;
mod several;
