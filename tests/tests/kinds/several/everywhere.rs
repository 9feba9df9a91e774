//! What holds on each kind of store.

use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_tests::in_time;

use super::rig::{KEYS, everywhere, held, waiters};

/// Proves P1.
#[tokio::test]
async fn all_or_none_are_taken() {
    everywhere(async |rig| {
        let (other, all) = (rig.manager().await, rig.all().await);
        for busy in KEYS {
            let guard = other.lock(busy).acquire().await.unwrap();
            assert!(all.try_acquire().await.unwrap().is_none());
            for free in KEYS.into_iter().filter(|key| *key != busy) {
                let taken = other.lock(free).try_acquire().await.unwrap();
                taken.expect("nothing is left").release().await.unwrap();
            }
            guard.release().await.unwrap();
        }
        let guard = all.try_acquire().await.unwrap().expect("all are free");
        assert!(guard.is_held() && guard.keys().eq(KEYS));
        for key in KEYS {
            assert!(other.lock(key).try_acquire().await.unwrap().is_none());
            assert!(guard.fencing_token(key).unwrap().get() > 0);
        }
        guard.release().await.unwrap();
        all.acquire().await.unwrap().release().await.unwrap();
        for key in KEYS {
            assert!(other.lock(key).try_acquire().await.unwrap().is_some());
        }
    })
    .await;
}

/// Proves P1.
#[tokio::test]
async fn a_wait_that_ends_names_the_busy_lock_and_leaves_nothing() {
    everywhere(async |rig| {
        let (other, all) = (rig.manager().await, rig.all().await);
        let _held = other.lock("b").acquire().await.unwrap();
        match all.acquire_within(Duration::from_millis(300)).await {
            Err(LockError::TimedOut { key, .. }) => assert_eq!(key, "b"),
            other => panic!("{other:?}"),
        }
        match all.acquire_within(Duration::ZERO).await {
            Err(LockError::Busy { key, .. }) => assert_eq!(key, "b"),
            other => panic!("{other:?}"),
        }
        for free in ["{t}a", "{t}c"] {
            assert!(other.lock(free).try_acquire().await.unwrap().is_some());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_holds_the_earlier_locks_and_ends_with_all_of_them() {
    everywhere(async |rig| {
        let (other, locks) = (rig.manager().await, rig.manager().await);
        let last = other.lock("{t}c").acquire().await.unwrap();
        let waiting = tokio::spawn(locks.all(KEYS).acquire());
        waiters(&other, "{t}c", 1).await;
        held(&other, "b", true).await;
        held(&other, "{t}a", true).await;
        last.release().await.unwrap();
        let guard = in_time("all of them", waiting).await.unwrap().unwrap();
        assert!(guard.is_held());
    })
    .await;
}

/// Proves P11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_name_the_keys_in_any_order_never_deadlock() {
    everywhere(async |rig| {
        let (one, other) = (rig.manager().await, rig.manager().await);
        let task = |locks: LockManager, keys: [&'static str; 3]| {
            tokio::spawn(async move {
                for _ in 0..8 {
                    let guard = locks.all(keys).acquire().await.unwrap();
                    assert!(guard.is_held());
                    guard.release().await.unwrap();
                }
            })
        };
        let [a, b, c] = KEYS;
        let tasks = [
            task(one.clone(), [a, b, c]),
            task(one, [c, b, a]),
            task(other, [b, c, a]),
        ];
        for task in tasks {
            in_time("two callers wait for each other", task)
                .await
                .unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_drop_releases_all_and_an_extension_is_of_all() {
    everywhere(async |rig| {
        let (other, all) = (rig.manager().await, rig.all().await);
        let ttl = Duration::from_secs(60);
        let guard = all.ttl(ttl).acquire().await.unwrap();
        assert!(guard.remaining() <= ttl);
        guard.extend(ttl * 10).await.unwrap();
        assert!(guard.remaining() > ttl * 5);
        drop(guard);
        for key in KEYS {
            held(&other, key, false).await;
        }
    })
    .await;
}

/// Proves P4.
#[tokio::test]
async fn a_lock_that_is_given_back_is_not_kept() {
    everywhere(async |rig| {
        let (other, all) = (rig.manager().await, rig.all().await);
        let last = other.lock("{t}c").acquire().await.unwrap();
        let all = all.at_least(Duration::from_secs(600));
        assert!(all.acquire_within(Duration::from_millis(50)).await.is_err());
        held(&other, "b", false).await;
        assert!(other.lock("b").try_acquire().await.unwrap().is_some());
        last.release().await.unwrap();
        held(&other, "b", false).await;
        let guard = all.acquire().await.unwrap();
        guard.release().await.unwrap();
        for key in KEYS {
            assert!(other.lock(key).try_acquire().await.unwrap().is_none());
        }
    })
    .await;
}

/// Proves P11.
#[tokio::test]
async fn inside_their_scope_each_of_them_is_a_deadlock() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let all = locks.all(["a", "b"]);
    let inside = all.with(async |guard| {
        assert!(guard.is_held());
        for keys in [vec!["a"], vec!["c", "b"]] {
            let refused = locks.all(&keys).acquire().await;
            assert!(
                matches!(refused, Err(LockError::Deadlock { .. })),
                "{refused:?}"
            );
            assert!(locks.all(keys).try_acquire().await.unwrap().is_none());
        }
        assert!(locks.lock("c").try_acquire().await.unwrap().is_some());
    });
    inside.await.unwrap();
    assert!(locks.all(["a", "b"]).try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn what_cannot_be_a_list_of_keys_is_an_error() {
    let locks = LockManager::connect("memory://").await.unwrap();
    for keys in [vec![], vec!["a", ""], vec!["a", "b{"]] {
        let refused = locks.all(&keys).acquire().await;
        assert!(
            matches!(refused, Err(LockError::InvalidKey { .. })),
            "{refused:?}"
        );
        let refused = locks.all(keys).try_acquire().await;
        assert!(
            matches!(refused, Err(LockError::InvalidKey { .. })),
            "{refused:?}"
        );
    }
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
    let twice = locks.all(["b", "a", "b"]).acquire().await.unwrap();
    assert!(twice.keys().eq(["b", "a"]));
}
