//! What an observer is told: each call and each hold has one outcome, and so have requests, renewals and connections.

mod faults;

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::observe::{Event, Observer};
use lock_core::{Lock, LockError, LockManager, Owner};
use lock_tests::{LIMIT, TestServer, eventually};
use tokio::task::JoinSet;

/// Keeps a line for each event, and counts them by their first word.
#[derive(Default)]
struct Record {
    lines: Mutex<Vec<String>>,
}

impl Observer for Record {
    fn observe(&self, event: &Event<'_>) {
        let outcome = event.outcome().unwrap_or_default();
        let (word, lock) = match event {
            Event::Waiting { lock, .. } => ("waiting", Some(lock)),
            Event::Acquired { lock, .. } => ("acquired", Some(lock)),
            Event::Refused { lock, .. } => ("refused", Some(lock)),
            Event::Cancelled { lock, .. } | Event::Renewed { lock, .. } => ("", Some(lock)),
            Event::RenewalFailed { lock, .. } => ("renewal", Some(lock)),
            Event::Released { lock, .. } => ("ended", Some(lock)),
            Event::Lost { lock, .. } => ("lost", Some(lock)),
            Event::Outstanding { lock, .. } => ("outstanding", Some(lock)),
            Event::Settled { lock, .. } => ("settled", Some(lock)),
            Event::Disconnected { .. } => ("disconnected", None),
            Event::Reconnected { .. } => ("reconnected", None),
            other => panic!("{other:?}"),
        };
        let lock = lock.map(|lock| format!("{}/{}/{}", lock.key, lock.label, lock.kind));
        let line = [word, outcome, &lock.unwrap_or_default()];
        let line = line.map(str::trim).join(" ").trim().to_owned();
        self.lines.lock().unwrap().push(line);
    }
}

impl Record {
    fn of(&self, beginning: &str) -> usize {
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .filter(|line| line.starts_with(beginning))
            .count()
    }

    /// The events of calls and holds since the last look.
    fn take(&self) -> Vec<String> {
        let mut lines = std::mem::take(&mut *self.lines.lock().unwrap());
        let noise = ["waiting", "outstanding", "settled", "renewed"];
        lines.retain(|line| !noise.iter().any(|word| line.starts_with(word)));
        lines
    }

    async fn has(&self, beginning: &str) {
        eventually(beginning, LIMIT, async || self.of(beginning) > 0).await;
    }
}

async fn observed(url: &str) -> (LockManager, Arc<Record>) {
    let record = Arc::new(Record::default());
    let builder = LockManager::builder()
        .observer(Arc::clone(&record))
        .command_deadline(LIMIT);
    (builder.connect(url).await.unwrap(), record)
}

fn order(locks: &LockManager) -> Lock {
    locks.lock("order:7").label("order")
}

#[tokio::test]
async fn each_call_and_each_hold_has_one_outcome() {
    let server = TestServer::start().await;
    let (locks, record) = observed(&server.url()).await;
    let others = LockManager::connect(&server.url()).await.unwrap();
    let (lock, same) = (order(&locks), others.lock("order:7"));

    lock.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(
        record.take(),
        [
            "acquired free order:7/order/exclusive",
            "ended released order:7/order/exclusive"
        ]
    );

    let guard = lock.try_acquire().await.unwrap().unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let limit = Duration::from_millis(20);
    assert!(lock.acquire_within(limit).await.is_err());
    assert!(tokio::time::timeout(limit, lock.acquire()).await.is_err());
    drop(guard);
    assert_eq!(
        record.take(),
        [
            "acquired tried order:7/order/exclusive",
            "refused busy order:7/order/exclusive",
            "refused timed_out order:7/order/exclusive",
            "cancelled order:7/order/exclusive",
            "ended dropped order:7/order/exclusive"
        ]
    );

    let theirs = same.acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    eventually("it waits", LIMIT, async || {
        same.inspect().await.unwrap().waiters() == 1
    })
    .await;
    theirs.release().await.unwrap();
    let guard = waiter.await.unwrap();
    assert_eq!(record.take(), ["acquired granted order:7/order/exclusive"]);

    let mut next = Box::pin(lock.acquire());
    assert!((&mut next).now_or_never().is_none());
    guard.release().await.unwrap();
    let guard = next.await.unwrap();
    assert_eq!(
        record.take(),
        [
            "ended released order:7/order/exclusive",
            "acquired handed_over order:7/order/exclusive"
        ]
    );

    assert!(lock.force_release().await.unwrap());
    guard.lost().await;
    drop(guard);
    assert_eq!(
        record.take(),
        ["lost force_released order:7/order/exclusive"]
    );
}

