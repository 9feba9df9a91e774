use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join;
use lock_core::observe::{Event, Observer};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::alternate::cycle;
use super::{Flavor, Outcome, ready};
use crate::contestant::{Contestant, PATIENT, Who, settings, with};

/// Blocks of work. The worker waits for the word of the parent before and after each, and the parent counts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) urls: Vec<String>,
    pub(crate) who: Who,
    pub(crate) what: What,
    pub(crate) blocks: usize,
    /// How often a block does it.
    pub(crate) times: usize,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// One task acquires a free lock and releases it.
    Cycles,
    /// Two tasks of one process take turns with a lock.
    HandOvers,
    /// The process holds all locks of a block, and renews them together.
    Renewals,
}

/// Renewed when a third has passed.
const TTL: Duration = Duration::from_secs(6);

const KEY: &str = "bench:free";

impl Count {
    /// With one thread: those of a runtime wake each other, now more and now less often.
    pub(super) fn run(self) -> Result<Outcome> {
        PATIENT.store(true, Ordering::Relaxed);
        Flavor::CurrentThread.runtime()?.block_on(async {
            if self.what == What::Renewals {
                return self.renewals().await;
            }
            let connected = self.who.connect(&self.urls).await?;
            with!(connected, contestant => self.calls(contestant).await)
        })
    }

    async fn calls<C: Contestant>(self, contestant: C) -> Result<Outcome> {
        self.block(&contestant).await.context("warm-up")?;
        for _ in 0..self.blocks {
            ready()?;
            self.block(&contestant).await?;
            ready()?;
        }
        Ok(Outcome::Done)
    }

    async fn block<C: Contestant>(&self, contestant: &C) -> Result<()> {
        if self.what == What::HandOvers {
            let half = || cycles(contestant, self.times / 2);
            return try_join(half(), half()).await.map(drop);
        }
        cycles(contestant, self.times).await
    }

    async fn renewals(self) -> Result<Outcome> {
        let server = self.urls.first().context("there is no server")?;
        let locks = settings()?.observer(Renewals).connect(server).await?;
        let mut guards = Vec::new();
        for number in 0..self.times {
            let lock = locks.lock(format!("{KEY}:{number}")).ttl(TTL);
            guards.push(lock.acquire().await?);
        }
        for _ in 0..self.blocks {
            // All work of this process rests, and then all renewals are due.
            std::thread::sleep(TTL / 3);
            LEFT.store(self.times, Ordering::Relaxed);
            ready()?;
            DONE.notified().await;
            ready()?;
        }
        Ok(Outcome::Done)
    }
}

async fn cycles<C: Contestant>(contestant: &C, times: usize) -> Result<()> {
    for _ in 0..times {
        cycle(contestant, KEY).await?;
    }
    Ok(())
}

/// Renewals that the block waits for.
static LEFT: AtomicUsize = AtomicUsize::new(0);
static DONE: Notify = Notify::const_new();

struct Renewals;

impl Observer for Renewals {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Renewed { .. }) && LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
            DONE.notify_one();
        }
    }
}
