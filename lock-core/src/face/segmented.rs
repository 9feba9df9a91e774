//! A lock in segments: a caller acquires any free segment.

mod guard;
mod seats;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::Instant;

pub use self::guard::SegmentGuard;
use self::seats::{SeatTaken, Seats, Trust};
use crate::base::error::LockError;
use crate::base::time::in_millis;
use crate::base::timers::{OF_CALLER, Timers};
use crate::engine::Limit;
use crate::face::handle::LockHandle;
use crate::face::inspect::LockInfo;
use crate::face::options::options;
use crate::face::verbs::{acquires, tried};

/// Maximum segments. With more of them, a lock is not the right tool.
const MAX_SEGMENTS: usize = 1024;

/// First interval between two looks at the other segments.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum of that interval. It grows with the number of segments, between these two limits, so that all waiters of a handle
/// together send at most 40 requests a second.
const MAX_INTERVALS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));
const INTERVAL_EACH: Duration = Duration::from_millis(25);

/// A waiter counts as stalled if it has not looked for this many maximum intervals.
const RUNS_WITHIN: u32 = 2;

/// A try looks once, so it skips a segment with another waiter only if that waiter ran a short time ago. Without this trust, many
/// tries at once would all request the same segments.
const TRY: Trust = Trust {
    found_busy: Duration::ZERO,
    ran: FIRST_INTERVAL,
};

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
/// another clone holds, requests or waits for, unless the future of that clone has not been polled recently.
///
/// If all segments are busy, the caller joins the queue of *one* segment: the one with the fewest waiters of this handle, or a
/// random one of several. In that queue it waits like a waiter of a [`Lock`](crate::Lock). It does not join several queues, because each would
/// need a clean-up, and could grant it a segment that it no longer needs.
///
/// While it waits, it also takes a segment that is released through this handle, as soon as the release is confirmed. It looks at
/// the other segments in intervals from 100 ms to half a second, or to 3 s with more than 120 segments. One waiter looks at a
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

    fn each(mut self, change: impl Fn(&mut LockHandle)) -> Self {
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
        let locks = self.locks.as_ref().map_err(Clone::clone)?;
        try_join_all(locks.iter().map(LockHandle::inspect)).await
    }

    fn first(&self) -> Option<&LockHandle> {
        self.locks.as_ref().ok().and_then(|locks| locks.first())
    }

    fn timers(&self) -> &Timers {
        self.first()
            .map_or(&OF_CALLER, |lock| &lock.engine.shared.timers)
    }

    async fn take(
        &self,
        limit: Limit,
        at: &'static Location<'static>,
    ) -> Result<SegmentGuard, LockError> {
        let timers = self.timers();
        let started = timers.now();
        let deadline = match limit {
            Limit::Try => {
                let found = self.look(TRY, &mut Looked::default(), at).await?;
                return found.ok_or_else(|| self.busy());
            }
            // A limit that the clock cannot represent is no limit.
            Limit::Within(limit) => started.checked_add(limit),
            Limit::Forever => None,
        };
        let mut looked = Looked::default();
        let look = self.look(self.trust(Duration::ZERO), &mut looked, at);
        let found = match deadline {
            None => look.await,
            Some(deadline) => match timers.timeout_at(deadline, look).await {
                Ok(found) => found,
                Err(_) if looked.answered => return Err(self.timed_out(started)),
                Err(_) => {
                    let why = format!("no reply within {:?}", in_millis(timers.elapsed(started)));
                    let server = self.first().and_then(LockHandle::server);
                    return Err(LockError::unavailable(why, server.as_ref()));
                }
            },
        };
        // After a failed look the caller still joins a queue: the server may answer within the limit.
        if let Ok(Some(guard)) = found {
            return Ok(guard);
        }
        loop {
            let locks = self.locks.as_ref().map_err(Clone::clone)?;
            let start = fastrand::usize(..locks.len());
            let place = self.seats.take_least_crowded(start);
            let place = place.ok_or_else(|| self.nothing_left())?;
            match self.wait(place, deadline, at).await {
                Ok(Some(guard)) => return Ok(guard),
                Ok(None) => {}
                Err(error) if error.is_contention() => return Err(self.timed_out(started)),
                // The segments answered, but the queue did not answer within the limit.
                Err(LockError::Unavailable { .. })
                    if looked.answered && deadline.is_some_and(|end| timers.now() >= end) =>
                {
                    return Err(self.timed_out(started));
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
        at: &'static Location<'static>,
    ) -> Result<Option<SegmentGuard>, LockError> {
        let locks = self.locks.as_ref().map_err(Clone::clone)?;
        let segment = &locks[place.segment()];
        let mut queued = pin!(async {
            let left = deadline.map(|end| end.saturating_duration_since(self.timers().now()));
            segment.take(Limit::of(left), None, at).await
        });
        let most = self.max_interval();
        let mut interval = FIRST_INTERVAL;
        loop {
            // After this interval, segments that were found busy before it may be requested again.
            let since = interval;
            tokio::select! {
                biased;
                guard = &mut queued => return Ok(Some(SegmentGuard::new(guard?, place))),
                () = self.seats.exhausted(place.segment()) => return Ok(None),
                () = self.seats.freed() => {}
                () = self.timers().sleep(interval) => interval = most.min(interval * 2),
            }
            place.runs();
            let mut looked = Looked::default();
            tokio::select! {
                biased;
                guard = &mut queued => return Ok(Some(SegmentGuard::new(guard?, place))),
                // After a failed look the waiter stays in the queue.
                found = self.look(self.trust(since), &mut looked, at) => if let Ok(Some(guard)) = found {
                    self.seats.announce_others();
                    return Ok(Some(guard));
                }
            }
        }
    }

    fn max_interval(&self) -> Duration {
        let (least, most) = MAX_INTERVALS;
        (INTERVAL_EACH * self.segments() as u32).clamp(least, most)
    }

    /// The trust of a waiter, and of a caller that waits if its look finds nothing.
    fn trust(&self, found_busy: Duration) -> Trust {
        Trust {
            found_busy,
            ran: self.max_interval() * RUNS_WITHIN,
        }
    }

    /// Requests each segment once, except those that this handle knows to be busy.
    async fn look(
        &self,
        trust: Trust,
        looked: &mut Looked,
        at: &'static Location<'static>,
    ) -> Result<Option<SegmentGuard>, LockError> {
        let locks = self.locks.as_ref().map_err(Clone::clone)?;
        let start = fastrand::usize(..locks.len());
        for step in 0..locks.len() {
            let segment = (start + step) % locks.len();
            let Some(place) = self.seats.take_idle(segment, trust) else {
                continue;
            };
            let found = tried(locks[segment].take(Limit::Try, None, at)).await;
            looked.answered |= found.is_ok();
            match found {
                Ok(Some(guard)) => return Ok(Some(SegmentGuard::new(guard, place))),
                Ok(None) => place.found_busy(),
                Err(error) => {
                    place.found_busy();
                    return Err(error);
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

    fn timed_out(&self, started: Instant) -> LockError {
        LockError::TimedOut {
            key: self.name.to_string(),
            waited: self.timers().elapsed(started),
            holder: None,
        }
    }

    fn nothing_left(&self) -> LockError {
        LockError::Exhausted {
            key: self.name.to_string(),
        }
    }
}

/// What a look has learnt. The caller keeps it if the look is cancelled.
#[derive(Default)]
struct Looked {
    answered: bool,
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
