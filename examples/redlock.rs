//! A lock over five servers of its own. One is killed and one is stopped while workers contend; the work goes on.
//!
//! ```text
//! cargo run --example redlock
//! ```
//!
//! It always starts its own servers (`REDIS_SERVER_BIN`, else `redis-server` from `PATH`): a quorum is about losing some.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_examples::{Outcome, PrivateServer, exit};
use tokio::task::JoinSet;

const WORKERS: u64 = 3;
const TURNS: u64 = 4;

#[tokio::main]
async fn main() -> ExitCode {
    exit("redlock", run().await)
}

async fn run() -> Outcome {
    let mut servers = Vec::new();
    for _ in 0..5 {
        servers.push(PrivateServer::start()?);
    }
    println!("Five servers run, and know nothing of each other:");
    for (n, server) in servers.iter().enumerate() {
        println!("  node {n} at {}", server.url());
    }
    let urls: Vec<String> = servers.iter().map(PrivateServer::url).collect();

    // Once, before the first lock: no node has votes to forget. Without it, a new quorum waits for 60 s.
    LockManager::builder().begin_quorum(&urls).await?;
    println!("\nAll five are there.");
    work(&urls).await?;

    println!(
        "\nNode 1 is killed, and node 3 is stopped: it accepts connections and answers nothing."
    );
    servers[1].kill()?;
    servers[3].signal("STOP")?;
    work(&urls).await?;

    println!("\nNode 4 is killed, too. Two of five are no majority.");
    servers[4].kill()?;
    let refused = LockManager::connect_quorum(&urls).await.map(drop);
    match refused {
        Err(LockError::Unavailable { cause }) => println!("  {cause}"),
        other => return Err(format!("a majority of two: {other:?}").into()),
    }
    Ok(())
}

/// Workers contend for one lock, each with a manager of its own, as processes would. Each looks who voted for it.
async fn work(urls: &[String]) -> Outcome {
    let last = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let (locks, last) = (LockManager::connect_quorum(urls).await?, Arc::clone(&last));
        let lock = locks.lock("job").ttl(Duration::from_secs(10));
        workers.spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.acquire().await?;
                let fence = guard.fencing_token().get();
                let before = last.swap(fence, Ordering::SeqCst);
                assert!(before < fence, "tokens grow");
                let info = lock.inspect().await?;
                let votes = info.nodes().iter().enumerate().map(|(n, node)| {
                    match (node.holder(), node.error()) {
                        (Some(holder), _) if Some(holder) == info.holder() => format!("{n} yes"),
                        (_, Some(_)) => format!("{n} silent"),
                        _ => format!("{n} no"),
                    }
                });
                let votes: Vec<String> = votes.collect();
                println!(
                    "  worker {worker}  token {fence}  votes: {}",
                    votes.join(", ")
                );
                guard.release().await?;
            }
            locks.shutdown(Duration::from_secs(5)).await;
            Ok::<_, LockError>(())
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    println!("  {} turns, one after the other", WORKERS * TURNS);
    Ok(())
}
