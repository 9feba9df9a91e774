use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::future::{FutureExt, ready as known};
use lock_core::blocking::Blocking;
use lock_core::{LockError, LockManager, LockManagerBuilder, distributed_lock};
use serde::{Deserialize, Serialize};

use super::{Flavor, Outcome, ready};
use crate::contestant::{Connected, Contestant, Who, settings, url, with};

/// Sides that one task times in short alternating blocks, so that all meet the same weather.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Alternate {
    /// One server, or the masters of a quorum.
    pub(crate) urls: Vec<String>,
    pub(crate) key: String,
    pub(crate) flavor: Flavor,
    pub(crate) sides: Vec<Side>,
    /// Blocks of each side.
    pub(crate) blocks: usize,
    /// Calls in a block.
    pub(crate) calls: usize,
    /// How long each side works without being timed after the word to begin.
    pub(crate) settle: Duration,
    /// A side that has worked for so long has no further turns.
    pub(crate) patience: Duration,
}

/// What a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    /// Acquire and release.
    Lock(Who),
    /// Acquire, and end the hold as soon as the library can.
    Left(Who),
    /// A function under `#[distributed_lock]`, with a body that waits once, or never.
    Annotated { waits: bool },
    /// The same with a guard by hand.
    ByHand { waits: bool },
    /// Acquire and release by a thread that blocks.
    Blocking,
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
            let side = Ready::connect(side, &self.urls).await;
            sides.push(side.context("it cannot connect")?);
        }
        let warm_up = (self.blocks / 20).max(1);
        for _ in 0..warm_up {
            for side in &sides {
                let mut times = Vec::new();
                self.block(side, self.patience, &mut times).await?;
            }
        }
        ready()?;
        for side in sides.iter().filter(|_| !self.settle.is_zero()) {
            let mut left = self.settle;
            while !left.is_zero() {
                let took = self.block(side, left, &mut Vec::new()).await?;
                left = left.saturating_sub(took);
            }
        }
        let mut patience = vec![self.patience; sides.len()];
        let mut times = vec![Vec::with_capacity(self.blocks * self.calls); sides.len()];
        for number in 0..self.blocks {
            for side in order(number, sides.len()) {
                let (left, times) = (&mut patience[side], &mut times[side]);
                let took = self.block(&sides[side], *left, times).await?;
                *left = left.saturating_sub(took);
            }
        }
        Ok(Outcome::Times(times))
    }

    /// As many calls as a block has; fewer where they take longer than `left`. How long it took.
    async fn block(&self, side: &Ready, left: Duration, times: &mut Vec<u64>) -> Result<Duration> {
        let start = Instant::now();
        let calls = Calls {
            most: self.calls,
            until: start.checked_add(left),
        };
        side.block(&self.key, calls, times).await?;
        Ok(start.elapsed())
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
    Left(Connected),
    Annotated { locks: LockManager, waits: bool },
    ByHand { locks: LockManager, waits: bool },
    Blocking(Blocking<LockManager>),
}

impl Ready {
    async fn connect(side: Side, urls: &[String]) -> Result<Self> {
        let with = async |settings: LockManagerBuilder| -> Result<LockManager> {
            let server = urls.first().context("there is no server")?;
            Ok(settings.connect(&url(server)).await?)
        };
        let locks = async || with(settings()?).await;
        Ok(match side {
            Side::Lock(who) => Self::Lock(who.connect(urls).await?),
            Side::Left(who) => Self::Left(who.connect(urls).await?),
            Side::Annotated { waits } => Self::Annotated {
                locks: locks().await?,
                waits,
            },
            Side::ByHand { waits } => Self::ByHand {
                locks: locks().await?,
                waits,
            },
            Side::Blocking => Self::Blocking(Blocking::of(with(settings()?.own_thread()).await?)?),
        })
    }

    async fn block(&self, key: &str, calls: Calls, times: &mut Vec<u64>) -> Result<()> {
        match self {
            Self::Lock(connected) => with!(connected, contestant => {
                timed(calls, times, || cycle(contestant, key)).await
            }),
            Self::Left(connected) => with!(connected, contestant => {
                let one = Calls { most: 1, ..calls };
                let other = format!("{key}:other");
                for _ in 0..calls.most {
                    timed(one, times, || left(contestant, key)).await?;
                    // Not timed. When it ends, the lock above is free again.
                    cycle(contestant, &other).await?;
                }
                Ok(())
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
            Self::Blocking(locks) => {
                let call = || {
                    let released = locks.lock(key).acquire().and_then(|guard| guard.release());
                    known(released.map_err(Into::into))
                };
                tokio::task::block_in_place(|| {
                    let calls = timed(calls, times, call).now_or_never();
                    calls.context("it waits")?
                })
            }
        }
    }
}

/// How often a call is made.
#[derive(Clone, Copy)]
struct Calls {
    most: usize,
    /// No call begins after this.
    until: Option<Instant>,
}

async fn timed<F>(calls: Calls, times: &mut Vec<u64>, mut call: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    for _ in 0..calls.most {
        let start = Instant::now();
        if calls.until.is_some_and(|until| start >= until) {
            break;
        }
        call().await?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(())
}

pub(super) async fn cycle<C: Contestant>(contestant: &C, key: &str) -> Result<()> {
    let guard = contestant.acquire(key).await?;
    contestant.release(guard).await
}

async fn left<C: Contestant>(contestant: &C, key: &str) -> Result<()> {
    let guard = contestant.acquire(key).await?;
    contestant.leave(guard).await
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
