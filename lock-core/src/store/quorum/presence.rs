//! Whether a node votes, for the log: one line when it has stopped, and one when it votes again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::base::sync::lock;

/// A node that votes again within this time is not worth a line.
const SHORT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Since when the node has not voted, and whether the log says so.
    absent: Mutex<Option<(Instant, bool)>>,
    /// Whether there is something in `absent`: each vote asks for it.
    is_absent: AtomicBool,
}

impl Presence {
    /// The node has voted. Returns how long it had not, if the log says that it had stopped.
    pub(super) fn voted(&self) -> Option<Duration> {
        if !self.is_absent.load(Ordering::Relaxed) {
            return None;
        }
        let mut absent = lock(&self.absent);
        self.is_absent.store(false, Ordering::Relaxed);
        let (since, _) = absent.take().filter(|(_, is_said)| *is_said)?;
        Some(since.elapsed())
    }

    /// The node gave no vote. Returns whether a warning is due.
    pub(super) fn gave_none(&self) -> bool {
        let mut absent = lock(&self.absent);
        self.is_absent.store(true, Ordering::Relaxed);
        let (since, is_said) = absent.get_or_insert_with(|| (Instant::now(), false));
        let is_due = !*is_said && since.elapsed() >= SHORT;
        *is_said |= is_due;
        is_due
    }

    /// Whether the log says that the node has stopped.
    pub(super) fn is_said_to_be_absent(&self) -> bool {
        self.is_absent.load(Ordering::Relaxed)
            && lock(&self.absent).is_some_and(|(_, is_said)| is_said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_stops_is_said_once_and_so_is_its_return() {
        let presence = Presence::default();
        assert!(presence.voted().is_none() && !presence.gave_none());
        assert!(presence.voted().is_none(), "too short for a line");
        assert!(!presence.gave_none());
        tokio::time::advance(SHORT).await;
        assert!(presence.gave_none() && presence.is_said_to_be_absent());
        assert!(!presence.gave_none(), "once");
        assert_eq!(presence.voted(), Some(SHORT));
        assert!(presence.voted().is_none() && !presence.is_said_to_be_absent());
    }
}
