//! What an observer is told of the locks of a manager.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{LockError, LossReason};
use crate::base::fencing::FencingToken;
use crate::base::key::LockKey;
use crate::base::sync::is_unlocked;

/// Is told what happens to the locks of a manager ([`observer`](crate::LockManagerBuilder::observer)).
///
/// The manager calls it where something is decided: in the task of the client, in its own task, or in the task of a connection. It
/// never calls it while it has one of its own mutexes locked, so an observer may use locks. It must be quick and must not block:
/// the renewals of all locks may wait for it. If it panics, the event is lost, and the locks are not affected.
///
/// # Examples
///
/// See the [module](crate::observe).
pub trait Observer: Send + Sync + 'static {
    /// Something has happened.
    fn observe(&self, event: &Event<'_>);
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, event: &Event<'_>) {
        (**self).observe(event);
    }
}

/// The lock that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObservedLock<'a> {
    /// The key, without the prefix. Not for the labels of a metric: there may be millions.
    pub key: &'a str,
    /// The label of the lock; empty if it has none.
    pub label: &'static str,
    /// The kind of the lock: `exclusive`, `reentrant`, `semaphore`, `read-write` or `election`.
    pub kind: &'static str,
}

/// What has happened.
///
/// Each call for a lock is one [`Waiting`](Self::Waiting) and then one [`Acquired`](Self::Acquired), [`Refused`](Self::Refused) or
/// [`Cancelled`](Self::Cancelled). Each `Acquired` is followed by one [`Released`](Self::Released) or [`Lost`](Self::Lost). So the
/// number of calls that wait, and that of guards that hold, follow from the events; those of different calls may come in any order.
/// Each look of a [`SegmentedLock`](crate::SegmentedLock) at a segment is a call. A [`MultiLock`](crate::MultiLock) makes a call for each of
/// its locks, and, if its first try for all of them is in vain, another one for each lock that it waits for. A call that is refused before it asks (a key
/// or a setting that cannot be used, or the calling code holds the lock already) is no event.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A client asks for a lock, and waits for the answer or for its turn.
    #[non_exhaustive]
    Waiting {
        /// The lock.
        lock: ObservedLock<'a>,
    },
    /// A client has the lock.
    #[non_exhaustive]
    Acquired {
        /// The lock.
        lock: ObservedLock<'a>,
        /// The time since [`Waiting`](Self::Waiting).
        waited: Duration,
        /// How it was acquired.
        how: AcquiredHow,
        /// The fencing token of the hold.
        fencing_token: FencingToken,
    },
    /// A client did not get the lock.
    #[non_exhaustive]
    Refused {
        /// The lock.
        lock: ObservedLock<'a>,
        /// The time since [`Waiting`](Self::Waiting).
        waited: Duration,
        /// The error that the client gets.
        error: &'a LockError,
    },
    /// The future of a client was dropped before it had the lock.
    #[non_exhaustive]
    Cancelled {
        /// The lock.
        lock: ObservedLock<'a>,
        /// The time since [`Waiting`](Self::Waiting).
        waited: Duration,
    },
    /// The watchdog has renewed a lease.
    #[non_exhaustive]
    Renewed {
        /// The lock.
        lock: ObservedLock<'a>,
        /// The time that was left when the server's answer came: without it the lock would have been lost then. About two thirds
        /// of the ttl if all is well.
        slack: Duration,
    },
    /// A renewal has failed. It is repeated until the lease has ended.
    #[non_exhaustive]
    RenewalFailed {
        /// The lock.
        lock: ObservedLock<'a>,
        /// The time that is left for another one.
        slack: Duration,
        /// What the server, or the connection, has answered.
        error: &'a LockError,
    },
    /// A guard was released or dropped.
    #[non_exhaustive]
    Released {
        /// The lock.
        lock: ObservedLock<'a>,
        /// The time since the guard had the lock.
        held: Duration,
        /// How it was released.
        how: ReleasedHow,
    },
    /// A lock was lost under its guard.
    #[non_exhaustive]
    Lost {
        /// The lock.
        lock: ObservedLock<'a>,
        /// The time since the guard had the lock.
        held: Duration,
        /// Why it was lost.
        reason: LossReason,
    },
    /// From now on the server may have something of a request for this lock: a place in the queue, or the lock. Waiters of one
    /// process share a request, and so do the guards that it serves by local hand-over: the lock has no label here.
    #[non_exhaustive]
    Outstanding {
        /// The lock.
        lock: ObservedLock<'a>,
    },
    /// Nothing of that request is left on the server: its release is confirmed, or its ttl has ended.
    #[non_exhaustive]
    Settled {
        /// The lock.
        lock: ObservedLock<'a>,
    },
    /// A connection to a server has ended. It is made again at once if a lock is held or waited for, and otherwise when one is; not
    /// to a node that has left its cluster.
    #[non_exhaustive]
    Disconnected {
        /// Host and port of the server.
        server: &'a str,
    },
    /// There is a connection to a server again.
    #[non_exhaustive]
    Reconnected {
        /// Host and port of the server, which is another one after a failover.
        server: &'a str,
        /// The time since [`Disconnected`](Self::Disconnected).
        away: Duration,
    },
    /// A node of the quorum was asked and has not voted for a second.
    #[non_exhaustive]
    NodeLeft {
        /// Host and port of the node.
        node: &'a str,
        /// The number of nodes that vote.
        voting: usize,
        /// The number of votes that a lock needs.
        needed: usize,
    },
    /// The node votes again. A manager that asks for no lock does not notice that.
    #[non_exhaustive]
    NodeReturned {
        /// Host and port of the node.
        node: &'a str,
        /// The time since its last vote.
        away: Duration,
    },
}

