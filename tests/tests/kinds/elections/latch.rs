//! Latches.

use std::time::Duration;

use lock_core::{Latch, LockError, LockManager};
use lock_tests::kit::command;
use lock_tests::{LIMIT, Proxy, Request, TestServer, eventually, in_time};
use tokio::time::Instant;

use crate::rig::Rig;

/// A latch of another process; `None` where there are none, which was shown then.
async fn latch(rig: &Rig, count: u32) -> Option<Latch> {
    let latch = rig.manager().await.latch("l", count);
    if matches!(rig, Rig::Quorum(_)) {
        for error in [
            latch.count_down("a").await.map(drop),
            latch.left().await.map(drop),
            latch.wait().await,
        ] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("a latch is not over a quorum"), "{error}");
        }
        return None;
    }
    Some(latch)
}

pub(crate) async fn an_id_counts_once_and_the_last_opens(rig: &Rig) {
    let (Some(here), Some(there)) = (latch(rig, 3).await, latch(rig, 3).await) else {
        return;
    };
    assert_eq!(here.left().await.unwrap(), 3);
    let waiting = tokio::spawn(async move { there.wait().await });
    // The first id looks like the name of the count.
    for (id, left) in [
        ("count", 2),
        ("count", 2),
        ("b", 1),
        ("count", 1),
        ("b", 1),
        ("c", 0),
    ] {
        assert!(!waiting.is_finished() || left == 0);
        assert_eq!(here.count_down(id).await.unwrap(), left);
    }
    in_time("it is open", waiting).await.unwrap().unwrap();
    assert_eq!(here.count_down("d").await.unwrap(), 0);
}

pub(crate) async fn a_waiter_that_comes_late_finds_it_open(rig: &Rig) {
    let (Some(here), Some(there)) = (latch(rig, 1).await, latch(rig, 1).await) else {
        return;
    };
    here.count_down("a").await.unwrap();
    in_time("it is open", there.wait()).await.unwrap();
    assert_eq!(there.left().await.unwrap(), 0);
}

/// Proves P19.
pub(crate) async fn tasks_that_count_at_a_time_open_it_once(rig: &Rig) {
    let Some(here) = latch(rig, 32).await else {
        return;
    };
    let waiting = {
        let here = here.clone();
        tokio::spawn(async move { here.wait().await })
    };
    let counts = (0..32).map(|n| {
        let here = here.clone();
        tokio::spawn(async move { here.count_down(format!("part {n}")).await.unwrap() })
    });
    let counts: Vec<_> = counts.collect();
    let mut left = Vec::new();
    for count in counts {
        left.push(count.await.unwrap());
    }
    left.sort_unstable();
    assert_eq!(left, (0..32).collect::<Vec<u32>>());
    in_time("it is open", waiting).await.unwrap().unwrap();
}

pub(crate) async fn another_number_of_counts_is_an_error(rig: &Rig) {
    let (Some(here), Some(other)) = (latch(rig, 2).await, latch(rig, 3).await) else {
        return;
    };
    here.count_down("a").await.unwrap();
    for error in [other.count_down("a").await.map(drop), other.wait().await] {
        let error = error.unwrap_err();
        let made_for_two = matches!(
            &error,
            LockError::OtherCount {
                count: 3,
                made_for: 2,
                ..
            }
        );
        assert!(made_for_two, "{error}");
    }
    for (latch, wrong) in [
        (rig.manager().await.latch("none", 0), "1 to 2^20"),
        (rig.manager().await.latch("many", 1 << 21), "1 to 2^20"),
        (
            rig.manager()
                .await
                .latch("short", 1)
                .keep(Duration::from_millis(1)),
            "kept for 1ms is out of range",
        ),
    ] {
        let error = latch.count_down("a").await.unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
    let error = here.count_down("").await.unwrap_err().to_string();
    assert!(error.contains("id of a latch"), "{error}");
}

pub(crate) async fn a_wait_ends_with_its_limit_and_its_manager(rig: &Rig) {
    if matches!(rig, Rig::Quorum(_)) {
        return;
    }
    let locks = rig.manager().await;
    let latch = locks.latch("l", 1);
    // Much longer than a read takes, also under load.
    let late = latch.wait_within(Duration::from_millis(500)).await;
    assert!(
        matches!(late, Err(LockError::NotOpen { left: 1, .. })),
        "{late:?}"
    );
    let waiting = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await }
    });
    tokio::task::yield_now().await;
    locks.shutdown(Duration::from_secs(1)).await;
    let ended = in_time("the wait ends", waiting).await.unwrap();
    assert!(matches!(ended, Err(LockError::ShutDown)), "{ended:?}");
    let counted = latch.count_down("a").await;
    assert!(matches!(counted, Err(LockError::ShutDown)), "{counted:?}");
    assert_eq!(latch.left().await.unwrap(), 1, "a look is allowed");
}

