//! What observers learn of leaders.

use lock_tests::{LIMIT, Proxy, Request, TestServer, eventually, in_time};

use super::rig::{TTL, next_leader, no_leader};
use crate::rig::{LONG, Rig, in_a_process_that_dies};
use lock_core::LockManager;
use lock_tests::kit::command;

/// Proves P19.
pub(crate) async fn observers_see_each_leader_with_its_term(rig: &Rig) {
    let (here, there) = (rig.manager().await, rig.manager().await);
    let mut leaders = there.election("e").observe().await.unwrap();
    assert_eq!(leaders.next().await, Some(None));
    // Spaces and line ends are part of a value.
    for value in ["10.0.0.7:8080", "", "two words\r\nand \u{1F512} more"] {
        let leader = here.election("e").campaign(value).await.unwrap();
        let seen = next_leader(&mut leaders).await;
        assert_eq!((seen.value(), seen.term()), (value, leader.term()));
        assert_eq!(there.election("e").leader().await.unwrap(), Some(seen));
        leader.resign().await.unwrap();
        no_leader(&mut leaders).await;
    }
    let too_long = here.election("e").campaign(&"x".repeat(1025)).await;
    assert!(too_long.unwrap_err().to_string().contains("1024 bytes"));
}

/// Proves P19.
pub(crate) async fn a_dead_leader_is_seen_to_be_gone(rig: &Rig) {
    let watching = rig.manager().await.election("e").ttl(TTL);
    let mut leaders = watching.observe().await.unwrap();
    let dead = in_a_process_that_dies(async {
        let election = rig.manager().await.election("e").ttl(TTL);
        let leadership = election.campaign("dead").await.unwrap();
        // It lives until it was announced.
        assert_eq!(next_leader(&mut leaders).await.value(), "dead");
        leadership
    });
    no_leader(&mut leaders).await;
    assert!(!dead.is_held());
}

pub(crate) async fn a_stream_ends_with_its_manager(rig: &Rig) {
    let locks = rig.manager().await;
    let mut leaders = locks.election("e").observe().await.unwrap();
    assert_eq!(leaders.next().await, Some(None));
    let next = tokio::spawn(async move { leaders.next().await });
    locks.shutdown(TTL).await;
    assert_eq!(in_time("the end", next).await.unwrap(), None);
}

#[tokio::test]
async fn a_stream_that_has_ended_stays_at_its_end() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let mut leaders = locks.election("e").observe().await.unwrap();
    locks.shutdown(TTL).await;
    assert_eq!(leaders.next().await, Some(None));
    for _ in 0..3 {
        assert_eq!(leaders.next().await, None);
    }
}

async fn long(server: &TestServer) -> LockManager {
    let builder = LockManager::builder().default_ttl(LONG);
    builder.connect(&server.url()).await.unwrap()
}

/// The number of reads of the leader.
async fn reads(server: &TestServer, before: u64) -> u64 {
    let calls = server.commandstats().await;
    // Each read is one script, which alone asks for the type of nothing and reads two strings.
    calls.get("evalsha").copied().unwrap_or(0) - before
}

/// Proves P19.
#[tokio::test]
async fn an_idle_observer_reads_nothing_while_a_leader_holds() {
    let server = TestServer::start().await;
    let (here, there) = (long(&server).await, long(&server).await);
    let mut leaders = there.election("e").observe().await.unwrap();
    let leader = here.election("e").campaign("a").await.unwrap();
    next_leader(&mut leaders).await;
    // Requests of the leader are over: the observer has its announcement.
    let before = reads(&server, 0).await;
    let next = tokio::spawn(async move { next_leader(&mut leaders).await });
    for _ in 0..20 {
        tokio::task::yield_now().await;
        command::<String>(&server, "PING").await;
    }
    assert_eq!(reads(&server, before).await, 0);
    leader.resign().await.unwrap();
    let again = here.election("e").campaign("b").await.unwrap();
    let seen = in_time("the next", next).await.unwrap();
    assert_eq!((seen.value(), seen.term()), ("b", again.term()));
}

