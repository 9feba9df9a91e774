//! The stock in parts, each with a lock of its own: as many sell at a time as there are parts.

use lock_core::{LockError, SegmentedLock};
use lock_examples::Outcome;

use super::{SEGMENTS, Under, give_back, take_one};
use crate::line::Answer;
use crate::shop::{Order, Till};

pub(crate) struct Counter {
    lock: SegmentedLock,
}

impl Counter {
    pub(crate) fn open(till: &Till) -> Self {
        Self {
            lock: till.locks.segmented_lock(till.keys.lock(), SEGMENTS),
        }
    }

    pub(crate) async fn sell(&self, till: &Till, order: &Order) -> Outcome<Answer> {
        loop {
            let guard = match self.lock.acquire().await {
                Ok(guard) => guard,
                Err(LockError::Exhausted { .. }) => return Ok(Answer::SoldOut),
                Err(error) => return Err(error.into()),
            };
            let holding = till.holds(guard.segment());
            let part = till.keys.part(guard.segment());
            let under = take_one(till, order, &part, &guard).await?;
            drop(holding);
            if matches!(under, Under::Empty) {
                // From now on nobody in this process asks for this part.
                guard.exhausted();
            }
            give_back(guard.release().await)?;
            if matches!(under, Under::Sold) {
                return Ok(Answer::Sold);
            }
        }
    }
}
