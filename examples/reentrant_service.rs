//! Annotated functions that call each other over one lock, and take it along into another process.
//!
//! ```text
//! cargo run --example reentrant_service
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example reentrant_service
//! ```
//!
//! Without `REDIS_URL` it starts a `redis-server` of its own (`REDIS_SERVER_BIN`, else from `PATH`).
//!
//! `transfer` calls `withdraw`, and that calls `audit`. Each is a transaction on the account that must not be disturbed,
//! so each locks the account; with `reentrant` the inner ones enter the lock that the outer one holds. Then `withdraw`
//! asks a service in another process to book the money. The request carries the owner of the lock, as a header would, and
//! so the service enters too. A stranger asks for the same without it, and is turned away until the transfer is over.
//!
//! The two services are this program once more, with the argument `ledger`. They read requests from their input, one in
//! a line, and answer with a line; the end of their input, however it comes, sends them home.

use std::fmt;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use lock_core::{FencingToken, LockError, LockGuard, LockManager, Owner, distributed_lock};
use lock_examples::{Outcome, exit, redis_url, redis_url_or_own_server};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// What the functions return. The attribute tells a `Result` by its name, and its error takes in a `LockError`.
type Result<T = (), E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// A service that says nothing for so long is in trouble.
const SILENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["ledger", account] => exit("reentrant_service ledger", serve(account).await),
        _ => exit("reentrant_service", run().await),
    }
}

/// The first process: the bank.
async fn run() -> Outcome {
    let (url, _server) = redis_url_or_own_server("lock lives")?;
    let locks = connect(&url).await?;
    // Another run of this program on the same server has an account of its own. The lock has the very name of the key,
    // as in Redisson: the manager's prefix is for the exclusive kind.
    let account = format!("account:{}", std::process::id());
    let bank = Bank {
        ledger: Mutex::new(Service::start("ledger", &url, &account)?),
        stranger: Mutex::new(Service::start("stranger", &url, &account)?),
        locks: locks.clone(),
        account,
    };

    println!("\n  process   function  here  in all  fencing token");
    println!("  --------  --------  ----  ------  -------------");
    bank.transfer(30).await?;

    let left = bank.holds().await?;
    let late = bank.stranger.lock().await.book(30, None).await?;
    println!("After the transfer the lock is held {left} times. The stranger asks again:");
    print_row("stranger", &late);
    if left != 0 || !late.starts_with("200 ") {
        return Err("the transfer has left the lock behind".into());
    }
    let Bank {
        ledger, stranger, ..
    } = bank;
    ledger.into_inner().end().await?;
    stranger.into_inner().end().await?;
    locks.shutdown(Duration::from_secs(5)).await;
    println!("\nFour functions in two processes shared one lock, one lease and one fencing token.");
    Ok(())
}

struct Bank {
    locks: LockManager,
    /// The key of the lock.
    account: String,
    ledger: Mutex<Service>,
    stranger: Mutex<Service>,
}

impl Bank {
    /// The outermost function: it waits for its turn, as long as it takes.
    #[distributed_lock(key = self.account, ttl = "10s", reentrant, client = self.locks, guard = held)]
    async fn transfer(&self, amount: u64) -> Result {
        self.look("transfer", held).await?;
        self.withdraw(amount).await?;
        // What the others took they have given back.
        self.look("transfer", held).await
    }

    /// Called within a transfer, it enters the lock; called alone, it takes it.
    #[distributed_lock(key = self.account, ttl = "10s", reentrant, client = self.locks, guard = held)]
    async fn withdraw(&self, amount: u64) -> Result {
        self.look("withdraw", held).await?;
        self.audit().await?;

        // To the other process with the owner. It lets whoever has it enter: for services that we trust, not for logs.
        let owner = Owner::current().expect("`reentrant` opens a scope");
        let booked = self.ledger.lock().await.book(amount, Some(&owner)).await?;
        print_row("ledger", &booked);
        let refused = self.stranger.lock().await.book(amount, None).await?;
        print_row("stranger", &refused);
        if !booked.starts_with("200 ") || !refused.starts_with("409 ") {
            return Err("the ledger and the stranger were mistaken for each other".into());
        }
        Ok(())
    }

    /// One try: what another owner has in hand can be audited later.
    #[distributed_lock(key = self.account, ttl = "10s", wait = "0s", reentrant, client = self.locks, guard = held)]
    async fn audit(&self) -> Result {
        self.look("audit", held).await
    }

