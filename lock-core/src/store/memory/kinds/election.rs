//! The leader of an election, in memory: the holder of an exclusive lock, with what it is named by.

use crate::base::election::LeaderSnapshot;
use crate::base::key::LockKey;
use crate::base::refusal::Refusal;
use crate::store::memory::MemoryStore;

impl MemoryStore {
    pub(in crate::store) fn leader(&self, key: &LockKey) -> Result<LeaderSnapshot, Refusal> {
        self.run(|locks| {
            locks.check(key)?;
            let now = locks.common.now;
            let Some(holder) = locks.exclusive.holder(key, now) else {
                return Ok(LeaderSnapshot::Free);
            };
            let remaining = now.until(holder.expires);
            Ok(match &holder.named {
                Some((_, value)) => LeaderSnapshot::Leads {
                    term: holder.fence,
                    value: value.to_string(),
                    remaining,
                },
                None => LeaderSnapshot::Unknown { remaining },
            })
        })
    }
}
