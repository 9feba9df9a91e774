//! What became of each lock, and what the new master is told. The failovers are those of servers without replication, so that
//! the test decides what the new master has heard of.

use std::time::Duration;

use lock_core::LockManager;
use lock_tests::kit::{FENCE, command, script_calls, warm_server};
use lock_tests::{LIMIT, TestServer, eventually};

use super::fake::Fake;

const LONG: Duration = Duration::from_secs(60);

/// An old and a new master, and a client that follows this sentinel.
struct Rig {
    old: TestServer,
    new: TestServer,
    sentinel: Fake,
    locks: LockManager,
}

impl Rig {
    async fn start() -> Self {
        let (old, new) = (warm_server().await, warm_server().await);
        let sentinel = Fake::start(1, old.port()).await;
        let url = format!("redis+sentinel://{}/mymaster", sentinel.addr);
        let locks = LockManager::connect(&url).await.unwrap();
        Self {
            old,
            new,
            sentinel,
            locks,
        }
    }

    /// The new master has heard of this key as it is on the old one.
    async fn replicate(&self, key: &str) {
        let value: Option<String> = command(&self.old, &format!("GET {key}")).await;
        let value = value.expect("it is there");
        let () = command(&self.new, &format!("SET {key} {value} PX 60000")).await;
    }

    fn fail_over(&self) {
        self.sentinel.names(2, self.new.port());
    }

    async fn is_gone_from_the_new(&self, key: &str) {
        eventually("the new master is told", LIMIT, async || {
            !self.new.exists(key).await
        })
        .await;
    }
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_the_new_master_lacks_are_repeated_also_by_an_idle_client() {
    let rig = Rig::start().await;
    for key in ["a", "b"] {
        let guard = rig.locks.lock(key).ttl(LONG).acquire().await.unwrap();
        rig.replicate(&format!("lock:{key}")).await;
        guard.release().await.unwrap();
    }
    rig.fail_over();
    rig.is_gone_from_the_new("lock:a").await;
    rig.is_gone_from_the_new("lock:b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_had_no_answer_is_sent_to_the_new_master() {
    let rig = Rig::start().await;
    let guard = rig.locks.lock("a").ttl(LONG).acquire().await.unwrap();
    rig.replicate("lock:a").await;
    rig.old.stop();
    drop(guard);
    rig.fail_over();
    rig.is_gone_from_the_new("lock:a").await;
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_meets_a_forgotten_token_of_its_client_frees_the_lock() {
    let rig = Rig::start().await;
    let short = Duration::from_millis(100);
    let guard = rig.locks.lock("a").ttl(short).acquire().await.unwrap();
    rig.replicate("lock:a").await;
    guard.release().await.unwrap();
    // Forgotten: no server has it any more, as far as this client knows.
    tokio::time::sleep(short + Duration::from_millis(1100)).await;
    let held = rig.locks.lock("b").ttl(LONG * 2).acquire().await.unwrap();
    rig.replicate("lock:b").await;
    rig.fail_over();
    eventually("the client is there", LIMIT, async || {
        let pttl: i64 = command(&rig.new, "PTTL lock:b").await;
        pttl > 60_000
    })
    .await;
    assert!(rig.new.exists("lock:a").await, "it was not repeated");
    // One question, and the release that it leads to: the grant comes as a message. A refresh would be another question.
    let before = script_calls(&rig.new).await;
    let lock = rig.locks.lock("a").ttl(LONG);
    let guard = lock.acquire_within(LIMIT).await.unwrap();
    assert_eq!(script_calls(&rig.new).await - before, 2);
    held.release().await.unwrap();
    guard.release().await.unwrap();
}

/// Proves P10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_master_mints_above_the_tokens_that_its_clients_know() {
    let rig = Rig::start().await;
    let ahead: u64 = 4_000_000_000_000_000;
    let () = command(&rig.old, &format!("SET {FENCE} {ahead}")).await;
    let before = rig.locks.lock("a").ttl(LONG).acquire().await.unwrap();
    assert!(before.fencing_token().get() > ahead);
    rig.fail_over();
    before.lost().await;
    let after = rig.locks.lock("a").ttl(LONG).acquire().await.unwrap();
    assert!(rig.new.exists("lock:a").await);
    assert!(after.fencing_token() > before.fencing_token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_under_way_to_the_old_master_is_made_at_the_new_one() {
    let rig = Rig::start().await;
    rig.old.stop();
    let lock = rig.locks.lock("a").ttl(LONG);
    let asking = tokio::spawn(async move { lock.acquire_within(LIMIT).await });
    rig.fail_over();
    let guard = asking.await.unwrap().unwrap();
    assert!(rig.new.exists("lock:a").await);
    rig.old.cont();
    // The old one may grant what was in its socket.
    guard.release().await.unwrap();
    rig.is_gone_from_the_new("lock:a").await;
}
