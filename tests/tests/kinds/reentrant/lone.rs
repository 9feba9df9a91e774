//! A task that lets go and comes back at once, with nobody beside it in its process.

use std::sync::atomic::{AtomicUsize, Ordering};

use lock_core::{LockError, Owner};
use lock_tests::{Proxy, Request, TestServer};

use crate::reentrant::apart::Apart;
use crate::reentrant::support::until_listening;
use crate::reentrant::support::{
    LONG, PATIENT, in_time, is_acquire, manager_at, ms, neighbours, until_clean,
};

/// It takes the lock again sooner than a waiter farther away can ask for it. Proves P8.
#[tokio::test]
async fn a_lone_task_that_comes_back_at_once_gives_way_to_another_process() {
    for owned in [true, false] {
        let server = TestServer::start().await;
        let near = manager_at(&server.url(), PATIENT).await;
        let proxy = Proxy::start(&server);
        let far = manager_at(&proxy.url(), PATIENT).await;
        let lock = near.lock_apart("order").ttl(LONG);
        let lock = if owned {
            lock.owner(&Owner::new())
        } else {
            lock
        };
        let mut guard = lock.acquire().await.unwrap();
        let other = far.lock_apart("order").ttl(LONG);
        let waiting = tokio::spawn(async move { other.acquire().await.map(drop) });
        until_listening(&server, "order", 1).await;
        let mut cycles = 0;
        while !waiting.is_finished() {
            tokio::time::sleep(ms(10)).await;
            guard.release().await.unwrap();
            guard = lock.acquire().await.unwrap();
            cycles += 1;
            assert!(cycles < 100, "owned: {owned}");
        }
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap();
        until_clean(&server).await;
    }
}

/// It tries beside the line first, since its owner may have the lock: that answer says that the server is there.
#[tokio::test]
async fn an_owner_whose_time_ends_while_it_asks_again_is_timed_out() {
    let (_server, java, proxy, locks) = neighbours().await;
    assert_eq!(java.try_lock("order", LONG).await, None);
    let lock = locks.lock_apart("order").owner(&Owner::new());
    let tries = AtomicUsize::new(0);
    let again =
        move |request: &Request| is_acquire(request) && tries.fetch_add(1, Ordering::SeqCst) == 1;
    let asking = proxy.hold_next_request_matching(again);
    let waiting = tokio::spawn(async move { lock.acquire_within(ms(1000)).await });
    in_time("the second try", asking.wait()).await;
    let outcome = in_time("the end", waiting).await.unwrap();
    assert!(
        matches!(outcome, Err(LockError::TimedOut { .. })),
        "{outcome:?}"
    );
    asking.deliver();
}
