//! One lock on the stock: whoever holds it may take its time, and nobody else sells meanwhile.

use lock_core::Lock;
use lock_examples::Outcome;

use super::{Under, give_back, take_one};
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
            give_back(guard.release().await)?;
            match under {
                Under::Sold => return Ok(Answer::Sold),
                Under::Empty => return Ok(Answer::SoldOut),
                Under::Lost => {}
            }
        }
    }
}
