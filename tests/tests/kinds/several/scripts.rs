//! How many scripts a call takes.

use lock_core::LockManager;
use lock_tests::kit::{script_calls, warm_server};
use lock_tests::{Proxy, Request, TestCluster};

use super::rig::{KEYS, waiters};
use crate::rig::builder;

fn scripts(proxy: &Proxy) -> Vec<&'static str> {
    let requests = proxy.requests();
    requests.iter().filter_map(Request::script).collect()
}

async fn behind(proxy: &Proxy) -> LockManager {
    builder().connect(&proxy.url()).await.unwrap()
}

#[tokio::test]
async fn all_that_are_free_are_taken_in_one_round_trip() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let all = behind(&proxy).await.all(KEYS);
    let before = scripts(&proxy).len();
    let guard = all.acquire().await.unwrap();
    assert_eq!(scripts(&proxy)[before..], ["acquire_all"]);
    drop(guard);
    let guard = all.acquire_within(lock_tests::LIMIT).await.unwrap();
    guard.release().await.unwrap();
    let all_calls = scripts(&proxy)[before..]
        .iter()
        .filter(|name| **name == "acquire_all")
        .count();
    assert_eq!(all_calls, 2);
    assert!(!scripts(&proxy).contains(&"acquire"));
}

#[tokio::test]
async fn a_try_is_one_script_also_if_one_is_busy() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let other = builder().connect(&server.url()).await.unwrap();
    let _held = other.lock("b").acquire().await.unwrap();
    let all = behind(&proxy).await.all(KEYS);
    let before = scripts(&proxy).len();
    assert!(all.try_acquire().await.unwrap().is_none());
    assert_eq!(scripts(&proxy)[before..], ["acquire_all"]);
}

/// Usually in vain: the wait begins at once, and the lock passes from guard to guard in this process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_this_process_uses_are_not_tried_first() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy).await;
    let held = locks.lock("b").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.all(["b", "c"]).acquire());
    waiters(&locks, "b", 1).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(!scripts(&proxy).contains(&"acquire_all"));
}

#[tokio::test]
async fn one_key_alone_is_acquired_as_ever() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let one = behind(&proxy).await.all(["b", "b"]);
    let before = scripts(&proxy).len();
    let _guard = one.acquire().await.unwrap();
    assert_eq!(scripts(&proxy)[before..], ["acquire"]);
}

#[tokio::test]
async fn in_a_cluster_each_slot_takes_one_script() {
    let cluster = TestCluster::start(1).await;
    let locks = builder().connect(&cluster.url()).await.unwrap();
    let all = locks.all(["{t}c", "b", "{t}a", "{t}d"]);
    let server = &cluster.masters()[0].server;
    // The first call brings the text of the scripts.
    all.acquire().await.unwrap().release().await.unwrap();
    let before = script_calls(server).await;
    let guard = all.try_acquire().await.unwrap().expect("all are free");
    assert_eq!(script_calls(server).await - before, 2);
    guard.release().await.unwrap();
}