/// How a client has acquired a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquiredHow {
    /// By the answer to its first request: it did not wait for another holder.
    Free,
    /// By the server, after a wait.
    Granted,
    /// By local hand-over from another guard of this process, without a command.
    HandedOver,
    /// By `try_acquire`, or with a wait of zero.
    Tried,
}

/// How a guard has released a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleasedHow {
    /// The server has confirmed it, or the next waiter of this process has the lock by local hand-over.
    Released,
    /// The guard was dropped; the release is sent in the background.
    Dropped,
    /// The server has not confirmed it; the release is repeated in the background until the ttl has ended.
    Unconfirmed,
}

impl AcquiredHow {
    /// The word for it in metrics and spans.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(lock_core::observe::AcquiredHow::HandedOver.word(), "handed_over");
    /// ```
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Granted => "granted",
            Self::HandedOver => "handed_over",
            Self::Tried => "tried",
        }
    }
}

impl ReleasedHow {
    /// The word for it in metrics and spans.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(lock_core::observe::ReleasedHow::Dropped.word(), "dropped");
    /// ```
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Dropped => "dropped",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

impl Event<'_> {
    /// The word for the outcome of this event in metrics and spans, if it has one: how a call, a hold or a renewal has ended, or
    /// why a lock was lost.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::observe::Event;
    ///
    /// fn log(event: &Event<'_>) {
    ///     if let (Event::Refused { lock, .. }, Some(outcome)) = (event, event.outcome()) {
    ///         println!("{}: {outcome}", lock.key);
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn outcome(&self) -> Option<&'static str> {
        match self {
            Self::Acquired { how, .. } => Some(how.word()),
            Self::Refused { error, .. } => Some(refusal(error)),
            Self::Cancelled { .. } => Some(CANCELLED),
            Self::Released { how, .. } => Some(how.word()),
            Self::Lost { reason, .. } => Some(loss(*reason)),
            Self::Renewed { .. } => Some("renewed"),
            Self::RenewalFailed { .. } => Some("failed"),
            _ => None,
        }
    }
}

/// The outcome of a call whose future was dropped.
pub(crate) const CANCELLED: &str = "cancelled";

/// The words of [`refusal`].
pub(crate) const REFUSALS: [&str; 7] = [
    "busy",
    "timed_out",
    "unavailable",
    "shut_down",
    "not_a_lock",
    "misconfigured",
    "refused",
];

/// The outcome of a call that ended with this error.
pub(crate) fn refusal(error: &LockError) -> &'static str {
    let [
        busy,
        timed_out,
        unavailable,
        shut_down,
        not_a_lock,
        misconfigured,
        refused,
    ] = REFUSALS;
    match error {
        LockError::Busy { .. } => busy,
        LockError::TimedOut { .. } => timed_out,
        LockError::Unavailable { .. } => unavailable,
        LockError::ShutDown => shut_down,
        LockError::NotALock { .. } => not_a_lock,
        LockError::InvalidConfig { .. }
        | LockError::OtherMax { .. }
        | LockError::OtherCount { .. }
        | LockError::TooManyPermits { .. } => misconfigured,
        LockError::InvalidKey { .. }
        | LockError::NotOpen { .. }
        | LockError::Deadlock { .. }
        | LockError::Exhausted { .. }
        | LockError::Lost { .. }
        | LockError::Script { .. }
        | LockError::NoDefaultManager => refused,
    }
}

/// The words of [`loss`].
pub(crate) const REASONS: [&str; 5] =
    ["expired", "gone", "force_released", "max_hold", "shut_down"];

fn loss(reason: LossReason) -> &'static str {
    let [expired, gone, force_released, max_hold, shut_down] = REASONS;
    match reason {
        LossReason::Expired => expired,
        LossReason::Gone => gone,
        LossReason::ForceReleased => force_released,
        LossReason::MaxHold => max_hold,
        LossReason::ShutDown => shut_down,
    }
}

impl<'a> ObservedLock<'a> {
    pub(crate) fn new(key: &'a LockKey, label: &'static str) -> Self {
        Self {
            key: key.name(),
            label,
            kind: key.traits().name,
        }
    }
}

/// The observer of a manager, if it has one. One word, since every held lock has it.
#[derive(Clone, Default)]
pub(crate) struct Observers(Option<Arc<Box<dyn Observer>>>);

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observers").field(&self.is_some()).finish()
    }
}

impl Observers {
    /// With one more observer.
    pub(crate) fn and(self, other: impl Observer) -> Self {
        let both: Box<dyn Observer> = match self.0 {
            None => Box::new(other),
            Some(first) => Box::new(Both(first, other)),
        };
        Self(Some(Arc::new(both)))
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Tells the observer. The caller has no mutex of this crate locked.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        debug_assert!(is_unlocked(), "an observer may use locks: {event:?}");
        if let Some(observer) = &self.0 {
            tell(&***observer, event);
        }
    }
}

/// A panic in the engine's task would cost all locks, and one of the first observer the event of the second.
fn tell(observer: &(impl Observer + ?Sized), event: &Event<'_>) {
    let _ = catch_unwind(AssertUnwindSafe(|| observer.observe(event)));
}

struct Both<A, B>(A, B);

impl<B: Observer> Observer for Both<Arc<Box<dyn Observer>>, B> {
    fn observe(&self, event: &Event<'_>) {
        tell(&**self.0, event);
        tell(&self.1, event);
    }
}
