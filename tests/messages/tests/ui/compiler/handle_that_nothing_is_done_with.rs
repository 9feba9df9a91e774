#![deny(unused_must_use)]

use lock_core::{LockManager, ReentrantLock};

async fn holds_nothing(locks: LockManager) {
    locks.lock("a");
    reentrant(&locks);
    locks.segmented_lock("b", 4);
}

fn reentrant(locks: &LockManager) -> ReentrantLock {
    locks.reentrant_lock("c")
}

fn main() {}
