//! The visible state of the locks.

use super::MemoryState;
use crate::base::key::LockKey;
use crate::base::kind::Kind;
use crate::base::time::Moment;
use crate::base::token::Bearer;
use crate::store::{Scanned, Snapshot, SnapshotState};

impl MemoryState {
    pub(super) fn inspect(&mut self, now: Moment, key: &LockKey) -> Snapshot {
        if key.kind() == Kind::Reentrant {
            return self.inspect_reentrant(now, key);
        }
        let fence = self.fence;
        if let Some(kind) = self.foreign(key, now) {
            return Snapshot {
                state: SnapshotState::Foreign { kind },
                waiting: 0,
                queue: Vec::new(),
                fence,
                nodes: Vec::new(),
            };
        }
        let slot = self.slot(key, now);
        let queue = slot.queue.iter().take(100);
        let snapshot = Snapshot {
            waiting: slot.queue.len() as u64,
            queue: queue
                .map(|waiter| Bearer::parse(waiter.token.bearer()))
                .collect(),
            fence,
            nodes: Vec::new(),
            state: match &slot.holder {
                None => SnapshotState::Free,
                Some(holder) => SnapshotState::Held {
                    remaining: now.until(holder.expires),
                    client: holder.token.client().to_owned(),
                    holder: Bearer::parse(holder.token.bearer()),
                    holds: 1,
                    owner: None,
                },
            },
        };
        self.tidy(key);
        snapshot
    }

    pub(super) fn scan(&self, prefix: &str) -> Scanned {
        let names = self.locks.keys().filter(|name| name.starts_with(prefix));
        Scanned {
            keys: names.map(ToString::to_string).collect(),
            next: None,
        }
    }
}
