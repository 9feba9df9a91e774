//! TLS to the servers, and sentinels that speak it or not.

use std::time::Duration;

use lock_core::{LockManager, Tls};
use lock_tests::{Authority, LIMIT, TlsServer, eventually};

use super::fake::Fake;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_over_tls_leaves_a_master_that_does_not_answer() {
    let authority = Authority::new();
    let identity = authority.issue("localhost", false);
    let old = TlsServer::start(&authority, &identity, false).await;
    let new = TlsServer::start(&authority, &identity, false).await;
    let sentinel = Fake::start(1, old.port()).await;
    let url = format!("rediss+sentinel://{}/mymaster", sentinel.addr);
    let tls = Tls::new().ca(authority.pem()).server_name("localhost");
    let locks = LockManager::builder()
        .tls(tls)
        .sentinel_tls(None)
        .connect(&url)
        .await
        .unwrap();
    let lost = locks.lock("lost").ttl(LONG).acquire().await.unwrap();
    let lock = locks.lock("a").ttl(LONG);
    old.plain().stop();
    let asking = tokio::spawn(async move { lock.acquire_within(LIMIT).await });
    sentinel.names(2, new.port());
    let guard = asking.await.unwrap().unwrap();
    assert!(new.plain().exists("lock:a").await);
    lost.lost().await;
    old.plain().cont();
    guard.release().await.unwrap();
    eventually("it is released", LIMIT, async || {
        !new.plain().exists("lock:a").await
    })
    .await;
}
