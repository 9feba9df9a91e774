//! The line of those in this process who wait for a lock, and handing it over among them.
//!
//! The idea is that of lock cohorting (Dice, Marathe, Shavit: "Lock Cohorting: A General Technique for Designing NUMA
//! Locks", 2012): one of us stands in the global queue for all, and passes the lock on locally a bounded number of times.

mod acquire;
mod alone;
mod line;
mod patience;
mod state;
#[cfg(test)]
mod tests;
mod trouble;
mod way;

pub(crate) use self::acquire::acquire;
pub(crate) use self::line::Line;
pub(crate) use self::patience::Limit;
pub(crate) use self::state::{Limits, LineCheck};
pub(crate) use self::way::{PAUSE, Way};
