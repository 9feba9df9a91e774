//! `LockGuard::extend`: the ttl of all later renewals, on the server and in what the guard believes.

use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{LockError, LockGuard, LockManager, LossReason, Owner};
use lock_tests::kit::warm_server;
use lock_tests::proxy::{DropMode, Proxy, Request};
use lock_tests::{LIMIT, TestServer, eventually, in_time};

const SECOND: Duration = Duration::from_secs(1);

async fn manager(url: &str) -> LockManager {
    let builder = LockManager::builder().default_ttl(SECOND * 30);
    let patient = builder.command_deadline(Duration::from_millis(500));
    patient.connect(url).await.unwrap()
}

fn is_extend(request: &Request) -> bool {
    request.script() == Some("extend")
}

/// Whether the guard believes in a lease of this many seconds.
fn believes(guard: &LockGuard, seconds: u32) -> bool {
    let left = guard.remaining();
    left <= SECOND * seconds && left + SECOND * 3 / 2 > SECOND * seconds
}

#[tokio::test]
async fn the_server_and_the_guard_have_the_new_ttl() {
    let server = TestServer::start().await;
    let locks = manager(&server.url()).await;
    let guard = locks.lock("a").acquire().await.unwrap();
    for seconds in [90, 20, 60] {
        guard.extend(SECOND * seconds).await.unwrap();
        assert!(believes(&guard, seconds), "{:?}", guard.remaining());
        let on_server = server.pttl("lock:a").await;
        let most = i64::from(seconds) * 1000;
        assert!(on_server <= most && on_server > most - 1500, "{on_server}");
        assert!(guard.remaining().as_millis() as i64 <= on_server);
    }
    guard.release().await.unwrap();
    let next = locks.lock("a").acquire().await.unwrap();
    assert!(believes(&next, 30), "the next hold has its own ttl");
}

#[tokio::test]
async fn later_renewals_have_it_too() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = manager(&proxy.url()).await;
    let guard = locks.lock("a").acquire().await.unwrap();
    guard.extend(Duration::from_millis(900)).await.unwrap();
    let before = proxy.count(is_extend);
    eventually("renewals, a third of the ttl apart", LIMIT, async || {
        proxy.count(is_extend) >= before + 4
    })
    .await;
    assert!(guard.is_held() && guard.remaining() <= Duration::from_millis(900));
    assert!(server.pttl("lock:a").await <= 900);
}

#[tokio::test]
async fn every_kind_of_lock_and_store_extends() {
    let servers = [
        TestServer::start().await,
        TestServer::start().await,
        TestServer::start().await,
    ];
    let nodes: Vec<_> = servers.iter().map(TestServer::url).collect();
    let quorum = || LockManager::builder().quorum_wait(SECOND * 180);
    quorum().begin_quorum(&nodes).await.unwrap();
    let quorum = quorum().connect_quorum(&nodes).await.unwrap();
    let memory = manager("memory://").await;
    let redis = manager(&nodes[0]).await;
    for locks in [&memory, &redis, &quorum] {
        let guard = locks.lock("a").acquire().await.unwrap();
        for seconds in [90, 20] {
            guard.extend(SECOND * seconds).await.unwrap();
            assert!(believes(&guard, seconds), "{:?}", guard.remaining());
        }
    }
    for locks in [&memory, &redis] {
        let lock = locks.reentrant_lock("r").owner(&Owner::new());
        let outer = lock.acquire().await.unwrap();
        outer.extend(SECOND * 20).await.unwrap();
        assert!(believes(&outer, 20), "alone, it may be shorter");
        let inner = lock.acquire().await.unwrap();
        inner.extend(SECOND * 90).await.unwrap();
        assert!(believes(&outer, 90) && believes(&inner, 90));
        inner.extend(SECOND * 20).await.unwrap();
        assert!(believes(&outer, 90), "it is not shortened for the other");
    }
}

#[tokio::test]
async fn a_lock_that_is_not_renewed_is_prolonged_once() {
    let server = TestServer::start().await;
    let locks = manager(&server.url()).await;
    let lock = locks.lock("a").ttl(SECOND).renew(false);
    let guard = lock.acquire().await.unwrap();
    guard.extend(Duration::from_millis(1500)).await.unwrap();
    assert!(guard.remaining() > SECOND);
    let lost = in_time("the loss", guard.lost()).await;
    assert_eq!(lost, LossReason::Expired);
    let late = guard.extend(SECOND).await;
    assert!(matches!(late, Err(LockError::Lost { .. })), "{late:?}");
}

