//! Connections that break under holders and waiters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock_core::LossReason;
use lock_tests::{Proxy, TestServer};

use crate::support::{LONG, NAME, Section, direct, in_time, ms, until_clean, until_queued};
use crate::support::{behind, warm_server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_get_the_lock_while_every_connection_is_killed_again_and_again() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 12;
    let server = TestServer::start().await;
    let managers = [direct(&server).await, direct(&server).await];
    let section = Section::default();
    let running = Arc::new(AtomicUsize::new(TASKS));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let lock = managers[task % 2].lock(NAME).ttl(LONG);
            let (section, running) = (section.clone(), Arc::clone(&running));
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.acquire().await.unwrap();
                    section.work(&guard, ms(2)).await;
                    // Not every release can be confirmed; the others go on in the background.
                    let _ = guard.release().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
            })
        })
        .collect();
    let mut killed = 0;
    while running.load(Ordering::SeqCst) > 0 && tasks.iter().any(|task| !task.is_finished()) {
        killed += server.client_kill_all().await;
        tokio::time::sleep(ms(15)).await;
    }
    for task in tasks {
        in_time("the tasks", task).await.unwrap();
    }
    assert!(killed > 2, "{killed} connections were killed");
    assert_eq!(section.entered(), TASKS * ROUNDS);
    section.assert_exclusive();
    for locks in managers {
        assert_eq!(locks.shutdown(lock_tests::LIMIT).await, 0);
    }
    until_clean(&server).await;
}

/// Proves P15.
#[tokio::test]
async fn a_waiter_whose_connection_breaks_still_gets_the_lock() {
    // With time to come back before the release, and without.
    for at_once in [false, true] {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let locks = behind(&proxy, ms(1000)).await;
        let holder = direct(&server).await;
        let guard = holder.lock(NAME).ttl(LONG).acquire().await.unwrap();
        let lock = locks.lock(NAME).ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        until_queued(&server, 1).await;
        let asks_again = proxy.on_request(crate::support::is_acquire);
        proxy.reset();
        if !at_once {
            asks_again.await;
        }
        guard.release().await.unwrap();
        let next = in_time("the waiter", waiter).await.unwrap().unwrap();
        assert!(next.is_held());
        next.release().await.unwrap();
        until_clean(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_is_never_called_lost_because_a_question_was_still_under_way() {
    // Without messages, and with a question every few hundred microseconds, almost every grant is found by one,
    // and the next release meets its answer.
    let server = TestServer::start().await;
    let locks = lock_core::LockManager::builder()
        .poll_interval(std::time::Duration::from_micros(300))
        .connect(&format!("{}/?protocol=resp2", server.url()))
        .await
        .unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let lock = locks.lock(format!("k{}", task % 4)).ttl(LONG);
            tokio::spawn(async move {
                for _ in 0..100 {
                    let guard = lock.acquire().await.unwrap();
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("the tasks", task).await.unwrap();
    }
    assert_eq!(locks.shutdown(lock_tests::LIMIT).await, 0);
    until_clean(&server).await;
}

/// Proves P15.
#[tokio::test]
async fn answers_that_are_late_together_do_not_cost_the_connection() {
    const CALLERS: usize = 20;
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(1000)).await;
    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let before = proxy.connections();
    proxy.hold_requests();
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let lock = locks.lock(format!("k{n}"));
            tokio::spawn(async move { lock.inspect().await.is_err() })
        })
        .collect();
    for caller in callers {
        let is_late = in_time("an answer", caller).await.unwrap();
        assert!(is_late, "the requests are held");
    }
    proxy.release_held();
    guard.release().await.unwrap();
    assert_eq!(proxy.connections(), before);
}

/// Proves P15.
#[tokio::test]
async fn a_lease_shorter_than_three_round_trips_does_not_cost_the_connection() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    proxy.delay(ms(150));
    let locks = behind(&proxy, ms(3000)).await;
    let kept = locks.lock("long").ttl(LONG).acquire().await.unwrap();
    let before = proxy.connections();
    // Its renewals are given up after a third of the ttl.
    let guard = locks.lock(NAME).ttl(ms(750)).acquire().await.unwrap();
    assert_eq!(in_time("the loss", guard.lost()).await, LossReason::Expired);
    kept.release().await.unwrap();
    assert_eq!(proxy.connections(), before);
}
