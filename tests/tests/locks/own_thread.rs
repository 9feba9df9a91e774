//! `own_thread`: a manager that the work of the program cannot keep busy, and that needs no runtime.

use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_core::{LockError, LockManager, LockManagerBuilder};
use lock_tests::{LIMIT, TestServer, eventually};
use tokio::runtime::Builder;

fn builder() -> LockManagerBuilder {
    LockManager::builder().own_thread()
}

/// An executor that knows no timer and no socket.
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

/// A server whose runtime is not the one of the test.
fn server() -> (tokio::runtime::Runtime, TestServer) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(TestServer::start());
    (runtime, server)
}

#[test]
fn a_lease_and_a_release_do_not_wait_for_blocked_workers() {
    let (helper, server) = server();
    let workers = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let ttl = Duration::from_millis(700);
    let (held, dropped) = workers.block_on(async {
        let locks = builder().connect(&server.url()).await.unwrap();
        let held = locks.lock("held").ttl(ttl).acquire().await.unwrap();
        (held, locks.lock("dropped").acquire().await.unwrap())
    });
    let begun = Instant::now();
    let blocked: Vec<_> = (0..4)
        .map(|_| workers.spawn(async { thread::sleep(Duration::from_secs(3)) }))
        .collect();
    drop(dropped);
    helper.block_on(async {
        let admin = LockManager::connect(&server.url()).await.unwrap();
        eventually("the dropped guard is released", LIMIT, async || {
            !admin.lock("dropped").inspect().await.unwrap().is_held()
        })
        .await;
        assert!(begun.elapsed() < Duration::from_secs(2));
    });
    workers.block_on(join_all(blocked));
    assert!(begun.elapsed() >= ttl * 4 && held.is_held());
}

#[test]
fn a_plain_thread_can_begin_a_quorum_and_look_at_it() {
    let (helper, server) = server();
    let others = [(); 2].map(|()| helper.block_on(TestServer::start()));
    let urls = || [&server, &others[0], &others[1]].map(TestServer::url);
    for begun in [
        builder().begin_quorum(urls()),
        builder().begin_quorum(urls()).anew(),
    ] {
        block_on(begun.into_future()).unwrap();
    }
    let status = block_on(builder().quorum_status(urls())).unwrap();
    assert!(status.iter().all(|node| node.vote().is_ok()), "{status:?}");
    let told = LockManager::builder().quorum_status(urls());
    let told = told.now_or_never().unwrap().unwrap_err().to_string();
    assert!(told.contains("await this inside one"), "{told}");
}

#[test]
fn waiters_of_several_executors_hand_the_lock_on() {
    let (_helper, server) = server();
    let locks = block_on(builder().connect(&server.url())).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let lock = locks.lock("hot");
            thread::spawn(move || {
                block_on(async {
                    for _ in 0..50 {
                        lock.acquire().await.unwrap().release().await.unwrap();
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// In a process of its own: other tests of this program have threads of the same name.
#[test]
fn the_thread_ends_with_the_manager() {
    const ALONE: &str = "LOCK_CORE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let test = "own_thread::the_thread_ends_with_the_manager";
        let ended = alone.args([test, "--exact"]).env(ALONE, "1").output();
        let ended = ended.unwrap();
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let named = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "lock-core").count()
    };
    let helper = Builder::new_current_thread().enable_all().build().unwrap();
    let locks = block_on(builder().connect("memory://")).unwrap();
    let guard = block_on(locks.lock("a").acquire()).unwrap();
    // It takes its name when it runs.
    helper.block_on(eventually("it runs", LIMIT, async || named() > 0));
    drop(locks);
    drop(guard);
    helper.block_on(eventually("it ends", LIMIT, async || named() == 0));
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_kept_although_the_clock_of_the_caller_stands_still() {
    let locks = builder().connect("memory://").await.unwrap();
    let lock = locks.lock("a");
    let _held = lock.acquire().await.unwrap();
    let limit = Duration::from_millis(50);
    let late = lock.acquire_within(limit).await.unwrap_err();
    assert!(
        matches!(late, LockError::TimedOut { waited, .. } if waited >= limit),
        "{late:?}"
    );
}

#[test]
fn without_it_a_plain_thread_is_told_what_to_do() {
    let refused = LockManager::builder()
        .connect("memory://")
        .now_or_never()
        .unwrap();
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("or use `own_thread`"), "{text}");
}
