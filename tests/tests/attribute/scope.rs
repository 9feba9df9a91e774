//! `LockManager::scope`: functions without a `client`, in tests that run in parallel.

use std::thread;

use lock_core::{LockError, LockManager, distributed_lock};
use tokio::runtime::Builder;

use crate::memory;

/// As the first example of the README, with a limit.
#[distributed_lock(key = "scope:order:{order_id}", wait = "0s")]
async fn pay(order_id: u64) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    Ok(order_id)
}

/// The runtime of a test ends with it, as `#[tokio::test]` does, and takes its manager along.
fn test() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = memory().await;
        let paid = locks.scope(async {
            for _ in 0..20 {
                assert_eq!(pay(7).await?, 7);
            }
            Ok::<_, LockError>(())
        });
        paid.await.unwrap();
    });
}

#[test]
fn twenty_tests_in_parallel_have_a_manager_each() {
    let tests: Vec<_> = (0..20).map(|_| thread::spawn(test)).collect();
    for test in tests {
        test.join().unwrap();
    }
}

#[tokio::test]
async fn a_scope_is_for_its_future_alone_and_goes_before_the_one_outside() {
    let (outer, inner) = (memory().await, memory().await);
    let _held = inner.lock("scope:order:8").acquire().await.unwrap();
    outer
        .scope(async {
            assert!(pay(8).await.is_ok());
            assert!(inner.scope(pay(8)).await.is_err(), "busy");
            assert!(pay(8).await.is_ok());
            // Another test may have installed a manager.
            let _mine = outer.lock("mine").acquire().await.unwrap();
            let spawned = tokio::spawn(async {
                match lock_core::default_manager() {
                    Ok(installed) => {
                        !matches!(installed.lock("mine").try_acquire().await, Ok(None))
                    }
                    Err(_) => true,
                }
            });
            assert!(spawned.await.unwrap(), "another task");
        })
        .await;
}

#[tokio::test]
async fn the_manager_of_a_call_is_that_of_its_first_poll() {
    let locks: LockManager = memory().await;
    let call = pay(9);
    assert_eq!(locks.scope(call).await.unwrap(), 9);
}
