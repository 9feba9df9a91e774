//! Knowledge of the segments that the clones of a segmented lock share. It saves requests.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::base::signal::Signal;
use crate::base::sync::lock;

/// One entry for each segment, shared by a handle, its clones and its guards.
#[derive(Debug)]
pub(super) struct Seats {
    table: Mutex<Box<[Seat]>>,
    /// Notified if a segment may be free and this handle has no waiter for it: one waiter may look.
    freed: Notify,
    /// Notified if a segment was reported as exhausted: its waiters leave.
    exhausted: Signal,
}

/// Whether a guard still holds its segment.
#[derive(Clone)]
pub(super) struct Holds(Arc<dyn Fn() -> bool + Send + Sync>);

impl Holds {
    pub(super) fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }
}

impl fmt::Debug for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holds").field(&(self.0)()).finish()
    }
}

#[derive(Debug, Clone, Default)]
struct Seat {
    /// Number of holders, waiters and requests of this handle.
    engaged: usize,
    /// The guards. A lost guard may live for long, but its segment is free.
    guards: Vec<Holds>,
    /// The last time when a waiter or a request ran. If none of them runs, the segment may be free on the server.
    ran: Option<Instant>,
    exhausted: bool,
    /// The last time when a caller of this handle found it busy.
    found_busy: Option<Instant>,
}

/// For how long a look relies on earlier knowledge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trust {
    /// How long a segment that was found busy counts as busy.
    pub(super) found_busy: Duration,
    /// How long a segment counts as in use after its waiter or its request ran.
    pub(super) ran: Duration,
}

impl Seat {
    /// Whether a look skips the segment.
    fn is_passed_over(&self, trust: Trust) -> bool {
        let since = |at: Option<Instant>, trusted| at.is_some_and(|at| at.elapsed() < trusted);
        let is_awaited = self.engaged > 0 && since(self.ran, trust.ran);
        let is_held = self.guards.iter().any(|guard| (guard.0)());
        self.exhausted || is_held || is_awaited || since(self.found_busy, trust.found_busy)
    }

    fn engage(&mut self) {
        self.engaged += 1;
        self.ran = Some(Instant::now());
    }

    /// Whether this handle neither uses the segment nor has found it busy since its last hold.
    fn may_be_free(&self) -> bool {
        self.engaged == 0 && !self.exhausted && self.found_busy.is_none()
    }
}

impl Seats {
    pub(super) fn new(segments: usize) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(vec![Seat::default(); segments].into()),
            freed: Notify::new(),
            exhausted: Signal::default(),
        })
    }

    /// Takes a place at this segment for a request, unless a look with this trust skips the segment.
    pub(super) fn take_idle(self: &Arc<Self>, segment: usize, trust: Trust) -> Option<SeatTaken> {
        let mut table = lock(&self.table);
        let seat = &mut table[segment];
        if seat.is_passed_over(trust) {
            return None;
        }
        seat.engage();
        Some(self.place(segment))
    }

    /// Takes a place at the segment with the fewest users of this handle: of several such segments, the first from `start` on. `None`
    /// if all segments are exhausted.
    pub(super) fn take_least_crowded(self: &Arc<Self>, start: usize) -> Option<SeatTaken> {
        let mut table = lock(&self.table);
        let count = table.len();
        let segment = (0..count)
            .map(|step| (start + step) % count)
            .filter(|segment| !table[*segment].exhausted)
            .min_by_key(|segment| table[*segment].engaged)?;
        table[segment].engage();
        Some(self.place(segment))
    }

    pub(super) fn are_all_exhausted(&self) -> bool {
        lock(&self.table).iter().all(|seat| seat.exhausted)
    }

    /// False if there is no such segment.
    pub(super) fn exhaust(&self, segment: usize) -> bool {
        match lock(&self.table).get_mut(segment) {
            Some(seat) => seat.exhausted = true,
            None => return false,
        }
        self.exhausted.notify_waiters();
        true
    }

    /// Resolves once the segment is exhausted.
    pub(super) async fn exhausted(&self, segment: usize) {
        let is_exhausted = || lock(&self.table)[segment].exhausted;
        self.exhausted.until(is_exhausted).await;
    }

    /// Wakes one more waiter if another segment may be free. If several became free while no waiter listened, only one of them was
    /// announced.
    pub(super) fn announce_others(&self) {
        if lock(&self.table).iter().any(Seat::may_be_free) {
            self.freed.notify_one();
        }
    }

    /// Resolves when a segment of this handle may have become free.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    fn place(self: &Arc<Self>, segment: usize) -> SeatTaken {
        SeatTaken {
            seats: Arc::clone(self),
            segment,
            guard: None,
        }
    }
}

