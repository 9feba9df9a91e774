//! A client's clock never reaches the server: all that is sent are durations. So no jump of a client's wall clock
//! can move a lease.

use std::time::Duration;

use lock_core::LockManager;
use lock_tests::{LIMIT, Proxy, Request, TestServer, eventually};

const TTL: Duration = Duration::from_secs(3);

fn is_script(request: &Request) -> bool {
    matches!(request.name().as_str(), "EVALSHA" | "EVAL")
}

/// The arguments after the keys, where they are numbers.
fn numbers(request: &Request) -> Vec<u64> {
    let keys: usize = request.arg(2).parse().unwrap();
    (3 + keys..request.args().len())
        .filter_map(|index| request.arg(index).parse().ok())
        .collect()
}

#[tokio::test]
async fn no_request_carries_the_time_of_day() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = LockManager::connect(&proxy.url()).await.unwrap();
    let lock = locks.lock("k").ttl(TTL);
    let held = lock.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    eventually("it waits", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == 1
    })
    .await;
    assert!(lock.try_acquire().await.unwrap().is_none());
    // Every kind of request, each known by its script.
    let scripts = async |kinds: usize| {
        eventually("the next kind of request", LIMIT, async || {
            let mut known: Vec<String> = proxy
                .requests()
                .iter()
                .filter(|request| request.name() == "EVALSHA")
                .map(|request| request.arg(1))
                .collect();
            known.sort();
            known.dedup();
            // Those made while another is under way have scripts of their own.
            known.len() >= kinds
        })
        .await;
    };
    // acquire, inspect, and by itself a renewal.
    scripts(3).await;
    assert!(lock.force_release().await.unwrap());
    drop(held);
    let held = waiting.await.unwrap().unwrap();
    // A release that asks again for those who wait here, and one for nobody.
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    eventually("it waits", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == 1
    })
    .await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    scripts(6).await;

    let requests = proxy.requests();
    let mut sent: Vec<u64> = requests
        .iter()
        .filter(|request| is_script(request))
        .flat_map(numbers)
        .collect();
    sent.sort_unstable();
    assert!(sent.contains(&(TTL.as_millis() as u64)), "{sent:?}");
    // Seconds since 1970 are a hundred thousand times more.
    assert!(sent.iter().all(|number| *number <= 30_000), "{sent:?}");
}
