//! Requests of callers that are gone, which reach the server after the clean-up (P4).

use lock_core::LockManager;
use lock_tests::{Held, LIMIT, Proxy, TestServer, eventually};

use crate::support::{KEY, LONG, NAME, QUEUE, in_time, is_acquire, is_release, ms, warm_server};
use crate::support::{behind, direct, queue_len, until_clean, until_gone};

/// Makes an acquire of `ttl_ms` hang in the network, its caller gone and cleaned up after.
async fn make_zombie(server: &TestServer, proxy: &Proxy, locks: &LockManager, ttl_ms: u64) -> Held {
    let lock = locks.lock(NAME).ttl(ms(ttl_ms));
    let held = proxy.hold_next_request_matching(is_acquire);
    let caller = tokio::spawn(async move { lock.acquire().await });
    held.wait().await;
    let cleanup = proxy.on_request(is_release);
    server.reset_stats().await;
    // First the connection, so that the clean-up has to take another one.
    caller.abort();
    proxy.reset();
    assert!(caller.await.unwrap_err().is_cancelled());
    cleanup.await;
    eventually("the clean-up is carried out", LIMIT, async || {
        server.commandstats().await.contains_key("hdel")
    })
    .await;
    held
}

#[tokio::test]
async fn a_zombie_in_the_queue_declines_the_lock_at_once() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let holder = direct(&server).await;
    let guard = holder.lock(NAME).ttl(LONG).acquire().await.unwrap();
    // Its lease would be beyond every limit here.
    let zombie = make_zombie(&server, &proxy, &locks, 120_000).await;
    zombie.deliver();
    eventually("the zombie queues", LIMIT, async || {
        queue_len(&server).await == 1
    })
    .await;
    guard.release().await.unwrap();
    until_gone(&server, KEY).await;
    assert!(!server.exists(QUEUE).await);
    let lock = holder.lock(NAME).ttl(LONG);
    let next = in_time("the lock", lock.acquire()).await.unwrap();
    next.release().await.unwrap();
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_zombie_that_was_repeated_blocks_for_one_ttl_at_most() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let lock = locks.lock(NAME).ttl(ms(1000));
    let held = proxy.hold_next_request_matching(is_acquire);
    let caller = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    held.wait().await;
    proxy.reset();
    // The same call asks again on a new connection, and then all is done and over.
    let guard = in_time("the second try", caller).await.unwrap().unwrap();
    let fence = guard.fencing_token();
    guard.release().await.unwrap();
    assert!(!server.exists(KEY).await);
    let minted = server.get("lock-core:fence").await;
    held.deliver();
    eventually("the zombie is carried out", LIMIT, async || {
        server.get("lock-core:fence").await != minted
    })
    .await;
    let guard = in_time("the lock", lock.acquire()).await.unwrap();
    assert!(guard.fencing_token() > fence);
    guard.release().await.unwrap();
    until_clean(&server).await;
}
