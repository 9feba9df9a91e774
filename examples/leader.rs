//! Three processes elect a leader on a real Redis. The first leader is killed, the second is paused, the third resigns; the first process
//! observes the election, and prints who led when, by term.
//!
//! ```text
//! cargo run --example leader
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example leader
//! ```
//!
//! Without `REDIS_URL` it starts a `redis-server` of its own (`REDIS_SERVER_BIN`, else from `PATH`).
//!
//! The program starts itself three times, with the argument `candidate`. A candidate leads until a line comes on its input, and then
//! campaigns again. It ends with its input, and so with the first process.

use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use lock_core::{Election, FencingToken, Leader, Leaders, LockError, LockManager};
use lock_examples::{Outcome, exit, redis_url, redis_url_or_own_server};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// A leader that crashes or stands still costs the others this much at most.
const TTL: Duration = Duration::from_secs(1);
const WORK: Duration = Duration::from_millis(300);
/// Maximum wait for the next leader. A longer one means that the candidates are in trouble.
const SILENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["candidate", name, key] => exit("leader", candidate(name, key).await),
        _ => exit("leader", observe().await),
    }
}

async fn election(url: &str, key: &str) -> Result<Election, LockError> {
    // Several processes that start at once keep a small machine busy: that is no reason to give up on the server.
    let patient = LockManager::builder().command_deadline(Duration::from_secs(10));
    Ok(patient.connect(url).await?.election(key).ttl(TTL))
}

/// Leads, again and again, each time until it is told to resign.
async fn candidate(name: &str, key: &str) -> Outcome {
    let url = redis_url().ok_or("REDIS_URL is not set")?;
    let orders = Mutex::new(BufReader::new(tokio::io::stdin()).lines());
    let election = election(&url, key).await?;
    loop {
        let resigned = election.run(name, async |_leadership| {
            // What the leader does comes here. Each write names `_leadership.term()`, so that a resource can refuse an earlier leader.
            orders.lock().await.next_line().await
        });
        if resigned.await??.is_none() {
            return Ok(());
        }
    }
}

/// The first process: looks at the election, and disturbs it.
async fn observe() -> Outcome {
    let (url, _server) = redis_url_or_own_server("election lives")?;
    // Another run of this program on the same server has an election of its own.
    let key = format!("leader:{}", std::process::id());
    let election = election(&url, &key).await?;
    let mut terms = Terms {
        leaders: election.observe().await?,
        start: Instant::now(),
        last: None,
    };
    let mut candidates = Vec::new();
    for number in 1..=3 {
        candidates.push(spawn(&format!("process {number}"), &url, &key)?);
    }
    println!(
        "\n  {:>6}  {:9}  {:>16}  the leader before",
        "ms", "leader", "term"
    );
    println!("  {:->6}  {:-<9}  {:->16}  {:-<17}", "", "", "", "");
    let killed = terms.next("-").await?;
    let index = place(&killed)?;
    // SIGKILL: no destructor runs, nothing is released.
    candidates[index].kill().await?;
    let paused = terms.next("was killed").await?;
    let index = place(&paused)?;
    let pid = candidates[index].id().and_then(|id| i32::try_from(id).ok());
    let pid = pid.and_then(Pid::from_raw).ok_or("it has ended")?;
    kill_process(pid, Signal::STOP)?;
    let resigns = terms.next("was paused past its term").await;
    // It finds that its term is over, and campaigns again.
    kill_process(pid, Signal::CONT)?;
    let resigns = resigns?;
    let index = place(&resigns)?;
    let input = candidates[index].stdin.as_mut().ok_or("it has no input")?;
    input.write_all(b"resign\n").await?;
    let last = terms.next("resigned").await?;
    if last.value() == killed.value() {
        return Err("the process that was killed leads".into());
    }
    // The end of their input ends the others.
    for mut candidate in candidates {
        drop(candidate.stdin.take());
        let _ = timeout(TTL, candidate.wait()).await;
    }
    println!(
        "\nEach term has a larger number than the one before. A leader that was killed or paused was\n\
         followed at the end of its lease, {} ms after the last renewal.",
        TTL.as_millis()
    );
    Ok(())
}

/// The terms as they begin.
struct Terms {
    leaders: Leaders,
    start: Instant,
    last: Option<FencingToken>,
}

impl Terms {
    /// Waits for the next leader, and prints it, with what has become of the one before.
    async fn next(&mut self, before: &str) -> Outcome<Leader> {
        let next = async {
            loop {
                match self.leaders.next().await {
                    Some(Some(leader)) if Some(leader.term()) != self.last => return Ok(leader),
                    Some(_) => {}
                    None => return Err("the election is not observed any more"),
                }
            }
        };
        let leader = timeout(SILENCE, next).await??;
        if Some(leader.term()) < self.last {
            return Err("a term has not grown".into());
        }
        self.last = Some(leader.term());
        println!(
            "  {:>6}  {:9}  {:>16}  {before}",
            self.start.elapsed().as_millis(),
            leader.value(),
            leader.term()
        );
        tokio::time::sleep(WORK).await;
        Ok(leader)
    }
}

/// The place of this leader among the processes.
fn place(leader: &Leader) -> Outcome<usize> {
    let number = leader.value().strip_prefix("process ");
    let number: usize = number.ok_or("an unknown leader")?.parse()?;
    Ok(number - 1)
}

fn spawn(name: &str, url: &str, key: &str) -> Outcome<Child> {
    let child = Command::new(std::env::current_exe()?)
        .args(["candidate", name, key])
        .env("REDIS_URL", url)
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}
