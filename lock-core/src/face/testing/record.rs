//! What the locks of a server in memory were taken for, by whom, and for how long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::asked::note;
use crate::base::error::LossReason;
use crate::base::observe::{Event, Observer};
use crate::base::signal::Signal;
use crate::base::sync::lock;

/// A hold that has ended, in the [record](super::MemoryServer::record) of a server in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakenLock {
    /// The key as the caller wrote it; of a segment `{key:number}`.
    pub key: String,
    /// The kind of the lock, as in [`ObservedLock`](crate::observe::ObservedLock::kind).
    pub kind: &'static str,
    /// The [name](crate::LockManagerBuilder::client_name) of the client that held it.
    pub by: String,
    /// From when its guard had the lock until the end of the hold, by the clock of the server.
    pub held: Duration,
    /// Why it was lost; `None` if it was released.
    pub lost: Option<LossReason>,
}

/// The record of all managers of a server.
#[derive(Default)]
pub(super) struct Record {
    entries: Mutex<Entries>,
    pub(super) changed: Signal,
}

#[derive(Default)]
struct Entries {
    taken: Vec<TakenLock>,
    /// By key, the number of holds, and of calls under way.
    held: HashMap<String, usize>,
    waiting: HashMap<String, usize>,
}

impl Record {
    pub(super) fn taken(&self) -> Vec<TakenLock> {
        lock(&self.entries).taken.clone()
    }

    pub(super) fn is_held(&self, key: &str) -> bool {
        lock(&self.entries).held.contains_key(key)
    }

    pub(super) fn is_waited_for(&self, key: &str) -> bool {
        lock(&self.entries).waiting.contains_key(key)
    }
}

/// Writes the record of one manager.
pub(super) struct ClientRecord {
    pub(super) record: Arc<Record>,
    pub(super) by: String,
}

impl Observer for ClientRecord {
    fn observe(&self, event: &Event<'_>) {
        let mut entries = lock(&self.record.entries);
        match event {
            Event::Waiting { lock } => {
                note(lock.key);
                *entries.waiting.entry(lock.key.to_owned()).or_default() += 1;
            }
            Event::Acquired { lock, .. } => {
                ends(&mut entries.waiting, lock.key);
                *entries.held.entry(lock.key.to_owned()).or_default() += 1;
            }
            Event::Refused { lock, .. } | Event::Cancelled { lock, .. } => {
                ends(&mut entries.waiting, lock.key);
            }
            Event::Released { lock, held, .. } | Event::Lost { lock, held, .. } => {
                ends(&mut entries.held, lock.key);
                entries.taken.push(TakenLock {
                    key: lock.key.to_owned(),
                    kind: lock.kind,
                    by: self.by.clone(),
                    held: *held,
                    lost: match event {
                        Event::Lost { reason, .. } => Some(*reason),
                        _ => None,
                    },
                });
            }
            _ => return,
        }
        drop(entries);
        self.record.changed.notify_waiters();
    }
}

/// One of the calls or holds of a key is over.
fn ends(counts: &mut HashMap<String, usize>, key: &str) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
