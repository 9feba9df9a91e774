//! A lock in segments: a caller acquires any free segment.

use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::base::error::LockError;
use crate::engine::Limit;
#[cfg(feature = "blocking")]
use crate::face::guard::AnyGuard;
use crate::face::guard::LockGuard;
use crate::face::handle::LockHandle;
use crate::face::inspect::LockInfo;
use crate::face::options::options;
use crate::face::seats::{SeatTaken, Seats};
use crate::face::verbs::{acquires, tried};

/// Maximum segments. With more of them, a lock is not the right tool.
const MAX_SEGMENTS: usize = 1024;

/// A lock in segments: `n` segments have up to `n` holders, and a caller acquires any free segment.
///
/// It is for a stock that can be split. With one lock on 1000 pieces, one buyer works at a time; with twenty segments of 50
/// pieces, twenty buyers do. Each holder works on the part of the stock that belongs to its [`segment`](SegmentGuard::segment).
/// When this part is empty, the holder reports the segment as [`exhausted`](SegmentGuard::exhausted).
///
/// A handle does no I/O. Clones share their knowledge of the segments, so create one handle and clone it.
///
/// # Which segment?
///
/// A caller tries the segments in order, from a random one, and takes the first free one. It sends no request for a segment that
/// its process holds, or that another clone requests or waits for, unless the future of that clone has not been polled recently.
///
/// If all segments are busy, the caller joins the queue of *one* segment: the one with the fewest waiters of this handle, or a
/// random one of several. In that queue it waits like a waiter of a [`Lock`](crate::Lock). It does not join several queues, because each would
/// need a clean-up, and could grant it a segment that it no longer needs.
///
/// While it waits, it also takes a segment that is released through this handle, as soon as the release is confirmed. It looks at
/// the other segments every 200 ms; with more than eight segments every 25 ms for each of them, up to 3 s. One waiter looks at a
/// segment for all waiters of the handle. So a stuck holder does not keep its waiters from the other segments.
///
/// # Names
///
/// Segment 7 of `stock` is the lock `{stock:7}`; segment 7 of `{shop}:stock` is `{shop}:stock:7`. The braces are a tag of Redis
/// Cluster: data that is named after the [`key`](crate::LockView::key) is in the slot of its lock, and the segments are spread
/// over the slots if the name has no `{tag}`. All users of a segmented lock must use the same number of segments.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// use lock_core::{LockError, LockManager};
///
/// let locks = LockManager::connect("memory://").await?;
/// let mut stock = [3, 2, 0, 3]; // a part for each segment; in a real service on the server
/// let segments = locks.segmented_lock("stock:iphone", stock.len());
///
/// let mut sold = 0;
/// loop {
///     let guard = match segments.acquire().await {
///         Ok(guard) => guard,
///         Err(LockError::Exhausted { .. }) => break, // sold out
///         Err(error) => return Err(error),
///     };
///     match &mut stock[guard.segment()] {
///         0 => guard.exhausted(),
///         left => {
///             *left -= 1;
///             sold += 1;
///         }
///     }
///     guard.release().await?;
/// }
/// assert_eq!(sold, 8);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a handle is not the lock: call `acquire` or `try_acquire`"]
pub struct SegmentedLock {
    name: Arc<str>,
    locks: Result<Arc<[LockHandle]>, LockError>,
    seats: Arc<Seats>,
}

impl fmt::Debug for SegmentedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentedLock")
            .field("key", &self.name)
            .field("segments", &self.segments())
            .finish_non_exhaustive()
    }
}

impl SegmentedLock {
    /// `lock` makes the lock of a segment from its key.
    pub(crate) fn new(lock: impl Fn(String) -> LockHandle, key: &str, segments: usize) -> Self {
        let locks = if (1..=MAX_SEGMENTS).contains(&segments) {
            Ok((0..segments)
                .map(|segment| lock(name(key, segment)))
                .collect())
        } else {
            Err(LockError::config(format!(
                "a lock in {segments} segments is out of range: choose from 1 to {MAX_SEGMENTS}"
            )))
        };
        Self {
            name: key.into(),
            seats: Seats::new(if locks.is_ok() { segments } else { 0 }),
            locks,
        }
    }

