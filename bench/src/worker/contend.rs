use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::{Flavor, Outcome, ready};
use crate::contestant::{Contestant, Who, with};
use crate::grants::Log;
use crate::{clock, cpu};

/// Tasks that take turns with a lock until the window ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Contend {
    pub(crate) urls: Vec<String>,
    pub(crate) who: Who,
    pub(crate) key: String,
    /// Whether each task has a key of its own, and so nobody to wait for.
    pub(crate) apart: bool,
    pub(crate) tasks: usize,
    /// How long a task works with the lock.
    pub(crate) inside: Duration,
    /// How long it does something else in between.
    pub(crate) outside: Duration,
}

impl Contend {
    pub(super) fn run(self) -> Result<Outcome> {
        Flavor::MultiThread.runtime()?.block_on(async {
            let connected = self.who.connect(&self.urls).await?;
            with!(connected, contestant => self.contend(contestant).await)
        })
    }

    async fn contend<C: Contestant>(self, contestant: C) -> Result<Outcome> {
        // What is done once (a connection that is made lazily, scripts that the server has to learn) is done here.
        let guard = contestant
            .acquire(&format!("{}:warm-up", self.key))
            .await
            .context("warm-up")?;
        contestant.release(guard).await.context("warm-up")?;

        let window = ready()?;
        let (sender, logs) = channel();
        let mut tasks = JoinSet::new();
        for number in 0..self.tasks {
            let key = if self.apart {
                format!("{}:{number}", self.key)
            } else {
                self.key.clone()
            };
            let worker = Worker {
                contestant: contestant.clone(),
                key,
                inside: self.inside,
                outside: self.outside,
                log: Report {
                    log: Log::new(window.from),
                    sender: sender.clone(),
                },
            };
            tasks.spawn(worker.run(window.from));
        }
        drop(sender);
        tokio::time::sleep(clock::until(window.from)).await;
        let worked = cpu::worked();
        tokio::time::sleep(clock::until(window.to)).await;
        let worked = cpu::worked() - worked;
        tasks.shutdown().await;
        let logs = logs.try_iter().collect();
        Ok(Outcome::Logs { logs, cpu: worked })
    }
}

struct Worker<C> {
    contestant: C,
    key: String,
    inside: Duration,
    outside: Duration,
    log: Report,
}

/// A log that reaches the parent also when its task is ended while it waits: to stop in any other way would have the
/// tasks look at the time, and cost some contestants more of theirs than others.
struct Report {
    log: Log,
    sender: Sender<Log>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let _ = self.sender.send(std::mem::take(&mut self.log));
    }
}

impl<C: Contestant> Worker<C> {
    async fn run(mut self, from: u64) {
        tokio::time::sleep(clock::until(from)).await;
        loop {
            if let Err(error) = self.turn().await {
                self.log.log.failed(&format!("{error:#}"));
                // A call that always fails at once must not keep the others from running.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    async fn turn(&mut self) -> Result<()> {
        let log = &mut self.log.log;
        if !self.outside.is_zero() {
            tokio::time::sleep(self.outside).await;
        }
        let asked = clock::now();
        log.asked(asked);
        let guard = self.contestant.acquire(&self.key).await?;
        let granted = clock::now();
        let given_back = if self.inside.is_zero() {
            granted
        } else {
            tokio::time::sleep(self.inside).await;
            clock::now()
        };
        log.turn(asked, granted, given_back);
        self.contestant.release(guard).await
    }
}
