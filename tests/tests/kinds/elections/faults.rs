//! Servers and connections that fail, also while nothing else happens.

use lock_core::{Leadership, LockError, LockManager};
use lock_tests::kit::command;
use lock_tests::{DropMode, LIMIT, Proxy, Request, TestServer, eventually, in_time};

use super::rig::{TTL, next_leader, no_leader};
use crate::rig::LONG;

const LEADER: &str = "lock-core:leader:{lock:e}";

/// An observer that does nothing else, and a latch that is waited for, over a connection that breaks. Proves P19.
#[tokio::test]
async fn an_idle_observer_hears_of_what_happened_while_it_was_cut_off() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let builder = || LockManager::builder().default_ttl(LONG);
    let near = builder().connect(&server.url()).await.unwrap();
    let far = builder().connect(&proxy.url()).await.unwrap();
    let mut leaders = far.election("e").observe().await.unwrap();
    assert_eq!(leaders.next().await, Some(None));
    let latch = far.latch("l", 1);
    let waiting = tokio::spawn(async move { latch.wait().await });
    proxy
        .on_count(1, |request| request.script() == Some("latch count_down"))
        .await;
    proxy.refuse(true);
    proxy.reset();
    let leader = near.election("e").campaign("a").await.unwrap();
    near.latch("l", 1).count_down("x").await.unwrap();
    eventually("it is announced", LIMIT, async || {
        server.exists(LEADER).await
    })
    .await;
    proxy.refuse(false);
    let seen = next_leader(&mut leaders).await;
    assert_eq!((seen.value(), seen.term()), ("a", leader.term()));
    in_time("it is open", waiting).await.unwrap().unwrap();
}

/// The server of the connection becomes a replica, and the address leads to another master. Proves P15.
#[tokio::test]
async fn a_waiter_of_a_latch_follows_its_address_to_the_new_master() {
    let (server, master) = (TestServer::start().await, TestServer::start().await);
    let proxy = Proxy::start(&server);
    let far = LockManager::connect(&proxy.url()).await.unwrap();
    let near = LockManager::connect(&master.url()).await.unwrap();
    let latch = far.latch("l", 1);
    let waiting = tokio::spawn(async move { latch.wait().await });
    let is_read = |request: &Request| request.script() == Some("latch count_down");
    proxy.on_count(1, is_read).await;
    near.latch("l", 1).count_down("x").await.unwrap();
    proxy.retarget(master.addr());
    command::<()>(&server, "REPLICAOF 127.0.0.1 1").await;
    in_time("it is open", waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_record_that_was_deleted_comes_back_with_the_next_renewal() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let election = locks.election("e").ttl(TTL);
    let leader = election.campaign("a").await.unwrap();
    let mut leaders = election.observe().await.unwrap();
    next_leader(&mut leaders).await;
    command::<i64>(&server, &format!("DEL {LEADER}")).await;
    eventually("it is back", LIMIT, async || server.exists(LEADER).await).await;
    let left = server.pttl(LEADER).await;
    assert!(left > 0 && left <= TTL.as_millis() as i64);
    assert!(leader.is_held());
    // No key is left of a leader that has resigned.
    leader.resign().await.unwrap();
    no_leader(&mut leaders).await;
    assert!(!server.exists(LEADER).await);
}

/// On a server that evicts nothing.
async fn a_leader_that_is_seen() -> (TestServer, LockManager, Leadership) {
    let server = TestServer::builder()
        .arg("--maxmemory-policy", "noeviction")
        .start()
        .await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let election = locks.election("e").ttl(TTL);
    let leader = election.campaign("a").await.unwrap();
    let mut leaders = election.observe().await.unwrap();
    next_leader(&mut leaders).await;
    (server, locks, leader)
}

/// Proves P19.
#[tokio::test]
async fn a_full_server_keeps_the_leader_and_announces_it_later() {
    let (server, locks, leader) = a_leader_that_is_seen().await;
    command::<i64>(&server, &format!("DEL {LEADER}")).await;
    command::<String>(&server, "CONFIG SET maxmemory 1").await;
    let full = locks.latch("l", 2).count_down("x").await.unwrap_err();
    assert!(matches!(full, LockError::Unavailable { .. }), "{full}");
    // More than one lease.
    let lost = tokio::time::timeout(TTL * 3 / 2, leader.lost()).await;
    assert!(
        lost.is_err() && leader.is_held(),
        "its lease is renewed: {lost:?}"
    );
    command::<String>(&server, "CONFIG SET maxmemory 0").await;
    eventually("it is announced", LIMIT, async || {
        server.exists(LEADER).await
    })
    .await;
}

/// Proves P19.
#[tokio::test]
async fn a_lost_announcement_is_made_good_when_the_lease_would_end() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let near = LockManager::connect(&server.url()).await.unwrap();
    let far = LockManager::connect(&proxy.url()).await.unwrap();
    let mut leaders = far.election("e").ttl(TTL).observe().await.unwrap();
    assert_eq!(leaders.next().await, Some(None));
    proxy.drop_pushes(true);
    let leader = near.election("e").ttl(TTL).campaign("a").await.unwrap();
    assert_eq!(next_leader(&mut leaders).await.term(), leader.term());
    leader.resign().await.unwrap();
    no_leader(&mut leaders).await;
}

