//! A request that is under way when its manager is shut down.

use std::pin::pin;

use lock_core::{Lock, LockError, LockGuard};
use lock_tests::{LIMIT, Proxy};

use crate::support::{
    LONG, NAME, behind, direct, in_time, is_acquire, now_or_never, until_clean, warm_server,
};

/// A try whose request is held until the shutdown has begun, and what becomes of it.
async fn a_try_at_shutdown(is_held: bool, breaks: bool) -> Result<Option<LockGuard>, LockError> {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let holder = direct(&server).await.lock(NAME).ttl(LONG);
    let guard = if is_held {
        Some(holder.acquire().await.unwrap())
    } else {
        None
    };
    let lock: Lock = locks.lock(NAME).ttl(LONG);
    let held = proxy.hold_next_request_matching(is_acquire);
    let trying = tokio::spawn(async move { lock.try_acquire().await });
    held.wait().await;
    let mut shutting_down = pin!(locks.shutdown(LIMIT));
    assert!(now_or_never(&mut shutting_down).await.is_none());
    if breaks {
        proxy.refuse(true);
        proxy.reset();
    }
    held.deliver();
    let tried = in_time("the try", trying).await.unwrap();
    proxy.refuse(false);
    assert_eq!(shutting_down.await, 0);
    drop(guard);
    until_clean(&server).await;
    tried
}

#[tokio::test]
async fn a_try_that_is_under_way_at_shutdown_says_so_whatever_its_answer() {
    for (is_held, breaks) in [(false, false), (true, false), (true, true)] {
        let tried = a_try_at_shutdown(is_held, breaks).await;
        assert!(
            matches!(tried, Err(LockError::ShutDown)),
            "held {is_held}, broken {breaks}: {tried:?}"
        );
    }
}
