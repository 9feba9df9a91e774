//! One lock on the stock: whoever holds it may take its time, and nobody else sells meanwhile.

use std::sync::atomic::Ordering;

use lock_core::{Lock, LockError};
use lock_examples::Outcome;

use super::{Under, take_one};
use crate::line::Answer;
use crate::shop::{Order, Till};

pub(crate) struct Counter {
    lock: Lock,
}

impl Counter {
    pub(crate) fn open(till: &Till) -> Self {
        Self {
            lock: till.locks.lock(till.keys.lock()),
        }
    }

    pub(crate) async fn sell(&self, till: &Till, order: &Order) -> Outcome<Answer> {
        loop {
            let guard = self.lock.acquire().await?;
            let holding = till.holds(0);
            let under = take_one(till, order, &till.keys.stock(), &guard).await?;
            drop(holding);
            let released = guard.release().await;
            match (under, released) {
                (Under::Lost, _) => {}
                (Under::Empty, _) => return Ok(Answer::SoldOut),
                (Under::Sold, released) => {
                    // Lost between the check and the write: written all the same.
                    if matches!(released, Err(LockError::Lost { .. })) {
                        till.stale_tried.fetch_add(1, Ordering::Relaxed);
                    }
                    return Ok(Answer::Sold);
                }
            }
        }
    }
}
