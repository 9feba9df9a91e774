//! Many locks that stand for one: whoever asks gets any that is free.

mod guard;
mod seats;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

pub use self::guard::SegmentGuard;
use self::seats::{SeatTaken, Seats, Trust};
use crate::{Lock, LockError, LockManager};

/// A segment is a lock of its own. Who needs more of them than this needs no lock.
const MOST: usize = 1024;

/// How long a waiter trusts at first that the other segments are as busy as it found them.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long it trusts that at most: the shortest and the longest, and in between so long for each segment that all waiters of
/// a handle together look 40 times a second.
const MOST_PATIENCE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));
const PATIENCE_EACH: Duration = Duration::from_millis(25);

/// A waiter that runs looks up from its queue after its patience. One that has not for so many times the longest does not run.
const RUNS_WITHIN: u32 = 2;

/// A try has only its look, so it trusts waiters for a shorter time: a segment that became free since one of them ran is kept
/// for that one by the server. With no trust at all, many tries at once would all ask for the same segments.
const TRY: Trust = Trust {
    found_busy: Duration::ZERO,
    ran: PATIENCE,
};

/// A lock in segments: of `n` segments any `n` holders have one each, and whoever asks gets any that is free.
///
/// For stock that can be split. One lock on 1000 pieces lets one buyer work at a time; twenty segments of 50 pieces let
/// twenty. Each holder works on the part of the stock that belongs to its [`segment`](SegmentGuard::segment), and
/// reports the segment as [`exhausted`](SegmentGuard::exhausted) when nothing is left there.
///
/// A handle does no I/O. Clones share what they know of the segments, so make one and clone it.
///
/// # Which segment?
///
/// The first that is free, beginning at one chosen at random; a segment that another clone holds is known to be busy and
/// costs no request, nor does one that another clone asks for or waits for, unless that clone's future has not been polled of
/// late. Only when all are busy does the caller wait: in the queue of *one* segment, that
/// with the fewest waiters of this handle (of equals, a random one), so its place there is as fair as that of a
/// [`Lock`] and a hand-over costs the same. Standing in several queues at once would cost a clean-up for each, and
/// a lock that is granted to somebody who no longer wants it. Instead a waiter takes a segment that becomes free within this
/// handle as soon as its release is confirmed, and looks at those that are busy elsewhere from time to time: after 100 ms, then
/// less and less often, at last every half a second, or every 3 s where there are more than 120 segments. Each segment is looked
/// at by one waiter for all. So a holder that is stuck does not keep its waiters from the other segments.
///
/// # Names
///
/// Segment 7 of `stock` is the lock `{stock:7}`; that of `{shop}:stock` is `{shop}:stock:7`. Data that is named after
/// [`key`](crate::LockGuard::key) is in the same slot of a cluster as its lock, and segments are spread over the
/// slots where the name has no `{tag}` of its own. All that use a segmented lock must agree on the number of segments.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// use lock_core::{LockError, LockManager};
///
/// let locks = LockManager::connect("memory://").await?;
/// let mut stock = [3, 2, 0, 3]; // in reality on the server, a part for each segment
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
#[must_use = "a handle holds nothing: call `acquire` or `try_acquire`"]
pub struct SegmentedLock {
    name: Arc<str>,
    locks: Result<Arc<[Lock]>, LockError>,
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
    pub(crate) fn new(manager: &LockManager, key: &str, segments: usize) -> Self {
        let locks = if (1..=MOST).contains(&segments) {
            Ok((0..segments)
                .map(|segment| manager.lock(name(key, segment)))
                .collect())
        } else {
            Err(LockError::config(format!(
                "a lock in {segments} segments is out of range: choose from 1 to {MOST}"
            )))
        };
        Self {
            name: key.into(),
            seats: Seats::new(if locks.is_ok() { segments } else { 0 }),
            locks,
        }
    }

