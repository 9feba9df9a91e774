//! What sentinels say on the master itself, and epochs.

use std::time::Duration;

use lock_core::{LockManager, LossReason};
use lock_tests::kit::command;
use lock_tests::{LIMIT, Proxy, Sentinel, TestServer, Watched, eventually};

use super::fake::Fake;

const LONG: Duration = Duration::from_secs(60);

/// Has a sentinel name a master on this server.
async fn hello(server: &TestServer, epoch: u64, master: u16) {
    let said = format!("127.0.0.1,26379,5f0c,{epoch},mymaster,127.0.0.1,{master},{epoch}");
    let () = command(server, &format!("PUBLISH __sentinel__:hello {said}")).await;
}

async fn is_taken_on(locks: &LockManager, key: &str, server: &TestServer) -> bool {
    match locks.lock(key).ttl(LONG).try_acquire().await {
        Ok(Some(guard)) => {
            let there = server.exists(&format!("lock:{key}")).await;
            guard.release().await.is_ok() && there
        }
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_a_plain_url_follows_its_server_and_never_an_older_epoch() {
    let (old, new) = (TestServer::start().await, TestServer::start().await);
    let locks = LockManager::connect(&old.url()).await.unwrap();
    let lost = locks.lock("on the old").ttl(LONG).acquire().await.unwrap();
    hello(&old, 3, old.port()).await;
    // Older than what is known, and the same epoch again.
    hello(&old, 2, new.port()).await;
    hello(&old, 3, new.port()).await;
    assert!(is_taken_on(&locks, "a", &old).await);

    hello(&old, 4, new.port()).await;
    assert_eq!(
        lost.lost().await,
        LossReason::Gone,
        "the new master does not know it"
    );
    assert!(is_taken_on(&locks, "b", &new).await);
    // The way back is a newer epoch.
    hello(&new, 5, old.port()).await;
    eventually("the client is back", LIMIT, async || {
        is_taken_on(&locks, "c", &old).await
    })
    .await;
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_a_plain_url_goes_back_if_the_named_address_is_unreachable() {
    let (server, gone) = (TestServer::start().await, TestServer::start().await);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    hello(&server, 1, server.port()).await;
    gone.kill();
    hello(&server, 2, gone.port()).await;
    let next = locks.lock("next").acquire_within(LIMIT).await.unwrap();
    assert!(server.exists("lock:next").await && guard.is_held());
    next.release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_quorum_follows_nothing() {
    let (a, b, c) = (
        TestServer::start().await,
        TestServer::start().await,
        TestServer::start().await,
    );
    let urls = [a.url(), b.url(), c.url()];
    LockManager::builder().begin_quorum(&urls).await.unwrap();
    let locks = LockManager::connect_quorum(&urls).await.unwrap();
    let guard = locks.lock("job").acquire().await.unwrap();
    let heard: u64 = command(&a, "PUBLISH __sentinel__:hello x").await;
    assert_eq!(heard, 0);
    guard.release().await.unwrap();
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_names_a_lower_epoch_is_not_followed() {
    let (master, other) = (TestServer::start().await, TestServer::start().await);
    let (one, two) = (
        Fake::start(7, master.port()).await,
        Fake::start(7, master.port()).await,
    );
    let url = format!("redis+sentinel://{},{}/mymaster", one.addr, two.addr);
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    two.names(6, other.port());
    // Each attempt to connect asks both.
    for _ in 0..5 {
        let () = command(&master, "CLIENT KILL TYPE pubsub").await;
        assert!(is_taken_on_in_time(&locks, &master).await);
    }
    assert!(guard.is_held());
    // A higher one is followed, whichever sentinel names it.
    two.names(8, other.port());
    assert_eq!(guard.lost().await, LossReason::Gone);
    assert!(is_taken_on(&locks, "b", &other).await);
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_connection_is_to_the_master_of_the_newest_epoch() {
    let (master, other) = (TestServer::start().await, TestServer::start().await);
    let good = Fake::start(7, master.port()).await;
    let stale = Fake::start(6, other.port()).await;
    let url = format!("redis+sentinel://{},{}/mymaster", stale.addr, good.addr);
    for _ in 0..20 {
        let locks = LockManager::connect(&url).await.unwrap();
        assert!(is_taken_on(&locks, "a", &master).await);
    }
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_majority_of_the_sentinels_decides_within_an_epoch() {
    let (master, other) = (TestServer::start().await, TestServer::start().await);
    let wrong = Fake::start(7, other.port()).await;
    let (one, two) = (
        Fake::start(7, master.port()).await,
        Fake::start(7, master.port()).await,
    );
    let url = format!(
        "redis+sentinel://{},{},{}/mymaster",
        wrong.addr, one.addr, two.addr
    );
    for _ in 0..10 {
        let locks = LockManager::connect(&url).await.unwrap();
        assert!(is_taken_on(&locks, "a", &master).await);
    }
    // A connected client moves with the majority.
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    one.names(7, other.port());
    assert_eq!(guard.lost().await, LossReason::Gone);
    assert!(is_taken_on(&locks, "b", &other).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_of_the_sentinels_takes_over_no_connection_that_lives() {
    let (wrong, master) = (TestServer::start().await, TestServer::start().await);
    let one = Fake::start(5, wrong.port()).await;
    let others = [
        Fake::start(5, master.port()).await,
        Fake::start(5, master.port()).await,
    ];
    let proxies = others.each_ref().map(|fake| Proxy::to(fake.addr));
    let [two, three] = proxies.each_ref().map(Proxy::addr);
    let url = format!("redis+sentinel://{},{two},{three}/mymaster", one.addr);
    // The majority answers later than the one.
    for proxy in &proxies {
        proxy.delay(Duration::from_millis(100));
    }
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    assert!(master.exists("lock:job").await);
    for proxy in &proxies {
        proxy.refuse(true);
        proxy.reset();
    }
    // Long enough for the other one to be asked alone: it is asked each second.
    let lost = tokio::time::timeout(Duration::from_millis(2500), guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(is_taken_on(&locks, "b", &master).await);
}

/// Proves P15.
#[tokio::test]
async fn sentinels_without_a_majority_are_refused_and_both_masters_are_named() {
    let (master, other) = (TestServer::start().await, TestServer::start().await);
    let (one, two) = (
        Fake::start(7, master.port()).await,
        Fake::start(7, other.port()).await,
    );
    let url = format!("redis+sentinel://{},{}/mymaster", one.addr, two.addr);
    let said = LockManager::connect(&url).await.unwrap_err().to_string();
    for (sentinel, named) in [(&one, &master), (&two, &other)] {
        let says = format!("{} names 127.0.0.1:{}", sentinel.addr, named.port());
        assert!(said.contains(&says), "{said}");
    }
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lower_epoch_of_all_sentinels_is_followed_if_the_master_is_gone() {
    let (master, other) = (TestServer::start().await, TestServer::start().await);
    let (one, two) = (
        Fake::start(7, master.port()).await,
        Fake::start(7, master.port()).await,
    );
    let url = format!("redis+sentinel://{},{}/mymaster", one.addr, two.addr);
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    // All sentinels are set up anew, and then there is a failover.
    one.names(1, other.port());
    two.names(1, other.port());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(guard.is_held(), "the master lives");
    master.kill();
    assert_eq!(guard.lost().await, LossReason::Gone);
    assert!(is_taken_on(&locks, "b", &other).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_was_found_is_found_again_without_the_one_that_named_it() {
    let master = TestServer::start().await;
    let one = Sentinel::start_with("mymaster", master.addr(), 1, "").await;
    let two = Sentinel::start_with("mymaster", master.addr(), 1, "").await;
    eventually("they know each other", LIMIT, async || {
        let others = one.ask("SENTINEL SENTINELS mymaster").await;
        others.contains(&two.addr().port().to_string())
    })
    .await;
    let url = format!("redis+sentinel://{}/mymaster", one.addr());
    let _locks = LockManager::connect(&url).await.unwrap();
    eventually("it is found", LIMIT, async || two.subscribers().await == 1).await;
    one.kill();
    two.restart().await;
    eventually("it is found again", LIMIT, async || {
        two.subscribers().await == 1
    })
    .await;
}

async fn is_taken_on_in_time(locks: &LockManager, server: &TestServer) -> bool {
    let guard = locks.lock("often").acquire_within(LIMIT).await.unwrap();
    let there = server.exists("lock:often").await;
    guard.release().await.unwrap();
    there
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_sentinels_a_client_hears_from_the_old_master_when_that_goes_on() {
    let watched = Watched::start().await;
    let old = &watched.servers[0];
    let deaf = LockManager::connect(&old.url()).await.unwrap();
    let guard = deaf.lock("job").ttl(LONG).acquire().await.unwrap();
    // The first hello says where it is.
    eventually("two hellos", LIMIT, async || {
        let stats: String = command(old, "INFO commandstats").await;
        let publish = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
        publish
            .and_then(|rest| rest.split(',').next()?.parse().ok())
            .unwrap_or(0)
            >= 12
    })
    .await;
    old.stop();
    watched.replaced(old.port()).await;
    let new = watched.master().await;
    old.cont();
    let resumed = std::time::Instant::now();
    loop {
        let guard = deaf
            .lock("next")
            .ttl(LONG)
            .acquire_within(LIMIT)
            .await
            .unwrap();
        if new.exists("lock:next").await {
            break;
        }
        drop(guard);
    }
    println!(
        "followed {:?} after the old master went on",
        resumed.elapsed()
    );
    assert!(guard.is_held(), "it was replicated before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_sentinels_are_found() {
    let master = TestServer::start().await;
    let one = Sentinel::start_with("mymaster", master.addr(), 1, "").await;
    let two = Sentinel::start_with("mymaster", master.addr(), 1, "").await;
    eventually("they know each other", LIMIT, async || {
        one.ask("SENTINEL SENTINELS mymaster")
            .await
            .contains(&two.addr().port().to_string())
    })
    .await;
    let url = format!("redis+sentinel://{}/mymaster", one.addr());
    let locks = LockManager::builder()
        .client_name("finder")
        .connect(&url)
        .await
        .unwrap();
    eventually("the other one is subscribed to", LIMIT, async || {
        two.subscribers().await == 1
    })
    .await;
    drop(locks);
    eventually("nothing is left", LIMIT, async || {
        two.subscribers().await == 0
    })
    .await;
}
