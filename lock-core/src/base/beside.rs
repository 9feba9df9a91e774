//! What is announced beside a lock when it changes.

/// Its name, as a key and as a channel, without what follows from the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beside(pub(crate) &'static str);
