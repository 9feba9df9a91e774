use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result};
use lock_core::{LockError, LockManager, distributed_lock};
use serde::{Deserialize, Serialize};

use super::{Flavor, Outcome, ready};
use crate::contestant::{Connected, Contestant, Who, with};

/// Sides that one task times in short alternating blocks, so that all meet the same weather.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Alternate {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) flavor: Flavor,
    pub(crate) sides: Vec<Side>,
    /// Blocks of each side.
    pub(crate) blocks: usize,
    /// Calls in a block.
    pub(crate) calls: usize,
}

/// What a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    /// Acquire and release.
    Lock(Who),
    /// A function under `#[distributed_lock]`, with a body that waits once, or never.
    Annotated { waits: bool },
    /// The same with a guard by hand.
    ByHand { waits: bool },
}

impl Alternate {
    pub(super) fn run(self) -> Result<Outcome> {
        let runtime = self.flavor.runtime()?;
        // As a task, as the work of a service runs: on the multi-thread runtime the thread of `block_on` is not one of the
        // workers.
        runtime.block_on(async { tokio::spawn(self.alternate()).await? })
    }

    async fn alternate(self) -> Result<Outcome> {
        let mut sides = Vec::new();
        for &side in &self.sides {
            let side = Ready::connect(side, &self.url).await;
            sides.push(side.context("it can not connect")?);
        }
        let warm_up = (self.blocks / 20).max(1);
        for _ in 0..warm_up {
            for side in &sides {
                side.block(&self.key, self.calls, &mut Vec::new()).await?;
            }
        }
        ready()?;
        let mut times = vec![Vec::with_capacity(self.blocks * self.calls); sides.len()];
        for number in 0..self.blocks {
            for side in order(number, sides.len()) {
                let times = &mut times[side];
                sides[side].block(&self.key, self.calls, times).await?;
            }
        }
        Ok(Outcome::Times(times))
    }
}

/// Another side goes first in each block, and every second block runs backwards: nobody is always behind the same one.
fn order(number: usize, sides: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |place| {
        let place = if (number / sides).is_multiple_of(2) {
            place
        } else {
            sides - 1 - place
        };
        (place + number) % sides
    })
}

enum Ready {
    Lock(Connected),
    Annotated { locks: LockManager, waits: bool },
    ByHand { locks: LockManager, waits: bool },
}

impl Ready {
    async fn connect(side: Side, url: &str) -> Result<Self> {
        Ok(match side {
            Side::Lock(who) => Self::Lock(who.connect(url).await?),
            Side::Annotated { waits } => Self::Annotated {
                locks: LockManager::connect(url).await?,
                waits,
            },
            Side::ByHand { waits } => Self::ByHand {
                locks: LockManager::connect(url).await?,
                waits,
            },
        })
    }

    async fn block(&self, key: &str, calls: usize, times: &mut Vec<u64>) -> Result<()> {
        match self {
            Self::Lock(connected) => with!(connected, contestant => {
                timed(calls, times, || cycle(contestant, key)).await
            }),
            &Self::Annotated { ref locks, waits } => {
                let call =
                    || async { Ok(annotated(locks, waits, black_box(7)).await.map(ignore)?) };
                timed(calls, times, call).await
            }
            &Self::ByHand { ref locks, waits } => {
                let call = || async { Ok(by_hand(locks, waits, black_box(7)).await.map(ignore)?) };
                timed(calls, times, call).await
            }
        }
    }
}

async fn timed<F>(calls: usize, times: &mut Vec<u64>, mut call: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    for _ in 0..calls {
        let start = Instant::now();
        call().await?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(())
}

async fn cycle<C: Contestant>(contestant: &C, key: &str) -> Result<()> {
    let guard = contestant.acquire(key).await?;
    contestant.release(guard).await
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

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn each_side_goes_first_and_follows_another() {
        let orders: Vec<Vec<usize>> = (0..6).map(|number| order(number, 3).collect()).collect();
        let expected = [
            [0, 1, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
            [0, 2, 1],
            [1, 0, 2],
        ];
        assert_eq!(orders, expected);
    }
}
