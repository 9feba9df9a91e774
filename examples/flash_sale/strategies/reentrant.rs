//! The same lock, taken by every function that needs it: each is right by itself, and they may call each other.

use lock_core::{LockGuard, Owner, ReentrantLock};
use lock_examples::Outcome;

use super::{Under, give_back};
use crate::line::Answer;
use crate::shop::{Order, Till};

pub(crate) struct Counter {
    lock: ReentrantLock,
}

impl Counter {
    pub(crate) fn open(till: &Till) -> Self {
        Self {
            lock: till.locks.reentrant_lock(till.keys.lock()),
        }
    }

    pub(crate) async fn sell(&self, till: &Till, order: &Order) -> Outcome<Answer> {
        loop {
            // The owner is the purchase: everything in its scope shares the lock.
            match Owner::new().scope(self.purchase(till, order)).await? {
                Under::Sold => return Ok(Answer::Sold),
                Under::Empty => return Ok(Answer::SoldOut),
                Under::Lost => {}
            }
        }
    }

    async fn purchase(&self, till: &Till, order: &Order) -> Outcome<Under> {
        let guard = self.lock.acquire().await?;
        let holding = till.holds(0);
        let left = self.take_stock(till).await?;
        let under = if left > 0 {
            till.work(order).await;
            self.record_order(till, order, left - 1, &guard).await?
        } else {
            Under::Empty
        };
        drop(holding);
        give_back(guard.release().await)?;
        Ok(under)
    }

    /// How much there is, at a moment when nobody sells.
    async fn take_stock(&self, till: &Till) -> Outcome<i64> {
        let guard = self.lock.acquire().await?;
        let left = till.left(&till.keys.stock()).await?;
        give_back(guard.release().await)?;
        Ok(left)
    }

    /// Writes what was sold since `counted`, the hold under which the stock was taken.
    async fn record_order(
        &self,
        till: &Till,
        order: &Order,
        left: i64,
        counted: &LockGuard,
    ) -> Outcome<Under> {
        let guard = self.lock.acquire().await?;
        // If the lock was lost since, this is a new hold with another token, and others have sold in between.
        let same = guard.fencing_token() == counted.fencing_token() && guard.is_held();
        if same {
            till.write(&till.keys.stock(), left, order).await?;
        }
        if !same || !guard.is_held() {
            till.stale_write(!same);
        }
        give_back(guard.release().await)?;
        Ok(if same { Under::Sold } else { Under::Lost })
    }
}
