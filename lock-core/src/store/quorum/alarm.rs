//! Timers that outlive the round they were set for.
//!
//! To arm a timer that rings sooner than any other wakes the thread that waits for events: a system call for a limit that
//! is hardly ever reached. A round is over long before its alarm rings, and the next one has much the same limit: it
//! takes the alarm as it is set, and sets it anew only when it has rung, in vain.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::rt::{Handle, Id};
use crate::sync::lock;

/// So many are kept. An alarm keeps parts of its runtime alive, also when that has ended.
const KEPT: usize = 32;

/// The alarms that no round has.
#[derive(Debug, Default)]
pub(super) struct Alarms(Mutex<VecDeque<(Id, Pin<Box<Sleep>>)>>);

/// An alarm, which goes back to the others when it is dropped.
pub(super) struct Alarm {
    /// The runtime that rings it.
    home: Id,
    /// `None` only while it is dropped.
    sleep: Option<Pin<Box<Sleep>>>,
    alarms: Arc<Alarms>,
}

impl Alarms {
    /// An alarm of the runtime that the caller is on. It may be set for any time.
    pub(super) fn take(self: &Arc<Self>, until: Instant) -> Alarm {
        let home = Handle::current().id();
        let mut kept = lock(&self.0);
        let place = kept.iter().rposition(|(of, _)| *of == home);
        let found = place.and_then(|place| kept.remove(place));
        drop(kept);
        let sleep = found.map_or_else(|| Box::pin(sleep_until(until)), |(_, sleep)| sleep);
        Alarm {
            home,
            sleep: Some(sleep),
            alarms: Arc::clone(self),
        }
    }
}

impl Alarm {
    /// Ready at `until`, and not before.
    pub(super) fn poll_until(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let Some(sleep) = &mut self.sleep else {
            return Poll::Pending;
        };
        if sleep.deadline() > until {
            sleep.as_mut().reset(until);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            // It was set for an earlier time.
            sleep.as_mut().reset(until);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(sleep) = self.sleep.take() {
            let mut kept = lock(&self.alarms.0);
            let oldest = if kept.len() == KEPT {
                kept.pop_front()
            } else {
                None
            };
            kept.push_back((self.home, sleep));
            drop(kept);
            // Not under the lock: it is taken off the timers of its runtime.
            drop(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(3600);

    fn kept(alarms: &Arc<Alarms>) -> usize {
        lock(&alarms.0).len()
    }

    async fn ring(alarm: &mut Alarm, until: Instant) {
        poll_fn(|cx| alarm.poll_until(until, cx)).await;
        assert!(Instant::now() >= until);
    }

    #[tokio::test]
    async fn an_alarm_is_handed_on_and_rings_at_the_time_of_each_that_has_it() {
        let (alarms, start) = (Arc::<Alarms>::default(), Instant::now());
        // Set, and given back long before it rings.
        let mut alarm = alarms.take(start + SOON);
        let set = poll_fn(|cx| Poll::Ready(alarm.poll_until(start + SOON, cx))).await;
        assert_eq!((set, kept(&alarms)), (Poll::Pending, 0));
        drop(alarm);
        assert_eq!(kept(&alarms), 1);
        // Later than it is set for, sooner than it is set for, and when it has rung.
        for (wanted, until) in [(SOON * 3, SOON * 3), (LONG, SOON * 4), (SOON, SOON)] {
            let mut alarm = alarms.take(start + wanted);
            assert_eq!(kept(&alarms), 0);
            let set = poll_fn(|cx| Poll::Ready(alarm.poll_until(start + wanted, cx))).await;
            assert!(set.is_pending() || Instant::now() >= start + wanted);
            ring(&mut alarm, start + until).await;
        }
        assert_eq!(kept(&alarms), 1);
    }

    #[test]
    fn an_alarm_of_a_runtime_that_has_ended_is_not_used() {
        let alarms = Arc::<Alarms>::default();
        for _ in 0..KEPT + 3 {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            runtime.block_on(async {
                let until = Instant::now() + Duration::from_millis(1);
                ring(&mut alarms.take(until), until).await;
                let mut set = alarms.take(until + LONG);
                let _ = poll_fn(|cx| Poll::Ready(set.poll_until(until + LONG, cx))).await;
            });
        }
        assert!(kept(&alarms) <= KEPT);
    }
}
