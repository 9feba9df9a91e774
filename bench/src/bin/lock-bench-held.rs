//! Holds many locks and counts the bytes that it takes. A program of its own, because an allocator that counts would slow
//! the other measurements down.
//!
//! `lock-bench-held URL ours|async-redis-lock COUNT TTL_MS` says `ready` and takes orders:
//!
//! | order | answer |
//! |---|---|
//! | `fill` | bytes per lock, once all are held |
//! | `worked` | nanoseconds of work of this process |
//! | `count` | how many are held |

#[path = "../cpu.rs"]
mod cpu;

use std::io::{BufRead, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_redis_lock::{Lock, Locker, Options};
use lock_core::{LockGuard, LockManager};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// A contestant and its guards.
enum Held {
    Ours(LockManager, Vec<LockGuard>),
    AsyncRedisLock(Box<Locker>, Vec<Lock>),
}

impl Held {
    async fn connect(who: &str, url: &str) -> Result<Self> {
        Ok(match who {
            "ours" => Self::Ours(LockManager::connect(url).await?, Vec::new()),
            "async-redis-lock" => {
                let locker = Locker::from_redis_url(url).await?;
                Self::AsyncRedisLock(Box::new(locker), Vec::new())
            }
            _ => bail!("`{who}` is no contestant"),
        })
    }

    /// The lists are part of what is counted: somebody has to keep the guards.
    async fn fill(&mut self, prefix: &str, count: usize, ttl: Duration) -> Result<()> {
        match self {
            Self::Ours(locks, guards) => {
                guards.reserve_exact(count);
                for number in 0..count {
                    let lock = locks.lock(format!("{prefix}:{number}")).ttl(ttl);
                    guards.push(lock.acquire().await?);
                }
            }
            Self::AsyncRedisLock(locker, guards) => {
                guards.reserve_exact(count);
                let options = Options::new().ttl(ttl).extend(ttl / 3).timeout(None);
                for number in 0..count {
                    let key = format!("{prefix}:{number}");
                    guards.push(locker.acquire_with_options(&options, key).await?);
                }
            }
        }
        Ok(())
    }

    fn count(&self) -> usize {
        match self {
            Self::Ours(_, guards) => guards.iter().filter(|guard| guard.is_held()).count(),
            Self::AsyncRedisLock(_, guards) => guards.iter().filter(|lock| !lock.is_lost()).count(),
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, who, count, ttl] = &args[..] else {
        bail!("lock-bench-held URL ours|async-redis-lock COUNT TTL_MS");
    };
    let count: usize = count.parse().context("COUNT")?;
    let ttl = Duration::from_millis(ttl.parse().context("TTL_MS")?);
    let mut held = Held::connect(who, url).await?;
    // What is set up with the first lock belongs to none of the others.
    held.fill("bench:first", 1, ttl).await?;
    say("ready")?;
    let (sender, mut orders) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    while let Some(order) = orders.recv().await {
        match order.as_str() {
            "fill" => {
                let before = ALLOCATOR.current_usage();
                held.fill("bench:held", count, ttl).await?;
                let taken = ALLOCATOR.current_usage() - before;
                say(&(taken as f64 / count as f64).to_string())?;
            }
            "worked" => say(&cpu::worked().to_string())?,
            "count" => say(&held.count().to_string())?,
            _ => bail!("`{order}` is no order"),
        }
    }
    // The locks are left to the server, which is about to end.
    std::process::exit(0)
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
