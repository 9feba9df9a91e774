//! The server is stopped, killed, restarted (P2, P10, P11).

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use lock_core::{LockError, LockManager, LossReason};
use lock_tests::{Capture, LIMIT, Proxy, Said, TestServer, boottime_now, eventually};
use tracing::Level;

use crate::support::{KEY, LONG, NAME, assert_unavailable, connect, in_time, ms, until_queued};
use crate::support::{behind, until_clean, until_gone, warm_server};

/// A manager with the usual deadline.
async fn usual(server: &TestServer) -> LockManager {
    connect(&server.url(), ms(1000)).await
}

#[tokio::test]
async fn a_stopped_server_costs_the_guard_on_time_and_the_manager_recovers() {
    // The instant depends on when this machine runs the task that looks; all else is asserted each time.
    let mut late = Vec::new();
    for _ in 0..5 {
        let server = warm_server().await;
        let locks = usual(&server).await;
        let ttl = ms(3000);
        let lock = locks.lock(NAME).ttl(ttl);
        let guard = lock.acquire().await.unwrap();
        let granted = boottime_now();
        server.stop();
        let reason = in_time("the loss", guard.lost()).await;
        let lost_at = boottime_now();
        assert_eq!(reason, LossReason::Expired);
        assert!(!guard.is_held());

        let waiter = tokio::spawn({
            let lock = locks.lock("other").ttl(LONG);
            async move { lock.acquire().await }
        });
        server.cont();
        let again = in_time("the lock", lock.acquire()).await.unwrap();
        assert!(!guard.is_held() && again.is_held());
        let taken = in_time("a lock asked for meanwhile", waiter)
            .await
            .unwrap()
            .unwrap();
        taken.release().await.unwrap();
        again.release().await.unwrap();
        drop(guard);
        until_clean(&server).await;
        // Granted was read after the server had granted.
        if lost_at <= granted + ttl {
            return;
        }
        late.push(lost_at.saturating_sub(granted));
    }
    panic!("lost() fired after the lease of 3 s: {late:?}");
}

/// Measures how long the call takes; the machine may be busy, so the best of three counts.
async fn returns_within(limit: Duration, locks: &LockManager) {
    let mut took = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        let outcome = locks.lock(NAME).acquire_within(ms(1000)).await;
        let elapsed = start.elapsed();
        match outcome {
            Err(LockError::Unavailable { .. } | LockError::TimedOut { .. }) => {}
            other => panic!("{other:?}"),
        }
        if elapsed < limit {
            return;
        }
        took.push(elapsed);
    }
    panic!("took {took:?}");
}

#[tokio::test]
async fn a_wait_of_one_second_ends_in_time_without_a_server() {
    let server = TestServer::start().await;
    let locks = usual(&server).await;
    server.kill();
    returns_within(ms(1200), &locks).await;
}

/// Proves P11.
#[tokio::test]
async fn a_wait_of_one_second_ends_in_time_while_the_server_hangs() {
    let server = TestServer::start().await;
    let locks = usual(&server).await;
    server.stop();
    returns_within(ms(1200), &locks).await;
    server.cont();
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_wait_of_one_second_ends_in_time_when_the_server_dies_meanwhile() {
    let server = TestServer::start().await;
    let locks = usual(&server).await;
    let other = usual(&server).await;
    let guard = other.lock(NAME).acquire().await.unwrap();
    let start = Instant::now();
    let lock = locks.lock(NAME);
    let waiter = tokio::spawn(async move { lock.acquire_within(ms(1000)).await });
    until_queued(&server, 1).await;
    server.kill();
    match in_time("the waiter", waiter).await.unwrap() {
        Err(LockError::Unavailable { .. } | LockError::TimedOut { .. }) => {}
        other => panic!("{other:?} after {:?}", start.elapsed()),
    }
    drop(guard);
}

#[tokio::test]
async fn every_call_says_unavailable_without_a_server_and_works_after_a_restart() {
    let server = TestServer::start().await;
    let locks = usual(&server).await;
    let guard = locks.lock(NAME).acquire().await.unwrap();
    server.kill();
    assert_unavailable(locks.lock("a").try_acquire().await, "");
    assert_unavailable(locks.lock("a").inspect().await, "");
    assert_unavailable(guard.release().await, "");
    server.restart().await;
    let guard = in_time("the lock", locks.lock(NAME).acquire())
        .await
        .unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    until_clean(&server).await;
}

#[tokio::test]
async fn an_acquire_outlasts_an_outage_shorter_than_its_ttl() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(1000)).await;
    server.kill();
    let before = proxy.connections();
    let lock = locks.lock(NAME).ttl(LONG);
    let caller = tokio::spawn(async move { lock.acquire().await });
    eventually("it tries more than once", LIMIT, async || {
        proxy.connections() > before + 2
    })
    .await;
    assert!(!caller.is_finished());
    server.restart().await;
    let guard = in_time("the lock", caller).await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_acquire_gives_up_after_an_outage_of_one_ttl() {
    let server = TestServer::start().await;
    let locks = usual(&server).await;
    server.kill();
    let lock = locks.lock(NAME).ttl(ms(500));
    assert_unavailable(in_time("its end", lock.acquire()).await, "");
}

