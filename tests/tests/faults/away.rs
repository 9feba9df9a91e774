//! A limit for a server that is away, apart from the limit of the wait (P8).
//!
//! Each call may wait for [`LONG`], and a request may take as long: only `unavailable_after` ends it in time.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use lock_core::{LockError, LockManager, Owner, distributed_lock};
use lock_tests::{LIMIT, TestServer, eventually};

use crate::support::{LONG, NAME, assert_unavailable, in_time, ms, until_waiting};

const AFTER: Duration = ms(300);

async fn impatient(server: &TestServer, after: Duration) -> LockManager {
    impatient_with(server, after, LONG).await
}

async fn impatient_with(server: &TestServer, after: Duration, deadline: Duration) -> LockManager {
    let builder = LockManager::builder()
        .command_deadline(deadline)
        .default_wait(LONG)
        .unavailable_after(after);
    builder.connect(&server.url()).await.unwrap()
}

#[distributed_lock(key = "attribute", wait = "2m", client = locks)]
async fn annotated(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

type Call<'a> = BoxFuture<'a, Result<(), LockError>>;

/// A call of each kind of lock, and of each way to ask.
fn calls(locks: &LockManager) -> Vec<(&'static str, Call<'_>)> {
    fn call<'a, T: 'a>(work: impl Future<Output = Result<T, LockError>> + Send + 'a) -> Call<'a> {
        work.map(|outcome| outcome.map(drop)).boxed()
    }
    let lock = locks.lock(NAME);
    let tried = locks.lock("tried");
    let scope = locks.lock("scope");
    vec![
        ("acquire", call(lock.acquire())),
        ("acquire_within", call(lock.acquire_within(LONG))),
        ("try", call(tried.try_acquire())),
        ("with", call(async move { scope.with(async |_| ()).await })),
        ("attribute", call(annotated(locks))),
        (
            "reentrant",
            call(locks.reentrant_lock("r").owner(&Owner::new()).acquire()),
        ),
        ("semaphore", call(locks.semaphore("s", 2).acquire())),
        ("read", call(locks.rw_lock("rw").read())),
        ("write", call(locks.rw_lock("w").write_within(LONG))),
        ("several", call(locks.all(["a", "b"]).acquire())),
        ("segmented", {
            let segments = locks.segmented_lock("segmented", 3);
            call(async move { segments.acquire_within(LONG).await })
        }),
    ]
}

async fn all_give_up(locks: &LockManager) {
    let calls = calls(locks).into_iter().map(async |(name, call)| {
        assert_unavailable(in_time(name, call).await, "127.0.0.1");
    });
    in_time("all", join_all(calls)).await;
}

/// Proves P11.
#[tokio::test]
async fn no_call_waits_for_its_limit_if_the_connection_is_refused() {
    let server = TestServer::start().await;
    let locks = impatient(&server, AFTER).await;
    server.kill();
    all_give_up(&locks).await;
    assert_unavailable(locks.lock(NAME).acquire().await, "refused");
}

/// Proves P11.
#[tokio::test]
async fn no_call_waits_for_its_limit_if_the_server_hangs() {
    let server = TestServer::start().await;
    let locks = impatient(&server, AFTER).await;
    server.stop();
    all_give_up(&locks).await;
    server.cont();
    let lock = locks.lock(NAME);
    drop(in_time("again", lock.acquire()).await.unwrap());
}

/// Proves P11.
#[tokio::test]
async fn waiters_of_one_lock_share_the_time_without_an_answer() {
    let server = TestServer::start().await;
    let locks = impatient(&server, ms(3000)).await;
    server.stop();
    let lock = locks.lock(NAME);
    // One after the other they would take two minutes.
    let waiters = (0..40).map(|_| lock.acquire());
    for outcome in in_time("all of them", join_all(waiters)).await {
        assert_unavailable(outcome, "127.0.0.1");
    }
}

/// Proves P11.
#[tokio::test]
async fn a_waiter_in_the_queue_gives_up_when_its_server_hangs() {
    let server = TestServer::start().await;
    let holder = LockManager::connect(&server.url()).await.unwrap();
    // The requests that keep its place are not its own: they end with the deadline.
    let locks = impatient_with(&server, AFTER, ms(1000)).await;
    let _held = holder.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let _permit = holder.semaphore("s", 1).ttl(LONG).acquire().await.unwrap();
    let (lock, semaphore) = (locks.lock(NAME), locks.semaphore("s", 1));
    let waiting = [
        tokio::spawn(lock.acquire()),
        tokio::spawn(lock.acquire()),
        tokio::spawn(semaphore.acquire()),
    ];
    until_waiting(&lock, 2).await;
    eventually("a waiter for a permit", LIMIT, async || {
        semaphore.inspect().await.unwrap().waiters() == 1
    })
    .await;
    server.stop();
    for waiter in waiting {
        let outcome = in_time("to give up", waiter).await.unwrap();
        assert_unavailable(outcome, "127.0.0.1");
    }
}

/// Proves P11.
#[tokio::test]
async fn a_lock_that_others_hold_is_waited_for_to_the_limit() {
    let server = TestServer::start().await;
    let holder = LockManager::connect(&server.url()).await.unwrap();
    let held = holder.lock(NAME).acquire().await.unwrap();
    let locks = LockManager::builder().unavailable_after(ms(200));
    let locks = locks.connect(&server.url()).await.unwrap();
    let lock = locks.lock(NAME);
    let late = lock.acquire_within(ms(700)).await;
    assert!(matches!(late, Err(LockError::TimedOut { .. })), "{late:?}");
    let waiting = tokio::spawn(lock.acquire_within(LONG));
    until_waiting(&lock, 1).await;
    tokio::time::sleep(ms(500)).await;
    held.release().await.unwrap();
    drop(in_time("its turn", waiting).await.unwrap().unwrap());
}

/// Proves P11.
#[tokio::test]
async fn an_outage_that_is_shorter_costs_no_call() {
    let server = TestServer::start().await;
    let locks = impatient(&server, LIMIT).await;
    server.kill();
    let waiting = tokio::spawn(locks.lock(NAME).acquire());
    tokio::time::sleep(ms(500)).await;
    server.restart().await;
    drop(in_time("the lock", waiting).await.unwrap().unwrap());
}

/// Proves P11.
#[tokio::test]
async fn a_handle_and_a_function_may_have_a_limit_of_their_own() {
    #[distributed_lock(key = "own", unavailable_after = "300ms", client = locks)]
    async fn own(locks: &LockManager) -> Result<(), LockError> {
        Ok(())
    }
    let server = TestServer::start().await;
    let locks = impatient(&server, LONG).await;
    server.kill();
    let lock = locks.lock(NAME).unavailable_after(AFTER);
    let outcome = in_time("the handle", lock.acquire()).await;
    assert_unavailable(outcome, "127.0.0.1");
    let outcome = in_time("the function", own(&locks)).await;
    assert_unavailable(outcome, "127.0.0.1");
    let zero = locks.lock(NAME).unavailable_after(Duration::ZERO);
    let refused = zero.acquire().await;
    assert!(matches!(refused, Err(LockError::InvalidConfig { .. })));
}

/// Proves P11.
#[tokio::test]
async fn a_candidate_waits_through_an_outage() {
    let server = TestServer::start().await;
    let locks = impatient(&server, AFTER).await;
    server.kill();
    let election = locks.election("e");
    let campaign = tokio::spawn(async move { election.campaign("a").await });
    tokio::time::sleep(ms(900)).await;
    server.restart().await;
    drop(in_time("the term", campaign).await.unwrap().unwrap());
}