    /// The key of the whole lock, without a segment number.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.name
    }

    /// The number of segments; 0 if the requested number is out of range.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.locks.as_ref().map_or(0, |locks| locks.len())
    }

    options! {
        ttl ", for each segment",
        renew ", for each segment",
        max_hold ", for the hold of a segment",
        unavailable_after ", for each segment",
        label ", for each segment"
    }

    pub(crate) fn each(mut self, change: impl Fn(&mut LockHandle)) -> Self {
        if let Ok(locks) = &mut self.locks {
            Arc::make_mut(locks).iter_mut().for_each(change);
        }
        self
    }

    /// Reports that nothing is left in a segment. This handle and its clones no longer request the segment, and their waiters in
    /// its queue move to another segment. Other processes and new handles do not know of the report. A number that is not a
    /// segment has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let segments = lock_core::LockManager::connect("memory://").await?.segmented_lock("stock", 2);
    /// segments.exhausted(0);
    /// assert_eq!(segments.acquire().await?.segment(), 1);
    /// # Ok(()) }
    /// ```
    pub fn exhausted(&self, segment: usize) {
        self.seats.exhaust(segment);
    }

    acquires! {
        SegmentGuard = |lock, limit, at| {
            let lock = lock.clone();
            async move { Box::pin(lock.take(limit, at)).await }
        };
        /// Acquires any segment; waits without limit while all are busy.
        ///
        /// # Errors
        ///
        /// [`Exhausted`](LockError::Exhausted) if all segments were reported as exhausted, also while it waits;
        /// [`InvalidConfig`](LockError::InvalidConfig) if the number of segments is not 1 to 1024; otherwise the errors of
        /// [`Lock::acquire`](crate::Lock::acquire).
        acquire,
        acquire_within,
        /// Acquires a free segment; never waits for another holder. `None` if all are busy.
        try_acquire
    }

    /// The state of each segment on the server at this moment, by its number.
    ///
    /// # Errors
    ///
    /// As [`Lock::inspect`](crate::Lock::inspect), for any of the segments.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let segments = lock_core::LockManager::connect("memory://").await?.segmented_lock("stock", 20);
    /// let guard = segments.acquire().await?;
    /// let states = segments.inspect().await?;
    /// assert!(states[guard.segment()].is_held());
    /// assert_eq!(states.iter().filter(|state| state.is_held()).count(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self) -> Result<Vec<LockInfo>, LockError> {
        let locks = self.locks()?;
        try_join_all(locks.iter().map(LockHandle::inspect)).await
    }

    fn locks(&self) -> Result<&[LockHandle], LockError> {
        self.locks.as_deref().map_err(Clone::clone)
    }

    async fn take(
        &self,
        limit: Limit,
        at: &'static Location<'static>,
    ) -> Result<SegmentGuard, LockError> {
        let timers = &self.locks()?[0].engine.shared.timers;
        let (started, mut answered) = (timers.now(), false);
        let look = self.look(Duration::ZERO, &mut answered, at);
        let deadline = match limit {
            Limit::Try => return look.await?.ok_or_else(|| self.busy()),
            // A limit that the clock cannot represent is no limit.
            Limit::Within(limit) => started.checked_add(limit),
            Limit::Forever => None,
        };
        if let Some(Ok(Some(guard))) = timers.within(deadline, look).await {
            return Ok(guard);
        }
        // Also after a look that failed or took too long: the queue then says whether the server answers.
        loop {
            let place = self.seats.join(fastrand::usize(..self.segments()));
            let place = place.ok_or_else(|| self.nothing_left())?;
            match self.wait(place, deadline, &mut answered, at).await {
                Ok(Some(guard)) => return Ok(guard),
                Ok(None) => {}
                Err(error) if error.is_contention() => {
                    return Err(LockError::TimedOut {
                        key: self.name.to_string(),
                        waited: timers.elapsed(started),
                        holder: None,
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits in the queue of one segment, and looks at the others in intervals. `None` if the segment was reported as exhausted.
    async fn wait(
        &self,
        place: SeatTaken,
        deadline: Option<Instant>,
        answered: &mut bool,
        at: &'static Location<'static>,
    ) -> Result<Option<SegmentGuard>, LockError> {
        let lock = &self.locks()?[place.segment];
        let (timers, mut segment) = (&lock.engine.shared.timers, lock.clone());
        // Little may be left of the limit: a server that has answered this call is reachable.
        segment.is_answered = *answered;
        let left = deadline.map(|end| end.saturating_duration_since(timers.now()));
        // Zero would be one try.
        let left = left.map(|left| left.max(Duration::from_millis(1)));
        let mut queued = pin!(segment.take(Limit::of(left), None, at));
        loop {
            // Listen before the check, so that no report in between is missed.
            let exhausted = self.seats.exhausted.notified();
            if place.is_exhausted() {
                return Ok(None);
            }
            let looking = async {
                let freed = self.seats.freed.notified();
                let _ = timers.timeout(self.seats.interval, freed).await;
                place.runs();
                self.look(self.seats.interval, answered, at).await
            };
            tokio::select! {
                biased;
                guard = &mut queued => return Ok(Some(SegmentGuard { guard: guard?, place })),
                () = exhausted => {}
                // After a failed look the waiter stays in the queue.
                found = looking => if let Ok(Some(guard)) = found {
                    // Several segments may have become free while no waiter listened, and only one announcement was kept.
                    self.seats.freed.notify_one();
                    return Ok(Some(guard));
                }
            }
        }
    }

    /// Requests each segment once, except those that this process holds, and those of which [`Seats::ask`] knows better.
    async fn look(
        &self,
        busy_for: Duration,
        answered: &mut bool,
        at: &'static Location<'static>,
    ) -> Result<Option<SegmentGuard>, LockError> {
        let locks = self.locks()?;
        let start = fastrand::usize(..locks.len());
        for segment in (start..locks.len()).chain(0..start) {
            let lock = &locks[segment];
            if lock.is_held_here() {
                continue;
            }
            let Some(place) = self.seats.ask(segment, busy_for) else {
                continue;
            };
            let found = tried(lock.take(Limit::Try, None, at)).await;
            *answered |= found.is_ok();
            match found {
                Ok(Some(guard)) => return Ok(Some(SegmentGuard { guard, place })),
                none => {
                    place.found_busy();
                    none?;
                }
            }
        }
        Ok(None)
    }

    fn busy(&self) -> LockError {
        if self.seats.are_all_exhausted() {
            return self.nothing_left();
        }
        LockError::Busy {
            key: self.name.to_string(),
            retry_after: None,
            holder: None,
        }
    }

    fn nothing_left(&self) -> LockError {
        LockError::Exhausted {
            key: self.name.to_string(),
        }
    }
}

/// The key of a segment's lock. [`SegmentedLock`] gives the reason for the braces.
fn name(key: &str, segment: usize) -> String {
    if key.is_empty() {
        // An empty key is refused later.
        String::new()
    } else if key.contains(['{', '}']) {
        format!("{key}:{segment}")
    } else {
        format!("{{{key}:{segment}}}")
    }
}

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
    /// Dropped after the guard: a waiter that hears of it requests the segment once the release is confirmed.
    place: SeatTaken,
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
    /// The number of the segment, from 0.
    #[must_use]
    pub fn segment(&self) -> usize {
        self.place.segment
    }

    /// Reports that nothing is left in this segment, as [`SegmentedLock::exhausted`](SegmentedLock::exhausted). The
    /// segment stays held until the guard is released.
    pub fn exhausted(&self) {
        self.place.seats.exhaust(self.place.segment);
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
    pub async fn release(self) -> Result<(), LockError> {
        self.guard.confirm_release().await
    }
}

impl Deref for SegmentGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

#[cfg(feature = "blocking")]
crate::face::blocking_face::blocking_face! {
    SegmentedLock:
    options { ttl, renew, max_hold, unavailable_after, label }
    takes { acquire acquire_within try_acquire -> SegmentGuard; }
    calls {
        fn inspect() -> Vec<LockInfo>;
    }
}

#[cfg(feature = "blocking")]
impl AnyGuard for SegmentGuard {
    fn parts(&self) -> &[LockGuard] {
        std::slice::from_ref(&self.guard)
    }
}

#[cfg(feature = "blocking")]
crate::face::blocking_guard::blocking_guard! { SegmentGuard, release }
