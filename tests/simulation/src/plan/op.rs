//! One operation of a task: an acquisition, what is done under it, and how it ends.

use std::fmt;

/// From asking for a lock to letting go of it. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct Op {
    /// A pause before it.
    pub before: u64,
    /// Which lock.
    pub key: usize,
    /// What kind of lock.
    pub kind: Kind,
    /// How it is asked for.
    pub call: Call,
    /// How its future is polled.
    pub attention: Attention,
    /// Of the lease.
    pub ttl: u64,
    /// Whether the lease is renewed.
    pub renew: bool,
    /// The limit of a hold; 0 for none.
    pub max_hold: u64,
    /// How long it is kept at the least.
    pub at_least: u64,
    /// How long the guard is kept.
    pub hold: u64,
    /// Guarded scripts that are called meanwhile; every second one is given up under way.
    pub guarded: u8,
    /// Whether the lock is looked at meanwhile.
    pub inspects: bool,
    /// How the guard ends.
    pub end: End,
}

/// What kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An exclusive lock.
    Exclusive,
    /// A reentrant lock of a new owner, entered so many times more under the first hold.
    Reentrant(u8),
    /// A lock in so many segments.
    Segmented(usize),
    /// A semaphore.
    Semaphore {
        /// How many permits are asked for.
        permits: u32,
        /// How many there are.
        max: u32,
    },
    /// A read-write lock, by a reader.
    Read {
        /// Whether it tries to become the writer.
        upgrades: bool,
    },
    /// A read-write lock, by a writer.
    Write {
        /// Whether it becomes a reader.
        downgrades: bool,
    },
    /// An election, by a candidate; by a lock with the same key where the call is none of an election.
    Candidate {
        /// Whether a check has it step down once, where it campaigns by `run`.
        steps_down: bool,
    },
    /// An election, by one who observes it.
    Observer,
    /// These exclusive locks at once, in this order. One of them may be named twice.
    All([usize; 3]),
}

impl Kind {
    /// Whether several may hold it.
    #[must_use]
    pub fn is_shared(self) -> bool {
        self.share().is_some()
    }

    /// The permits that it asks for, and how many there are, where several may hold it.
    #[must_use]
    pub fn share(self) -> Option<(u32, u32)> {
        match self {
            Self::Semaphore { permits, max } => Some((permits, max)),
            Self::Read { .. } => Some((1, WRITER)),
            Self::Write { .. } => Some((WRITER, WRITER)),
            Self::Exclusive
            | Self::Reentrant(_)
            | Self::Segmented(_)
            | Self::Candidate { .. }
            | Self::Observer
            | Self::All(_) => None,
        }
    }
}

/// The permits of a read-write lock, all of which its writer has.
pub const WRITER: u32 = 1 << 30;

/// How a lock is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Without waiting.
    Try,
    /// With a limit.
    Within(u64),
    /// Without a limit.
    Forever,
    /// By `with`, which lets go by itself.
    With,
    /// Not at all: it is taken from its holder.
    Force,
}

/// How a future is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// Whenever it wants to be.
    Full,
    /// It is dropped instead of this poll.
    Drop(u32),
    /// It is not polled for so long after this poll.
    Sleep(u32, u64),
    /// The same, and then it is dropped without another poll.
    SleepThenDrop(u32, u64),
}

/// How a guard ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By drop.
    Drop,
    /// By a release that is waited for.
    Release,
    /// By a release whose future is dropped after so many polls.
    GiveUp(u32),
    /// By a panic.
    Panic,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            kind,
            call,
            ttl,
            hold,
            end,
            ..
        } = self;
        write!(f, "{call:?} k{key} {kind:?} ttl {ttl}")?;
        if !self.renew {
            write!(f, " fixed")?;
        }
        if self.max_hold > 0 {
            write!(f, " max_hold {}", self.max_hold)?;
        }
        if self.at_least > 0 {
            write!(f, " at_least {}", self.at_least)?;
        }
        if self.attention != Attention::Full {
            write!(f, " {:?}", self.attention)?;
        }
        if self.guarded > 0 {
            write!(f, " guarded {}", self.guarded)?;
        }
        write!(f, ", held {hold}, {end:?}")
    }
}