    /// The key as it was given, without the number of a segment.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.name
    }

    /// How many segments there are; 0 where the number that was asked for cannot be used.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.locks.as_ref().map_or(0, |locks| locks.len())
    }

    /// The lease of a segment, as [`Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.each(|lock| lock.ttl(ttl))
    }

    /// Whether the watchdog renews the lease, as [`Lock::renew`].
    pub fn renew(self, renew: bool) -> Self {
        self.each(|lock| lock.renew(renew))
    }

    /// Ends the hold of a segment after this time, as [`Lock::max_hold`].
    pub fn max_hold(self, most: Duration) -> Self {
        self.each(|lock| lock.max_hold(most))
    }

    fn each(mut self, change: impl Fn(Lock) -> Lock) -> Self {
        self.locks = self
            .locks
            .map(|locks| locks.iter().cloned().map(change).collect());
        self
    }

    /// Reports that nothing is left in a segment: this handle and its clones no longer ask for it, and those that
    /// wait for it move on to another. Other processes find out by themselves; a new handle knows nothing of it.
    /// A number that is no segment changes nothing.
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

    /// Takes any segment; waits without limit while all are busy.
    ///
    /// # Errors
    ///
    /// [`Exhausted`](LockError::Exhausted) where every segment was reported as exhausted, also while waiting. Else as
    /// [`Lock::acquire`]; [`InvalidConfig`](LockError::InvalidConfig) also for a number of segments other than 1 to 1024.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe, as [`Lock::acquire`].
    #[track_caller]
    pub fn acquire(&self) -> impl Future<Output = Result<SegmentGuard, LockError>> {
        self.take(None, Location::caller())
    }

    /// Takes any segment; waits at most this long while all are busy. Zero asks once, and does not queue.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](LockError::TimedOut) where all segments were busy all the time ([`Busy`](LockError::Busy) for a wait
    /// of zero); [`Unavailable`](LockError::Unavailable) where the server did not answer. Else as
    /// [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe, as [`Lock::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let segments = lock_core::LockManager::connect("memory://").await?.segmented_lock("stock", 2);
    /// let _both = (segments.acquire().await?, segments.acquire().await?);
    /// let none = segments.acquire_within(Duration::from_millis(10)).await;
    /// assert!(none.is_err_and(|error| error.is_contention()));
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire_within(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<SegmentGuard, LockError>> {
        self.take(Some(limit), Location::caller())
    }

    /// Takes a segment that is free; never waits for another holder. `Ok(None)` where all are busy.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe, as [`Lock::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let segments = lock_core::LockManager::connect("memory://").await?.segmented_lock("stock", 2);
    /// let first = segments.try_acquire().await?;
    /// let second = segments.try_acquire().await?;
    /// assert!(first.is_some() && second.is_some());
    /// assert!(segments.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<SegmentGuard>, LockError>> {
        let at = Location::caller();
        async move {
            match self.look(TRY, &mut Looked::default(), at).await? {
                None if self.seats.are_all_exhausted() => Err(self.nothing_left()),
                found => Ok(found),
            }
        }
    }

    async fn take(
        &self,
        limit: Option<Duration>,
        at: &'static Location<'static>,
    ) -> Result<SegmentGuard, LockError> {
        if limit == Some(Duration::ZERO) {
            let found = self.look(TRY, &mut Looked::default(), at).await?;
            return found.ok_or_else(|| self.busy());
        }
        let started = Instant::now();
        // A limit beyond the end of the clock is none.
        let deadline = limit.and_then(|limit| started.checked_add(limit));
        let mut looked = Looked::default();
        let look = self.look(self.trust(Duration::ZERO), &mut looked, at);
        let found = match deadline {
            None => look.await,
            Some(deadline) => match timeout_at(deadline, look).await {
                Ok(found) => found,
                Err(_) if looked.answered => return Err(self.timed_out(started)),
                Err(_) => {
                    let why = format!("no answer within {:?}", started.elapsed());
                    let first = self.locks.as_ref().ok().and_then(|locks| locks.first());
                    let server = first.and_then(Lock::server);
                    return Err(LockError::unavailable(why, server.as_ref()));
                }
            },
        };
        // A server that does not answer may do so in time: how long to hope is for the queue to decide.
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
                // The time ran out before the queue answered, but not before the segments did.
                Err(LockError::Unavailable { .. })
                    if looked.answered && deadline.is_some_and(|end| Instant::now() >= end) =>
                {
                    return Err(self.timed_out(started));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits in the queue of one segment, and looks at the others from time to time. `None` where the segment was
    /// reported as exhausted.
    async fn wait(
        &self,
        place: SeatTaken,
        deadline: Option<Instant>,
        at: &'static Location<'static>,
    ) -> Result<Option<SegmentGuard>, LockError> {
        let locks = self.locks.as_ref().map_err(Clone::clone)?;
        let segment = &locks[place.segment()];
        let mut queued = pin!(async {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            segment.acquire_at(left, at).await
        });
        let most = self.most_patience();
        let mut patience = PATIENCE;
        loop {
            // What was found busy before this wait began may be looked at after it.
            let since = patience;
            tokio::select! {
                biased;
                guard = &mut queued => return Ok(Some(SegmentGuard::new(guard?, place))),
                () = self.seats.exhausted(place.segment()) => return Ok(None),
                () = self.seats.freed() => {}
                () = sleep(patience) => patience = most.min(patience * 2),
            }
            place.runs();
            let mut looked = Looked::default();
            tokio::select! {
                biased;
                guard = &mut queued => return Ok(Some(SegmentGuard::new(guard?, place))),
                // A failure to look is no reason to leave the queue.
                found = self.look(self.trust(since), &mut looked, at) => if let Ok(Some(guard)) = found {
                    self.seats.announce_others();
                    return Ok(Some(guard));
                }
            }
        }
    }

    fn most_patience(&self) -> Duration {
        let (least, most) = MOST_PATIENCE;
        (PATIENCE_EACH * self.segments() as u32).clamp(least, most)
    }

    /// What one that waits trusts, or that will wait where nothing is found.
    fn trust(&self, found_busy: Duration) -> Trust {
        Trust {
            found_busy,
            ran: self.most_patience() * RUNS_WITHIN,
        }
    }

    /// Asks for each segment once, but not for those that are known here to be busy.
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
            let found = locks[segment].try_acquire_at(at).await;
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
            waited: started.elapsed(),
            holder: None,
        }
    }

    fn nothing_left(&self) -> LockError {
        LockError::Exhausted {
            key: self.name.to_string(),
        }
    }
}

/// What a look has learnt so far, also if it is cut short.
#[derive(Default)]
struct Looked {
    answered: bool,
}

/// The lock that stands for a segment. See [`SegmentedLock`] for the reason of the braces.
fn name(key: &str, segment: usize) -> String {
    if key.is_empty() {
        // Refused as such.
        String::new()
    } else if key.contains(['{', '}']) {
        format!("{key}:{segment}")
    } else {
        format!("{{{key}:{segment}}}")
    }
}