/// Proves P8.
#[tokio::test]
async fn a_waiter_outlasts_a_restart_that_empties_the_queue() {
    let server = TestServer::start().await;
    let locks = usual(&server).await;
    let holder = usual(&server).await;
    let guard = holder.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let lock = locks.lock(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until_queued(&server, 1).await;
    server.restart().await;
    let next = in_time("the waiter", waiter).await.unwrap().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    next.release().await.unwrap();
    drop(guard);
}

/// Proves P10.
#[tokio::test]
async fn a_server_that_restarts_empty_costs_the_guard_and_fencing_still_grows() {
    let server = warm_server().await;
    let locks = usual(&server).await;
    let lock = locks.lock(NAME).ttl(ms(6000));
    let guard = lock.acquire().await.unwrap();
    server.restart().await;
    assert!(!server.exists(KEY).await, "it is empty");
    assert_eq!(in_time("the loss", guard.lost()).await, LossReason::Gone);
    let again = in_time("the lock", lock.acquire()).await.unwrap();
    assert!(again.fencing_token() > guard.fencing_token());
    match guard.release().await {
        Err(LockError::Lost { reason, .. }) => assert_eq!(reason, LossReason::Gone),
        other => panic!("{other:?}"),
    }
    assert!(again.is_held() && server.exists(KEY).await);
    again.release().await.unwrap();
    until_gone(&server, KEY).await;
}

#[tokio::test]
async fn a_restart_that_keeps_its_data_keeps_the_lock() {
    let server = TestServer::builder()
        .arg("--appendonly", "yes")
        .arg("--appendfsync", "always")
        .start()
        .await;
    let locks = usual(&server).await;
    let lock = locks.lock(NAME).ttl(ms(20_000));
    let guard = lock.acquire().await.unwrap();
    let value = server.get(KEY).await;
    server.restart().await;
    assert_eq!(server.get(KEY).await, value);
    let other = usual(&server).await;
    assert!(other.lock(NAME).try_acquire().await.unwrap().is_none());
    assert!(guard.is_held());
    let fence = guard.fencing_token();
    guard.release().await.unwrap();
    let next = other.lock(NAME).acquire().await.unwrap();
    assert!(next.fencing_token() > fence);
    next.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_release_that_never_arrives_is_said_to_have_ended_by_the_ttl() {
    let server = warm_server().await;
    let locks = usual(&server).await;
    let guard = locks.lock(NAME).ttl(ms(500)).acquire().await.unwrap();
    let capture = Capture::start();
    server.kill();
    drop(guard);
    let mut said = None;
    eventually("the warning", LIMIT, async || {
        let events = capture.events();
        let mut warnings = events
            .iter()
            .filter(|event| event.message().contains("did not confirm a release"));
        said = warnings.next().map(|event| event.message().to_owned());
        said.is_some()
    })
    .await;
    assert_eq!(
        said.as_deref(),
        Some("the server did not confirm a release: what it was for has ended by its ttl")
    );
}

/// The events with this message.
fn said(capture: &Capture, message: &str) -> Vec<Said> {
    let mut events = capture.events();
    events.retain(|event| event.message() == message);
    events
}

/// Holds this many locks through an outage that takes all of them, and checks what the log says.
async fn lines_of_an_outage(
    held: usize,
    begin: fn(&TestServer),
    end: fn(&TestServer) -> BoxFuture<'_, ()>,
) {
    let server = warm_server().await;
    let locks = usual(&server).await;
    let taken = (0..held).map(|n| {
        let lock = locks.lock(format!("outage:{n}")).ttl(ms(4000));
        async move { lock.acquire().await.unwrap() }
    });
    let guards = join_all(taken).await;
    let capture = Capture::start();
    begin(&server);
    in_time(
        "the losses",
        join_all(guards.iter().map(|guard| guard.lost())),
    )
    .await;
    drop(guards);
    end(&server).await;
    eventually("the end of the outage", LIMIT, async || {
        !said(&capture, "the server answers again").is_empty()
    })
    .await;
    locks.shutdown(LIMIT).await;

    let failed = said(&capture, "leases could not be renewed: trying again");
    assert!((1..=2).contains(&failed.len()), "{failed:#?}");
    let (count, address) = (held.to_string(), server.addr().to_string());
    let (_, port) = address.rsplit_once(':').unwrap();
    let first = &failed[0];
    assert_eq!(first.level, Level::WARN);
    assert_eq!(first.field("locks"), Some(&*count));
    assert!(first.field("server").unwrap().ends_with(port));
    let left: u64 = first.field("lost_in_ms").unwrap().parse().unwrap();
    assert!(left < 4000, "{left}");
    for message in [
        "a lock will be lost unless the server confirms it",
        "a lock was lost",
    ] {
        let named = said(&capture, message);
        let keys: HashSet<_> = named.iter().map(|event| event.field("key")).collect();
        assert_eq!((named.len(), keys.len()), (held, held), "{message}");
    }
    let [ended] = &said(&capture, "the server answers again")[..] else {
        panic!("once")
    };
    assert_eq!(
        (ended.level, ended.field("lost")),
        (Level::INFO, Some(&*count))
    );
    let away: u64 = ended.field("away_ms").unwrap().parse().unwrap();
    assert!(away > 0);
}

#[tokio::test]
async fn the_log_names_an_outage_in_few_lines_and_its_end_in_one() {
    lines_of_an_outage(1, TestServer::stop, |server| {
        Box::pin(async { server.cont() })
    })
    .await;
    lines_of_an_outage(1, TestServer::kill, |server| Box::pin(server.restart())).await;
    lines_of_an_outage(1000, TestServer::kill, |server| Box::pin(server.restart())).await;
}

/// Proves P15.
#[tokio::test]
async fn a_campaign_without_a_server_is_a_line_in_the_log() {
    let server = TestServer::start().await;
    server.kill();
    let locks = LockManager::builder();
    let locks = locks.connect_lazily(&server.url()).unwrap();
    let capture = Capture::start();
    let election = locks.election("leader");
    let campaign = tokio::spawn(async move { election.campaign("a").await });
    let message = "locks could not be asked for: trying again";
    eventually("the line", LIMIT, async || {
        !said(&capture, message).is_empty()
    })
    .await;
    let line = &said(&capture, message)[0];
    assert_eq!(line.level, Level::WARN);
    assert!(line.field("server").is_some() && line.field("error").is_some());
    server.restart().await;
    let _leads = campaign.await.unwrap().unwrap();
    eventually("the end", LIMIT, async || {
        !said(&capture, "the server answers again").is_empty()
    })
    .await;
}

/// Proves P15.
#[tokio::test]
async fn the_end_of_an_outage_counts_what_the_server_has_lost() {
    let server = warm_server().await;
    let locks = usual(&server).await;
    let taken = (0..20).map(|n| {
        let lock = locks.lock(format!("outage:{n}"));
        let lock = lock.ttl(if n == 0 { ms(5000) } else { LONG });
        async move { lock.acquire().await.unwrap() }
    });
    let _guards = join_all(taken).await;
    let capture = Capture::start();
    server.kill();
    eventually("the first failed renewal", LIMIT, async || {
        !said(&capture, "leases could not be renewed: trying again").is_empty()
    })
    .await;
    server.restart().await;
    eventually("the end", LIMIT, async || {
        !said(&capture, "the server answers again").is_empty()
    })
    .await;
    let ended = &said(&capture, "the server answers again")[0];
    assert_eq!(ended.field("lost"), Some("20"));
}
