//! Tasks that take random pairs and triples of a few locks, and mark on the server what they have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lock_core::{LockManager, MultiGuard};
use lock_tests::connect;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

const KEYS: u64 = 10;

#[derive(Default)]
pub(crate) struct Several {
    over: Arc<AtomicBool>,
    taken: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl Several {
    pub(crate) fn work(&mut self, locks: &LockManager, url: &str, owner: &str, tasks: usize) {
        for task in 0..tasks {
            let (locks, url) = (locks.clone(), url.to_owned());
            let (over, taken) = (Arc::clone(&self.over), Arc::clone(&self.taken));
            let owner = format!("{owner}.{task}");
            self.tasks.spawn(async move {
                let mut connection = connect(url.as_str()).await;
                while !over.load(Ordering::Relaxed) {
                    let count = 2 + usize::from(fastrand::bool());
                    let keys = fastrand::choose_multiple(0..KEYS, count);
                    let keys = keys.into_iter().map(|key| format!("several:{key}"));
                    let guard = locks.all(keys).acquire().await.expect("a server");
                    mark(&mut connection, &guard, &owner).await;
                    guard.release().await.expect("locks that are held");
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }

    /// Says how often all of a list were taken.
    pub(crate) async fn stop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        while let Some(task) = self.tasks.join_next().await {
            task.expect("no panic");
        }
        println!("several {}", self.taken.load(Ordering::Relaxed));
    }
}

/// Marks each lock, finds the marks of no other holder and of no later one, and takes the marks away.
async fn mark(connection: &mut MultiplexedConnection, guard: &MultiGuard, owner: &str) {
    let mut begin = redis::pipe();
    let mut end = redis::pipe();
    for guard in guard.guards() {
        let (inside, last) = (
            format!("inside:{}", guard.key()),
            format!("last:{}", guard.key()),
        );
        begin.cmd("SET").arg(&inside).arg(owner).arg("GET");
        begin.cmd("SET").arg(last);
        begin.arg(guard.fencing_token().get()).arg("GET");
        end.cmd("GETDEL").arg(inside);
    }
    let found: Vec<Option<String>> = begin.query_async(connection).await.expect("a server");
    for (guard, found) in guard.guards().iter().zip(found.chunks(2)) {
        let (key, fence) = (guard.key(), guard.fencing_token().get());
        if let Some(other) = &found[0] {
            println!("overlap {key} {owner} {other}");
        }
        if let Some(last) = &found[1]
            && last.parse::<u64>().is_ok_and(|last| last >= fence)
        {
            println!("backwards {key} {owner} {fence} {last}");
        }
    }
    let found: Vec<Option<String>> = end.query_async(connection).await.expect("a server");
    if found.iter().any(|found| found.as_deref() != Some(owner)) {
        println!("overlap {owner} {found:?}");
    }
}
