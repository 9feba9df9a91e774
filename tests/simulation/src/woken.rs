//! Tasks whose wakers look at who calls them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use lock_core::sim;

use crate::meter::Meter;

/// A task of a user. Its waker must not be called by a thread that has a lock of the engine: an executor may run the task in the
/// call, or drop it.
pub(crate) struct Woken<F> {
    future: Pin<Box<F>>,
    meter: Meter,
    /// The waker of the last poll, and the one that stands for it.
    waker: Option<(Waker, Waker)>,
}

impl<F> Woken<F> {
    pub(crate) fn new(future: F, meter: &Meter) -> Self {
        Self {
            future: Box::pin(future),
            meter: meter.clone(),
            waker: None,
        }
    }
}

impl<F: Future> Future for Woken<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let is_known = |known: &(Waker, Waker)| known.0.will_wake(cx.waker());
        let known = this.waker.take().filter(is_known);
        let known = known.unwrap_or_else(|| {
            let strict = Arc::new(Strict {
                waker: cx.waker().clone(),
                meter: this.meter.clone(),
            });
            (cx.waker().clone(), strict.into())
        });
        let (_, strict) = this.waker.insert(known);
        this.future.as_mut().poll(&mut Context::from_waker(strict))
    }
}

struct Strict {
    waker: Waker,
    meter: Meter,
}

impl Wake for Strict {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !sim::is_unlocked() && !self.meter.is_halted() {
            let what = "a task is woken by a thread that has a lock of the engine";
            self.meter.find("waker", what.to_owned());
        }
        self.waker.wake_by_ref();
    }
}
