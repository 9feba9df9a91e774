//! Knowledge of the segments that the clones of a segmented lock share. It saves requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::base::sync::lock;

/// Interval between two looks of a waiter at the other segments: for each segment, minimum and maximum. With up to 120 segments, all
/// waiters of a handle together send at most 40 requests a second.
const INTERVAL_EACH: Duration = Duration::from_millis(25);
const INTERVALS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));

/// One entry for each segment, shared by a handle, its clones and its guards.
#[derive(Debug)]
pub(crate) struct Seats {
    table: Mutex<Box<[Seat]>>,
    /// One waiter is notified if a segment may be free: it looks.
    pub(crate) freed: Notify,
    /// All waiters are notified if a segment is exhausted: those of that segment leave it.
    pub(crate) exhausted: Notify,
    /// Interval between two looks of a waiter.
    pub(crate) interval: Duration,
}

#[derive(Debug, Clone, Default)]
struct Seat {
    /// Number of holders, waiters and requests of this handle.
    users: usize,
    /// The last time when this handle requested the segment, or its waiter ran. `None` if the segment may be free.
    asked: Option<Instant>,
    exhausted: bool,
}

impl Seats {
    pub(crate) fn new(segments: usize) -> Arc<Self> {
        let (least, most) = INTERVALS;
        Arc::new(Self {
            table: Mutex::new(vec![Seat::default(); segments].into()),
            freed: Notify::new(),
            exhausted: Notify::new(),
            interval: (INTERVAL_EACH * segments as u32).clamp(least, most),
        })
    }

    /// Takes a place for a request, unless the segment is exhausted, was found busy within the last `busy_for`, or has another user
    /// who ran a short time ago.
    pub(crate) fn ask(self: &Arc<Self>, segment: usize, busy_for: Duration) -> Option<SeatTaken> {
        let mut table = lock(&self.table);
        let seat = &mut table[segment];
        let trusted = match seat.users {
            0 => busy_for,
            // Do not count on a user that has not run for longer: it may never take a segment that it is granted.
            _ => self.interval * 2,
        };
        if seat.exhausted || seat.asked.is_some_and(|at| at.elapsed() < trusted) {
            return None;
        }
        Some(self.place(segment, seat))
    }

    /// Takes a place in the queue of the segment with the fewest users of this handle: of several such segments, the first from `start`
    /// on. `None` if all segments are exhausted.
    pub(crate) fn join(self: &Arc<Self>, start: usize) -> Option<SeatTaken> {
        let mut table = lock(&self.table);
        let count = table.len();
        let segment = (0..count)
            .map(|step| (start + step) % count)
            .filter(|segment| !table[*segment].exhausted)
            .min_by_key(|segment| table[*segment].users)?;
        Some(self.place(segment, &mut table[segment]))
    }

    fn place(self: &Arc<Self>, segment: usize, seat: &mut Seat) -> SeatTaken {
        seat.users += 1;
        seat.asked = Some(Instant::now());
        SeatTaken {
            seats: Arc::clone(self),
            segment,
            is_busy: false,
        }
    }

    pub(crate) fn are_all_exhausted(&self) -> bool {
        lock(&self.table).iter().all(|seat| seat.exhausted)
    }

    pub(crate) fn exhaust(&self, segment: usize) {
        if let Some(seat) = lock(&self.table).get_mut(segment) {
            seat.exhausted = true;
        }
        self.exhausted.notify_waiters();
    }
}

/// A use of a segment by this handle: a hold, a place in its queue, or a request.
#[derive(Debug)]
pub(crate) struct SeatTaken {
    pub(crate) seats: Arc<Seats>,
    pub(crate) segment: usize,
    is_busy: bool,
}

impl SeatTaken {
    pub(crate) fn is_exhausted(&self) -> bool {
        lock(&self.seats.table)[self.segment].exhausted
    }

    /// Notes that the waiter runs.
    pub(crate) fn runs(&self) {
        lock(&self.seats.table)[self.segment].asked = Some(Instant::now());
    }

    /// Notes that another process holds the segment, or that the request failed.
    pub(crate) fn found_busy(mut self) {
        self.runs();
        self.is_busy = true;
    }
}

impl Drop for SeatTaken {
    fn drop(&mut self) {
        let mut table = lock(&self.seats.table);
        let seat = &mut table[self.segment];
        seat.users -= 1;
        // Also after a cancelled request: another waiter looks instead.
        if seat.users == 0 && !self.is_busy {
            seat.asked = None;
            drop(table);
            self.seats.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn is_free(seats: &Arc<Seats>, busy_for: Duration) -> bool {
        seats.ask(0, busy_for).is_some_and(|place| {
            place.found_busy();
            true
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_keeps_others_from_its_segment_only_while_it_runs() {
        let seats = Seats::new(1);
        let waiting = seats.join(0).unwrap();
        assert!(!is_free(&seats, Duration::ZERO));
        tokio::time::advance(seats.interval * 2).await;
        waiting.runs();
        assert!(!is_free(&seats, Duration::ZERO));
        tokio::time::advance(seats.interval * 2).await;
        assert!(is_free(&seats, Duration::ZERO));
        assert!(!is_free(&seats, Duration::ZERO), "asked just now");
    }

    #[test]
    fn a_segment_found_busy_is_left_alone_until_it_is_released() {
        let seats = Seats::new(1);
        seats.ask(0, Duration::ZERO).unwrap().found_busy();
        assert!(seats.ask(0, HOUR).is_none());
        let held = seats.ask(0, Duration::ZERO).unwrap();
        drop(held);
        assert!(seats.ask(0, HOUR).is_some());
    }

    #[test]
    fn waiters_spread_over_the_segments_that_are_not_exhausted() {
        let seats = Seats::new(3);
        seats.exhaust(1);
        seats.exhaust(3);
        let places: Vec<_> = (0..4).map(|_| seats.join(1).unwrap()).collect();
        let segments: Vec<_> = places.iter().map(|place| place.segment).collect();
        assert_eq!(segments, [2, 0, 2, 0]);
        assert!(!seats.are_all_exhausted());
        seats.exhaust(0);
        seats.exhaust(2);
        assert!(seats.are_all_exhausted() && seats.join(0).is_none());
    }

    #[test]
    fn a_waiter_hears_of_a_segment_that_no_other_waiter_of_the_handle_gets() {
        let seats = Seats::new(1);
        let heard = || seats.freed.notified().now_or_never().is_some();
        seats.ask(0, Duration::ZERO).unwrap().found_busy();
        assert!(!heard(), "it is not free");
        let held = seats.ask(0, Duration::ZERO).unwrap();
        let waiting = seats.join(0);
        drop(held);
        assert!(!heard(), "it goes to the waiter in its queue");
        drop(waiting);
        assert!(heard());
        drop(seats.ask(0, HOUR).unwrap());
        assert!(heard(), "a cancelled request");
    }
}
