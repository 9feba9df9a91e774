//! Managers on runtimes that lack something.

use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_tests::{LIMIT, TestServer};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

fn without_io() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
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
fn a_server_that_can_not_be_reached_for_lack_of_io_is_unavailable() {
    let connected = without_io().block_on(LockManager::connect("redis://127.0.0.1:1"));
    let error = connected.expect_err("nothing can be reached");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
}

/// As where the thread of the first runtime is blocked.
#[test]
fn nobody_waits_for_ever_for_a_runtime_that_nobody_drives() {
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
    let other = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
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
