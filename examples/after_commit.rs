//! A lock that is released after the transaction has committed, and what is lost where it is released before.
//!
//! ```text
//! cargo run -p larger-examples --bin after_commit
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p larger-examples --bin after_commit
//! ```
//!
//! A function changes an account as a part of a larger unit of work. The work keeps what is to be written and writes it at its end,
//! in one transaction, as the sessions of most database libraries do. The function needs the lock while it reads and computes, and
//! **the lock must stay until the transaction has committed**: else the next one reads the balance as it was before.
//!
//! So the function gives its guard to the work. The work commits, and releases the guards afterwards. Where it fails or is dropped,
//! the transaction is rolled back first, because its field comes first.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use lock_core::{LockError, LockGuard, LockManager};
use lock_examples::{Outcome, exit, redis_url_or_memory};
use rusqlite::{Connection, params};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

const WORKERS: u32 = 4;
const DEPOSITS: u32 = 10;

#[tokio::main]
async fn main() -> ExitCode {
    exit("after_commit", run().await)
}

async fn run() -> Outcome {
    let locks = LockManager::builder()
        .prefix(format!("bank-{}:", std::process::id()))
        .connect(&redis_url_or_memory())
        .await?;
    let total = WORKERS * DEPOSITS;
    println!("{total} deposits of 1, by {WORKERS} workers, into one account:");
    let kept = deposits(&locks, Release::AfterCommit).await?;
    println!("  the lock is released after the commit: the balance is {kept}");
    let early = deposits(&locks, Release::BeforeCommit).await?;
    println!("  the lock is released before it: the balance is {early}");
    locks.shutdown(Duration::from_secs(5)).await;
    if kept != total {
        return Err(format!("{} deposits are lost", total - kept).into());
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Release {
    AfterCommit,
    /// The mistake.
    BeforeCommit,
}

/// A unit of work: what is to be written in one transaction, and the guards that must outlive it.
struct Work {
    database: Connection,
    balances: Vec<(u32, u32)>,
    guards: Vec<LockGuard>,
}

impl Work {
    fn begin(bank: &Bank) -> Outcome<Self> {
        Ok(Self {
            database: bank.open()?,
            balances: Vec::new(),
            guards: Vec::new(),
        })
    }

    /// Keeps the lock until the work has committed.
    fn release_after_commit(&mut self, guard: LockGuard) {
        self.guards.push(guard);
    }

    async fn commit(mut self) -> Outcome {
        // As late as possible. A lock that is lost after this look is found by the release below. A column with the fencing token
        // would refuse the write itself.
        for guard in &self.guards {
            if !guard.is_held() {
                let (key, reason) = (guard.key().to_owned(), guard.lost().await);
                return Err(LockError::Lost { key, reason }.into());
            }
        }
        block_in_place(|| {
            let transaction = self.database.transaction()?;
            for (account, balance) in &self.balances {
                let write = "UPDATE accounts SET balance = ?2 WHERE id = ?1";
                transaction.execute(write, params![account, balance])?;
            }
            transaction.commit()
        })?;
        for guard in self.guards {
            guard.release().await?;
        }
        Ok(())
    }
}

/// A part of the work, which knows nothing of its end.
async fn deposit(locks: &LockManager, work: &mut Work, account: u32, when: Release) -> Outcome {
    let lock = locks.lock(format!("account:{account}"));
    let guard = lock.acquire_within(Duration::from_secs(30)).await?;
    let read = "SELECT balance FROM accounts WHERE id = ?1";
    let balance: u32 =
        block_in_place(|| work.database.query_row(read, [account], |row| row.get(0)))?;
    work.balances.push((account, balance + 1));
    match when {
        Release::AfterCommit => work.release_after_commit(guard),
        Release::BeforeCommit => guard.release().await?,
    }
    Ok(())
}

/// Many units of work at the same time. Returns the balance at the end.
async fn deposits(locks: &LockManager, when: Release) -> Outcome<u32> {
    let bank = Bank::create()?;
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (locks, bank) = (locks.clone(), Bank(bank.0.clone()));
        workers.spawn(async move {
            for _ in 0..DEPOSITS {
                let mut work = Work::begin(&bank)?;
                deposit(&locks, &mut work, 7, when).await?;
                // The rest of the work.
                sleep(Duration::from_millis(2)).await;
                work.commit().await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    let read = "SELECT balance FROM accounts WHERE id = 7";
    let balance = bank.open()?.query_row(read, [], |row| row.get(0))?;
    bank.remove();
    Ok(balance)
}

/// A database in a file, which every worker opens.
struct Bank(PathBuf);

impl Bank {
    fn create() -> Outcome<Self> {
        let folder = std::env::temp_dir().join(format!("after-commit-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let bank = Self(folder);
        bank.open()?.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
             INSERT INTO accounts VALUES (7, 0);",
        )?;
        Ok(bank)
    }

    fn open(&self) -> Outcome<Connection> {
        let database = Connection::open(Path::new(&self.0).join("bank.db"))?;
        database.busy_timeout(Duration::from_secs(30))?;
        Ok(database)
    }

    fn remove(self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}
