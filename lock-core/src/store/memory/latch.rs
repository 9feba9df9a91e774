//! The latches, in memory.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::common::Common;
use crate::base::key::LockKey;
use crate::base::latch::LATCH;
use crate::base::refusal::Refusal;
use crate::base::time::Moment;

/// The latches that were counted down at least once.
#[derive(Default)]
pub(in crate::store) struct Latches(HashMap<Box<str>, LatchSlot>);

struct LatchSlot {
    count: u32,
    ids: HashSet<Box<str>>,
    expires: Moment,
}

impl Latches {
    /// Counts an id, and reads what is left. Without an id it only reads.
    pub(in crate::store) fn count_down(
        &mut self,
        common: &mut Common,
        key: &LockKey,
        count: u32,
        ttl: Duration,
        id: Option<&str>,
    ) -> Result<u32, Refusal> {
        let now = common.now;
        self.0.retain(|_, latch| latch.expires > now);
        let left = match self.0.get(key.lock()) {
            Some(latch) if latch.count != count => return Err(Refusal::OtherCount(latch.count)),
            Some(latch) => count.saturating_sub(latch.ids.len() as u32),
            None => count,
        };
        let Some(id) = id.filter(|_| left > 0) else {
            return Ok(left);
        };
        let latch = self.0.entry(key.lock().into());
        let latch = latch.or_insert_with(|| LatchSlot {
            count,
            ids: HashSet::new(),
            expires: now,
        });
        // Also an id that counts again shows that its part lives. Other parts may name a shorter ttl.
        latch.expires = latch.expires.max(now + ttl);
        if !latch.ids.insert(id.into()) {
            return Ok(left);
        }
        if left == 1 {
            common.announce(&key.name_of(LATCH));
        }
        Ok(left - 1)
    }
}
