//! The sale in a cluster of its own: sells the stock in segments over the masters, and kills one of these when half is sold.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use lock_examples::{Cluster, Outcome};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Pipeline};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{sleep, timeout};

use crate::books::Balance;
use crate::line::{Answer, Line};
use crate::measure::{Failover, Sale};
use crate::options::Options;
use crate::sale::{SILENCE, all_ready, interrupted, split, start_buyers};
use crate::shop::{connect, micros_of_the_day, nodes_of};
use crate::strategies::{SEGMENTS, Strategy};

/// The name of the lock. Without a `{tag}` its segments are spread over the slots.
pub(crate) const NAME: &str = "stock";

/// The key of a segment's lock, and of its data with a suffix: all in one slot.
pub(crate) fn key(segment: usize, suffix: &str) -> String {
    format!("{{{NAME}:{segment}}}{suffix}")
}

/// How long a replica receives nothing before its master is killed: longer than buyers wait for it.
const CUT_OFF: Duration = Duration::from_millis(300);

/// Connections to the nodes of a cluster.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Vec<MultiplexedConnection>,
    /// Which node has answered last for each segment.
    masters: [AtomicUsize; SEGMENTS],
}

impl Nodes {
    pub(crate) async fn connect(url: &str) -> Outcome<Self> {
        let mut nodes = Vec::new();
        for node in nodes_of(url) {
            nodes.push(connect(&node).await?);
        }
        Ok(Self {
            nodes,
            masters: Default::default(),
        })
    }

    /// Asks the master of a segment, on one connection; `None` if there is none now.
    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        segment: usize,
        pipe: &Pipeline,
    ) -> Option<T> {
        let last = self.masters[segment].load(Ordering::Relaxed);
        for number in last..last + self.nodes.len() {
            let node = number % self.nodes.len();
            // A node without the segment answers MOVED, and a dead one not at all.
            if let Ok(answer) = pipe.query_async(&mut self.nodes[node].clone()).await {
                self.masters[segment].store(node, Ordering::Relaxed);
                return Some(answer);
            }
        }
        None
    }

    /// How many segments the first node has.
    fn segments_of_the_first(&self) -> usize {
        let masters = self.masters.iter();
        masters
            .filter(|node| node.load(Ordering::Relaxed) == 0)
            .count()
    }
}

/// Sells the stock. The servers and processes end with it.
pub(crate) async fn hold(options: &Options, bar: &ProgressBar) -> Outcome<Sale> {
    tokio::select! {
        sale = sell(options, bar) => sale,
        outcome = interrupted() => Err(outcome.err().unwrap_or_else(|| "interrupted".into())),
    }
}

async fn sell(options: &Options, bar: &ProgressBar) -> Outcome<Sale> {
    let mut cluster = Cluster::build().await?;
    let url = cluster.url();
    let nodes = Nodes::connect(&url).await?;
    for (segment, pieces) in split(options.stock, SEGMENTS).enumerate() {
        let mut set = redis::pipe();
        set.set(key(segment, ":left"), pieces).ignore();
        let set: Option<()> = nodes.ask(segment, &set).await;
        set.ok_or("a segment has no master")?;
    }
    let (sender, mut said) = unbounded_channel();
    let mut members = start_buyers(options, &url, Strategy::Cluster, NAME, &sender)?;
    bar.set_length(all_ready(&mut said, members.len()).await?);
    let epoch = micros_of_the_day().to_string();
    for member in &mut members {
        member.tell(&epoch).await;
    }

    let mut sale = Sale::new(Strategy::Cluster, options.stock);
    let (mut confirmed, mut closed) = (HashSet::new(), HashSet::new());
    while closed.len() < members.len() {
        let said = timeout(SILENCE, said.recv()).await;
        match said.map_err(|_| "the processes are silent")? {
            Some((process, Some(Line::Closed(totals)))) => {
                closed.insert(process);
                sale.trouble.asked_again += totals.asked_again;
            }
            Some((_, Some(Line::Fails(why)))) => return Err(why.into()),
            Some((process, Some(line))) => hear(&mut sale, &mut confirmed, process, line, bar),
            Some((process, None)) if closed.contains(&process) => {}
            _ => return Err("a process has ended by itself".into()),
        }
        if sale.trouble.failover.is_none() && confirmed.len() as u64 * 2 >= options.stock {
            sale.trouble.failover = Some(fail_over(&mut cluster, &nodes, confirmed.len()).await?);
        }
    }
    sale.balance = strike(&nodes, options.stock, &confirmed).await?;
    sale.waits.sort_unstable();
    sale.left.sort_unstable();
    for (left, entry) in (0..i64::try_from(options.stock)?).rev().zip(&mut sale.left) {
        entry.1 = left;
    }
    Ok(sale)
}

/// Kills the first master, after it has written for a moment what its replica never receives.
async fn fail_over(cluster: &mut Cluster, nodes: &Nodes, sold: usize) -> Outcome<Failover> {
    let segments = nodes.segments_of_the_first();
    let master = &cluster.nodes[0];
    let _: () = master.ask("ACL SETUSER default -psync -sync").await?;
    let _: u64 = master.ask("CLIENT KILL TYPE replica").await?;
    sleep(CUT_OFF).await;
    let begin = Instant::now();
    cluster.kill_a_master().await?;
    let took = begin.elapsed();
    // Until the new master has a replica, its segments confirm nothing.
    cluster.replace_the_killed().await?;
    Ok(Failover {
        sold,
        segments,
        took,
    })
}

fn hear(
    sale: &mut Sale,
    confirmed: &mut HashSet<String>,
    process: usize,
    line: Line,
    bar: &ProgressBar,
) {
    match line {
        Line::Held(hold) => sale.holds.push((process, hold)),
        Line::Served {
            answer,
            at,
            took,
            order,
        } => {
            bar.inc(1);
            sale.answered += 1;
            if answer == Answer::Sold {
                sale.last_sold = sale.last_sold.max(at);
                sale.waits.push(took);
                // How many are left then is filled in at the end: the processes are heard in any order.
                sale.left.push((at, 0));
                confirmed.insert(order);
            }
        }
        _ => {}
    }
}

/// Compares what buyers heard with the orders on the masters that are there now.
async fn strike(nodes: &Nodes, stock: u64, confirmed: &HashSet<String>) -> Outcome<Balance> {
    let (mut written, mut left) = (Vec::new(), 0);
    for segment in 0..SEGMENTS {
        let mut look = redis::pipe();
        look.smembers(key(segment, ":orders"));
        look.get(key(segment, ":left"));
        let part: Option<(Vec<String>, i64)> = nodes.ask(segment, &look).await;
        let (orders, pieces) = part.ok_or("a segment has no master")?;
        written.extend(orders);
        left += pieces;
    }
    let sold = written.len() as u64;
    let books: HashSet<_> = written.into_iter().collect();
    Ok(Balance {
        sold,
        taken: i64::try_from(stock)? - left,
        stored: books.len() as u64,
        // As well what is written and no buyer knows of.
        lost: books.symmetric_difference(confirmed).count() as u64,
        twice: sold - books.len() as u64,
    })
}
