//! One task at a time for any number of callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::signal::Signal;

/// Whether a task runs that serves all callers.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight(Arc<Airspace>);

#[derive(Debug, Default)]
struct Airspace {
    runs: AtomicBool,
    over: Signal,
}

/// Kept by the running task: dropped with it, also when its runtime ends.
#[derive(Debug)]
pub(crate) struct Flight(Arc<Airspace>);

impl SingleFlight {
    /// The flight of the task that has to begin; `None` while one runs.
    pub(crate) fn begin(&self) -> Option<Flight> {
        let runs = self.0.runs.swap(true, Ordering::SeqCst);
        (!runs).then(|| Flight(Arc::clone(&self.0)))
    }
}

#[cfg(feature = "quorum")]
impl SingleFlight {
    pub(crate) fn runs(&self) -> bool {
        self.0.runs.load(Ordering::SeqCst)
    }

    /// Resolves with the next end of a task after this call.
    pub(crate) fn ends(&self) -> tokio::sync::futures::Notified<'_> {
        self.0.over.notified()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.runs.store(false, Ordering::SeqCst);
        self.0.over.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_runs_until_its_flight_is_dropped() {
        let tasks = SingleFlight::default();
        let flight = tasks.begin();
        assert!(flight.is_some() && tasks.begin().is_none());
        drop(flight);
        assert!(tasks.begin().is_some());
    }

    #[test]
    #[cfg(feature = "quorum")]
    fn a_caller_is_told_of_the_end_of_the_task() {
        let tasks = SingleFlight::default();
        let flight = tasks.begin();
        let ends = tasks.ends();
        assert!(tasks.runs());
        drop(flight);
        assert!(futures_util::FutureExt::now_or_never(ends).is_some() && !tasks.runs());
    }
}