#[tokio::test]
async fn a_release_without_an_answer_is_an_outcome_too() {
    let server = TestServer::start().await;
    let (locks, record) = observed(&server.url()).await;
    let guard = order(&locks).acquire().await.unwrap();
    server.stop();
    let mut release = Box::pin(guard.release());
    assert!((&mut release).now_or_never().is_none());
    drop(release);
    assert_eq!(
        record.take()[1..],
        ["ended unconfirmed order:7/order/exclusive"]
    );
    server.cont();
}

#[tokio::test]
async fn a_release_that_finds_nothing_is_a_loss() {
    let server = TestServer::start().await;
    let (locks, record) = observed(&server.url()).await;
    let guard = order(&locks).acquire().await.unwrap();
    server.flushall().await;
    assert!(guard.release().await.is_err());
    assert_eq!(record.take()[1..], ["lost gone order:7/order/exclusive"]);
}

#[tokio::test]
async fn each_guard_of_an_owner_has_its_own_end() {
    let (locks, record) = observed("memory://").await;
    let me = Owner::new();
    let lock = locks.reentrant_lock("a").owner(&me).label("re");
    let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    drop(inner);
    assert!(lock.force_release().await.unwrap());
    outer.lost().await;
    assert_eq!(
        record.take(),
        [
            "acquired free a/re/reentrant",
            "acquired free a/re/reentrant",
            "ended dropped a/re/reentrant",
            "lost force_released a/re/reentrant"
        ]
    );
}

/// Calls that are cancelled, guards that are lost, waiters that are handed a lock and have left: whatever happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_has_begun_has_ended_once_when_all_is_over() {
    let server = TestServer::start().await;
    let (locks, record) = observed(&server.url()).await;
    let mut crew = JoinSet::new();
    for n in 0..24_u64 {
        let locks = locks.clone();
        crew.spawn(async move {
            for round in 0..60 {
                let lock = locks.lock(format!("hot:{}", n % 3)).label("hot");
                let dice = fastrand::u64(..100);
                let patience = Duration::from_micros(fastrand::u64(..3000));
                if dice == 0 {
                    let _ = lock.force_release().await;
                }
                let guard = match dice % 3 {
                    0 => lock.acquire_within(patience).await.ok(),
                    1 => lock.try_acquire().await.unwrap_or_default(),
                    _ => match tokio::time::timeout(patience, lock.acquire()).await {
                        Ok(acquired) => acquired.ok(),
                        Err(_) => None,
                    },
                };
                if let Some(guard) = guard {
                    match round % 3 {
                        0 => drop(guard),
                        1 => drop(guard.release().await),
                        _ => drop(tokio::time::timeout(patience / 20, guard.release()).await),
                    }
                }
            }
        });
    }
    while let Some(done) = crew.join_next().await {
        done.unwrap();
    }
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    let (waiting, acquired) = (record.of("waiting"), record.of("acquired"));
    let calls = acquired + record.of("refused") + record.of("cancelled");
    assert_eq!(waiting, 24 * 60);
    assert_eq!(calls, waiting);
    assert_eq!(record.of("ended") + record.of("lost"), acquired);
    assert_eq!(record.of("settled"), record.of("outstanding"));
    assert!(record.of("acquired handed_over") > 0 && record.of("cancelled") > 0);
}

