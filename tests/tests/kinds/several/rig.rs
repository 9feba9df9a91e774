//! What the cases of several locks have in common.

use lock_core::{LockInfo, LockManager, MultiLock};
use lock_tests::{LIMIT, eventually};

use crate::rig::Rig;

/// Two of them are in one slot of a cluster. Not in the order in which they are waited for.
pub(crate) const KEYS: [&str; 3] = ["{t}c", "b", "{t}a"];

/// Runs a case on each kind of store.
pub(crate) async fn everywhere(case: impl AsyncFn(&Rig)) {
    for_one_script(&case).await;
    case(&Rig::cluster().await).await;
    case(&Rig::quorum().await).await;
}

/// Runs a case on each store where one script takes all.
pub(crate) async fn for_one_script(case: &impl AsyncFn(&Rig)) {
    case(&Rig::memory().await).await;
    case(&Rig::server().await).await;
    case(&Rig::connection().await).await;
    case(&Rig::sentinel().await).await;
}

impl Rig {
    pub(super) async fn all(&self) -> MultiLock {
        self.manager().await.all(KEYS)
    }
}

pub(crate) async fn seen(locks: &LockManager, key: &str) -> LockInfo {
    locks.lock(key).inspect().await.unwrap()
}

/// Waits until this number of waiters is queued.
pub(crate) async fn waiters(locks: &LockManager, key: &str, count: u64) {
    eventually(&format!("{count} wait for {key}"), LIMIT, async || {
        seen(locks, key).await.waiters() == count
    })
    .await;
}

/// Waits until this lock is held, or free.
pub(crate) async fn held(locks: &LockManager, key: &str, is_held: bool) {
    eventually(&format!("{key} is held: {is_held}"), LIMIT, async || {
        seen(locks, key).await.is_held() == is_held
    })
    .await;
}
