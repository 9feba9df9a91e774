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

/// What becomes of the counter of fencing tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// It is deleted, or evicted.
    Gone,
    /// A value of another type is in its place.
    List,
    /// It is this text, which is none of its numbers.
    Text(&'static str),
}

impl Fault {
    /// How old the data are, in milliseconds, that take the place of those that are there.
    #[must_use]
    pub fn goes_back(&self) -> Option<u64> {
        match self {
            Self::RestartOlder(back) | Self::Promote { behind: back, .. } | Self::Older(back) => {
                Some(*back)
            }
            _ => None,
        }
    }
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
    /// The server ends, and is started again with an older copy of its data. The number is the age of the copy, ms.
    RestartOlder(u64),
    /// A replica that has the data of some time before becomes the master.
    Promote {
        /// How many milliseconds its data are behind.
        behind: u64,
        /// By how many microseconds its clock is another one.
        skew: i64,
        /// Whether the connections to the server before break; else they stay with it, and it is a replica.
        breaks: bool,
    },
    /// An older copy replaces the data, and the connections stay. The number is the age of the copy, ms.
    Older(u64),
    /// Something happens to the counter of fencing tokens alone.
    Counter(Counter),
    /// A foreign client takes the lock where it is free, for as long as it lasts.
    ForeignTake(usize),
    /// A foreign client deletes the lock.
    ForeignDelete(usize),
    /// A foreign client leaves so many milliseconds of the lease.
    ForeignShorten(usize, u64),
    /// A foreign client writes something else where the holds of a reentrant lock are kept.
    ForeignHolds(usize),
}
