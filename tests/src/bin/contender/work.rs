//! Tasks that take one lock again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{Lock, LockGuard, RwLock};
use tokio::task::JoinSet;

use crate::stamp;

/// No lock is awaited for longer, so that every task hears of the end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The tasks, and how they are told to end.
#[derive(Default)]
pub(crate) struct Crowd {
    over: Arc<AtomicBool>,
    tasks: JoinSet<Vec<[u64; 3]>>,
}

impl Crowd {
    /// Random short holds, each look at the lock reported when it happens: this process may be killed.
    pub(crate) fn work(&mut self, lock: &Lock, owner: &str, tasks: usize) {
        for task in 0..tasks {
            let (lock, over) = (lock.clone(), Arc::clone(&self.over));
            let owner = format!("{owner}.{task}");
            self.tasks.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let asked = stamp();
                    if let Ok(guard) = lock.acquire_within(PATIENCE).await {
                        let fence = guard.fencing_token().get();
                        println!("hold {owner} {fence} {asked} {}", stamp());
                        rely_on(&guard, &owner, &mut fastrand::Rng::new()).await;
                        // Lost is no failure here: the history tells whether that was in time.
                        let _ = guard.release().await;
                    }
                }
                Vec::new()
            });
        }
    }

    /// Everything that may happen to a hold, by chance.
    pub(crate) fn mix(&mut self, lock: &Lock, owner: &str, tasks: usize, seed: u64) {
        for task in 0..tasks {
            let (lock, over) = (lock.clone(), Arc::clone(&self.over));
            let owner = format!("{owner}.{task}");
            let mut random = fastrand::Rng::with_seed(seed * 1000 + task as u64);
            self.tasks.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    live(&lock, &owner, &mut random).await;
                }
                Vec::new()
            });
        }
    }

    /// Holds of no length. In a runtime with one thread the order of asking is the order in which the
    /// server is asked, so the stamps can be held against the fencing tokens.
    pub(crate) fn race(&mut self, lock: &Lock, tasks: usize) {
        for _ in 0..tasks {
            let (lock, over) = (lock.clone(), Arc::clone(&self.over));
            self.tasks.spawn(async move {
                let mut log = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let asked = stamp();
                    let guard = lock.acquire().await.expect("a server");
                    let fence = guard.fencing_token().get();
                    log.push([fence, asked, stamp()]);
                    guard.release().await.expect("a lock that is held");
                }
                log
            });
        }
    }

    /// Reads of a few milliseconds each.
    pub(crate) fn read(&mut self, lock: &RwLock, tasks: usize) {
        for _ in 0..tasks {
            let (lock, over) = (lock.clone(), Arc::clone(&self.over));
            self.tasks.spawn(async move {
                let mut log = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let asked = stamp();
                    let guard = lock.read().await.expect("a server");
                    log.push([guard.fencing_token().get(), asked, stamp()]);
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..5))).await;
                    guard.release().await.expect("a lock that is held");
                }
                log
            });
        }
    }

    pub(crate) async fn stop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        while let Some(log) = self.tasks.join_next().await {
            for [fence, asked, granted] in log.expect("no panic") {
                println!("grant {fence} {asked} {granted}");
            }
        }
        println!("done");
    }
}

/// One hold, or none.
async fn live(lock: &Lock, owner: &str, random: &mut fastrand::Rng) {
    let fate = random.u32(..40);
    // A lease that nobody renews; sometimes its holder does not let go either.
    let lock = lock.clone().renew(fate > 3);
    let limit = match fate {
        // Cut off, somewhere on the way.
        4..20 => Duration::from_micros(random.u64(..20_000)),
        _ => PATIENCE,
    };
    let asked = stamp();
    let Ok(Ok(guard)) = tokio::time::timeout(limit, lock.acquire()).await else {
        return;
    };
    let fence = guard.fencing_token().get();
    println!("hold {owner} {fence} {asked} {}", stamp());
    // Half of them are short, so that several fit into the time for which a process may keep the lock.
    if random.bool() {
        rely_on(&guard, owner, random).await;
    } else {
        look(&guard, owner);
    }
    if fate == 0 {
        guard.lost().await;
        rely_on(&guard, owner, random).await;
    }
    if random.bool() {
        drop(guard);
    } else {
        // Lost is no failure here: the history tells whether that was in time.
        let _ = guard.release().await;
    }
}

async fn rely_on(guard: &LockGuard, owner: &str, random: &mut fastrand::Rng) {
    for _ in 0..random.u32(1..6) {
        let now = stamp();
        if !guard.is_held() {
            return;
        }
        println!("seen {owner} {now}");
        tokio::time::sleep(Duration::from_micros(random.u64(0..4_000))).await;
    }
    look(guard, owner);
}

/// The stamp is read before the look, so it claims nothing that the guard did not say.
fn look(guard: &LockGuard, owner: &str) {
    let now = stamp();
    if guard.is_held() {
        println!("seen {owner} {now}");
    }
}
