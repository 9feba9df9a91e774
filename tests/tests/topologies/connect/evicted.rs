//! What the default policy of many managed servers does to locks.

use lock_core::{LockManager, LossReason};
use lock_tests::kit::{command, ms, try_command};
use lock_tests::{LIMIT, TestServer};
use tokio::time::timeout;

/// A lock has a ttl, so each policy but `noeviction` may delete it. The counter of the fencing tokens has none.
#[tokio::test]
async fn an_evicted_lock_has_two_holders_until_the_next_renewal() {
    for (policy, keeps_the_counter) in [("volatile-lru", true), ("allkeys-lru", false)] {
        let server = TestServer::builder().arg("--maxmemory-policy", policy);
        let server = server.start().await;
        let url = server.url();
        let (one, other) = (
            LockManager::connect(&url).await,
            LockManager::connect(&url).await,
        );
        let one = one.unwrap();
        let held = one.lock("a").ttl(ms(6000)).acquire().await.unwrap();
        let permit = one.semaphore("s", 2).acquire().await.unwrap();

        fill(&server).await;
        for lock in ["lock:a", "lock:s"] {
            assert!(!server.exists(lock).await, "{lock}, {policy}");
        }
        assert_eq!(server.exists("lock-core:fence").await, keeps_the_counter);
        drop(permit);
        let second = other
            .unwrap()
            .lock("a")
            .try_acquire()
            .await
            .unwrap()
            .unwrap();
        assert!(held.is_held() && second.is_held(), "{policy}");
        // Without the counter, the clock of the server is the floor.
        assert!(second.fencing_token() > held.fencing_token(), "{policy}");
        let reason = timeout(LIMIT, held.lost()).await.expect("renewed");
        assert_eq!(reason, LossReason::Gone, "{policy}");
        assert!(second.is_held(), "{policy}");
        second.release().await.unwrap();
    }
}

#[tokio::test]
async fn noeviction_keeps_and_renews_the_locks_of_a_full_server() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let held = locks.lock("a").ttl(ms(900)).acquire().await.unwrap();
    let () = command(&server, "CONFIG SET maxmemory 1").await;
    let refused = locks.lock("b").try_acquire().await.unwrap_err().to_string();
    assert!(refused.contains("(OOM "), "{refused}");
    assert!(timeout(ms(1800), held.lost()).await.is_err(), "renewed");
    held.release().await.unwrap();
}

/// Makes the server free memory: whatever its policy permits.
async fn fill(server: &TestServer) {
    let () = command(server, "CONFIG SET maxmemory 1").await;
    let refused = try_command::<()>(server, "SET another value").await;
    assert_eq!(refused.unwrap_err().code(), Some("OOM"));
    let () = command(server, "CONFIG SET maxmemory 0").await;
}