/// A use of a segment by this handle: a hold, a place in its queue, or a request.
#[derive(Debug)]
pub(super) struct SeatTaken {
    seats: Arc<Seats>,
    segment: usize,
    guard: Option<Holds>,
}

impl SeatTaken {
    pub(super) fn segment(&self) -> usize {
        self.segment
    }

    pub(super) fn seats(&self) -> &Seats {
        &self.seats
    }

    pub(super) fn taken(&mut self, guard: Holds) {
        self.guard = Some(guard.clone());
        lock(&self.seats.table)[self.segment].guards.push(guard);
    }

    /// Notes that the waiter runs.
    pub(super) fn runs(&self) {
        lock(&self.seats.table)[self.segment].ran = Some(Instant::now());
    }

    /// Notes that its guard is about to be dropped. Until the release is confirmed, a new caller may request the segment and wait for
    /// the release, unless another caller waits for it already.
    pub(super) fn lets_go(&self) {
        let mut table = lock(&self.seats.table);
        let seat = &mut table[self.segment];
        if seat.engaged == 1 {
            seat.ran = None;
            seat.found_busy = None;
        }
    }

    /// Notes that another process holds the segment, or that the request failed.
    pub(super) fn found_busy(self) {
        lock(&self.seats.table)[self.segment].found_busy = Some(Instant::now());
    }
}

