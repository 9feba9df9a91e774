//! A signal for any number of tasks that wait until they find something.

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Tells the tasks that wait now that something has changed. A signal is not kept: each task looks before it waits.
#[derive(Debug, Default)]
pub(crate) struct Signal(Notify);

impl Signal {
    pub(crate) fn notify_waiters(&self) {
        self.0.notify_waiters();
    }

    /// Resolves with the next signal after this call, also if that comes before the future is polled: call this, look, then wait.
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.0.notified()
    }

    /// Waits until a look finds something: one look at once, and one after each signal.
    pub(crate) async fn find<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let changed = self.notified();
            if let Some(found) = look() {
                return found;
            }
            changed.await;
        }
    }

    /// Waits until this holds, which each signal may bring about.
    pub(crate) async fn until(&self, holds: impl Fn() -> bool) {
        self.find(|| holds().then_some(())).await;
    }
}