/// Proves P19.
#[tokio::test]
async fn no_time_without_a_leader_is_seen_when_the_next_one_waits() {
    let server = TestServer::start().await;
    for url in [server.url(), "memory://the-next-one-waits".to_owned()] {
        let builder = LockManager::builder().default_ttl(LONG);
        let locks = builder.connect(&url).await.unwrap();
        let election = locks.election("e");
        let mut leader = election.campaign("0").await.unwrap();
        let mut leaders = election.observe().await.unwrap();
        assert_eq!(next_leader(&mut leaders).await.value(), "0");
        for value in ["1", "2", "3"] {
            let next = tokio::spawn(election.campaign(value));
            eventually("it waits", LIMIT, async || {
                locks.lock("e").inspect().await.unwrap().waiters() == 1
            })
            .await;
            leader.resign().await.unwrap();
            let seen = in_time("the next", leaders.next()).await;
            let seen = seen.unwrap().expect("no time without a leader");
            leader = next.await.unwrap().unwrap();
            assert_eq!((seen.value(), seen.term()), (value, leader.term()));
        }
    }
}

/// Proves P19.
#[tokio::test]
async fn a_leader_that_waited_behind_a_lock_is_seen() {
    let server = TestServer::start().await;
    let locks = long(&server).await;
    let guard = locks.lock("e").acquire().await.unwrap();
    let mut leaders = locks.election("e").observe().await.unwrap();
    let next = tokio::spawn(locks.election("e").campaign("a"));
    eventually("it waits", LIMIT, async || {
        locks.lock("e").inspect().await.unwrap().waiters() == 1
    })
    .await;
    guard.release().await.unwrap();
    let leader = in_time("it leads", next).await.unwrap().unwrap();
    let seen = next_leader(&mut leaders).await;
    assert_eq!((seen.value(), seen.term()), ("a", leader.term()));
}

#[tokio::test]
async fn a_campaign_a_renewal_and_a_release_are_one_command_each() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = LockManager::connect(&proxy.url()).await.unwrap();
    let all = |request: &Request| request.script().is_some();
    let renews = |request: &Request| request.script() == Some("election extend");
    let election = locks.election("e").ttl(TTL);
    // The server loads each script when it is called first.
    let leader = election.campaign("first").await.unwrap();
    proxy.on_count(1, renews).await;
    leader.resign().await.unwrap();

    let before = proxy.count(all);
    let leader = election.campaign("a").await.unwrap();
    assert_eq!(proxy.count(all) - before, 1);
    let renewals = proxy.count(renews);
    proxy.on_count(renewals + 3, renews).await;
    assert_eq!(proxy.count(all) - before, 1 + 3);
    leader.resign().await.unwrap();
    assert_eq!(proxy.count(all) - before, 1 + 3 + 1);
}

/// Proves P19.
#[tokio::test]
async fn a_record_of_another_holder_is_ignored() {
    let server = TestServer::start().await;
    let locks = long(&server).await;
    let election = locks.election("e");
    let leader = election.campaign("a").await.unwrap();
    let mut leaders = election.observe().await.unwrap();
    let term = next_leader(&mut leaders).await.term();
    let record = server.get("lock-core:leader:{lock:e}").await.unwrap();
    leader.resign().await.unwrap();
    let next = election.campaign("b").await.unwrap();
    while next_leader(&mut leaders).await.value() != "b" {}
    // What the earlier leader has said comes late.
    let mut connection = server.connection().await;
    let key = "lock-core:leader:{lock:e}";
    let set = redis::Cmd::set(key, record);
    set.query_async::<()>(&mut connection).await.unwrap();
    assert_eq!(election.leader().await.unwrap(), None);
    assert!(next.term() > term);
}

/// Proves P19.
#[tokio::test]
async fn a_leader_whose_lock_was_taken_away_is_named_no_more() {
    let server = TestServer::start().await;
    let locks = long(&server).await;
    let election = locks.election("e");
    let leader = election.campaign("a").await.unwrap();
    let mut leaders = election.observe().await.unwrap();
    next_leader(&mut leaders).await;
    // As an operator does it, who knows of no election.
    assert!(locks.lock("e").force_release().await.unwrap());
    in_time("it is lost", leader.lost()).await;
    no_leader(&mut leaders).await;
    assert!(!server.exists("lock-core:leader:{lock:e}").await);
}
