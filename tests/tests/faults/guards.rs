//! Guards that are dropped in odd places (P5).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use lock_core::{LockGuard, LockManager};
use lock_tests::{LIMIT, TestServer};
use tokio::runtime::{Builder, Runtime};

use crate::support::{KEY, LONG, NAME, direct, in_time, leftovers, ms, until_clean, until_gone};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

const RUNTIMES: [fn() -> Runtime; 2] = [current_thread, multi_thread];

/// A runtime for the server and the checks, apart from those that tests end.
fn stage() -> (Runtime, TestServer) {
    let runtime = multi_thread();
    let server = runtime.block_on(TestServer::start());
    (runtime, server)
}

async fn held(locks: &LockManager, count: usize) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for n in 0..count {
        let lock = locks.lock(format!("k{n}")).ttl(LONG);
        guards.push(lock.acquire().await.unwrap());
    }
    guards
}

#[test]
fn a_hundred_guards_dropped_before_shutdown_leave_nothing() {
    let (stage, server) = stage();
    for runtime in RUNTIMES {
        let runtime = runtime();
        let left = runtime.block_on(async {
            let locks = direct(&server).await;
            let guards = held(&locks, 100).await;
            assert!(leftovers(&server).await.len() >= 100);
            drop(guards);
            locks.shutdown(std::time::Duration::from_secs(5)).await
        });
        // As at the end of `main`: nothing runs after it.
        drop(runtime);
        assert_eq!(left, 0);
        assert_eq!(stage.block_on(leftovers(&server)), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_guard_dropped_on_a_plain_thread_is_released() {
    let server = TestServer::start().await;
    let locks = direct(&server).await;
    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    thread::spawn(move || drop(guard)).join().unwrap();
    until_gone(&server, KEY).await;
    until_clean(&server).await;
}

#[tokio::test]
async fn a_guard_dropped_by_a_panic_is_released() {
    let server = TestServer::start().await;
    let locks = direct(&server).await;
    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let task = tokio::spawn(async move {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(task.await.unwrap_err().is_panic());
    until_gone(&server, KEY).await;

    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let thread = thread::spawn(move || {
        let _guard = guard;
        panic!("on purpose");
    });
    thread.join().unwrap_err();
    until_gone(&server, KEY).await;
    until_clean(&server).await;
}

/// Proves P5.
#[test]
fn a_guard_dropped_while_no_runtime_runs_is_released_by_its_own() {
    let (stage, server) = stage();
    for runtime in RUNTIMES {
        let runtime = runtime();
        let (locks, guard) = runtime.block_on(async {
            let locks = direct(&server).await;
            let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
            (locks, guard)
        });
        // On this thread there is no runtime now.
        assert!(tokio::runtime::Handle::try_current().is_err());
        drop(guard);
        assert_eq!(runtime.block_on(locks.shutdown(LIMIT)), 0);
        assert_eq!(stage.block_on(leftovers(&server)), Vec::<String>::new());
    }
}

#[test]
fn guards_that_outlive_their_runtime_cost_one_ttl() {
    let (stage, server) = stage();
    for runtime in RUNTIMES {
        let runtime = runtime();
        let (locks, kept, dropped) = runtime.block_on(async {
            let locks = direct(&server).await;
            let lock = locks.lock(NAME).ttl(ms(1000));
            let kept = lock.acquire().await.unwrap();
            let other = locks.lock("other").ttl(ms(1000));
            (locks, kept, other.acquire().await.unwrap())
        });
        drop(runtime);
        drop(dropped);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _guard = kept;
            panic!("on purpose");
        }));
        assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"on purpose"));
        drop(locks);
        stage.block_on(async {
            // Nobody renews it any more: the next one gets it by the ttl.
            let lock = direct(&server).await.lock(NAME);
            let guard = in_time("the ttl", lock.acquire()).await.unwrap();
            guard.release().await.unwrap();
            until_clean(&server).await;
        });
    }
}

#[test]
fn a_guard_kept_after_its_runtime_has_gone_stops_believing() {
    let (stage, server) = stage();
    for runtime in RUNTIMES {
        let runtime = runtime();
        let (locks, guard) = runtime.block_on(async {
            let locks = direct(&server).await;
            let guard = locks.lock(NAME).ttl(ms(500)).acquire().await.unwrap();
            (locks, guard)
        });
        drop(runtime);
        stage.block_on(async {
            let lock = direct(&server).await.lock(NAME);
            let next = in_time("the ttl", lock.acquire()).await.unwrap();
            assert!(!guard.is_held(), "two believers");
            in_time("the loss", guard.lost()).await;
            drop(guard);
            drop(locks);
            assert!(next.is_held());
            next.release().await.unwrap();
        });
    }
}

/// Proves P4.
#[test]
fn acquires_whose_runtime_is_torn_down_cost_one_ttl() {
    let (stage, server) = stage();
    for runtime in RUNTIMES {
        let runtime = runtime();
        runtime.block_on(async {
            let locks = direct(&server).await;
            for n in 0..50 {
                let lock = locks.lock(format!("k{}", n % 10)).ttl(ms(1000));
                tokio::spawn(async move { lock.acquire().await.map(drop) });
            }
            for _ in 0..fastrand::u32(..20) {
                tokio::task::yield_now().await;
            }
        });
        drop(runtime);
        stage.block_on(async {
            for n in 0..10 {
                let lock = direct(&server).await.lock(format!("k{n}")).ttl(LONG);
                let guard = in_time("the ttl", lock.acquire()).await.unwrap();
                guard.release().await.unwrap();
            }
            // Places in a queue count as alive for some seconds, then nothing is left of them.
            until_clean(&server).await;
        });
    }
}