#[tokio::test]
async fn max_hold_ends_an_extended_hold_all_the_same() {
    let locks = manager("memory://").await;
    let lock = locks.lock("a").max_hold(Duration::from_millis(200));
    let guard = lock.acquire().await.unwrap();
    guard.extend(SECOND * 600).await.unwrap();
    assert!(guard.remaining() <= Duration::from_millis(200));
    assert_eq!(guard.lost().await, LossReason::MaxHold);
}

#[tokio::test]
async fn a_ttl_out_of_range_is_refused_and_changes_nothing() {
    let locks = manager("memory://").await;
    let guard = locks.lock("a").acquire().await.unwrap();
    for ttl in [Duration::ZERO, Duration::from_millis(9), Duration::MAX] {
        let refused = guard.extend(ttl).await;
        assert!(matches!(refused, Err(LockError::InvalidConfig { .. })));
    }
    assert!(believes(&guard, 30));
}

/// Proves P2.
#[tokio::test]
async fn a_shorter_ttl_is_believed_before_the_server_has_it() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = manager(&proxy.url()).await;
    let guard = locks.lock("a").acquire().await.unwrap();
    let held = proxy.hold_next_request_matching(is_extend);
    let extending = guard.extend(SECOND * 5);
    let looking = async {
        held.wait().await;
        assert!(believes(&guard, 5), "{:?}", guard.remaining());
        assert!(server.pttl("lock:a").await > 20_000);
        held.deliver();
    };
    let (extended, ()) = tokio::join!(extending, looking);
    extended.unwrap();
    assert!(server.pttl("lock:a").await <= 5_000);
}

/// Proves P2.
#[tokio::test]
async fn it_waits_for_a_renewal_that_is_under_way() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let builder = LockManager::builder().command_deadline(LIMIT);
    let locks = builder.connect(&proxy.url()).await.unwrap();
    let lock = locks.lock("a").ttl(SECOND * 3);
    let held = proxy.hold_next_request_matching(is_extend);
    let guard = lock.acquire().await.unwrap();
    held.wait().await;
    let extending = guard.extend(SECOND * 60);
    let looking = async {
        // The renewal is at the proxy, and no second one follows it.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(proxy.count(is_extend), 1);
        held.deliver();
    };
    let (extended, ()) = tokio::join!(in_time("the extension", extending), looking);
    extended.unwrap();
    assert_eq!(proxy.count(is_extend), 2);
    assert!(believes(&guard, 60) && server.pttl("lock:a").await > 50_000);
}

