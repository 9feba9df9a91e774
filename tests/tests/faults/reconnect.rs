//! A lost connection is made again while it matters, and what was missed is asked for (P11, P15).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lock_core::{GuardedScript, LockError, LockGuard, LockManager, LossReason, Owner};
use lock_tests::{LIMIT, Proxy, Request, TestServer, eventually};

use crate::support::{
    LONG, NAME, behind, command, connect, direct, in_time, is_extend, is_pass, ms, renewed,
};
use crate::support::{until_clean, until_queued, warm_server};

/// Breaks every connection, and lets no new one through.
async fn outage(proxy: &Proxy) {
    proxy.refuse(true);
    proxy.reset();
    eventually("no connection is left", LIMIT, async || {
        proxy.live_connections() == 0
    })
    .await;
}

async fn hears_of_what_an_outage_has_hidden(
    locks: LockManager,
    proxy: &Proxy,
    server: &TestServer,
) {
    let other = direct(server).await;
    let (renewing, fixed) = (locks.lock("a").ttl(LONG), locks.lock("b").ttl(LONG));
    let taken = [
        renewing.acquire().await.unwrap(),
        fixed.renew(false).acquire().await.unwrap(),
    ];
    let kept = locks.lock("c").ttl(LONG).acquire().await.unwrap();
    outage(proxy).await;
    for guard in &taken {
        assert!(other.lock(guard.key()).force_release().await.unwrap());
    }
    proxy.refuse(false);
    for guard in &taken {
        let reason = in_time("the loss", guard.lost()).await;
        assert_eq!(reason, LossReason::Gone);
    }
    assert!(kept.is_held());
    drop((taken, kept));
    until_clean(server).await;
}

/// Proves P15.
#[tokio::test]
async fn a_force_release_in_an_outage_is_told_after_it_long_before_a_renewal() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(1000)).await;
    hears_of_what_an_outage_has_hidden(locks, &proxy, &server).await;
}

/// Proves P15.
#[tokio::test]
async fn a_client_without_messages_is_told_as_well() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = connect(&format!("{}/?protocol=resp2", proxy.url()), ms(1000)).await;
    hears_of_what_an_outage_has_hidden(locks, &proxy, &server).await;
}

#[tokio::test]
async fn a_fixed_lease_is_confirmed_and_not_prolonged() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let lock = locks.lock(NAME).ttl(LONG).renew(false);
    let guard = lock.acquire().await.unwrap();
    let since = Instant::now();
    let end = since + guard.remaining();
    // An extension has to show.
    tokio::time::sleep(ms(100)).await;
    let asked = proxy.on_request(is_extend);
    proxy.reset();
    asked.await;
    // The answer to a later request: the confirmation has been carried out.
    locks.lock("other").inspect().await.unwrap();
    let passed = since.elapsed();
    let left = server.pttl("lock:k").await;
    assert!(guard.is_held());
    assert!(left > 0, "the confirmation has ended it: {left}");
    assert!(left as u128 + passed.as_millis() <= LONG.as_millis() + 50);
    assert!(Instant::now() + guard.remaining() <= end + ms(50));
    guard.release().await.unwrap();
    until_clean(&server).await;
}

/// A release that asks for the longest turn there is.
fn asks_for_a_long_turn(request: &Request) -> bool {
    is_pass(request) && request.arg(10) == "1023"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_that_began_to_wait_in_an_outage_has_its_turn_after_it() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(1000)).await;
    let other = direct(&server).await;
    let (stop, turns) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let lock = locks.lock(NAME).ttl(LONG);
            let (stop, turns) = (Arc::clone(&stop), Arc::clone(&turns));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let guard = lock.acquire().await.unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(ms(1)).await;
                    drop(guard);
                }
            })
        })
        .collect();
    // Without word of another process, each turn is longer than the one before.
    proxy.on_request(asks_for_a_long_turn).await;
    let begun = turns.load(Ordering::SeqCst);
    eventually("the turn has begun", LIMIT, async || {
        turns.load(Ordering::SeqCst) > begun + 2
    })
    .await;
    let before = proxy.connections();
    outage(&proxy).await;
    let lock = other.lock(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until_queued(&server, 1).await;
    proxy.refuse(false);
    // Its lease is confirmed as soon as there is a connection.
    proxy.on_request(is_extend).await;
    let told = turns.load(Ordering::SeqCst);
    let guard = in_time("its turn", waiter).await.unwrap();
    let more = turns.load(Ordering::SeqCst) - told;
    assert!(proxy.connections() > before);
    assert!(
        more <= 100,
        "{more} more hand-overs in the process that holds"
    );
    stop.store(true, Ordering::SeqCst);
    guard.release().await.unwrap();
    for task in tasks {
        in_time("the tasks", task).await.unwrap();
    }
    until_clean(&server).await;
}

