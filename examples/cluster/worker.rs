//! The worker processes: one holds many locks, the others compete for some.

use std::process::Stdio;
use std::time::Duration;

use lock_core::LockManager;
use lock_examples::Outcome;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::stage::{Micros, now};

const TTL: Duration = Duration::from_secs(5);

/// How long a lock is held that others wait for.
const WORK: Duration = Duration::from_millis(100);

/// A hold of a lock that others wait for.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) key: String,
    pub(crate) token: u64,
    pub(crate) asked: Micros,
    /// The client believed in it from here ..
    pub(crate) from: Micros,
    /// .. to here: it was told of the loss, or was about to release.
    pub(crate) to: Micros,
}

/// What the processes have written.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) holds: Vec<Hold>,
    /// Key and time of each lock that was lost.
    pub(crate) lost: Vec<(String, Micros)>,
    /// Locks that were held to the end.
    pub(crate) kept: usize,
    /// What an acquisition or a release said that failed.
    pub(crate) failed: Vec<String>,
}

impl Log {
    fn add(&mut self, line: &str) -> Outcome {
        let words: Vec<&str> = line.splitn(6, ' ').collect();
        match words[..] {
            ["hold", key, token, asked, from, to] => self.holds.push(Hold {
                key: key.to_owned(),
                token: token.parse()?,
                asked: asked.parse()?,
                from: from.parse()?,
                to: to.parse()?,
            }),
            ["lost", key, at, ..] => {
                self.lost.push((key.to_owned(), at.parse()?));
                self.failed.push(line.to_owned());
            }
            ["kept"] => self.kept += 1,
            ["failed", ..] => self.failed.push(line.to_owned()),
            _ => return Err(format!("a worker writes `{line}`").into()),
        }
        Ok(())
    }
}

/// A worker process; ended when dropped, and by the end of its input.
pub(crate) struct Worker {
    child: Child,
    reader: JoinHandle<Outcome<Log>>,
}

impl Worker {
    /// Starts this program again, and returns once it works.
    pub(crate) async fn start(number: usize, url: &str, count: usize) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", &number.to_string(), url, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or("a worker has no output")?;
        let mut lines = BufReader::new(output).lines();
        if lines.next_line().await?.as_deref() != Some("ready") {
            return Err(format!("worker {number} has failed").into());
        }
        let reader = tokio::spawn(async move {
            let mut log = Log::default();
            while let Some(line) = lines.next_line().await? {
                log.add(&line)?;
            }
            Ok(log)
        });
        Ok(Self { child, reader })
    }

    /// Ends it, and adds all that it has written.
    pub(crate) async fn end(mut self, all: &mut Log) -> Outcome {
        drop(self.child.stdin.take());
        let log = self.reader.await??;
        all.holds.extend(log.holds);
        all.lost.extend(log.lost);
        all.kept += log.kept;
        all.failed.extend(log.failed);
        Ok(())
    }
}

/// The life of a worker process, until its input ends.
pub(crate) async fn run(number: usize, url: &str, count: usize) -> Outcome {
    let locks = LockManager::builder().default_ttl(TTL).connect(url).await?;
    let (say, mut said) = unbounded_channel::<String>();
    let (over, is_over) = watch::channel(false);
    let mut tasks = Vec::new();
    for number_of_lock in 0..count {
        let (locks, say, is_over) = (locks.clone(), say.clone(), is_over.clone());
        tasks.push(if number == 0 {
            let key = format!("held-{number_of_lock}");
            let guard = locks.lock(&key).acquire().await?;
            tokio::spawn(hold(guard, say, is_over))
        } else {
            tokio::spawn(compete(
                locks,
                format!("hot-{number_of_lock}"),
                say,
                is_over,
            ))
        });
    }
    drop(say);
    let written = tokio::spawn(async move {
        let mut output = tokio::io::stdout();
        output.write_all(b"ready\n").await?;
        while let Some(line) = said.recv().await {
            output.write_all(format!("{line}\n").as_bytes()).await?;
        }
        output.flush().await
    });
    let mut input = Vec::new();
    tokio::io::stdin().read_to_end(&mut input).await?;
    over.send(true)?;
    for task in tasks {
        task.await?;
    }
    written.await??;
    locks.shutdown(TTL).await;
    Ok(())
}

type Say = tokio::sync::mpsc::UnboundedSender<String>;

async fn hold(guard: lock_core::LockGuard, say: Say, mut over: watch::Receiver<bool>) {
    let line = tokio::select! {
        why = guard.lost() => format!("lost {} {} {why}", guard.key(), now()),
        _ = over.changed() => "kept".to_owned(),
    };
    let _ = say.send(line);
}

async fn compete(locks: LockManager, key: String, say: Say, over: watch::Receiver<bool>) {
    while !*over.borrow() {
        let asked = now();
        let guard = match locks.lock(&key).acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                let _ = say.send(format!("failed {key}: {error}"));
                sleep(WORK).await;
                continue;
            }
        };
        let (token, from) = (guard.fencing_token().get(), now());
        tokio::select! {
            () = sleep(WORK) => {}
            _ = guard.lost() => {}
        }
        let to = now();
        let _ = say.send(format!("hold {key} {token} {asked} {from} {to}"));
        let line = match guard.release().await {
            Ok(()) => continue,
            Err(error @ lock_core::LockError::Lost { .. }) => {
                format!("lost {key} {} {error}", now())
            }
            Err(error) => format!("failed release of {key}: {error}"),
        };
        let _ = say.send(line);
    }
}
