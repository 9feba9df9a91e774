//! A process that serves buyers: each request is a task, and all of them begin when the doors open.

use std::sync::Arc;
use std::time::Duration;

use lock_examples::{Outcome, redis_url};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::limiter::Limiter;
use crate::line::{Answer, Line, Mouth};
use crate::shop::{Order, TTL, Till};
use crate::strategies::{Counter, Strategy};

/// One user in so many is a program that sends several requests at once.
const GREEDY: u64 = 50;
const REQUESTS_OF_THE_GREEDY: usize = 5;
/// What the first process says when it wants somebody with a purchase in hand, and when it no longer does.
pub(crate) const CATCH: &str = "catch";
pub(crate) const LET_GO: &str = "let go";

/// One purchase in so many takes ten times as long.
const SLOW: u64 = 50;
const SLOWER: u32 = 10;

/// What a process is told on its command line.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) sale: String,
    pub(crate) strategy: Strategy,
    pub(crate) process: usize,
    pub(crate) users: u64,
    pub(crate) work: Duration,
    pub(crate) seed: u64,
}

impl Task {
    pub(crate) fn args(&self) -> [String; 7] {
        [
            "buyers".to_owned(),
            self.sale.clone(),
            self.strategy.name().to_owned(),
            self.process.to_string(),
            self.users.to_string(),
            self.work.as_micros().to_string(),
            self.seed.to_string(),
        ]
    }

    pub(crate) fn parse(args: &[String]) -> Option<Self> {
        let [sale, strategy, process, users, work, seed] = args else {
            return None;
        };
        Some(Self {
            sale: sale.clone(),
            strategy: Strategy::named(strategy)?,
            process: process.parse().ok()?,
            users: users.parse().ok()?,
            work: Duration::from_micros(work.parse().ok()?),
            seed: seed.parse().ok()?,
        })
    }

    /// The requests of all users, the same for every run with this seed.
    fn requests(&self) -> Vec<(String, Order)> {
        let mut random = fastrand::Rng::with_seed(self.seed ^ (self.process as u64) << 32);
        let mut requests = Vec::new();
        for user in 0..self.users {
            let user = format!("{}-{user}", self.process);
            let greedy = random.u64(..GREEDY) == 0;
            for click in 0..if greedy { REQUESTS_OF_THE_GREEDY } else { 1 } {
                let slow = random.u64(..SLOW) == 0;
                let order = Order {
                    id: format!("{user}-{click}"),
                    usual: self.work,
                    work: self.work * if slow { SLOWER } else { 1 },
                };
                requests.push((user.clone(), order));
            }
        }
        requests
    }
}

/// Serves them all; errors are told to the first process.
pub(crate) async fn run(task: &Task, mouth: &Mouth) -> Outcome {
    let url = redis_url().ok_or("REDIS_URL is not set")?;
    let mut till = Till::new(url, &task.sale, mouth.clone()).await?;
    let counter = Arc::new(Counter::open(task.strategy, &till).await?);
    let limiter = Arc::new(Limiter::open(&till).await?);
    // The limiter's keys are not made for a cluster.
    let limits = task.strategy != Strategy::Cluster;
    let requests = task.requests();
    mouth.say(Line::Ready {
        requests: requests.len() as u64,
    });

    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let Some(epoch) = orders.next_line().await? else {
        return Ok(());
    };
    till.open(epoch.parse()?);
    let till = Arc::new(till);
    // Every task exists before any begins.
    let (doors, closed) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for (user, order) in requests {
        let (till, counter) = (Arc::clone(&till), Arc::clone(&counter));
        let (limiter, mut closed) = (Arc::clone(&limiter), closed.clone());
        tasks.spawn(async move {
            closed.wait_for(|open| *open).await?;
            let asked = till.now();
            let answer = if !limits || limiter.lets_through(&till, &user).await? {
                counter.sell(&till, &order).await?
            } else {
                Answer::Refused
            };
            let at = till.now();
            till.say(Line::Served {
                answer,
                at,
                took: at - asked,
                order: order.id,
            });
            Outcome::Ok(())
        });
    }
    doors.send_replace(true);
    tokio::select! {
        outcome = all(&mut tasks) => outcome?,
        outcome = obey(&mut orders, &till) => return outcome,
    }
    till.locks.shutdown(TTL).await;
    mouth.say(Line::Closed(till.totals()));
    Ok(())
}

async fn all(tasks: &mut JoinSet<Outcome>) -> Outcome {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Lines while the sale is on say whether whoever works next shall be caught at it. The end of the input is the end of the first
/// process, which this one does not outlive.
async fn obey(orders: &mut Lines<BufReader<Stdin>>, till: &Till) -> Outcome {
    while let Some(line) = orders.next_line().await? {
        if line == CATCH {
            till.catch();
        } else {
            till.let_go();
        }
    }
    Ok(())
}
