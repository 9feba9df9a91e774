//! Many guards at once.

use std::time::Duration;

use lock_core::{LockGuard, LockManager};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// So many tasks share the taking; they end with it.
const TAKERS: usize = 50;

#[derive(Default)]
pub(crate) struct Many(Vec<LockGuard>);

/// Tasks that live in this runtime.
pub(crate) fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

impl Many {
    pub(crate) async fn fill(
        &mut self,
        locks: &LockManager,
        prefix: &str,
        count: usize,
        ttl: Duration,
    ) {
        let mut takers = JoinSet::new();
        for taker in 0..TAKERS {
            let keys: Vec<String> = (taker..count)
                .step_by(TAKERS)
                .map(|n| format!("{prefix}{n}"))
                .collect();
            let locks = locks.clone();
            takers.spawn(async move {
                let mut guards = Vec::new();
                for key in keys {
                    let guard = locks.lock(key).ttl(ttl).acquire().await;
                    guards.push(guard.expect("a free lock"));
                }
                guards
            });
        }
        while let Some(guards) = takers.join_next().await {
            self.0.extend(guards.expect("no panic"));
        }
        println!("filled");
    }

    /// A guard that was lost is never held again, so one look at the end tells of all the time before.
    pub(crate) fn count(&self) {
        let held = self.0.iter().filter(|guard| guard.is_held()).count();
        println!("holds {held} {}", tasks());
    }

    pub(crate) fn empty(&mut self) {
        self.0.clear();
        println!("emptied");
    }
}
