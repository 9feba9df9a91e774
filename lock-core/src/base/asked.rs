//! The keys that a future asks for, for a test that only wants to know them: the future gets none of the locks.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use crate::base::sync::lock;

tokio::task_local! {
    /// What the running future has asked for.
    static ASKED: Arc<Mutex<Vec<String>>>;
}

/// Runs a future until it has asked for a lock, and drops it.
pub(crate) async fn asked_by<F: Future>(call: F) -> Vec<String> {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let mut call = pin!(ASKED.scope(Arc::clone(&keys), call));
    poll_fn(|context| {
        let is_over = call.as_mut().poll(context).is_ready();
        if is_over || !lock(&keys).is_empty() {
            Poll::Ready(std::mem::take(&mut *lock(&keys)))
        } else {
            Poll::Pending
        }
    })
    .await
}

/// The running future asks for a lock.
pub(crate) fn note(key: &str) {
    let _ = ASKED.try_with(|keys| {
        let mut keys = lock(keys);
        // A call for several locks may ask for one of them again.
        if keys.iter().all(|known| known != key) {
            keys.push(key.to_owned());
        }
    });
}

/// Whether the running future gets no lock.
pub(crate) fn is_only_asked() -> bool {
    ASKED.try_with(|_| ()).is_ok()
}
