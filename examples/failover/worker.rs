//! A worker process: clients that take, hold and release locks, and write a line for each hold.
//!
//! Each line of its input replaces the long holds by new ones; the end of its input ends it.

use std::io::{BufWriter, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use lock_core::{Lock, LockError, LockManager};
use lock_examples::Outcome;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::line::{Failure, Hold, Line, Work, now};

/// Worker processes that hear sentinels: 0 and 1.
pub(crate) const HEARING: usize = 2;
/// The process that hears none.
pub(crate) const PLAIN: usize = 2;
/// The clients of a process. The first ones are busy.
const ROLES: [&str; 7] = [
    "busy-0", "busy-1", "busy-2", "busy-3", "shared", "fresh", "long",
];
pub(crate) const BUSY: usize = 4;
const LONG: usize = 8;
const SHARED: usize = 4;
const TTL: Duration = Duration::from_secs(5);
const SHORT_TTL: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_secs(10);
/// How long a fresh lock is held.
const FRESH: Duration = Duration::from_millis(2500);
/// Interval of writes to the first process.
const WRITE: Duration = Duration::from_millis(20);

/// A process that hears sentinels has long and fresh holds as well.
pub(crate) async fn run(process: usize, url: &str) -> Outcome {
    let (sender, lines) = channel();
    let writer = std::thread::spawn(move || write(&lines));
    let (order, orders) = watch::channel(());
    let mut clients = Vec::new();
    for role in ROLES {
        clients.push(Client::connect(process, role, url, &sender).await?);
    }
    sender.send(Line::Ready)?;

    let mut work = JoinSet::new();
    let client = |number: usize| clients[number].clone();
    for number in 0..BUSY {
        work.spawn(client(number).busy(number));
    }
    for key in 0..SHARED {
        work.spawn(client(BUSY).compete(key));
    }
    if process != PLAIN {
        work.spawn(client(BUSY + 1).fresh());
        for number in 0..LONG {
            work.spawn(client(BUSY + 2).long(number, orders.clone()));
        }
    }
    let mut input = BufReader::new(stdin()).lines();
    while input.next_line().await?.is_some() {
        order.send_replace(());
    }
    work.shutdown().await;
    let mut ends = JoinSet::new();
    for client in clients {
        ends.spawn(async move { client.locks.shutdown(SHORT_TTL).await });
    }
    ends.join_all().await;
    drop(sender);
    writer.join().map_err(|_| "the writer has failed".into())
}

/// One client: a manager of its own.
#[derive(Clone)]
struct Client {
    process: usize,
    locks: LockManager,
    lines: Sender<Line>,
}

impl Client {
    async fn connect(process: usize, role: &str, url: &str, lines: &Sender<Line>) -> Outcome<Self> {
        let builder = LockManager::builder().client_name(format!("worker-{process}-{role}"));
        Ok(Self {
            process,
            locks: builder.default_ttl(TTL).connect(url).await?,
            lines: lines.clone(),
        })
    }

    /// A lock that is taken once.
    fn new_lock(&self, role: &str, number: usize, turn: u64) -> Lock {
        let process = self.process;
        self.locks.lock(format!("{role}:{process}:{number}:{turn}"))
    }

    async fn busy(self, number: usize) {
        for turn in 0.. {
            let lock = self.new_lock("busy", number, turn);
            let end = sleep_after(Duration::from_millis(5));
            self.hold(lock, Work::Busy(number), end).await;
        }
    }

    async fn compete(self, key: usize) {
        loop {
            let lock = self.locks.lock(format!("shared:{key}"));
            let end = sleep_after(Duration::from_millis(10));
            self.hold(lock, Work::Shared(key), end).await;
        }
    }

    async fn long(self, number: usize, mut orders: watch::Receiver<()>) {
        for turn in 0.. {
            let lock = self.new_lock("long", number, turn);
            let end = async {
                let _ = orders.changed().await;
            };
            self.hold(lock, Work::Long, end).await;
        }
    }

    async fn fresh(self) {
        let mut holds = JoinSet::new();
        let mut ticks = interval(Duration::from_millis(10));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for turn in 0.. {
            ticks.tick().await;
            let lock = self.new_lock("fresh", 0, turn).ttl(SHORT_TTL);
            let client = self.clone();
            let end = sleep_after(FRESH);
            holds.spawn(async move { client.hold(lock, Work::Fresh, end).await });
            while holds.try_join_next().is_some() {}
        }
    }

    /// Takes a lock, holds it until the end of `end`, releases it, and writes a line.
    async fn hold(&self, lock: Lock, work: Work, end: impl Future<Output = ()>) {
        let asked = now();
        let guard = match lock.acquire_within(WAIT).await {
            Ok(guard) => guard,
            Err(error) => {
                let _ = self.lines.send(Line::Failed(Failure {
                    process: self.process,
                    at: now(),
                    why: error.to_string(),
                }));
                sleep(Duration::from_millis(1)).await;
                return;
            }
        };
        let from = now();
        let is_lost = tokio::select! {
            biased;
            _ = guard.lost() => true,
            () = end => false,
        };
        let to = now();
        // Only the release may find that a lock is gone.
        let lost = if is_lost {
            to
        } else if matches!(guard.release().await, Err(LockError::Lost { .. })) {
            now()
        } else {
            0
        };
        let _ = self.lines.send(Line::Ended(Hold {
            process: self.process,
            work,
            asked,
            from,
            to,
            lost,
        }));
    }
}

/// Sleeps for this time from the first poll on, not from the call on.
async fn sleep_after(time: Duration) {
    sleep(time).await;
}

/// Ends with the last sender. Collects lines for a while, so that the clients do not wait for the pipe.
fn write(lines: &Receiver<Line>) {
    let mut out = BufWriter::new(std::io::stdout());
    while let Ok(first) = lines.recv() {
        std::thread::sleep(WRITE);
        for line in std::iter::once(first).chain(lines.try_iter()) {
            if writeln!(out, "{line}").is_err() {
                return;
            }
        }
        if out.flush().is_err() {
            return;
        }
    }
}
