//! The proof that a segment is held.

use std::fmt;
use std::ops::Deref;

use super::seats::{Holds, SeatTaken};
use crate::base::error::LockError;
use crate::face::guard::LockGuard;

/// Proof that a segment is held: a [`LockGuard`] with the number of its segment.
///
/// A drop releases the segment in the background, as for every guard.
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
#[must_use = "the segment is released as soon as the guard is dropped: bind it, `let _guard = ..` (not `let _ = ..`)"]
#[clippy::has_significant_drop]
pub struct SegmentGuard {
    guard: LockGuard,
    /// It is dropped when the release is confirmed. An earlier drop would make waiters of this handle find the segment busy.
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

    /// The number of the segment, from 0.
    #[must_use]
    pub fn segment(&self) -> usize {
        self.segment
    }

    /// Reports that nothing is left in this segment, as [`SegmentedLock::exhausted`](super::SegmentedLock::exhausted). The
    /// segment stays held until the guard is released.
    pub fn exhausted(&self) {
        if let Some(place) = &self.place {
            place.seats().exhaust(self.segment);
        }
    }

    /// Releases the segment and waits for the confirmation of the server, as [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// The errors of [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release goes on in the background.
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