    async fn look(&self, function: &str, held: &LockGuard) -> Result {
        let look = Look::new(function, held, self.holds().await?);
        print_row("bank", &format!("200 {look}"));
        Ok(())
    }

    /// How often the lock is held, over all processes.
    async fn holds(&self) -> Result<u64, LockError> {
        let lock = self.locks.reentrant_lock(&self.account);
        Ok(lock.inspect().await?.holds())
    }
}

/// How a function finds the lock.
struct Look {
    function: String,
    here: u32,
    in_all: u64,
    token: FencingToken,
}

impl Look {
    fn new(function: &str, held: &LockGuard, in_all: u64) -> Self {
        Self {
            function: function.to_owned(),
            here: held.hold_count(),
            in_all,
            token: held.fencing_token(),
        }
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            function,
            here,
            in_all,
            token,
        } = self;
        write!(f, "{function:8}  {here:>4}  {in_all:>6}  {token}")
    }
}

/// A line of the table: what was found, or why not.
fn print_row(process: &str, answer: &str) {
    println!(
        "  {process:8}  {}",
        answer.strip_prefix("200 ").unwrap_or(answer)
    );
}

/// The other side: a service in a process of its own.
struct Ledger {
    locks: LockManager,
    account: String,
}

impl Ledger {
    /// Enters the lock of the request's owner. A request without one is an owner of its own. One try, since whoever
    /// asks waits for the answer, perhaps with the lock in hand.
    #[distributed_lock(
        key = self.account,
        ttl = "10s",
        wait = "0s",
        reentrant,
        owner = header.map(Owner::parse).transpose()?,
        client = self.locks,
        guard = held
    )]
    async fn book(&self, _amount: u64, header: Option<&str>) -> Result<Look, LockError> {
        let info = self.locks.reentrant_lock(&self.account).inspect().await?;
        Ok(Look::new("book", held, info.holds()))
    }
}

/// The process of a ledger: answers requests of the form `<amount>[ <owner>]`.
async fn serve(account: &str) -> Outcome {
    let url = redis_url().ok_or("REDIS_URL is not set")?;
    let ledger = Ledger {
        locks: connect(&url).await?,
        account: account.to_owned(),
    };
    let mut requests = BufReader::new(tokio::io::stdin()).lines();
    while let Some(request) = requests.next_line().await? {
        let mut words = request.split(' ');
        let amount = words.next().unwrap_or_default().parse()?;
        match ledger.book(amount, words.next()).await {
            Ok(look) => println!("200 {look}"),
            Err(error) if error.is_contention() => println!("409 {error}"),
            Err(error) => println!("503 {error}"),
        }
    }
    ledger.locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// A ledger, seen by its client.
struct Service {
    name: &'static str,
    process: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Service {
    fn start(name: &'static str, url: &str, account: &str) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["ledger", account])
            // Not an argument, which everybody on the machine could read: it may hold a password.
            .env("REDIS_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the first process, whose end is that of their input.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().ok_or("the service has no output")?;
        let answers = BufReader::new(output).lines();
        Ok(Self {
            name,
            process,
            answers,
        })
    }

    /// Sends a request, with the owner in its header if there is one, and waits for the answer.
    async fn book(&mut self, amount: u64, owner: Option<&Owner>) -> Outcome<String> {
        let header = owner.map(|owner| format!(" {owner}")).unwrap_or_default();
        let request = format!("{amount}{header}\n");
        let input = self.process.stdin.as_mut().ok_or("the service is gone")?;
        input.write_all(request.as_bytes()).await?;
        let answer = timeout(SILENCE, self.answers.next_line()).await;
        let answer = answer.map_err(|_| format!("the {} says nothing", self.name))?;
        Ok(answer?.ok_or_else(|| format!("the {} has ended", self.name))?)
    }

    async fn end(mut self) -> Outcome {
        drop(self.process.stdin.take());
        let status = timeout(SILENCE, self.process.wait()).await??;
        if !status.success() {
            return Err(format!("the {} did not go home in peace", self.name).into());
        }
        Ok(())
    }
}

/// Three processes that start at once keep a small machine busy: that is no reason to give up on the server.
async fn connect(url: &str) -> Result<LockManager, LockError> {
    let patient = LockManager::builder().command_deadline(Duration::from_secs(10));
    patient.connect(url).await
}
