//! The first process of the program: starts the workers, gives them orders and checks what they say.

use std::io::{BufRead, BufReader, PipeWriter};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lock_examples::Outcome;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

const WORKERS: usize = 4;
/// After so many turns the workers go home.
const TURNS: usize = 8;
/// The holder of this turn is killed in it.
const FATAL_TURN: usize = 3;
/// How long a turn takes.
const WORK: Duration = Duration::from_millis(150);
/// Longer than the ttl: a live holder keeps its lock, because the lease is renewed.
const LONG_WORK: Duration = Duration::from_millis(2500);
/// Workers that say nothing for so long are in trouble.
const SILENCE: Duration = Duration::from_secs(60);

// What workers say, where it matters.
pub(crate) const HOLDS: &str = "holds the lock, fencing token ";
pub(crate) const RELEASES: &str = "releases it";
pub(crate) const FAILS: &str = "fails: ";

/// The workers and what they have done so far.
pub(crate) struct Show {
    start: Instant,
    workers: Vec<(String, Child)>,
    said: UnboundedReceiver<(Instant, String)>,
    /// Who has the lock, as far as was said.
    holder: Option<usize>,
    turns: usize,
    seen: usize,
    /// When the last turn began.
    began: Instant,
    last_token: u64,
}

impl Show {
    pub(crate) fn begin(url: &str, key: &str) -> Outcome<Self> {
        let (reader, writer) = std::io::pipe()?;
        let workers = (1..=WORKERS)
            .map(|number| {
                let name = format!("worker {number}");
                let child = spawn(&name, url, key, &writer)?;
                Ok((name, child))
            })
            .collect::<Outcome<_>>()?;
        let (sender, said) = unbounded_channel();
        // Ends when the last worker has: only they hold the other end of the pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                let _ = sender.send((Instant::now(), line));
            }
        });
        println!("\n  {:>6}  {:8}  event", "ms", "worker");
        println!("  {:->6}  {:-<8}  {:-<5}", "", "", "");
        Ok(Self {
            start: Instant::now(),
            workers,
            said,
            holder: None,
            turns: 0,
            seen: 0,
            began: Instant::now(),
            last_token: 0,
        })
    }

    /// Returns how long the lock of the killed worker was still taken.
    pub(crate) async fn run(&mut self) -> Outcome<Duration> {
        for _ in 0..WORKERS {
            self.listen().await?;
        }
        for worker in 0..WORKERS {
            self.order(worker).await?;
        }
        let mut killed = None;
        let mut takeover = None;
        loop {
            let holder = self.next_turn().await?;
            takeover = takeover.or(killed.map(|at| self.began.duration_since(at)));
            if killed.is_none() && self.turns >= FATAL_TURN {
                if self.holds_for(LONG_WORK).await? {
                    // SIGKILL: no destructor runs, nothing is released.
                    self.workers[holder].1.kill().await?;
                    let now = Instant::now();
                    self.print(now, holder, "is killed while it holds the lock");
                    killed = Some(now);
                    self.holder = None;
                }
            } else if self.holds_for(WORK).await? {
                if let Some(takeover) = takeover.filter(|_| self.turns >= TURNS) {
                    self.send_home(holder).await?;
                    return Ok(takeover);
                }
                self.order(holder).await?;
            }
        }
    }

    /// Waits for a turn that was not seen yet; whose it is.
    async fn next_turn(&mut self) -> Outcome<usize> {
        loop {
            if let Some(holder) = self.holder.filter(|_| self.turns > self.seen) {
                self.seen = self.turns;
                return Ok(holder);
            }
            self.listen().await?;
        }
    }

    /// False if the holder loses the lock in this time, which a machine that is very busy can bring about.
    async fn holds_for(&mut self, time: Duration) -> Outcome<bool> {
        match timeout(time, self.listen()).await {
            Err(_) => Ok(true),
            Ok(heard) => heard.map(|()| false),
        }
    }

    /// Waits for what a worker says.
    async fn listen(&mut self) -> Outcome {
        let said = timeout(SILENCE, self.said.recv()).await;
        let (at, line) = said
            .map_err(|_| "no worker says anything")?
            .ok_or("all workers have ended")?;
        self.hear(at, &line)
    }

    /// Prints what a worker said, and checks it.
    fn hear(&mut self, at: Instant, line: &str) -> Outcome {
        let (name, what) = line.split_once('|').ok_or("a worker speaks in riddles")?;
        let known = self.workers.iter().position(|(known, _)| known == name);
        let worker = known.ok_or("an unknown worker speaks")?;
        if let Some(error) = what.strip_prefix(FAILS) {
            return Err(format!("{name}: {error}").into());
        }
        self.print(at, worker, what);
        if let Some(token) = what.strip_prefix(HOLDS) {
            let token = token.parse()?;
            if token <= self.last_token {
                return Err(format!("the fencing token of {name} has not grown").into());
            }
            self.last_token = token;
            self.turns += 1;
            self.began = at;
            self.holder = Some(worker);
        } else if what == RELEASES && self.holder.take() != Some(worker) {
            return Err(format!("{name} believed in a lock that another had").into());
        }
        Ok(())
    }

    fn print(&self, at: Instant, worker: usize, what: &str) {
        let ms = at.duration_since(self.start).as_millis();
        println!("  {ms:>6}  {:8}  {what}", self.workers[worker].0);
    }

    /// To a worker: begin, or your piece of work is done.
    async fn order(&mut self, worker: usize) -> Outcome {
        let input = self.workers[worker].1.stdin.as_mut();
        input.ok_or("a worker is gone")?.write_all(b"go\n").await?;
        Ok(())
    }

    /// Lets every worker finish: first those who wait, then the holder, so that nobody gets the lock any more.
    async fn send_home(&mut self, holder: usize) -> Outcome {
        let waiting = (0..WORKERS).filter(|worker| *worker != holder);
        for worker in waiting.chain([holder]) {
            let child = &mut self.workers[worker].1;
            drop(child.stdin.take());
            timeout(SILENCE, child.wait()).await??;
        }
        while let Some((at, line)) = timeout(SILENCE, self.said.recv()).await? {
            self.hear(at, &line)?;
        }
        Ok(())
    }

    /// Ends whoever still runs.
    pub(crate) async fn end(&mut self) {
        for (_, child) in &mut self.workers {
            let _ = child.kill().await;
        }
    }
}

/// Starts this program again as a worker.
fn spawn(name: &str, url: &str, key: &str, output: &PipeWriter) -> Outcome<Child> {
    let child = Command::new(std::env::current_exe()?)
        .args(["worker", name, key])
        // Not an argument, which everybody on the machine could read: it may hold a password.
        .env("REDIS_URL", url)
        .stdin(Stdio::piped())
        .stdout(output.try_clone()?)
        // Ctrl-C is for the first process, which then ends the workers.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}
