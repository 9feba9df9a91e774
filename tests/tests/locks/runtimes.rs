//! Managers on runtimes that lack something.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_tests::{LIMIT, TestServer, eventually};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

fn without_io() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn several_threads() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn locks_in_memory_need_no_io() {
    let done = without_io().block_on(async {
        let locks = LockManager::connect("memory://").await?;
        locks.lock("a").acquire().await?.release().await
    });
    assert!(done.is_ok(), "{done:?}");
}

#[test]
fn a_server_that_cannot_be_reached_for_lack_of_io_is_unavailable() {
    let connected = without_io().block_on(LockManager::connect("redis://127.0.0.1:1"));
    let error = connected.expect_err("nothing can be reached");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
}

/// A manager of a runtime that nobody drives, as where its thread is blocked.
fn undriven() -> (Runtime, TestServer, LockManager) {
    let idle = Builder::new_current_thread().enable_all().build().unwrap();
    let (server, locks) = idle.block_on(async {
        let server = TestServer::start().await;
        let locks = LockManager::builder()
            .command_deadline(Duration::from_millis(100))
            .connect(&server.url())
            .await
            .unwrap();
        (server, locks)
    });
    (idle, server, locks)
}

/// Proves P11.
#[test]
fn a_try_on_a_runtime_that_is_not_driven_ends() {
    let (idle, server, locks) = undriven();
    let other = several_threads();
    // Several, since those who ask at the same moment share a command.
    let answers = other.block_on(async {
        let mut tasks = JoinSet::new();
        for n in 0..8 {
            let lock = locks.lock(format!("undriven:{n}"));
            tasks.spawn(async move { lock.try_acquire().await });
        }
        timeout(LIMIT, tasks.join_all()).await.expect("it hangs")
    });
    for answer in answers {
        let error = answer.expect_err("nothing was sent");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    }
    idle.block_on(async { drop(server) });
}

/// A lone request goes out by another way than those that share a command.
#[test]
fn a_lone_request_is_not_written_for_a_runtime_that_is_not_driven() {
    let (idle, server, locks) = undriven();
    let other = several_threads();
    let taken = other.block_on(async {
        let answer = timeout(LIMIT, locks.lock("lone").try_acquire()).await;
        let error = answer.expect("it hangs").expect_err("nothing was sent");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        server.exists("lock:lone").await
    });
    assert!(!taken, "nobody could take it back");
    idle.block_on(async { drop(server) });
}

/// Proves P14.
#[test]
fn a_waiter_whose_runtime_has_ended_is_passed_over() {
    let (home, other) = (several_threads(), several_threads());
    let server = other.block_on(TestServer::start());
    let (gone, locks) = (
        home.block_on(LockManager::connect(&server.url())).unwrap(),
        other.block_on(LockManager::connect(&server.url())).unwrap(),
    );
    let guard = other.block_on(locks.lock("a").acquire()).unwrap();
    let waiting = gone.lock("a").ttl(Duration::from_secs(600));
    drop(home.spawn(async move { waiting.acquire().await }));
    other.block_on(async {
        let lock = locks.lock("a");
        eventually("it waits", LIMIT, async || {
            lock.inspect().await.unwrap().waiters() == 1
        })
        .await;
    });
    // The manager itself lives on.
    home.shutdown_timeout(LIMIT);
    other.block_on(async {
        guard.release().await.unwrap();
        let next = locks.lock("a").acquire_within(LIMIT).await;
        next.expect("the dead waiter was granted the lock")
            .release()
            .await
            .unwrap();
    });
    drop(gone);
    other.block_on(async { drop(server) });
}

