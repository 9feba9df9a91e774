//! The length of a lease.

use std::time::Duration;

use crate::base::time::Moment;

/// The length of a lease, and the drift subtracted from it; in whole milliseconds, as the server counts, so at most 49 days. Small,
/// since every held lock has a few of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    ttl: u32,
    /// The ttl that the user asked for, before the jitter.
    asked: u32,
    drift: u32,
}

impl Terms {
    /// A fraction of a millisecond lengthens the drift.
    pub(crate) fn new(ttl: Duration, asked: Duration, drift: Duration) -> Self {
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        Self {
            ttl: millis(ttl),
            asked: millis(asked),
            drift: millis(drift.saturating_add(Duration::from_nanos(999_999))),
        }
    }

    pub(crate) fn ttl(self) -> Duration {
        Duration::from_millis(u64::from(self.ttl))
    }

    pub(crate) fn drift(self) -> Duration {
        Duration::from_millis(u64::from(self.drift))
    }

    /// The local end of a lease that a request granted. It is measured from before the request was sent, because the server's lease
    /// can only have begun later. Redis, "Distributed Locks": `ttl - elapsed - drift`.
    pub(crate) fn deadline(self, sent_at: Moment) -> Moment {
        sent_at + self.ttl().saturating_sub(self.drift())
    }

    /// Whether a lease on these terms serves a request with the other terms.
    pub(crate) fn serve(self, wanted: Self) -> bool {
        self.asked == wanted.asked
    }

    /// A third of the ttl: the time after which a lease is renewed.
    pub(crate) fn third(self) -> Duration {
        self.ttl() / 3
    }
}