#[tokio::test]
async fn an_idle_manager_does_not_reconnect() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let guard = locks.lock(NAME).acquire().await.unwrap();
    guard.release().await.unwrap();
    let before = proxy.connections();
    proxy.reset();
    eventually("the connection is gone", LIMIT, async || {
        proxy.live_connections() == 0
    })
    .await;
    // That nothing happens takes a time to see.
    tokio::time::sleep(ms(500)).await;
    assert_eq!(proxy.connections(), before);
    let guard = locks.lock(NAME).acquire().await.unwrap();
    assert_eq!(proxy.connections(), before + 1);
    guard.release().await.unwrap();
}

/// The master behind the proxy becomes a replica; new connections lead to another master.
async fn demote(server: &TestServer, proxy: &Proxy, master: &TestServer) {
    proxy.retarget(master.addr());
    command::<()>(server, "REPLICAOF 127.0.0.1 1").await;
}

/// Proves P15.
#[tokio::test]
async fn a_master_that_was_demoted_behind_its_address_is_left_at_once() {
    let (server, master) = (warm_server().await, warm_server().await);
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(1000)).await;
    demote(&server, &proxy, &master).await;
    let lock = locks.lock(NAME).ttl(LONG);
    let guard = lock.acquire_within(ms(10_000)).await.unwrap();
    assert!(master.exists("lock:k").await);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_on_a_master_that_was_demoted_asks_the_new_one() {
    let (server, master) = (warm_server().await, warm_server().await);
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(1000)).await;
    let guard = locks.lock(NAME).ttl(ms(12_000)).acquire().await.unwrap();
    demote(&server, &proxy, &master).await;
    assert_eq!(in_time("the loss", guard.lost()).await, LossReason::Gone);
}

/// Over a connection that is not replaced. What the replica has may be old. Proves P15.
#[tokio::test]
async fn a_replica_is_no_answer_to_a_script_that_only_reads() {
    let server = warm_server().await;
    let connection = server.connection().await;
    let locks = LockManager::builder().from_connection(connection).unwrap();
    let guard = locks.lock("{k}").ttl(LONG).acquire().await.unwrap();
    let (permits, election) = (locks.semaphore("s", 2), locks.election("e"));
    let (rw, latch) = (locks.rw_lock("rw"), locks.latch("l", 1));
    let reentrant = locks.reentrant_lock("r").owner(&Owner::new());
    let permit = permits.acquire().await.unwrap();
    latch.count_down("a").await.unwrap();
    command::<()>(&server, "REPLICAOF 127.0.0.1 1").await;
    let read = GuardedScript::new("return redis.call('GET', KEYS[1])");
    let answers = [
        ("guarded", guard.guarded(&read).key("{k}").run().await),
        ("inspect", locks.lock(NAME).inspect().await.map(drop)),
        ("permits", permits.inspect().await.map(drop)),
        ("read-write", rw.inspect().await.map(drop)),
        ("reentrant", reentrant.inspect().await.map(drop)),
        ("leader", election.leader().await.map(drop)),
        ("left", latch.left().await.map(drop)),
        ("count", latch.count_down("a").await.map(drop)),
    ];
    for (what, answer) in answers {
        let is_unavailable = matches!(answer, Err(LockError::Unavailable { .. }));
        assert!(is_unavailable, "{what}: {answer:?}");
    }
    drop((guard, permit));
}

