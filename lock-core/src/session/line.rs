//! Who waits for which lock in this process, and when to ask the server on their behalf.
//!
//! However many wait for a lock here, one of them asks, every few seconds: that keeps all of them alive on the
//! server, and finds a lock that expired (of which no message tells) or a grant whose message was lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::entry::Entry;
use crate::clock::Moment;

/// The lines of all locks that somebody here waits for.
#[derive(Debug, Default)]
pub(crate) struct Lines(HashMap<Box<str>, Line>);

#[derive(Debug)]
struct Line {
    /// By age: the oldest is the first to be granted.
    waiters: BTreeMap<u64, Arc<Entry>>,
    next_check: Moment,
    /// A check is under way.
    asking: bool,
}

impl Lines {
    /// Adds a waiter that has just been answered "queued". Returns when the line wants its next check.
    pub(crate) fn join(&mut self, entry: &Arc<Entry>, check_at: Moment) -> Moment {
        let line = self.0.entry(entry.key.lock.clone()).or_insert(Line {
            waiters: BTreeMap::new(),
            next_check: check_at,
            asking: false,
        });
        line.waiters.insert(entry.sequence, Arc::clone(entry));
        line.next_check = line.next_check.min(check_at);
        line.next_check
    }

    pub(crate) fn leave(&mut self, entry: &Entry) {
        if let Some(line) = self.0.get_mut(&entry.key.lock) {
            line.waiters.remove(&entry.sequence);
            if line.waiters.is_empty() {
                self.0.remove(&entry.key.lock);
            }
        }
    }

    /// The waiters that should ask now, one for each lock whose check is due; and when the next one is.
    pub(crate) fn due(&mut self, now: Moment) -> (Vec<Arc<Entry>>, Moment) {
        let mut asking = Vec::new();
        let mut next = Moment::NEVER;
        for line in self.0.values_mut().filter(|line| !line.asking) {
            if line.next_check <= now {
                line.asking = true;
                // Whoever joins while we ask may want an earlier check than the one after this.
                line.next_check = Moment::NEVER;
                asking.extend(line.waiters.values().next().cloned());
            } else {
                next = next.min(line.next_check);
            }
        }
        (asking, next)
    }

    /// A check of this lock has ended. Returns when the next one is, if somebody still waits.
    pub(crate) fn checked(&mut self, lock: &str, now: Moment, after: Duration) -> Option<Moment> {
        let line = self.0.get_mut(lock)?;
        line.asking = false;
        line.next_check = line.next_check.min(now + after);
        Some(line.next_check)
    }

    /// The waiters of one lock.
    pub(crate) fn of(&self, lock: &str) -> impl Iterator<Item = &Arc<Entry>> {
        self.0
            .get(lock)
            .into_iter()
            .flat_map(|l| l.waiters.values())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.0.values().flat_map(|line| line.waiters.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::entry::tests::entry;

    const T0: Moment = Moment(1 << 50);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_waiter_of_a_line_asks_for_all_and_it_is_the_oldest() {
        let mut lines = Lines::default();
        for sequence in [5, 3, 4] {
            lines.join(&entry(sequence, "a"), T0 + SECOND);
        }
        lines.join(&entry(6, "b"), T0 + SECOND * 3);
        let (due, next) = lines.due(T0 + SECOND);
        assert_eq!(due.iter().map(|e| e.sequence).collect::<Vec<_>>(), [3]);
        assert_eq!(next, T0 + SECOND * 3);
        let (again, _) = lines.due(T0 + SECOND * 2);
        assert!(again.is_empty(), "a check is under way");
        assert_eq!(
            lines.checked("lock:a", T0 + SECOND * 2, SECOND),
            Some(T0 + SECOND * 3)
        );
    }

    #[test]
    fn a_line_ends_with_its_last_waiter() {
        let mut lines = Lines::default();
        let waiter = entry(1, "a");
        lines.join(&waiter, T0);
        lines.leave(&waiter);
        assert_eq!(lines.all().count(), 0);
        assert_eq!(lines.checked("lock:a", T0, SECOND), None);
        assert!(lines.0.is_empty());
    }
}