#[test]
fn a_request_whose_runtime_ends_fails_long_before_its_deadline() {
    let (home, other) = (several_threads(), several_threads());
    let server = other.block_on(TestServer::start());
    let locks = home.block_on(async {
        let locks = LockManager::builder().command_deadline(Duration::from_secs(600));
        let locks = locks.connect(&server.url()).await.unwrap();
        let guard = locks.lock("a").acquire().await.unwrap();
        guard.release().await.unwrap();
        locks
    });
    server.stop();
    let (begun, begins) = std::sync::mpsc::channel();
    let lock = locks.lock("a");
    let asking = other.spawn(async move {
        let mut asking = pin!(lock.try_acquire());
        assert!(poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx).is_pending())).await);
        begun.send(()).unwrap();
        asking.await
    });
    begins.recv().unwrap();
    home.shutdown_timeout(LIMIT);
    let answer = other.block_on(async { timeout(LIMIT, asking).await });
    server.cont();
    let answer = answer.expect("it waits for its deadline").unwrap();
    let error = answer.expect_err("the server did not answer");
    // Its connection broke with its runtime, which is not the server's fault.
    let is_told = matches!(error, LockError::InvalidConfig { .. });
    assert!(is_told, "{error:?}");
    other.block_on(async { drop(server) });
}

#[test]
fn a_waiter_hears_that_the_runtime_of_its_manager_has_ended() {
    let (home, other) = (several_threads(), several_threads());
    let server = other.block_on(TestServer::start());
    let elsewhere = other.block_on(LockManager::connect(&server.url())).unwrap();
    let held = other.block_on(elsewhere.lock("a").acquire()).unwrap();
    let locks = home.block_on(LockManager::connect(&server.url())).unwrap();
    let lock = locks.lock("a");
    // The first of them asks the server, the others wait behind it.
    let waiting: Vec<_> = (0..3)
        .map(|n| {
            let lock = lock.clone();
            other.spawn(async move {
                match n {
                    0 => lock.acquire_within(LIMIT * 2).await,
                    _ => lock.acquire().await,
                }
            })
        })
        .collect();
    other.block_on(eventually("they wait", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == 3
    }));
    home.shutdown_timeout(LIMIT);
    for waiter in waiting {
        let answer = other.block_on(async { timeout(LIMIT, waiter).await });
        let error = answer.expect("it hangs").unwrap().expect_err("no lock");
        assert!(error.to_string().contains("runtime"), "{error}");
    }
    other.block_on(async {
        held.release().await.unwrap();
        drop(server);
    });
}

#[test]
fn looking_at_a_lock_says_that_the_runtime_of_its_manager_has_ended() {
    let (home, other) = (several_threads(), several_threads());
    let server = other.block_on(TestServer::start());
    let locks = home.block_on(LockManager::connect(&server.url())).unwrap();
    home.shutdown_timeout(LIMIT);
    other.block_on(async {
        let lock = locks.lock("a");
        let forced = lock.force_release().await.expect_err("no connection");
        let looked = lock.inspect().await.expect_err("no connection");
        let latch = locks.latch("l", 1);
        let waited = latch.wait().await.expect_err("no connection");
        let counted = latch.count_down("a").await.expect_err("no connection");
        for error in [forced, looked, waited, counted] {
            assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
            assert!(error.to_string().contains("runtime"), "{error}");
        }
        drop(server);
    });
}

/// What the manager's own runtime would do is not done; but nobody believes in a lock that is gone, or waits beyond a limit.
/// Proves P14.
#[test]
fn a_manager_whose_runtime_is_not_driven_keeps_limits_and_exclusion() {
    let (idle, server, locks) = undriven();
    let other = several_threads();
    let ttl = Duration::from_millis(500);
    for url in ["memory://undriven".to_owned(), server.url()] {
        let direct = other.block_on(LockManager::connect(&url)).unwrap();
        let locks = if url.starts_with("memory") {
            idle.block_on(LockManager::connect(&url)).unwrap()
        } else {
            locks.clone()
        };
        let guard = idle.block_on(locks.lock("a").ttl(ttl).acquire()).unwrap();
        other.block_on(async {
            let lock = locks.lock("a");
            let waiting = lock.acquire_within(Duration::from_millis(100));
            let refused = timeout(LIMIT, waiting).await.expect("it hangs");
            assert!(refused.is_err(), "{refused:?}");
            let next = timeout(LIMIT, direct.lock("a").acquire()).await;
            let next = next.expect("the ttl has passed").unwrap();
            assert!(!guard.is_held(), "two believers");
            timeout(LIMIT, guard.lost()).await.expect("it is told");
            next.release().await.unwrap();
        });
        drop(guard);
        // Its work is done as soon as it is driven again.
        assert_eq!(idle.block_on(locks.shutdown(LIMIT)), 0);
    }
    idle.block_on(async { drop(server) });
}