#[tokio::test]
async fn without_an_answer_it_says_so_in_time_and_the_watchdog_goes_on() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = manager(&proxy.url()).await;
    let guard = locks.lock("a").acquire().await.unwrap();
    let _dropped = proxy.drop_next_reply_matching(is_extend, DropMode::Silent);
    let unanswered = in_time("the error", guard.extend(SECOND * 90)).await;
    let Err(LockError::Unavailable { .. }) = unanswered else {
        panic!("{unanswered:?}")
    };
    assert!(guard.is_held() && guard.remaining() <= SECOND * 30);
    eventually("the new ttl is confirmed", LIMIT, async || {
        believes(&guard, 90)
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_another_has_taken_is_lost_and_said_so() {
    let server = TestServer::start().await;
    let locks = manager(&server.url()).await;
    let guard = locks.lock("a").acquire().await.unwrap();
    server.flushall().await;
    let lost = guard.extend(SECOND * 90).await;
    let Err(LockError::Lost { key, reason }) = lost else {
        panic!("{lost:?}")
    };
    assert_eq!((&*key, reason), ("a", LossReason::Gone));
}

#[tokio::test]
async fn calls_at_the_same_time_all_end_and_the_last_one_counts() {
    let server = TestServer::start().await;
    let locks = manager(&server.url()).await;
    let guard = locks.lock("a").acquire().await.unwrap();
    let calls = [90, 20, 60, 45].map(|seconds| guard.extend(SECOND * seconds));
    for ended in futures_util::future::join_all(calls).await {
        ended.unwrap();
    }
    assert!(believes(&guard, 45), "{:?}", guard.remaining());
}

/// Proves P2.
#[tokio::test]
async fn the_next_holder_of_the_process_has_its_own_ttl() {
    let server = warm_server().await;
    for url in ["memory://", &server.url()] {
        let locks = manager(url).await;
        let lock = locks.lock("a");
        let mut holder = lock.acquire().await.unwrap();
        for round in 0..8 {
            let waiters = [(); 4].map(|()| {
                let lock = lock.clone();
                tokio::spawn(async move { lock.acquire().await.unwrap() })
            });
            eventually("they wait", LIMIT, async || {
                lock.inspect().await.unwrap().waiters() == 4
            })
            .await;
            for waiter in waiters {
                // Asked for, and dropped before it is sent.
                let _ = Box::pin(holder.extend(SECOND * 600)).now_or_never();
                drop(holder);
                holder = in_time("its turn", waiter).await.unwrap();
                assert!(believes(&holder, 30), "{round}: {:?}", holder.remaining());
            }
        }
    }
}

#[test]
fn it_ends_though_the_runtime_of_the_manager_is_gone() {
    let server = TestServer::builder();
    let (home, here) = (runtime(), runtime());
    let server = home.block_on(server.start());
    let proxy = home.block_on(async { Proxy::start(&server) });
    let locks = home.block_on(manager(&proxy.url()));
    let lock = locks.lock("a").ttl(SECOND * 20).renew(false);
    let guard = home.block_on(lock.acquire()).unwrap();
    proxy.hold_requests();
    let extending = async { in_time("the error", guard.extend(SECOND * 19)).await };
    let ended = here.block_on(extending);
    assert!(ended.is_err(), "nothing drives the manager");
    drop((home, proxy));
}

/// Runs nothing while it is not blocked on.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// Waits until the server has carried out two renewals.
async fn both_are_carried_out(server: &TestServer) {
    eventually("the late one arrives", LIMIT, async || {
        let stats = server.commandstats().await;
        stats.get("pexpire").copied().unwrap_or_default() >= 2
    })
    .await;
}

/// Proves P2.
#[tokio::test]
async fn a_renewal_that_comes_late_does_not_shorten_a_longer_lease() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = manager(&proxy.url()).await;
    let lock = locks.lock("a").ttl(SECOND * 3);
    let guard = lock.acquire().await.unwrap();
    let late = proxy.hold_next_request_matching(is_extend);
    late.wait().await;
    // It is still on its way when its connection breaks.
    proxy.reset();
    guard.extend(SECOND * 60).await.unwrap();
    late.deliver();
    both_are_carried_out(&server).await;
    let on_server = server.pttl("lock:a").await;
    assert!(on_server > 50_000, "{on_server}");
    assert!(guard.remaining().as_millis() as i64 <= on_server);
}

#[tokio::test]
async fn a_shorter_ttl_of_a_reentrant_lock_counts_for_its_guard_alone() {
    let server = TestServer::start().await;
    let locks = manager(&server.url()).await;
    let lock = locks.reentrant_lock("a").owner(&Owner::new());
    let guard = lock.acquire().await.unwrap();
    guard.extend(SECOND * 5).await.unwrap();
    assert!(believes(&guard, 5), "{:?}", guard.remaining());
    assert!(server.pttl("a").await > 20_000);
    guard.release().await.unwrap();
}

/// Proves P2.
#[tokio::test]
async fn an_extension_that_comes_late_does_not_shorten_a_longer_one() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = manager(&proxy.url()).await;
    let guard = locks.lock("a").acquire().await.unwrap();
    let late = proxy.hold_next_request_matching(is_extend);
    let first = guard.extend(SECOND * 40).await;
    assert!(
        matches!(first, Err(LockError::Unavailable { .. })),
        "{first:?}"
    );
    proxy.reset();
    // The first request may still go to the connection that was reset.
    while guard.extend(SECOND * 90).await.is_err() {}
    late.deliver();
    both_are_carried_out(&server).await;
    let on_server = server.pttl("lock:a").await;
    assert!(on_server > 80_000, "{on_server}");
}
