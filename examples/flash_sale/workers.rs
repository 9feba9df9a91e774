//! A process that stores orders: it reads them from the stream, as a member of a group, writes them into `SQLite`, and
//! only then tells the stream that they are done.
//!
//! Whatever was read and not confirmed stays pending in the stream, under the name of its reader. Who survives claims it
//! after a while. So every order is delivered at least once, and where the reader died between storing and confirming,
//! twice: the table's key makes that harmless.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_examples::{Outcome, redis_url};
use redis::Connection;
use redis::streams::StreamId;
use rusqlite::params;

use crate::books::open;
use crate::line::{Line, Mouth};
use crate::shop::{GROUP, Keys};

const BATCH: usize = 100;
/// A victim reads a few only: the others should have work, too.
const LAST_BATCH: usize = 10;
const WAIT_MS: u64 = 50;
/// Whoever has not confirmed for so long is taken for dead.
const DEAD_AFTER_MS: u64 = 500;

/// How a worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// When all is stored.
    Lives,
    /// Killed with orders that it has read and not stored.
    DiesBeforeStoring,
    /// Killed with orders that it has stored and not confirmed.
    DiesBeforeConfirming,
}

impl Fate {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Lives => "lives",
            Self::DiesBeforeStoring => "dies-before-storing",
            Self::DiesBeforeConfirming => "dies-before-confirming",
        }
    }

    fn named(word: &str) -> Option<Self> {
        let all = [
            Self::Lives,
            Self::DiesBeforeStoring,
            Self::DiesBeforeConfirming,
        ];
        all.into_iter().find(|fate| fate.word() == word)
    }
}

/// What a worker is told on its command line.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) sale: String,
    pub(crate) name: String,
    pub(crate) database: PathBuf,
    pub(crate) fate: Fate,
}

impl Task {
    pub(crate) fn args(&self) -> [String; 5] {
        [
            "worker".to_owned(),
            self.sale.clone(),
            self.name.clone(),
            self.database.display().to_string(),
            self.fate.word().to_owned(),
        ]
    }

    pub(crate) fn parse(args: &[String]) -> Option<Self> {
        let [sale, name, database, fate] = args else {
            return None;
        };
        Some(Self {
            sale: sale.clone(),
            name: name.clone(),
            database: database.into(),
            fate: Fate::named(fate)?,
        })
    }
}

/// Stores orders until the input ends.
pub(crate) fn run(task: &Task, mouth: &Mouth) -> Outcome {
    let url = redis_url().ok_or("REDIS_URL is not set")?;
    let mut redis = redis::Client::open(url)?.get_connection()?;
    let mut books = open(&task.database)?;
    let stream = Keys::new(&task.sale).orders();
    mouth.say(Line::Ready { requests: 0 });

    let mut input = std::io::stdin().lock().lines();
    if input.next().transpose()?.is_none() {
        return Ok(());
    }
    drop(input);
    let done = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&done);
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines() {}
        end.store(true, Ordering::Relaxed);
    });

    let (mut claimed, mut again) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        let mut orders = read(&mut redis, &stream, task)?;
        if task.fate != Fate::Lives && !orders.is_empty() {
            orders.extend(read_on(&mut redis, &stream, task)?);
        }
        if task.fate == Fate::Lives {
            let inherited = claim(&mut redis, &stream, task)?;
            claimed += inherited.len() as u64;
            orders.extend(inherited);
        }
        if orders.is_empty() {
            continue;
        }
        if task.fate == Fate::DiesBeforeStoring {
            dawdle(mouth, &done);
            return Ok(());
        }
        again += store(&mut books, &orders, &task.name)?;
        if task.fate == Fate::DiesBeforeConfirming {
            dawdle(mouth, &done);
            return Ok(());
        }
        let ids: Vec<_> = orders.iter().map(|order| &order.id).collect();
        let mut confirm = redis::cmd("XACK");
        let () = confirm
            .arg(&stream)
            .arg(GROUP)
            .arg(&ids)
            .query(&mut redis)?;
    }
    mouth.say(Line::Stored { claimed, again });
    Ok(())
}

/// Orders that nobody has read so far.
fn read(redis: &mut Connection, stream: &str, task: &Task) -> Outcome<Vec<StreamId>> {
    let most = match task.fate {
        Fate::Lives => BATCH,
        _ => LAST_BATCH,
    };
    let mut read = redis::cmd("XREADGROUP");
    read.arg("GROUP").arg(GROUP).arg(&task.name);
    read.arg("COUNT").arg(most).arg("BLOCK").arg(WAIT_MS);
    read.arg("STREAMS").arg(stream).arg(">");
    let reply: Option<redis::streams::StreamReadReply> = read.query(redis)?;
    let keys = reply.map(|reply| reply.keys).unwrap_or_default();
    Ok(keys.into_iter().flat_map(|key| key.ids).collect())
}

/// For a victim: what comes right after its first order, so that it dies with more than one.
fn read_on(redis: &mut Connection, stream: &str, task: &Task) -> Outcome<Vec<StreamId>> {
    let mut orders = Vec::new();
    while orders.len() < LAST_BATCH {
        let more = read(redis, stream, task)?;
        if more.is_empty() {
            break;
        }
        orders.extend(more);
    }
    Ok(orders)
}

/// Orders of those who have died.
fn claim(redis: &mut Connection, stream: &str, task: &Task) -> Outcome<Vec<StreamId>> {
    let mut claim = redis::cmd("XAUTOCLAIM");
    claim.arg(stream).arg(GROUP).arg(&task.name);
    claim.arg(DEAD_AFTER_MS).arg("0").arg("COUNT").arg(BATCH);
    let reply: redis::streams::StreamAutoClaimReply = claim.query(redis)?;
    Ok(reply.claimed)
}

/// Returns how many of them were stored before.
fn store(books: &mut rusqlite::Connection, orders: &[StreamId], worker: &str) -> Outcome<u64> {
    let mut again = 0;
    let transaction = books.transaction()?;
    {
        let mut insert =
            transaction.prepare("INSERT INTO orders VALUES (?, ?, ?) ON CONFLICT DO NOTHING")?;
        for order in orders {
            let id: String = order.get("id").ok_or("an order has no id")?;
            let stored = insert.execute(params![order.id, id, worker])?;
            again += u64::from(stored == 0);
        }
    }
    transaction.commit()?;
    Ok(again)
}

/// Waits to be killed.
fn dawdle(mouth: &Mouth, done: &AtomicBool) {
    mouth.say(Line::InHand);
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10));
    }
}
