//! P14: a waiter that does not run holds nothing for long, and keeps nobody else waiting.

use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use lock_core::{Lock, LockError, LockGuard, LockManager};
use lock_tests::TestServer;
use tokio::task::JoinHandle;

use crate::line::support::{
    LONG, NAME, direct, in_time, ms, until_clean, until_waiting, warm_server,
};

/// Short, since the tests wait for leases to end.
const TTL: Duration = ms(600);

type Waiting = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// A caller that stands in line and does not run until the test polls it again.
async fn not_running(lock: &Lock, before: u64) -> Waiting {
    let theirs = lock.clone();
    let mut waiting: Waiting = Box::pin(async move { theirs.acquire().await });
    until_polled(&mut waiting, lock, before + 1).await;
    waiting
}

/// Polls until the server or the line counts it, and once more: by then it has seen the answer, which came before that of
/// `inspect` on the same connection.
async fn until_polled(waiting: &mut Waiting, lock: &Lock, waiters: u64) {
    let mut counted = false;
    in_time("the caller waits", async {
        loop {
            let pending = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await;
            assert!(pending.is_pending());
            if counted {
                return;
            }
            counted = lock.inspect().await.unwrap().waiters() == waiters;
        }
    })
    .await;
}

/// A manager whose requests have the usual deadline.
async fn direct_within_a_second(server: &TestServer) -> LockManager {
    LockManager::connect(&server.url()).await.unwrap()
}

fn spawned(lock: &Lock) -> JoinHandle<Result<LockGuard, LockError>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await })
}

async fn taken(waiter: JoinHandle<Result<LockGuard, LockError>>) -> LockGuard {
    in_time("the lock", waiter).await.unwrap().unwrap()
}

/// Proves P14.
#[tokio::test]
async fn a_grant_that_is_not_taken_goes_to_the_next_process() {
    let server = warm_server().await;
    let (holding, asleep, awake) = tokio::join!(direct(&server), direct(&server), direct(&server));
    let of = |locks: &lock_core::LockManager| locks.lock(NAME).ttl(TTL);
    let held = of(&holding).acquire().await.unwrap();
    let sleeper = not_running(&of(&asleep), 0).await;
    let waiter = spawned(&of(&awake));
    until_waiting(&of(&awake), 2).await;
    held.release().await.unwrap();
    taken(waiter).await.release().await.unwrap();
    // It has lost its turn, and not its claim.
    let taken = in_time("the lock", sleeper).await.unwrap();
    taken.release().await.unwrap();
    until_clean(&server).await;
}

/// Proves P14.
#[tokio::test]
async fn a_lock_handed_to_a_caller_that_does_not_run_goes_on_in_its_process() {
    let server = warm_server().await;
    let lock = direct(&server).await.lock(NAME).ttl(TTL);
    // The first has a turn's fencing tokens to hand on with.
    let held = lock.acquire().await.unwrap();
    let first = spawned(&lock);
    until_waiting(&lock, 1).await;
    let sleeper = not_running(&lock, 1).await;
    let waiter = spawned(&lock);
    until_waiting(&lock, 3).await;
    held.release().await.unwrap();
    taken(first).await.release().await.unwrap();
    taken(waiter).await.release().await.unwrap();
    let taken = in_time("the lock", sleeper).await.unwrap();
    taken.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_lock_handed_to_a_caller_that_does_not_run_goes_on_to_another_process() {
    let server = warm_server().await;
    let (here, there) = tokio::join!(direct(&server), direct(&server));
    let lock = here.lock(NAME).ttl(TTL);
    let held = lock.acquire().await.unwrap();
    let first = spawned(&lock);
    until_waiting(&lock, 1).await;
    let sleeper = not_running(&lock, 1).await;
    held.release().await.unwrap();
    taken(first).await.release().await.unwrap();
    let waiter = spawned(&there.lock(NAME).ttl(TTL));
    taken(waiter).await.release().await.unwrap();
    drop(sleeper);
    until_clean(&server).await;
}

/// Proves P14.
#[tokio::test]
async fn a_first_in_line_that_does_not_run_is_passed_over() {
    let server = warm_server().await;
    let (holding, waiting) = tokio::join!(direct(&server), direct(&server));
    let held = holding.lock(NAME).ttl(TTL).acquire().await.unwrap();
    let lock = waiting.lock(NAME).ttl(TTL);
    let leaving = spawned(&lock);
    until_waiting(&lock, 1).await;
    let sleeper = not_running(&lock, 1).await;
    let waiter = spawned(&lock);
    until_waiting(&lock, 3).await;
    // The sleeper is the first from here on, and nothing makes it run.
    leaving.abort();
    held.release().await.unwrap();
    taken(waiter).await.release().await.unwrap();
    let taken = in_time("the lock", sleeper).await.unwrap();
    taken.release().await.unwrap();
    until_clean(&server).await;
}

/// Proves P14.
#[tokio::test]
async fn a_release_whose_caller_does_not_run_is_taken_over() {
    // A server that does not know the script: the first request of the release comes to nothing.
    let server = TestServer::start().await;
    let (here, there) = tokio::join!(direct_within_a_second(&server), direct(&server));
    let ttl = ms(30_000);
    let held = here.lock(NAME).ttl(ttl).acquire().await.unwrap();
    let before = Instant::now();
    let mut release: Pin<Box<dyn Future<Output = Result<(), LockError>>>> =
        Box::pin(held.release());
    let pending = std::future::poll_fn(|cx| Poll::Ready(release.as_mut().poll(cx))).await;
    assert!(pending.is_pending());
    let next = taken(spawned(&there.lock(NAME).ttl(ttl))).await;
    assert!(before.elapsed() < ttl * 3 / 4, "it was left to its ttl");
    in_time("the release", release).await.unwrap();
    next.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_release_whose_caller_does_not_run_does_not_delay_its_process() {
    let server = TestServer::start().await;
    let lock = direct_within_a_second(&server).await.lock(NAME).ttl(LONG);
    let held = lock.acquire().await.unwrap();
    let waiter = spawned(&lock);
    until_waiting(&lock, 1).await;
    // Where nothing can be handed on inside the process, the release asks for the waiter.
    let mut release: Pin<Box<dyn Future<Output = Result<(), LockError>>>> =
        Box::pin(held.release());
    let pending = std::future::poll_fn(|cx| Poll::Ready(release.as_mut().poll(cx))).await;
    assert!(pending.is_pending());
    taken(waiter).await.release().await.unwrap();
    in_time("the release", release).await.unwrap();
    until_clean(&server).await;
}
