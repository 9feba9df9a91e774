//! WRONG, for contrast: a lock as many recipes have it. Three mistakes:
//!
//! - SETNX and EXPIRE are two commands: a crash in between locks everybody out for ever.
//! - The lease is not renewed, so whoever takes longer works on without a lock.
//! - DEL deletes the lock of whoever has it then. And so two work at once, and the one writes over the other.

use std::time::Duration;

use lock_examples::Outcome;
use tokio::sync::Semaphore;

use crate::line::Answer;
use crate::shop::{Order, Till};

/// Four times as long as a purchase takes, nearly always.
const LEASE_FACTOR: u32 = 4;
const SHORTEST_LEASE: Duration = Duration::from_millis(10);
/// They all poll, so it is better that they are not too many.
const AT_ONCE: usize = 32;

pub(crate) struct Counter {
    seats: Semaphore,
    lock: String,
}

impl Counter {
    pub(crate) fn open(till: &Till) -> Self {
        Self {
            seats: Semaphore::new(AT_ONCE),
            lock: format!("{}:naive", till.keys.lock()),
        }
    }

    pub(crate) async fn sell(&self, till: &Till, order: &Order) -> Outcome<Answer> {
        let _seat = self.seats.acquire().await?;
        self.lock(till, order).await?;
        let holding = till.holds(0);
        let stock = till.keys.stock();
        let left = till.left(&stock).await?;
        let answer = if left > 0 {
            till.work(order).await;
            till.write(&stock, left - 1, order).await?;
            Answer::Sold
        } else {
            Answer::SoldOut
        };
        drop(holding);
        self.unlock(till).await?;
        Ok(answer)
    }

    async fn lock(&self, till: &Till, order: &Order) -> Outcome {
        let redis = &mut till.redis.clone();
        loop {
            till.sends(1);
            let mut setnx = redis::cmd("SETNX");
            if setnx
                .arg(&self.lock)
                .arg(&order.id)
                .query_async(redis)
                .await?
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(5..15))).await;
        }
        till.sends(1);
        let lease = (order.usual * LEASE_FACTOR).max(SHORTEST_LEASE);
        let mut expire = redis::cmd("PEXPIRE");
        expire.arg(&self.lock).arg(lease.as_millis() as u64);
        let () = expire.query_async(redis).await?;
        Ok(())
    }

    async fn unlock(&self, till: &Till) -> Outcome {
        till.sends(1);
        let mut del = redis::cmd("DEL");
        let () = del
            .arg(&self.lock)
            .query_async(&mut till.redis.clone())
            .await?;
        Ok(())
    }
}