#[tokio::test]
async fn renewals_tell_their_slack_and_failures_the_time_that_is_left() {
    #[derive(Default)]
    struct Slack(Mutex<HashMap<&'static str, Duration>>);
    impl Observer for Slack {
        fn observe(&self, event: &Event<'_>) {
            let mut seen = self.0.lock().unwrap();
            match event {
                Event::Renewed { slack, .. } => seen.insert("renewed", *slack),
                Event::RenewalFailed { slack, error, .. } => {
                    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
                    seen.insert("failed", *slack)
                }
                Event::Lost { held, .. } => seen.insert("lost", *held),
                _ => None,
            };
        }
    }
    let server = TestServer::start().await;
    let seen = Arc::new(Slack::default());
    let builder = LockManager::builder().observer(Arc::clone(&seen));
    let builder = builder.command_deadline(Duration::from_millis(100));
    let locks = builder.connect(&server.url()).await.unwrap();
    let ttl = Duration::from_millis(1500);
    let guard = order(&locks).ttl(ttl).acquire().await.unwrap();
    let has = |word| seen.0.lock().unwrap().get(word).copied();
    eventually("renewed", LIMIT, async || has("renewed").is_some()).await;
    assert!(has("renewed").unwrap() < ttl * 7 / 10 && has("failed").is_none());
    server.stop();
    guard.lost().await;
    assert!(has("failed").unwrap() < ttl / 2 && has("lost").unwrap() > ttl);
    server.cont();
}

#[tokio::test]
async fn a_connection_that_breaks_is_told_also_to_an_idle_client() {
    let server = TestServer::start().await;
    let (locks, record) = observed(&server.url()).await;
    server.kill();
    record.has("disconnected").await;
    assert_eq!(record.of("reconnected"), 0);
    server.restart().await;
    order(&locks)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(
        (record.of("disconnected"), record.of("reconnected")),
        (1, 1)
    );
}

/// It is called with no mutex locked, and its panics are its own.
#[tokio::test]
async fn an_observer_may_use_locks_and_may_panic() {
    #[derive(Default)]
    struct Bold {
        locks: Mutex<Option<LockManager>>,
        is_inside: AtomicBool,
        renewals: AtomicU64,
    }
    impl Observer for Bold {
        fn observe(&self, event: &Event<'_>) {
            if self.is_inside.swap(true, Ordering::SeqCst) {
                return;
            }
            let locks = self.locks.lock().unwrap().clone();
            if let Some(locks) = locks {
                for key in ["a", "b"] {
                    let acquired = locks.lock(key).acquire().now_or_never();
                    drop(acquired);
                }
            }
            self.is_inside.store(false, Ordering::SeqCst);
            if let Event::Renewed { .. } = event {
                self.renewals.fetch_add(1, Ordering::SeqCst);
                // Without the hook: on a loaded machine the backtrace that it prints lasts longer than the lease.
                resume_unwind(Box::new("on purpose"));
            }
        }
    }
    let server = TestServer::start().await;
    let bold = Arc::new(Bold::default());
    let builder = LockManager::builder().observer(Arc::clone(&bold));
    let locks = builder.connect(&server.url()).await.unwrap();
    *bold.locks.lock().unwrap() = Some(locks.clone());
    let lock = locks.lock("a").ttl(Duration::from_secs(2));
    let guard = lock.acquire().await.unwrap();
    eventually("renewed in spite of a panic", LIMIT, async || {
        bold.renewals.load(Ordering::SeqCst) > 1
    })
    .await;
    assert!(guard.is_held());
    assert!(lock.force_release().await.unwrap());
    guard.lost().await;
    drop(guard);
    lock.acquire().await.unwrap().release().await.unwrap();
    locks.shutdown(LIMIT).await;
}
