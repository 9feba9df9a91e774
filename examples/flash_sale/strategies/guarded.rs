//! One lock on the stock, and a write that the server makes only while the lock is still held: check and write are one
//! step. So a process may be paused between its last look at the lock and its write, and changes nothing.

use lock_core::{GuardedScript, Lock, LockError, LockGuard};
use lock_examples::Outcome;

use super::{Under, give_back};
use crate::line::Answer;
use crate::shop::{Order, Till};

pub(crate) struct Counter {
    lock: Lock,
    write: GuardedScript,
}

impl Counter {
    pub(crate) fn open(till: &Till) -> Self {
        Self {
            lock: till.locks.lock(till.keys.lock()),
            write: GuardedScript::new(include_str!("../scripts/write.lua")),
        }
    }

    pub(crate) async fn sell(&self, till: &Till, order: &Order) -> Outcome<Answer> {
        loop {
            let guard = self.lock.acquire().await?;
            let holding = till.holds(0);
            let under = self.take_one(till, order, &guard).await?;
            drop(holding);
            give_back(guard.release().await)?;
            match under {
                Under::Sold => return Ok(Answer::Sold),
                Under::Empty => return Ok(Answer::SoldOut),
                Under::Lost => {}
            }
        }
    }

    async fn take_one(&self, till: &Till, order: &Order, guard: &LockGuard) -> Outcome<Under> {
        let stock = till.keys.stock();
        let left = till.left(&stock).await?;
        if left <= 0 {
            return Ok(Under::Empty);
        }
        till.toil(order).await;
        if !guard.is_held() {
            till.stale_write(true);
            return Ok(Under::Lost);
        }
        // The worst moment to be paused: after the last look, before the write.
        till.perhaps_caught().await;
        let write = guard
            .guarded(&self.write)
            .key(stock)
            .key(till.keys.orders())
            .arg(left - 1)
            .arg(&order.id);
        match write.run::<u8>().await {
            Ok(_) => Ok(Under::Sold),
            Err(LockError::Lost { .. }) => {
                till.stale_write(true);
                Ok(Under::Lost)
            }
            // It may have been written: to try again could sell twice.
            Err(error) => Err(error.into()),
        }
    }
}
