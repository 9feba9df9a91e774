//! Four processes share one lock on a real Redis. One of them is killed while it holds it; the others go on.
//!
//! ```text
//! cargo run --example workers
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example workers
//! ```
//!
//! Without `REDIS_URL` it starts a `redis-server` of its own (`REDIS_SERVER_BIN`, else from `PATH`).
//!
//! The program starts itself four times, with the argument `worker`. All workers write into one pipe, so their lines
//! arrive in the order in which they were written. What a worker reads are orders: the first line starts it, each
//! further line ends a piece of work, and the end of its input sends it home. The input also ends when the first
//! process does, however that happens, so no worker outlives it.

#[path = "workers/show.rs"]
mod show;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_examples::{Outcome, exit, redis_url, redis_url_or_own_server};
use tokio::io::AsyncBufReadExt;
use tokio::signal::unix::{SignalKind, signal};

use show::{FAILS, HOLDS, RELEASES, Show};

/// A crash costs the others this much at most.
const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ["worker", name, key] = args[..] else {
        return exit("workers", supervise().await);
    };
    match worker(name, key).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{name}|{FAILS}{error}");
            ExitCode::FAILURE
        }
    }
}

/// One worker: takes the lock, works, gives it back, and again.
async fn worker(name: &str, key: &str) -> Outcome {
    let say = |what: &str| writeln!(std::io::stdout(), "{name}|{what}");
    let mut orders = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    let url = redis_url().ok_or("REDIS_URL is not set")?;
    let locks = connect(&url).await?;
    let lock = locks.lock(key).ttl(TTL);
    say("is ready")?;
    let mut at_work = orders.next_line().await?.is_some();
    while at_work {
        let guard = tokio::select! {
            guard = lock.acquire() => guard?,
            // An order while it waits: dropping the future leaves the queue.
            order = orders.next_line() => {
                at_work = order?.is_some();
                continue;
            }
        };
        say(&format!("{HOLDS}{}", guard.fencing_token()))?;
        tokio::select! {
            order = orders.next_line() => at_work = order?.is_some(),
            // Before another can have the lock: the moment to stop working.
            _ = guard.lost() => {}
        }
        if guard.is_held() {
            say(RELEASES)?;
        }
        match guard.release().await {
            Err(LockError::Lost { reason, .. }) => say(&format!("has lost it: {reason}"))?,
            other => other?,
        }
    }
    locks.shutdown(TTL).await;
    say("goes home")?;
    Ok(())
}

/// Five processes that start at once keep a small machine busy: that is no reason to give up on the server.
async fn connect(url: &str) -> Result<LockManager, LockError> {
    let patient = LockManager::builder().command_deadline(Duration::from_secs(10));
    patient.connect(url).await
}

/// The first process: runs the show, and leaves nothing running behind, however it ends.
async fn supervise() -> Outcome {
    let mut terminated = signal(SignalKind::terminate())?;
    let (url, _server) = redis_url_or_own_server("lock lives")?;
    // Another run of this program on the same server has a lock of its own.
    let key = format!("workers:{}", std::process::id());
    // Before the workers: an address where nobody answers is told once, not four times.
    let locks = connect(&url).await?;

    let mut show = Show::begin(&url, &key)?;
    let outcome = tokio::select! {
        outcome = show.run() => outcome,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        _ = terminated.recv() => Err("terminated".into()),
    };
    show.end().await;
    let takeover = outcome?;

    let info = locks.lock(&key).inspect().await?;
    if info.is_held() || info.waiters() > 0 {
        return Err(format!("the workers have left something behind: {info:?}").into());
    }
    locks.shutdown(TTL).await;
    println!(
        "\nNever two at once, and the fencing tokens have strictly grown.\n\
         The lock of the killed worker was taken over after {} ms; its ttl is {} ms.\n\
         In the end nobody holds the lock and nobody waits for it.",
        takeover.as_millis(),
        TTL.as_millis()
    );
    Ok(())
}
