//! What a store reports to its client unasked.

use std::sync::Weak;
use std::time::Duration;

use crate::base::key::LockKey;
use crate::base::kind::Kind;
use crate::base::observe::Event;

/// A grant that came as a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) kind: Kind,
    /// Larger than that of each earlier grant of the lock. The fencing token, unless grants share one.
    pub(crate) order: u64,
    pub(crate) fence: u64,
    /// The number of reserved tokens after `fence`, which the client of the holder gives out.
    pub(crate) reserve: u64,
    /// Other waiters are queued behind.
    pub(crate) contended: bool,
    /// The ttl that the server gave the lock: that of the last request that it had received by then.
    pub(crate) ttl: Duration,
}

/// The events that a store reports to its client.
pub(crate) trait Events: Send + Sync {
    /// A waiting token was given the lock named `lock` on the server.
    fn granted(&self, token: &str, grant: Grant, lock: &str);
    /// Another acquisition is queued for the lock that this token holds.
    fn contended(&self, token: &str);
    /// The lock that this token held was force-released.
    fn revoked(&self, token: &str);
    /// The lock that this token waits for may be free: ask again.
    fn freed(&self, _token: &str) {}
    /// The reentrant lock named `lock`, with a local [subscription](super::Subscription), was announced free.
    fn unlocked(&self, lock: &str);
    /// Messages about these locks may have been lost: their waiters must ask again.
    fn interrupted(&self, of: Concerned<'_>);
    /// A connection was made after one that broke. The messages about these locks in between are lost, so the leases have to be
    /// confirmed.
    fn reconnected(&self, _of: Concerned<'_>) {}
    /// One of several servers is back, and lacks what it should have of the leases with these tokens: a renewal makes up for it.
    #[cfg(feature = "quorum")]
    fn to_be_confirmed(&self, _tokens: &[u64]) {}
    /// Whether the engine holds or waits for a lock: then a lost connection has to be made again at once.
    fn is_in_use(&self) -> bool {
        false
    }
    /// Whether a new master may still have a lock that was released at the old one.
    fn has_released_lately(&self) -> bool {
        false
    }
    /// For the observer: a connection, or a node of a quorum.
    fn observed(&self, event: &Event<'_>);
    /// The largest fencing token that this client knows, 0 for none. A server that is reached anew must not mint it again.
    fn largest_token(&self) -> u64 {
        0
    }
}

/// Whether an event concerns a lock: a server may have only some of them.
pub(crate) type Concerned<'a> = &'a dyn Fn(&LockKey) -> bool;

/// The receiver of a store's events. Weak, because the engine owns the store.
pub(crate) type EventSink = Weak<dyn Events>;
