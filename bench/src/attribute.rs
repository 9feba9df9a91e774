//! What `#[distributed_lock]` costs over a guard by hand.

use std::hint::black_box;

use anyhow::Result;
use lock_core::{LockError, LockManager, distributed_lock};
use tokio::runtime::Runtime;

use crate::rounds::{Plan, Round, alternate};
use crate::scenario::{Flavor, Scenario, as_task};

/// The most that the attribute may cost.
const DEMANDED: f64 = 1.03;

/// An annotated function against the same body between `acquire` and `release`.
pub(crate) struct Attribute {
    flavor: Flavor,
    waits: bool,
    runtime: Runtime,
    locks: LockManager,
}

impl Attribute {
    /// With a body that waits once, or never.
    pub(crate) fn new(url: &str, flavor: Flavor, waits: bool) -> Result<Self> {
        let runtime = flavor.runtime()?;
        let locks = runtime.block_on(LockManager::connect(url))?;
        Ok(Self {
            flavor,
            waits,
            runtime,
            locks,
        })
    }
}

impl Scenario for Attribute {
    fn name(&self) -> &'static str {
        "attribute"
    }

    fn variant(&self) -> String {
        let body = if self.waits { ", waiting body" } else { "" };
        format!("{}{body}", self.flavor.name())
    }

    fn sides(&self) -> [&'static str; 2] {
        ["attribute", "guard"]
    }

    fn demanded(&self) -> Option<f64> {
        Some(DEMANDED)
    }

    fn round(&self, plan: Plan) -> Result<Round> {
        let (locks, waits) = (self.locks.clone(), self.waits);
        as_task(&self.runtime, async move {
            let locks = &locks;
            let annotated = || async { annotated(locks, waits, black_box(7)).await.map(ignore) };
            let by_hand = || async { by_hand(locks, waits, black_box(7)).await.map(ignore) };
            Ok(alternate(plan, annotated, by_hand).await?)
        })
    }
}

fn ignore(output: u64) {
    black_box(output);
}

#[distributed_lock(key = "bench:attribute", client = locks)]
async fn annotated(locks: &LockManager, waits: bool, number: u64) -> Result<u64, LockError> {
    Ok(work(waits, number).await)
}

async fn by_hand(locks: &LockManager, waits: bool, number: u64) -> Result<u64, LockError> {
    let guard = locks.lock("bench:attribute").acquire().await?;
    let output = work(waits, number).await;
    guard.release().await?;
    Ok(output)
}

async fn work(waits: bool, number: u64) -> u64 {
    if waits {
        tokio::task::yield_now().await;
    }
    black_box(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