/// Proves P19.
#[tokio::test]
async fn a_campaign_whose_reply_was_lost_has_the_term_that_is_shown() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let near = LockManager::connect(&server.url()).await.unwrap();
    let far = LockManager::connect(&proxy.url()).await.unwrap();
    let campaigns = |request: &Request| request.script() == Some("election acquire");
    for mode in [DropMode::Close, DropMode::Silent] {
        proxy.drop_next_reply_matching(campaigns, mode);
        let leader = in_time("it leads", far.election("e").ttl(LONG).campaign("a"))
            .await
            .unwrap();
        let seen = near
            .election("e")
            .leader()
            .await
            .unwrap()
            .expect("it leads");
        assert_eq!(seen.term(), leader.term());
        leader.resign().await.unwrap();
    }
}

#[tokio::test]
async fn an_election_over_something_else_is_refused_at_once() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    command::<i64>(&server, "LPUSH lock:e x").await;
    let election = locks.election("e");
    for error in [
        election.campaign("a").await.map(drop),
        election.leader().await.map(drop),
        election.observe().await.map(drop),
    ] {
        let error = error.unwrap_err();
        assert!(matches!(error, LockError::NotALock { .. }), "{error}");
    }
    let elsewhere = locks.semaphore("s", 2);
    let permit = elsewhere.acquire().await.unwrap();
    let error = locks.election("s").leader().await.unwrap_err().to_string();
    assert!(error.contains("`lock:s`"), "{error}");
    drop(permit);
}

/// Proves P19.
#[tokio::test]
async fn a_name_that_is_something_else_for_a_moment_ends_no_wait() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let one = LockManager::connect(&server.url()).await.unwrap();
    let two = LockManager::connect(&proxy.url()).await.unwrap();
    let leader = one.election("e").ttl(LONG).campaign("a").await.unwrap();
    let mut leaders = two.election("e").ttl(TTL).observe().await.unwrap();
    next_leader(&mut leaders).await;
    let election = two.election("e").ttl(TTL);
    let waiting = tokio::spawn(async move { election.campaign("b").await });
    eventually("it waits", LIMIT, async || {
        one.lock("e").inspect().await.unwrap().waiters() == 1
    })
    .await;
    command::<i64>(&server, "DEL lock:e").await;
    command::<i64>(&server, "LPUSH lock:e x").await;
    no_leader(&mut leaders).await;
    // The candidate has met the list, and asks again.
    let asks = |request: &Request| request.script() == Some("election acquire");
    proxy.on_count(proxy.count(asks) + 3, asks).await;
    assert!(!waiting.is_finished());
    command::<i64>(&server, "DEL lock:e").await;
    let next = in_time("it leads", waiting).await.unwrap().unwrap();
    assert_eq!(next_leader(&mut leaders).await.value(), "b");
    drop((leader, next));
}

/// Proves P19.
#[tokio::test]
async fn a_full_server_goes_on_showing_its_leader() {
    let (server, locks, leader) = a_leader_that_is_seen().await;
    command::<String>(&server, "CONFIG SET maxmemory 1").await;
    let lost = tokio::time::timeout(TTL * 3 / 2, leader.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    let seen = locks
        .election("e")
        .leader()
        .await
        .unwrap()
        .expect("it leads");
    assert_eq!(seen.value(), "a");
}

#[tokio::test]
async fn an_observer_has_the_same_limits_of_a_ttl_as_a_candidate() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let zero = std::time::Duration::ZERO;
    let error = locks.election("e").ttl(zero).observe().await.unwrap_err();
    assert!(error.to_string().contains("out of range"), "{error}");
}