/// Proves P19.
#[tokio::test]
async fn a_latch_is_open_until_one_ttl_after_its_last_count() {
    let server = TestServer::start().await;
    let ttl = Duration::from_millis(300);
    for url in ["memory://a_latch_is_open".to_owned(), server.url()] {
        let locks = LockManager::connect(&url).await.unwrap();
        let latch = locks.latch("l", 2).keep(ttl);
        latch.count_down("a").await.unwrap();
        latch.count_down("b").await.unwrap();
        let opened = Instant::now();
        // Looking at it, and counting again, does not prolong it.
        eventually("it is forgotten", LIMIT, async || {
            latch.count_down("a").await.unwrap() == 1
        })
        .await;
        assert!(opened.elapsed() + Duration::from_millis(20) >= ttl);
    }
}

/// Proves P19.
#[tokio::test]
async fn waiters_of_one_manager_share_their_reads() {
    const WAITERS: usize = 300;
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let client = redis::Client::open(proxy.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let interval = Duration::from_millis(50);
    let builder = LockManager::builder().poll_interval(interval);
    let locks = builder.from_connection(connection).unwrap();
    let begun = Instant::now();
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let latch = locks.latch("l", 1);
            tokio::spawn(async move { latch.wait().await })
        })
        .collect();
    let is_read = |request: &Request| request.script() == Some("latch count_down");
    in_time("twenty reads", proxy.on_count(20, is_read)).await;
    // A waiter looks after half an interval at the soonest. At the beginning there may be two reads, and a text for a hash.
    // Reads of their own would be twenty in 4 ms.
    assert!(begun.elapsed() >= interval * 5, "{:?}", begun.elapsed());
    locks.latch("l", 1).count_down("a").await.unwrap();
    for waiting in waiting {
        in_time("it is open", waiting).await.unwrap().unwrap();
    }
}

/// Proves P11.
#[tokio::test]
async fn a_wait_without_a_server_is_not_one_for_counts() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = LockManager::connect(&proxy.url()).await.unwrap();
    let latch = locks.latch("l", 2);
    let limit = Duration::from_millis(500);
    // It asks once.
    for limit in [Duration::ZERO, limit] {
        let late = latch.wait_within(limit).await.unwrap_err();
        assert!(!late.is_contention());
        let text = late.to_string();
        assert!(text.starts_with("2 counts of latch `l` were"), "{text}");
    }
    proxy.cut_to_server(true);
    let silent = latch.wait_within(limit).await.unwrap_err();
    assert!(matches!(silent, LockError::Unavailable { .. }), "{silent}");
    proxy.refuse(true);
    proxy.reset();
    let gone = latch.wait_within(limit).await.unwrap_err();
    assert!(matches!(gone, LockError::Unavailable { .. }), "{gone}");
}

/// Proves P19.
#[tokio::test]
async fn the_longest_ttl_counts_and_a_repeated_count_prolongs_the_latch() {
    const LATCH: &str = "lock-core:latch:{lock:l}";
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let latch = |ttl| locks.latch("l", 3).keep(Duration::from_secs(ttl));
    latch(600).count_down("a").await.unwrap();
    latch(1).count_down("b").await.unwrap();
    assert!(server.pttl(LATCH).await > 500_000);
    command::<i64>(&server, &format!("PEXPIRE {LATCH} 60000")).await;
    latch(600).count_down("b").await.unwrap();
    assert!(server.pttl(LATCH).await > 500_000);
}

/// Proves P19.
#[tokio::test]
async fn a_wait_whose_announcement_was_lost_looks_once_more_at_its_limit() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let there = LockManager::connect(&server.url()).await.unwrap();
    let here = LockManager::connect(&proxy.url()).await.unwrap();
    proxy.drop_pushes(true);
    let read = proxy.on_request(|request| request.script() == Some("latch count_down"));
    let latch = here.latch("l", 1);
    let waiting = tokio::spawn(async move { latch.wait_within(Duration::from_secs(1)).await });
    read.await;
    there.latch("l", 1).count_down("a").await.unwrap();
    in_time("the limit", waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_hash_of_another_program_is_no_latch() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    command::<i64>(&server, "HSET lock-core:latch:{lock:l} f v g w").await;
    let latch = locks.latch("l", 3);
    for error in [latch.left().await, latch.count_down("a").await] {
        let error = error.unwrap_err();
        assert!(matches!(error, LockError::NotALock { .. }), "{error}");
    }
}
