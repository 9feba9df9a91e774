//! Semaphores and read-write locks, whose kind the server tells.

use std::process::Stdio;
use std::time::Duration;

use lock_core::{LockManager, LossReason};
use lock_tests::{LIMIT, Sentinel, TestCluster, TestServer, eventually};
use tokio::time::timeout;

use crate::look::manager;
use crate::top::Screen;
use crate::{answer, json, lockctl, says};

/// A semaphore of eight permits with two holders, and a read-write lock with two readers.
async fn scene(url: &str) -> (Vec<lock_core::LockGuard>, Vec<lock_core::ReadGuard>) {
    let (one, two) = (
        manager(url, "orders-1").await,
        manager(url, "orders-2").await,
    );
    let semaphore = |locks: &LockManager| locks.semaphore("provider", 8);
    let permits = vec![
        semaphore(&one).permits(3).acquire().await.unwrap(),
        semaphore(&two).acquire().await.unwrap(),
    ];
    let readers = vec![
        one.rw_lock("prices").read().await.unwrap(),
        two.rw_lock("prices").read().await.unwrap(),
    ];
    (permits, readers)
}

#[tokio::test]
async fn a_semaphore_is_shown_with_its_permits_and_each_holder() {
    let server = TestServer::start().await;
    let url = server.url();
    let _scene = scene(&url).await;
    let other = manager(&url, "orders-3").await.semaphore("provider", 8);
    let waiting = tokio::spawn(other.clone().permits(6).acquire());
    let queued = async || other.inspect().await.unwrap().waiters() == 1;
    eventually("it waits", LIMIT, queued).await;

    let text = says(&url, "inspect provider").await;
    for words in [
        "kind        semaphore\npermits     4 of 8\nholders     2\n            1. orders-1, 3 permits, since ",
        "            2. orders-2, 1 permit, since ",
        "waiters     1\n            1. orders-3, for ",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let shown = json(&url, "inspect provider").await;
    assert_eq!(shown["kind"], "semaphore");
    assert_eq!(shown["permits"], serde_json::json!({ "used": 4, "max": 8 }));
    let holders = shown["holders"].as_array().unwrap();
    let names = holders.iter().map(|holder| &holder["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["orders-1", "orders-2"]);
    assert_eq!(holders[0]["permits"], 3);
    assert!(holders[0]["remaining_ms"].as_u64().unwrap() <= 30_000);
    assert!(holders[0]["since"].is_string());
    waiting.abort();
}

#[tokio::test]
async fn a_read_write_lock_is_shown_with_its_readers_or_its_writer() {
    let server = TestServer::start().await;
    let url = server.url();
    let (_permits, readers) = scene(&url).await;
    let text = says(&url, "inspect prices").await;
    assert!(
        text.contains("kind        read-write\nmode        read\nholders     2\n"),
        "{text}"
    );
    for reader in readers {
        reader.release().await.unwrap();
    }
    let writer = manager(&url, "orders-3").await.rw_lock("prices");
    let _writer = writer.write().await.unwrap();
    let text = says(&url, "inspect prices").await;
    assert!(
        text.contains("mode        write\nholders     1\n            1. orders-3, since "),
        "{text}"
    );
    assert_eq!(json(&url, "inspect prices").await["kind"], "read-write");
}

#[tokio::test]
async fn a_list_names_the_kind_and_counts_the_holders() {
    let server = TestServer::start().await;
    let url = server.url();
    let _scene = scene(&url).await;
    let listed = says(&url, "ls").await;
    let rows: Vec<String> = listed
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(rows.len(), 3, "{listed}");
    assert!(rows[1].starts_with("prices read-write "), "{listed}");
    assert!(
        rows[2].starts_with("provider semaphore orders-1 and 1 more "),
        "{listed}"
    );
    let listed = json(&url, "ls provider").await;
    assert_eq!(listed[0]["kind"], "semaphore");
    assert_eq!(listed[0]["permits"]["used"], 4);
}

#[tokio::test]
async fn a_forced_release_takes_the_permits_from_all_holders() {
    let server = TestServer::start().await;
    let url = server.url();
    let (permits, readers) = scene(&url).await;
    let refused = answer(&url, "unlock provider").await;
    assert_eq!(refused.code, Some(64));
    assert!(permits.iter().all(|guard| guard.is_held()));
    assert_eq!(
        says(&url, "unlock provider --yes").await,
        "provider was taken from orders-1 and 1 more\n"
    );
    says(&url, "unlock prices --yes").await;
    let readers = readers.iter().map(std::ops::Deref::deref);
    for guard in permits.iter().chain(readers) {
        let told = timeout(LIMIT, guard.lost()).await.expect("told");
        assert_eq!(told, LossReason::ForceReleased);
    }
    let free = answer(&url, "unlock provider --yes").await;
    assert_eq!((free.code, &*free.out), (Some(1), "provider is free\n"));
}

#[tokio::test]
async fn waiting_ends_when_the_last_holder_has_released() {
    let server = TestServer::start().await;
    let url = server.url();
    let (permits, readers) = scene(&url).await;
    for key in ["provider", "prices"] {
        let early = answer(&url, &format!("wait {key} --timeout 150ms")).await;
        assert_eq!(early.code, Some(1), "{early:?}");
    }
    let mut waiting = lockctl(&url, "wait provider")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut permits = permits.into_iter();
    permits.next().unwrap().release().await.unwrap();
    let early = timeout(Duration::from_millis(300), waiting.wait()).await;
    assert!(early.is_err(), "{early:?}");
    permits.next().unwrap().release().await.unwrap();
    let code = timeout(LIMIT, waiting.wait()).await.expect("free").unwrap();
    assert!(code.success());
    drop(readers);
    assert_eq!(answer(&url, "wait prices").await.code, Some(0));
}

#[tokio::test]
async fn a_resize_serves_the_waiters_and_asks_before() {
    let server = TestServer::start().await;
    let url = server.url();
    let locks = manager(&url, "orders-1").await;
    let semaphore = locks.semaphore("provider", 1);
    let _one = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(semaphore.acquire());
    let queued = async || semaphore.inspect().await.unwrap().waiters() == 1;
    eventually("it waits", LIMIT, queued).await;

    let refused = answer(&url, "resize provider 1 2").await;
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(!waiting.is_finished());
    assert_eq!(
        says(&url, "resize provider 1 2 --yes").await,
        "provider has 2 permits\n"
    );
    let _two = timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap();
    let wrong = answer(&url, "resize provider 5 6 --yes").await;
    assert_eq!(wrong.code, Some(78), "{wrong:?}");
    assert!(
        wrong.err.contains("has 2 permits on the server"),
        "{wrong:?}"
    );
    assert!(wrong.err.contains("state `2` as FROM"), "{wrong:?}");
    let _held = locks.lock("order:7").acquire().await.unwrap();
    let no_semaphore = answer(&url, "resize order:7 1 2 --yes").await;
    assert_eq!(no_semaphore.code, Some(78), "{no_semaphore:?}");
}

#[tokio::test]
async fn a_hash_that_is_no_lock_is_left_alone() {
    let server = TestServer::start().await;
    let url = server.url();
    let _: () = lock_tests::kit::command(&server, "HSET lock:mine field value").await;
    let text = says(&url, "inspect mine").await;
    assert!(text.contains("state       no lock, but a hash\n"), "{text}");
    let refused = answer(&url, "unlock mine --yes").await;
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert_eq!(answer(&url, "wait mine").await.code, Some(78));
    let left: i64 = lock_tests::kit::command(&server, "HLEN lock:mine").await;
    assert_eq!(left, 1);
}

#[tokio::test]
async fn top_shows_both_kinds_and_takes_them_from_all_holders() {
    let server = TestServer::start().await;
    let (permits, readers) = scene(&server.url()).await;
    let mut screen = Screen::open(&server.url(), 100);
    screen.shows("read-write").await;
    screen.shows("orders-1 and 1 more").await;
    screen.press("/prov\r");
    screen.shows("q quit").await;
    screen.press("\r");
    screen.shows("4 of 8").await;
    screen.press("\x1bu");
    screen
        .shows("take provider (semaphore) from orders-1 and 1 more? y/n")
        .await;
    assert!(permits.iter().all(|guard| guard.is_held()));
    screen.press("y");
    screen.shows("provider was taken from").await;
    for permit in &permits {
        let told = timeout(LIMIT, permit.lost()).await.expect("told");
        assert_eq!(told, LossReason::ForceReleased);
    }
    assert!(readers.iter().all(|reader| reader.is_held()));
}

#[tokio::test]
async fn a_question_about_one_holder_does_not_take_the_permit_of_another() {
    let server = TestServer::start().await;
    let url = server.url();
    let locks = manager(&url, "orders-1").await;
    let one = locks.semaphore("provider", 8).acquire().await.unwrap();
    let mut screen = Screen::of(&url, 100, &["unlock", "provider"]);
    screen.shows("provider is held by orders-1").await;
    let other = manager(&url, "orders-2").await;
    let two = other.semaphore("provider", 8).acquire().await.unwrap();
    screen.press("y\r");
    screen.shows("meanwhile the holder has changed").await;
    screen.shows("Take it from all of them?").await;
    // A holder that has gone changes nothing for the others.
    one.release().await.unwrap();
    screen.press("y\r");
    screen.shows("was taken from").await;
    let told = timeout(LIMIT, two.lost()).await.expect("told");
    assert_eq!(told, LossReason::ForceReleased);
}

#[tokio::test]
async fn both_kinds_are_found_in_a_cluster_and_behind_sentinel() {
    let master = TestServer::start().await;
    let sentinel = Sentinel::start("mymaster", master.addr()).await;
    let cluster = TestCluster::start(3).await;
    let behind = format!("redis+sentinel://{}/mymaster", sentinel.addr());
    for url in [behind, cluster.url()] {
        let (permits, readers) = scene(&url).await;
        let waiter = manager(&url, "orders-3").await.semaphore("provider", 8);
        let waiting = tokio::spawn(waiter.clone().permits(8).acquire());
        let queued = async || waiter.inspect().await.unwrap().waiters() == 1;
        eventually("it waits", LIMIT, queued).await;
        assert_eq!(json(&url, "inspect provider").await["kind"], "semaphore");
        let listed = json(&url, "ls").await;
        assert_eq!(listed[0]["kind"], "read-write", "{url}");
        assert_eq!(listed[1]["permits"]["used"], 4, "{url}");
        drop(permits);
        let all = timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap();
        assert_eq!(json(&url, "inspect provider").await["permits"]["used"], 8);
        says(&url, "unlock prices --yes").await;
        for reader in &readers {
            timeout(LIMIT, reader.lost()).await.expect("told");
        }
        all.release().await.unwrap();
    }
}
