//! The sentinels of a master: what each says, what they say together, and where the master is.

pub(super) mod board;
pub(super) mod named;
pub(super) mod source;
mod watch;