impl Drop for SeatTaken {
    fn drop(&mut self) {
        let mut table = lock(&self.seats.table);
        let seat = &mut table[self.segment];
        seat.engaged -= 1;
        if let Some(guard) = &self.guard {
            seat.guards.retain(|other| !Arc::ptr_eq(&other.0, &guard.0));
            seat.found_busy = None;
        }
        // Notify also after a cancelled look: another waiter looks instead.
        let may_be_free = seat.may_be_free();
        drop(table);
        if may_be_free {
            self.seats.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt;

    use super::*;

    fn holding() -> Holds {
        Holds::new(|| true)
    }

    const HOUR: Duration = Duration::from_secs(3600);
    const NEVER: Trust = trust(Duration::ZERO);
    const ALWAYS: Trust = trust(HOUR);

    /// A caller at a segment has run.
    const fn trust(found_busy: Duration) -> Trust {
        Trust {
            found_busy,
            ran: HOUR,
        }
    }

    #[test]
    fn a_segment_that_another_clone_uses_is_not_requested() {
        let seats = Seats::new(2);
        let place = seats.take_idle(0, NEVER).unwrap();
        assert!(seats.take_idle(0, NEVER).is_none());
        assert!(seats.take_idle(1, NEVER).is_some());
        drop(place);
        assert!(seats.take_idle(0, NEVER).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_keeps_others_from_its_segment_only_while_it_runs() {
        let (seats, second) = (Seats::new(1), Duration::from_secs(1));
        let free = |ran| {
            let trust = Trust { ran, ..NEVER };
            seats.take_idle(0, trust).is_some()
        };
        let waiting = seats.take_least_crowded(0).unwrap();
        tokio::time::advance(second).await;
        assert!(!free(second * 2) && free(Duration::ZERO));
        tokio::time::advance(second).await;
        waiting.runs();
        assert!(!free(second));
        tokio::time::advance(second).await;
        assert!(free(second));
        assert!(!free(second), "another caller has just asked");
        let mut held = waiting;
        held.taken(holding());
        assert!(!free(Duration::ZERO), "a guard is always trusted");
        drop(held);
        assert!(free(HOUR));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_guard_does_not_block_its_segment() {
        let (seats, is_held) = (Seats::new(1), Arc::new(AtomicBool::new(true)));
        let mut place = seats.take_idle(0, NEVER).unwrap();
        let guard = Arc::clone(&is_held);
        place.taken(Holds::new(move || guard.load(Ordering::SeqCst)));
        tokio::time::advance(HOUR).await;
        assert!(seats.take_idle(0, NEVER).is_none());
        is_held.store(false, Ordering::SeqCst);
        let mut next = seats.take_idle(0, NEVER).unwrap();
        next.taken(holding());
        drop(place);
        tokio::time::advance(HOUR).await;
        assert!(seats.take_idle(0, NEVER).is_none(), "the next one holds it");
    }

    #[test]
    fn a_segment_found_busy_is_left_alone_for_a_while() {
        let seats = Seats::new(1);
        seats.take_idle(0, NEVER).unwrap().found_busy();
        assert!(seats.take_idle(0, ALWAYS).is_none());
        let mut held = seats.take_idle(0, NEVER).unwrap();
        held.taken(holding());
        drop(held);
        assert!(seats.take_idle(0, ALWAYS).is_some(), "it is free again");
    }

    #[test]
    fn waiters_spread_over_the_segments_that_are_not_exhausted() {
        let seats = Seats::new(3);
        assert!(seats.exhaust(1));
        assert!(!seats.exhaust(3));
        let places: Vec<_> = (0..4)
            .map(|_| seats.take_least_crowded(1).unwrap())
            .collect();
        let segments: Vec<_> = places.iter().map(SeatTaken::segment).collect();
        assert_eq!(segments, [2, 0, 2, 0]);
        assert!(!seats.are_all_exhausted());
        seats.exhaust(0);
        seats.exhaust(2);
        assert!(seats.are_all_exhausted());
        assert!(seats.take_least_crowded(0).is_none());
    }

    #[test]
    fn a_waiter_learns_at_once_of_a_segment_released_by_a_clone() {
        let seats = Seats::new(1);
        let heard = || seats.freed().now_or_never().is_some();
        seats.take_idle(0, NEVER).unwrap().found_busy();
        assert!(!heard(), "it is not free");
        let mut held = seats.take_idle(0, NEVER).unwrap();
        held.taken(holding());
        let waiting = seats.take_least_crowded(0);
        drop(held);
        assert!(!heard(), "it goes to the waiter in its queue");
        let mut held = waiting.unwrap();
        held.taken(holding());
        drop(held);
        assert!(heard());
    }

    #[test]
    fn a_cancelled_look_is_repeated_by_another_waiter() {
        let seats = Seats::new(1);
        drop(seats.take_idle(0, NEVER).unwrap());
        assert!(seats.freed().now_or_never().is_some());
    }

    #[test]
    fn two_segments_released_without_a_listener_are_both_announced() {
        let seats = Seats::new(2);
        let mut held = [0, 1].map(|segment| seats.take_idle(segment, NEVER).unwrap());
        for place in &mut held {
            place.taken(holding());
        }
        drop(held);
        let heard = || seats.freed().now_or_never().is_some();
        assert!(heard());
        assert!(!heard(), "one announcement, without a listener");
        let mut first = seats.take_idle(0, ALWAYS).unwrap();
        first.taken(holding());
        seats.announce_others();
        assert!(heard());
        seats.take_idle(1, ALWAYS).unwrap().found_busy();
        seats.announce_others();
        assert!(!heard(), "nothing else is free");
    }

    #[tokio::test]
    async fn a_waiter_leaves_an_exhausted_segment_at_once() {
        let seats = Seats::new(2);
        let mut waiting = std::pin::pin!(seats.exhausted(1));
        assert!((&mut waiting).now_or_never().is_none());
        seats.exhaust(0);
        assert!((&mut waiting).now_or_never().is_none());
        let told = tokio::spawn({
            let seats = Arc::clone(&seats);
            async move { seats.exhausted(1).await }
        });
        tokio::task::yield_now().await;
        seats.exhaust(1);
        // The limit only ends a hang.
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, told).await.unwrap().unwrap();
        assert!(waiting.now_or_never().is_some());
    }
}