/// Proves P15.
#[tokio::test]
async fn a_server_that_stays_a_replica_is_not_stormed() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(1000)).await;
    command::<()>(&server, "REPLICAOF 127.0.0.1 1").await;
    let before = proxy.connections();
    let started = Instant::now();
    let callers: Vec<_> = (0..50)
        .map(|n| {
            let lock = locks.lock(format!("k{n}"));
            tokio::spawn(async move {
                for _ in 0..20 {
                    let error = lock.acquire_within(ms(50)).await.unwrap_err();
                    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
                }
            })
        })
        .collect();
    for caller in callers {
        in_time("the callers", caller).await.unwrap();
    }
    let (made, took) = (proxy.connections() - before, started.elapsed());
    let most = 10 + took.as_millis() as u64 / 40;
    assert!(made >= 1 && made <= most, "{made} connections in {took:?}");
}

/// Proves P11.
#[tokio::test]
async fn many_callers_of_a_server_that_hangs_make_one_connection_at_a_time() {
    const CALLERS: usize = 500;
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(1000)).await;
    server.stop();
    let before = proxy.connections();
    let goes_on = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let lock = locks.lock(format!("k{n}")).ttl(LONG);
            let goes_on = Arc::clone(&goes_on);
            tokio::spawn(async move {
                loop {
                    // A machine that is busy may need more than the usual time for all of them.
                    let back = goes_on.load(Ordering::SeqCst);
                    let limit = if back { LIMIT } else { ms(100) };
                    match lock.acquire_within(limit).await {
                        Ok(guard) => return guard,
                        Err(LockError::Unavailable { .. } | LockError::TimedOut { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            })
        })
        .collect();
    // How many connections there are can only be measured over a time.
    let started = Instant::now();
    tokio::time::sleep(ms(5000)).await;
    let most = 3 + started.elapsed().as_secs();
    let made = proxy.connections() - before;
    assert!(made <= most, "{made} connections to a server that hangs");
    goes_on.store(true, Ordering::SeqCst);
    server.cont();
    let started = Instant::now();
    let mut guards = Vec::new();
    for caller in callers {
        guards.push(in_time("the callers", caller).await.unwrap());
    }
    // On a busy machine so many answers may take longer than the command deadline, a second, and then a connection is silent.
    let most = 2 + started.elapsed().as_secs();
    let made = proxy.connections() - before - made;
    assert!(made <= most, "{made} connections to a server that is back");
    drop(guards);
    until_clean(&server).await;
}

#[tokio::test]
async fn callers_that_give_up_leave_the_attempt_to_the_next_ones() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(5000)).await;
    proxy.hold_requests();
    proxy.reset();
    eventually("the connection is gone", LIMIT, async || {
        locks.lock(NAME).acquire_within(ms(20)).await.is_err() && proxy.live_connections() == 1
    })
    .await;
    let before = proxy.connections();
    for _ in 0..20 {
        locks.lock(NAME).acquire_within(ms(20)).await.unwrap_err();
    }
    assert_eq!(proxy.connections(), before, "the first attempt goes on");
    proxy.release_held();
    let guard = in_time("the lock", locks.lock(NAME).acquire())
        .await
        .unwrap();
    assert_eq!(proxy.connections(), before, "and was not in vain");
    guard.release().await.unwrap();
}

/// A guard whose connection falls silent for ever with a renewal, while new ones work. With `slow`, the renewal before it was
/// answered late.
async fn half_open(proxy: &Proxy, ttl: Duration, slow: bool) -> (LockGuard, bool) {
    let locks = behind(proxy, ms(1000)).await;
    let guard = locks.lock(NAME).ttl(ttl).acquire().await.unwrap();
    if slow {
        proxy.delay(ttl / 8);
        renewed(&guard).await;
        proxy.delay(Duration::ZERO);
    }
    let silence = proxy.hold_next_request_matching(is_extend);
    in_time("a renewal", silence.wait()).await;
    let renewed = renewed(&guard).await;
    (guard, renewed)
}

/// Proves P15.
#[tokio::test]
async fn a_connection_that_falls_silent_does_not_cost_a_short_lease() {
    // On a machine that stands still for a second, any lease is lost.
    for (ttl, slow) in [
        (400, false),
        (2000, false),
        (2000, true),
        (2500, false),
        (3200, false),
    ] {
        let mut survived = false;
        for _ in 0..3 {
            let server = warm_server().await;
            let proxy = Proxy::start(&server);
            let (guard, renewed) = half_open(&proxy, ms(ttl), slow).await;
            survived = renewed && guard.is_held();
            if survived {
                break;
            }
        }
        assert!(survived, "ttl {ttl} ms, slow: {slow}");
    }
}
