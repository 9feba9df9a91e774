//! What goes wrong in a run.

use crate::network::{Cut, Way};

/// A fault at its time.
#[derive(Debug, Clone)]
pub struct Incident {
    /// When it begins, in milliseconds.
    pub at: u64,
    /// How long it lasts, where it lasts.
    pub lasts: u64,
    /// What it is.
    pub fault: Fault,
}

/// A fault. A process is named by its number.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Its connections break.
    Reset(usize),
    /// Its connections break, and new ones are refused while it lasts.
    Outage(usize),
    /// A connection of it breaks at a point of the next request.
    Cut(usize, Cut),
    /// Its bytes are held back.
    Stall(usize, Way),
    /// Its connections stay silent for ever; new ones work.
    HalfOpen(usize),
    /// Its connects take as long as it lasts.
    SlowConnects(usize),
    /// Its tasks are not polled.
    Pause(usize),
    /// It ends without a word. After a while it is started again.
    Crash(usize, bool),
    /// The runtime of its manager ends.
    EndRuntime(usize),
    /// Its manager is shut down.
    ShutDown(usize),
    /// The server answers nothing.
    Stop,
    /// The server ends, and is started again with its data or without.
    Restart(bool),
    /// The server of the connections that are there becomes a replica; new connections reach the new master.
    Demote,
    /// The address leads to a replica that lags, also for the processes that are connected.
    Lag,
    /// The users lose the right to the key of a lock.
    DenyKey(usize),
    /// The server has no memory left.
    OutOfMemory,
    /// The users lose the right to a command.
    Deny(&'static str),
    /// The users lose the right to channels.
    NoChannels,
    /// The server forgets the scripts.
    FlushScripts,
    /// The server forgets all.
    FlushAll,
    /// A foreign client takes the lock where it is free, for as long as it lasts.
    ForeignTake(usize),
    /// A foreign client deletes the lock.
    ForeignDelete(usize),
    /// A foreign client leaves so many milliseconds of the lease.
    ForeignShorten(usize, u64),
    /// A foreign client writes something else where the holds of a reentrant lock are kept.
    ForeignHolds(usize),
}
