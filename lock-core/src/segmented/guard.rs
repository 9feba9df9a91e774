//! The proof that a segment is held.

use std::fmt;
use std::ops::Deref;

use super::seats::{Holds, SeatTaken};
use crate::{LockError, LockGuard};

/// Proof that a segment is held: a [`LockGuard`] that knows its segment.
///
/// Dropping it releases the segment in the background, as with every guard.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let segments = lock_core::LockManager::connect("memory://").await?.segmented_lock("stock", 20);
/// let guard = segments.acquire().await?;
/// assert!(guard.is_held() && guard.segment() < 20);
/// assert_eq!(guard.key(), format!("{{stock:{}}}", guard.segment()));
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused the segment is released at once"]
#[clippy::has_significant_drop]
pub struct SegmentGuard {
    guard: LockGuard,
    /// Given up when the release is confirmed: a waiter of this handle that hears of it earlier finds the segment busy.
    place: Option<SeatTaken>,
    segment: usize,
}

impl fmt::Debug for SegmentGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentGuard")
            .field("segment", &self.segment())
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

impl SegmentGuard {
    pub(super) fn new(guard: LockGuard, mut place: SeatTaken) -> Self {
        let view = guard.view();
        place.taken(Holds::new(move || view.is_held()));
        Self {
            guard,
            segment: place.segment(),
            place: Some(place),
        }
    }

    /// Which segment is held: 0 to one less than their number.
    #[must_use]
    pub fn segment(&self) -> usize {
        self.segment
    }

    /// Reports that nothing is left in this segment, as [`SegmentedLock::exhausted`](super::SegmentedLock::exhausted). It is held until the guard is
    /// released.
    pub fn exhausted(&self) {
        if let Some(place) = &self.place {
            place.seats().exhaust(self.segment);
        }
    }

    /// Releases the segment and waits for the server's word, as [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the release to the background.
    pub async fn release(mut self) -> Result<(), LockError> {
        self.guard.confirm_release().await?;
        self.place = None;
        Ok(())
    }
}

impl Drop for SegmentGuard {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.lets_go();
            self.guard.end_then(Box::new(place));
        }
    }
}

impl Deref for SegmentGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}
