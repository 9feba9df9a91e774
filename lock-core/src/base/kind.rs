//! The kinds of locks, and what each of them can do.

use super::beside::Beside;
use super::election::LEADER;

/// A kind of lock. Only a store asks for the kind of a lock: each kind has a file there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One holder, which cannot acquire the lock twice.
    #[default]
    Exclusive,
    /// One owner, which may acquire the lock repeatedly, as Redisson's `RLock`.
    Reentrant,
    /// Holders that have a number of permits each.
    Semaphore,
    /// Readers with one permit each, or a writer with all of them.
    ReadWrite,
    /// An exclusive lock whose holder, the leader, is announced with a value.
    Election,
}

/// A change of a hold of a read-write lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reweigh {
    ToReader,
    ToWriter,
}

/// What a kind of lock can do. Everything above the stores asks for this, never for the kind.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each stands for itself")]
pub(crate) struct Traits {
    /// Its name in metrics.
    pub(crate) name: &'static str,
    /// The server keeps a queue of waiters, and tells a waiter of its grant. Without a queue, each release is announced to all
    /// waiters, and they ask again.
    pub(crate) queues: bool,
    /// The waiters of one process form a line: one acquisition asks for all of them.
    pub(crate) forms_line: bool,
    /// A grant can reserve fencing tokens, with which the lease passes from waiter to waiter of this process without a command.
    pub(crate) hands_over: bool,
    /// One command can release the lock and ask for another acquisition of it.
    pub(crate) passes: bool,
    /// One command can take several locks: all or none.
    pub(crate) taken_together: bool,
    /// All acquisitions of one owner share a lease, in any process.
    pub(crate) has_owners: bool,
    /// A holder that acquires the lock again waits for itself, even if the second share fits beside the first: a waiter between them
    /// waits for the first.
    pub(crate) excludes_itself: bool,
    /// Several holders may share the lock.
    pub(crate) is_shared: bool,
    /// The record that names the holder to others, with a value that it has given. Who wants to be named waits as long as it takes: no
    /// default limits its wait.
    pub(crate) named_in: Option<Beside>,
    /// The votes of a majority of independent masters stand for it.
    pub(crate) over_a_quorum: bool,
    pub(crate) numbers: Numbers,
}

/// What a fencing token belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    Hold,
    /// The holds of all readers between two writers, or the hold of a writer.
    Phase,
    /// A permit: the number only identifies it.
    Permit,
}

/// The traits of a lock that several holders may share: each waiter has its own place in the queue of the server.
const SHARED: Traits = Traits {
    name: "",
    queues: true,
    forms_line: false,
    hands_over: false,
    passes: false,
    taken_together: false,
    has_owners: false,
    excludes_itself: false,
    is_shared: true,
    named_in: None,
    over_a_quorum: false,
    numbers: Numbers::Permit,
};

impl Kind {
    /// Each kind that the stores keep apart. The compiler asks for one more arm with each new kind.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        std::iter::successors(Some(Self::default()), |kind| kind.next())
    }

    /// The kind after this one, in a walk through all of them.
    pub(crate) fn next(self) -> Option<Self> {
        match self {
            Self::Exclusive => Some(Self::Reentrant),
            Self::Reentrant => Some(Self::Semaphore),
            Self::Semaphore => Some(Self::ReadWrite),
            Self::ReadWrite | Self::Election => None,
        }
    }

    /// The kind under which the stores keep it: for other clients an election is an exclusive lock.
    pub(crate) fn stored(self) -> Self {
        match self {
            Self::Election => Self::Exclusive,
            other => other,
        }
    }

    /// The kinds that are this one for other clients.
    pub(crate) fn twins(self) -> impl Iterator<Item = Self> {
        let kinds = Self::all().chain([Self::Election]);
        kinds.filter(move |kind| kind.stored() == self.stored())
    }

    pub(crate) fn traits(self) -> &'static Traits {
        match self {
            Self::Exclusive => &Traits {
                name: "exclusive",
                queues: true,
                forms_line: true,
                hands_over: true,
                passes: true,
                taken_together: true,
                has_owners: false,
                excludes_itself: true,
                is_shared: false,
                named_in: None,
                over_a_quorum: true,
                numbers: Numbers::Hold,
            },
            Self::Reentrant => &Traits {
                name: "reentrant",
                queues: false,
                forms_line: true,
                hands_over: false,
                passes: false,
                taken_together: false,
                has_owners: true,
                excludes_itself: true,
                is_shared: false,
                named_in: None,
                over_a_quorum: false,
                numbers: Numbers::Hold,
            },
            Self::Semaphore => &Traits {
                name: "semaphore",
                ..SHARED
            },
            Self::ReadWrite => &Traits {
                name: "read-write",
                excludes_itself: true,
                numbers: Numbers::Phase,
                ..SHARED
            },
            // Each candidate has its own place in the queue of the server: a hand-over inside the process would hide a term.
            Self::Election => &Traits {
                name: "election",
                excludes_itself: true,
                is_shared: false,
                named_in: Some(LEADER),
                over_a_quorum: true,
                numbers: Numbers::Hold,
                ..SHARED
            },
        }
    }

    /// The kind with this name, which is also its word on the wire.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.traits().name == name)
    }
}
