//! The kinds of locks, and what each of them can do.

/// A kind of lock. Only a store asks which one it is: each kind has a file there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One holder, which cannot acquire it twice.
    #[default]
    Exclusive,
    /// One owner, which may acquire it repeatedly, as Redisson's `RLock`.
    Reentrant,
}

/// What a kind of lock can do. Everything above the stores asks for this, never for the kind.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each stands for itself")]
pub(crate) struct Traits {
    /// Its name in metrics.
    pub(crate) name: &'static str,
    /// The server keeps a queue of waiters, and tells the one that it grants the lock to. Without a queue, each release is
    /// announced to all waiters, who ask again.
    pub(crate) queues: bool,
    /// The waiters of one process form a line: one acquisition asks for all of them.
    pub(crate) forms_line: bool,
    /// A grant can reserve fencing tokens, with which the lease passes from waiter to waiter of this process without a command.
    pub(crate) hands_over: bool,
    /// One command can release the lock and ask for another acquisition of it.
    pub(crate) passes: bool,
    /// All acquisitions of one owner share a lease, in any process.
    pub(crate) has_owners: bool,
}

impl Kind {
    /// Each kind. The compiler asks for one more arm with each new kind.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        std::iter::successors(Some(Self::default()), |kind| kind.next())
    }

    /// The kind after this one, in a walk through all of them.
    pub(crate) fn next(self) -> Option<Self> {
        match self {
            Self::Exclusive => Some(Self::Reentrant),
            Self::Reentrant => None,
        }
    }

    pub(crate) fn traits(self) -> &'static Traits {
        match self {
            Self::Exclusive => &Traits {
                name: "exclusive",
                queues: true,
                forms_line: true,
                hands_over: true,
                passes: true,
                has_owners: false,
            },
            Self::Reentrant => &Traits {
                name: "reentrant",
                queues: false,
                forms_line: true,
                hands_over: false,
                passes: false,
                has_owners: true,
            },
        }
    }
}
