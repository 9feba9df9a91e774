//! What is announced beside the locks, in memory: the leaders of elections, and latches.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::common::Common;
use super::kinds::permits::Permits;
use crate::base::key::{Announced, LockKey};
use crate::base::snapshot::{LatchSnapshot, LeaderSnapshot};
use crate::base::time::Moment;
use crate::base::token::Token;

/// What the last leader of each election has said.
#[derive(Default)]
pub(super) struct LeaderRecords(HashMap<Box<str>, LeaderRecord>);

struct LeaderRecord {
    token: Token,
    term: u64,
    value: Box<str>,
}

impl LeaderRecords {
    /// The holder of the lock announces itself, or that it has released it.
    pub(super) fn announce(
        &mut self,
        common: &mut Common,
        locks: &mut Permits,
        key: &LockKey,
        token: &Token,
        leads: Option<(u64, &str)>,
    ) {
        let changed = match leads {
            None => {
                let known = self.0.get(key.lock());
                let own = known.is_none_or(|known| known.token == *token);
                if own {
                    self.0.remove(key.lock());
                }
                own
            }
            Some((term, value)) => {
                if locks
                    .held_until(key, common.now)
                    .is_none_or(|(holder, _)| holder != *token)
                {
                    return;
                }
                let (token, value) = (*token, value.into());
                let record = LeaderRecord { token, term, value };
                let known = self.0.insert(key.lock().into(), record);
                known.is_none_or(|known| known.token != token)
            }
        };
        if changed {
            common.announce(&Announced::Leader.name(key));
        }
    }

    pub(super) fn leader(
        &self,
        common: &Common,
        locks: &mut Permits,
        key: &LockKey,
    ) -> LeaderSnapshot {
        let Some((holder, end)) = locks.held_until(key, common.now) else {
            return LeaderSnapshot::Free;
        };
        let remaining = common.now.until(end);
        match self.0.get(key.lock()).filter(|it| it.token == holder) {
            Some(LeaderRecord { term, value, .. }) => LeaderSnapshot::Leads {
                term: *term,
                value: value.to_string(),
                remaining,
            },
            None => LeaderSnapshot::Unknown { remaining },
        }
    }
}

/// The latches that were counted down at least once.
#[derive(Default)]
pub(super) struct Latches(HashMap<Box<str>, LatchSlot>);

struct LatchSlot {
    count: u32,
    ids: HashSet<Box<str>>,
    expires: Moment,
}

impl Latches {
    /// Counts an id, and reads what is left. Without an id it only reads.
    pub(super) fn count_down(
        &mut self,
        common: &mut Common,
        key: &LockKey,
        count: u32,
        ttl: Duration,
        id: Option<&str>,
    ) -> LatchSnapshot {
        let now = common.now;
        self.0.retain(|_, latch| latch.expires > now);
        let left = match self.0.get(key.lock()) {
            Some(latch) if latch.count != count => return LatchSnapshot::OtherCount(latch.count),
            Some(latch) => count.saturating_sub(latch.ids.len() as u32),
            None => count,
        };
        let Some(id) = id.filter(|_| left > 0) else {
            return LatchSnapshot::Left(left);
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
            return LatchSnapshot::Left(left);
        }
        if left == 1 {
            common.announce(&Announced::Latch.name(key));
        }
        LatchSnapshot::Left(left - 1)
    }
}
