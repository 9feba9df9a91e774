//! Four servers have the same schedule. Each job of it is run by one of them, and the others leave it out.
//!
//! ```text
//! cargo run --example scheduled_job
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example scheduled_job
//! ```
//!
//! Without `REDIS_URL` it starts a `redis-server` of its own (`REDIS_SERVER_BIN`, else from `PATH`).
//!
//! The job asks for the next city and writes down its number. Two runs at once would write the same number twice, and a
//! second run one after the other would skip a city. Two arguments of the attribute prevent both:
//!
//! - `wait = "0s", on_busy = skip`: who comes second does not wait for the first, but leaves the job out.
//! - `at_least = "1m"`: the lock of a run stays for a minute, however quick the job is. A server whose clock is late
//!   finds it taken. Give the largest difference between clocks, and keep it shorter than the interval, or put the
//!   time of the run into the key, as here.
//!
//! The first process plays the clock: it starts this program four times, and tells each of them when it is time.

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use lock_core::{LockManager, distributed_lock};
use lock_examples::{Outcome, Table, exit, redis_url, redis_url_or_own_server};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

const SERVERS: usize = 4;
const RUNS: usize = 5;
/// No server is silent for so long unless something is wrong.
const SILENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [role, application] if role == "server" => exit("scheduled_job", server(application).await),
        _ => exit("scheduled_job", clock().await),
    }
}

/// One of the servers.
struct Server {
    locks: LockManager,
    redis: MultiplexedConnection,
    city: String,
}

impl Server {
    /// The job. `None` where another server runs it, or has run it.
    #[distributed_lock(
        key = "next-city:{run}",
        wait = "0s",
        at_least = "1m",
        on_busy = return = Ok(None),
        client = self.locks
    )]
    async fn next_city(&self, run: &str) -> Outcome<Option<u64>> {
        let mut redis = self.redis.clone();
        let last: Option<u64> = redis.get(&self.city).await?;
        // Asking for a city takes its time.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let next = last.unwrap_or(0) + 1;
        let () = redis.set(&self.city, next).await?;
        Ok(Some(next))
    }
}

/// Runs the job whenever it is told to, and says what came of it.
async fn server(application: &str) -> Outcome {
    let url = redis_url().ok_or("REDIS_URL is not set")?;
    let builder = LockManager::builder()
        .prefix(format!("{application}:"))
        .command_deadline(Duration::from_secs(10));
    let server = Server {
        locks: builder.connect(&url).await?,
        redis: redis::Client::open(url)?
            .get_multiplexed_async_connection()
            .await?,
        city: format!("{application}-city"),
    };
    println!("ready");
    let mut times = BufReader::new(tokio::io::stdin()).lines();
    while let Some(run) = times.next_line().await? {
        match server.next_city(&run).await? {
            Some(city) => println!("city {city}"),
            None => println!("left out"),
        }
    }
    server.locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// The first process.
async fn clock() -> Outcome {
    let (url, _server) = redis_url_or_own_server("locks live")?;
    // Another run of this program on the same server is another application.
    let application = format!("cities-{}", std::process::id());
    let mut redis = redis::Client::open(&*url)?
        .get_multiplexed_async_connection()
        .await?;
    let mut servers = (0..SERVERS)
        .map(|_| Remote::start(&url, &application))
        .collect::<Outcome<Vec<_>>>()?;
    for server in &mut servers {
        server.hear().await?;
    }

    let mut table = Table::new(["run", "server 1", "server 2", "server 3", "server 4"]);
    let outcome = runs(&mut servers, &mut table).await;
    // The locks stay for their minute, as they should.
    let () = redis.del(format!("{application}-city")).await?;
    outcome?;
    println!(
        "\n{table}\n{RUNS} times it was time, and {RUNS} cities were numbered: each run was made by one server."
    );
    Ok(())
}

async fn runs(servers: &mut [Remote], table: &mut Table<5>) -> Outcome {
    for run in 1..=RUNS {
        let mut row = [const { String::new() }; SERVERS + 1];
        row[0] = run.to_string();
        // The clock of one of them is late: it hears of it when the others are done.
        let late = run % SERVERS;
        for (number, server) in servers.iter_mut().enumerate() {
            if number != late {
                server.tell(run).await?;
            }
        }
        for (number, server) in servers.iter_mut().enumerate() {
            if number != late {
                row[number + 1] = server.hear().await?;
            }
        }
        servers[late].tell(run).await?;
        row[late + 1] = format!("{} (late)", servers[late].hear().await?);

        let city = format!("city {run}");
        let ran = row.iter().filter(|said| said.starts_with("city")).count();
        if ran != 1 || !row.contains(&city) {
            return Err(format!("run {run} was not made once: {row:?}").into());
        }
        table.row(row);
    }
    Ok(())
}

/// A server, as the first process sees it; ended when dropped.
struct Remote {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Remote {
    fn start(url: &str, application: &str) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["server", application])
            // Not an argument, which everybody on the machine could read: it may hold a password.
            .env("REDIS_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or("a server has no output")?;
        Ok(Self {
            input: child.stdin.take().ok_or("a server has no input")?,
            output: BufReader::new(output).lines(),
            _child: child,
        })
    }

    async fn tell(&mut self, run: usize) -> Outcome {
        Ok(self.input.write_all(format!("{run}\n").as_bytes()).await?)
    }

    async fn hear(&mut self) -> Outcome<String> {
        let said = timeout(SILENCE, self.output.next_line()).await;
        let said = said.map_err(|_| "a server is silent")??;
        Ok(said.ok_or("a server has ended")?)
    }
}
