//! What `#[distributed_lock]` promises, and every shape of function that it goes on.
//!
//! Each test has a manager of its own and keys of its own, so that it does not matter whether managers of one process
//! share their memory store.

#![deny(warnings, clippy::pedantic)]

mod attribute {
    mod arguments;
    mod behaviour;
    mod current;
    mod future_size;
    mod hygiene;
    mod keys;
    mod never_unlocked;
    mod outcomes;
    mod services;
    mod shapes;
}

use lock_core::LockManager;

/// A manager over memory, for the length of one test.
async fn memory() -> LockManager {
    LockManager::connect("memory://").await.unwrap()
}
