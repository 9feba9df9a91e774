//! P10: the token of a hold is larger than that of every hold before it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::FencingToken;
use tokio::task::JoinSet;

use super::kinds::Guard;
use super::rig::{Rig, free, queued};

struct Growing(u64);

impl Growing {
    fn next(&mut self, what: &str, token: FencingToken) {
        assert!(token.get() > self.0, "{what}: {token} after {}", self.0);
        // Numbers that a resource in any language can keep exactly.
        assert!(token.get() < 1 << 53, "{what}: {token}");
        self.0 = token.get();
    }

    fn guard(&mut self, what: &str, guard: Guard) -> Guard {
        self.next(what, guard.fencing_token());
        guard
    }
}

/// Proves P10.
pub(crate) async fn tokens_grow_over_every_way_a_hold_can_end(rig: &Rig) {
    let (first, second) = (rig.lock("a").await, rig.lock("a").await);
    let mut growing = Growing(0);

    let guard = growing.guard("first", first.acquire().await.unwrap());
    guard.release().await.unwrap();
    let guard = growing.guard("after a release", second.acquire().await.unwrap());
    drop(guard);
    let guard = growing.guard("after a drop", first.acquire().await.unwrap());

    let next = queued(&second, 1).await;
    guard.release().await.unwrap();
    let guard = growing.guard("handed over", next.await.unwrap());

    let next = queued(&first, 1).await;
    assert!(second.force_release().await.unwrap());
    let held = growing.guard("after a forced release", next.await.unwrap());
    drop(guard);
    held.release().await.unwrap();

    let dead = rig.hold_and_die("a", Duration::from_secs(1));
    assert!(dead > growing.0);
    growing.0 = dead;
    let guard = growing.guard("after an expiry", second.acquire().await.unwrap());

    let waiting = queued(&first, 1).await;
    waiting.abort();
    guard.release().await.unwrap();
    let guard = first.acquire().await.unwrap();
    growing.next("after a cancelled wait", guard.fencing_token());
    let other = first.clone().try_acquire().await.unwrap();
    assert!(other.is_none());
    assert_eq!(
        guard.fencing_token().get(),
        growing.0,
        "a hold keeps its token"
    );
}

pub(crate) async fn tokens_grow_over_a_long_line_of_waiters(rig: &Rig) {
    let locks = [rig.lock("a").await, rig.lock("a").await];
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for n in 0..24 {
        let (lock, tokens) = (locks[n % 2].clone(), Arc::clone(&tokens));
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            tokens.lock().unwrap().push(guard.fencing_token());
            guard.release().await.unwrap();
        });
    }
    tasks.join_all().await;
    free(&locks[0]).await;
    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), 24);
    // In the order of the holds, as they were noted under the lock.
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}
