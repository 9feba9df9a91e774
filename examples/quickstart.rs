//! Eight tasks change one account at the same time, each under a distributed lock.
//!
//! ```text
//! cargo run --example quickstart
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example quickstart
//! ```
//!
//! Half of them hold a guard, half of them call an annotated function. Both ways take the same lock, so the tasks run
//! one after another, in the order in which they asked.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_core::{FencingToken, LockError, LockManager, distributed_lock};
use lock_examples::{Outcome, Table, exit, redis_url_or_memory};

const TASKS: u64 = 8;
const DEPOSIT: u64 = 10;
/// How long a crashed holder blocks the others. A live one is renewed, so this is not a limit on the work.
const TTL: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    exit("quickstart", run().await)
}

async fn run() -> Outcome {
    let locks = LockManager::connect(&redis_url_or_memory()).await?;
    // The manager that annotated functions use when they name none.
    locks.install_default();

    // Another run of this program on the same server has an account of its own.
    let number = std::process::id();
    let account = Arc::new(Account::new(number));
    println!("{TASKS} tasks deposit {DEPOSIT} each into account {number}, all at once:\n");

    let tasks: Vec<_> = (1..=TASKS)
        .map(|task| tokio::spawn(deposit(task, locks.clone(), Arc::clone(&account))))
        .collect();
    let mut turns = Vec::new();
    for task in tasks {
        turns.push(task.await??);
    }

    // Every grant has a larger fencing token than the one before: sorted by it, this is the order of the turns.
    turns.sort_by_key(|turn| turn.token);
    println!("{}", table(&turns));
    println!(
        "The balance is {}: {} of {TASKS} deposits are in it.",
        account.balance(),
        account.balance() / DEPOSIT
    );

    // Locks that were dropped without `release` are released in the background. This waits for the last of them.
    let left = locks.shutdown(Duration::from_secs(5)).await;
    check(&account, &turns, left)
}

/// One task: the even ones open a guard scope, the odd ones call an annotated function.
async fn deposit(task: u64, locks: LockManager, account: Arc<Account>) -> Result<Turn, LockError> {
    let asked = Instant::now();
    if task % 2 == 1 {
        return annotated(account.number, task, asked, &account).await;
    }

    // A lock is a name. Making the handle does no I/O.
    let lock = locks.lock(format!("account:{}", account.number)).ttl(TTL);
    let guard = lock.acquire().await?;
    let (waited, since) = (asked.elapsed(), Instant::now());
    account.add(DEPOSIT).await;
    let turn = Turn {
        task,
        by: "guard",
        waited,
        token: guard.fencing_token(),
        held: since.elapsed(),
    };
    // Dropping the guard releases too, in the background. This waits until it is done.
    guard.release().await?;
    Ok(turn)
}

/// The same with the attribute: the body runs under the lock, and never without it.
#[distributed_lock(key = "account:{number}", ttl = "10s", guard = guard)]
async fn annotated(
    number: u32,
    task: u64,
    asked: Instant,
    account: &Account,
) -> Result<Turn, LockError> {
    let (waited, since) = (asked.elapsed(), Instant::now());
    account.add(DEPOSIT).await;
    Ok(Turn {
        task,
        by: "attribute",
        waited,
        token: guard.fencing_token(),
        held: since.elapsed(),
    })
}

/// What the lock protects: an account whose deposits overwrite one another if they overlap.
struct Account {
    number: u32,
    balance: AtomicU64,
}

impl Account {
    fn new(number: u32) -> Self {
        Self {
            number,
            balance: AtomicU64::new(0),
        }
    }

    /// Reads, thinks, writes. Whoever reads in between writes over our deposit.
    async fn add(&self, amount: u64) {
        let read = self.balance();
        tokio::time::sleep(Duration::from_millis(25)).await;
        self.balance.store(read + amount, Ordering::Relaxed);
    }

    fn balance(&self) -> u64 {
        self.balance.load(Ordering::Relaxed)
    }
}

/// What a task has to tell about its turn.
struct Turn {
    task: u64,
    by: &'static str,
    waited: Duration,
    token: FencingToken,
    held: Duration,
}

fn table(turns: &[Turn]) -> Table<5> {
    let mut table = Table::new(["task", "locked by", "waited", "fencing token", "held"]);
    for turn in turns {
        table.row([
            turn.task.to_string(),
            turn.by.to_owned(),
            format!("{} ms", turn.waited.as_millis()),
            turn.token.to_string(),
            format!("{} ms", turn.held.as_millis()),
        ]);
    }
    table
}

/// The program fails where the lock did not do what it says.
fn check(account: &Account, turns: &[Turn], left: usize) -> Outcome {
    if account.balance() != TASKS * DEPOSIT {
        return Err("a deposit is missing: two tasks held the lock at once".into());
    }
    if !turns.is_sorted_by(|a, b| a.token < b.token) {
        return Err("two turns have the same fencing token".into());
    }
    if left > 0 {
        return Err(format!("{left} locks could not be released: they stay for their ttl").into());
    }
    Ok(())
}
