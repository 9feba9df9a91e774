//! What a store is asked.

use std::sync::Arc;
use std::time::Duration;

use crate::base::claim::Claim;
use crate::base::key::LockKey;
use crate::base::kind::Kind;
use crate::base::token::Token;

/// Whether an attempt that finds the lock held joins the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Try,
    Wait,
}

/// One attempt to acquire a lock, or to keep a place in its queue.
///
/// No `Debug`: tokens and owners are secrets.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) key: &'a Arc<LockKey>,
    pub(crate) token: &'a Token,
    pub(crate) ttl: Duration,
    pub(crate) mode: Mode,
    /// How long a waiter counts as alive after this call.
    pub(crate) alive_for: Duration,
    pub(crate) claim: &'a Claim,
    /// The number of reserved tokens to request, besides the first fencing token.
    pub(crate) reserve: u64,
}

/// A lease to renew. No `Debug`, as for an [`Attempt`].
#[derive(Clone, Copy)]
pub(crate) struct Renewal<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) token: &'a Token,
    /// Zero if the lease is only confirmed: its end stays as it is.
    pub(crate) ttl: Duration,
    /// The number of the hold, 0 if it does not matter. A hold of permits is lost if the server has an older one: it has lost an upgrade.
    pub(crate) fence: u64,
    /// Whether the lease may end earlier than before. Else a renewal that comes late changes nothing.
    pub(crate) shortens: bool,
    pub(crate) claim: &'a Claim,
}

/// A place in the walk through all locks, kind after kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    pub(crate) kind: Kind,
    #[cfg(any(feature = "cluster", feature = "quorum"))]
    pub(crate) node: usize,
    pub(crate) on_node: u64,
    /// The number of the walk, and what it started from, where locks can move from node to node.
    #[cfg(feature = "cluster")]
    pub(crate) walk: u32,
    #[cfg(feature = "cluster")]
    pub(crate) version: u64,
    /// The nodes of a quorum that gave no answer so far.
    #[cfg(feature = "quorum")]
    pub(crate) missed: usize,
}

/// A script of the user that runs while the token holds the lock. No `Debug`: tokens and owners are secrets.
#[derive(Clone, Copy)]
pub(crate) struct GuardedCall<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) token: &'a Token,
    pub(crate) claim: &'a Claim,
    /// As in a renewal.
    pub(crate) fence: u64,
    pub(crate) body: &'a Arc<str>,
    pub(crate) keys: &'a [String],
    pub(crate) args: &'a [Vec<u8>],
}
