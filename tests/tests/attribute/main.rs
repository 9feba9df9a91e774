//! What `#[distributed_lock]` promises, and every shape of function that it goes on.
//!
//! Each test has a manager of its own and keys of its own, so that it does not matter whether managers of one process
//! share their memory store.

#![deny(warnings, clippy::pedantic)]

mod arguments;
mod attribute_no_prelude;
mod behaviour;
mod blocking;
mod current;
mod future_size;
mod hygiene;
mod keys;
mod labels;
mod never_unlocked;
mod outcomes;
mod owned_futures;
mod owner;
mod reentrant;
mod scope;
mod services;
mod shapes;
mod sharing;

use lock_core::LockManager;
use lock_tests::{LIMIT, TestServer};

/// A manager over memory, for the length of one test.
async fn memory() -> LockManager {
    LockManager::connect("memory://").await.unwrap()
}

/// Checks over memory, and on a real server, on which nothing may be left behind but the counter of the tokens.
async fn both(check: impl AsyncFn(&LockManager)) {
    let locks = memory().await;
    in_time(Box::pin(check(&locks))).await;
    assert_eq!(locks.shutdown(LIMIT).await, 0);

    let server = TestServer::start().await;
    // A slow machine is no reason to give up on the server.
    let patient = LockManager::builder().command_deadline(LIMIT);
    let locks = patient.connect(&server.url()).await.unwrap();
    in_time(Box::pin(check(&locks))).await;
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    assert_eq!(lock_tests::kit::leftovers(&server).await, [""; 0]);
}

/// Ends a test whose function waits for itself.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    lock_tests::in_time("nobody waits for themselves", work).await
}
