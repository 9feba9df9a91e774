//! The orders as they are stored in `SQLite`, and the comparison with what was sold.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_examples::Outcome;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use rusqlite::Connection;

use crate::shop::Keys;

/// A folder with the database; gone when dropped.
#[derive(Debug)]
pub(crate) struct Books {
    folder: PathBuf,
}

impl Books {
    pub(crate) fn create(name: &str) -> Outcome<Self> {
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        let books = Self { folder };
        let database = open(&books.path())?;
        // The entry's id tells a delivery that was repeated from an order that was written twice.
        database.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE orders (entry TEXT PRIMARY KEY, id TEXT NOT NULL, worker TEXT NOT NULL);",
        )?;
        Ok(books)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("orders.db")
    }

    /// How often each order is stored.
    fn orders(&self) -> Outcome<BTreeMap<String, i64>> {
        let database = open(&self.path())?;
        let mut query = database.prepare("SELECT id, COUNT(*) FROM orders GROUP BY id")?;
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Several processes write: they wait for one another.
pub(crate) fn open(path: &Path) -> Outcome<Connection> {
    let database = Connection::open(path)?;
    database.busy_timeout(Duration::from_secs(30))?;
    database.execute_batch("PRAGMA synchronous = NORMAL;")?;
    Ok(database)
}

/// How the sale adds up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    /// Pieces for which an order was written.
    pub(crate) sold: u64,
    /// By how much less is in stock.
    pub(crate) taken: i64,
    /// Different orders in the database.
    pub(crate) stored: u64,
    /// Orders that were written or confirmed to a buyer, and are not in the database.
    pub(crate) lost: u64,
    /// Orders that are in the database more than once.
    pub(crate) twice: u64,
}

impl Balance {
    /// Compares what buyers heard, what is in the stream, what is stored and what is left.
    pub(crate) async fn strike(
        redis: &mut MultiplexedConnection,
        keys: &Keys,
        books: &Books,
        taken: i64,
        confirmed: &HashSet<String>,
    ) -> Outcome<Self> {
        let mut range = redis::cmd("XRANGE");
        let range = range.arg(keys.orders()).arg("-").arg("+");
        let written: StreamRangeReply = range.query_async(redis).await?;
        let stored = books.orders()?;
        let mut owed = confirmed.clone();
        owed.extend(written.ids.iter().filter_map(|entry| entry.get("id")));
        let lost = owed.iter().filter(|id| !stored.contains_key(*id));
        Ok(Self {
            sold: written.ids.len() as u64,
            taken,
            stored: stored.len() as u64,
            lost: lost.count() as u64,
            twice: stored.values().filter(|count| **count > 1).count() as u64,
        })
    }

    /// Sold, stored and taken are the same, and not more than there was.
    pub(crate) fn is_even(&self, stock: u64) -> bool {
        self.sold <= stock
            && self.stored == self.sold
            && i64::try_from(self.sold).is_ok_and(|sold| sold == self.taken)
            && (self.lost, self.twice) == (0, 0)
    }
}
