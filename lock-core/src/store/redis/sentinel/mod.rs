//! The sentinels of a master: what each says, what they say together, and where the master is.

mod board;
pub(super) mod followed;
mod named;
mod settings;
mod urls;
mod watch;
