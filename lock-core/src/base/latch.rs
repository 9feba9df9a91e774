//! The counts of a latch, which is no lock.

use super::beside::Beside;

/// The ids that were counted. As a channel it tells those who wait that the latch is open.
pub(crate) const LATCH: Beside = Beside("lock-core:latch:");
