//! The stock in parts that are spread over the masters of a cluster: each part, its orders and its lock are in one slot.
//!
//! A master may die with writes that its replica has not received. So a buyer hears "sold" only after the replica has the
//! order. After any other answer the buyer asks the same segment again with the same order id: the order may be written, and the
//! id keeps it from being written twice.

use std::time::Duration;

use lock_core::{GuardedScript, LockError, LockGuard, SegmentedLock};
use lock_examples::Outcome;
use tokio::time::sleep;

use super::SEGMENTS;
use crate::cluster::{NAME, Nodes, key};
use crate::line::Answer;
use crate::shop::{Order, Till};

/// Between two attempts while a replica takes over.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a replica may take to confirm.
const WAIT_MS: u32 = 100;

pub(crate) struct Counter {
    lock: SegmentedLock,
    buy: GuardedScript,
    nodes: Nodes,
}

impl Counter {
    pub(crate) async fn open(till: &Till) -> Outcome<Self> {
        Ok(Self {
            lock: till.locks.segmented_lock(NAME, SEGMENTS),
            buy: GuardedScript::new(include_str!("../scripts/buy_once.lua")),
            nodes: Nodes::connect(&till.url).await?,
        })
    }

    pub(crate) async fn sell(&self, till: &Till, order: &Order) -> Outcome<Answer> {
        loop {
            let guard = match self.lock.acquire().await {
                Ok(guard) => guard,
                Err(LockError::Exhausted { .. }) => return Ok(Answer::SoldOut),
                Err(error) => {
                    may_pass(error)?;
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let segment = guard.segment();
            let holding = till.holds(segment);
            till.toil(order).await;
            let mut sold = self.buy(segment, order, &guard).await?;
            drop(holding);
            // Lost, or its master is gone: what matters is the answer to the purchase.
            let _ = guard.release().await;
            if sold.is_none() {
                till.asks_again();
            }
            while sold.is_none() {
                sleep(PAUSE).await;
                sold = self.buy_again(till, segment, order).await?;
            }
            if sold == Some(true) {
                return Ok(Answer::Sold);
            }
            // From now on no task of this process asks for this part.
            self.lock.exhausted(segment);
        }
    }

    /// As [`buy`](Self::buy), under a new hold of the same segment.
    async fn buy_again(&self, till: &Till, segment: usize, order: &Order) -> Outcome<Option<bool>> {
        let guard = match till.locks.lock(key(segment, "")).acquire().await {
            Ok(guard) => guard,
            Err(error) => return may_pass(error).map(|()| None),
        };
        let holding = till.holds(segment);
        let sold = self.buy(segment, order, &guard).await?;
        drop(holding);
        let _ = guard.release().await;
        Ok(sold)
    }

    /// Whether the order is sold, or the segment is sold out; `None` without an answer.
    async fn buy(&self, segment: usize, order: &Order, guard: &LockGuard) -> Outcome<Option<bool>> {
        let buy = guard
            .guarded(&self.buy)
            .key(key(segment, ":left"))
            .key(key(segment, ":orders"))
            .arg(&order.id);
        match buy.run::<bool>().await {
            Ok(true) => Ok(self.is_on_a_replica(segment, order).await.then_some(true)),
            Ok(false) => Ok(Some(false)),
            Err(error) => may_pass(error).map(|()| None),
        }
    }

    /// Whether the order is on the master and its replica.
    async fn is_on_a_replica(&self, segment: usize, order: &Order) -> bool {
        let mut look = redis::pipe();
        // WAIT waits for the writes of its own connection only. So this connection makes one, after it has seen the order.
        look.sismember(key(segment, ":orders"), &order.id);
        look.incr(key(segment, ":confirmed"), 1).ignore();
        look.cmd("WAIT").arg(1).arg(WAIT_MS);
        let answer: Option<(bool, u32)> = self.nodes.ask(segment, &look).await;
        matches!(answer, Some((true, 1..)))
    }
}

/// Whether another attempt may succeed, as the master is gone or has just come. Any other error ends the sale.
fn may_pass(error: LockError) -> Outcome {
    match error {
        LockError::Lost { .. } | LockError::Unavailable { .. } => Ok(()),
        error => Err(error.into()),
    }
}
