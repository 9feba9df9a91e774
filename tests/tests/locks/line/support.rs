//! What the tests of the line have in common.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use lock_core::{Lock, LockGuard, LockManager, LockManagerBuilder};
pub(crate) use lock_tests::in_time;
pub(crate) use lock_tests::kit::{ms, script_calls, until_clean, warm_server};
use lock_tests::{LIMIT, Request, TestServer, eventually};
use tokio::task::JoinHandle;

pub(crate) const NAME: &str = "k";
pub(crate) const KEY: &str = "lock:k";

/// Longer than any test may wait, a third of it too: no renewal, and no lease that ends.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Settings with which no slow machine makes a manager give up.
pub(crate) fn patient() -> LockManagerBuilder {
    LockManager::builder().command_deadline(LIMIT)
}

pub(crate) async fn direct(server: &TestServer) -> LockManager {
    patient().connect(&server.url()).await.unwrap()
}

pub(crate) fn is_acquire(request: &Request) -> bool {
    request.script() == Some("acquire")
}

/// How many wait, on the server and in line in the manager of this handle.
pub(crate) async fn waiters(lock: &Lock) -> u64 {
    lock.inspect().await.unwrap().waiters()
}

pub(crate) async fn until_waiting(lock: &Lock, count: u64) {
    eventually("the callers wait", LIMIT, async || {
        waiters(lock).await == count
    })
    .await;
}

/// A task that stands in line when this returns, behind those that stood there before.
pub(crate) async fn in_line(lock: &Lock) -> JoinHandle<LockGuard> {
    let before = waiters(lock).await;
    let theirs = lock.clone();
    let task = tokio::spawn(async move { theirs.acquire().await.unwrap() });
    until_waiting(lock, before + 1).await;
    task
}

pub(crate) async fn granted(waiter: JoinHandle<LockGuard>) -> LockGuard {
    in_time("a grant", waiter).await.unwrap()
}

/// Between which moments the guard's lease ends, as exactly as it can be read.
pub(crate) fn deadline(guard: &LockGuard) -> (Instant, Instant) {
    let before = Instant::now();
    let remaining = guard.remaining();
    (before + remaining, Instant::now() + remaining)
}

/// Who was granted the lock, in that order.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<Entry>>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) manager: usize,
    pub(crate) fence: u64,
    pub(crate) granted: Instant,
    /// Read just before it was released.
    pub(crate) released: Instant,
}

impl Log {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.0.lock().unwrap().clone()
    }

    /// Notes a grant to one of that manager, works for a moment and lets go.
    pub(crate) async fn enter(&self, manager: usize, guard: LockGuard, moment: Duration) {
        let granted = Instant::now();
        let place = {
            let mut log = self.0.lock().unwrap();
            log.push(Entry {
                manager,
                fence: guard.fencing_token().get(),
                granted,
                released: granted,
            });
            log.len() - 1
        };
        if !moment.is_zero() {
            tokio::time::sleep(moment).await;
        }
        self.0.lock().unwrap()[place].released = Instant::now();
        guard.release().await.unwrap();
    }
}

/// Guards of one manager in a row.
pub(crate) fn rows(entries: &[Entry]) -> Vec<&[Entry]> {
    entries
        .chunk_by(|one, next| one.manager == next.manager)
        .collect()
}
