//! Replies that are lost after the server has done what was asked: every hold is counted once, and taken back once.

use std::collections::BTreeMap;

use lock_core::{LockError, LockGuard, Owner};
use lock_tests::{DropMode, LIMIT, Proxy, eventually};

use crate::reentrant::apart::{Apart, ApartLock};
use crate::reentrant::support::{
    LONG, hash, in_time, is_acquire, is_release, manager, manager_at, ms, until_clean, warm_server,
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Try,
    Within,
    Forever,
}

impl Way {
    async fn acquire(self, lock: &ApartLock) -> Result<LockGuard, LockError> {
        match self {
            Self::Try => Ok(lock.try_acquire().await?.expect("nobody else has it")),
            Self::Within => lock.acquire_within(LIMIT).await,
            Self::Forever => lock.acquire().await,
        }
    }
}

fn counted(owner: &Owner, count: i64) -> BTreeMap<String, i64> {
    BTreeMap::from([(owner.to_string(), count)])
}

/// Proves P6.
#[tokio::test]
async fn an_acquire_whose_reply_was_lost_counts_once() {
    for (way, mode) in [
        (Way::Try, DropMode::Close),
        (Way::Within, DropMode::Close),
        (Way::Forever, DropMode::Close),
        (Way::Within, DropMode::Silent),
        (Way::Forever, DropMode::Silent),
    ] {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let locks = manager_at(&proxy.url(), ms(500)).await;
        let me = Owner::new();
        let lock = locks.lock_apart("order").owner(&me).ttl(LONG);
        let mut guards: Vec<LockGuard> = Vec::new();
        for count in 1..=3 {
            let lost = proxy.drop_next_reply_matching(is_acquire, mode);
            let guard = in_time("the lock", way.acquire(&lock)).await;
            let guard = guard.unwrap_or_else(|error| panic!("{way:?} {mode:?}: {error}"));
            lost.wait().await;
            assert_eq!(i64::from(guard.hold_count()), count, "{way:?} {mode:?}");
            assert_eq!(hash(&server, "order").await, counted(&me, count));
            assert!(guards.iter().all(|guard| guard.is_held()));
            guards.push(guard);
        }
        let tokens: Vec<_> = guards.iter().map(|guard| guard.fencing_token()).collect();
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
        for guard in guards {
            assert!(server.exists("order").await);
            guard.release().await.unwrap();
        }
        assert!(!server.exists("order").await);
        until_clean(&server).await;
        assert_eq!(locks.shutdown(LIMIT).await, 0);
    }
}

/// Proves P6.
#[tokio::test]
async fn a_release_whose_reply_was_lost_takes_one_hold_back() {
    for mode in [DropMode::Close, DropMode::Silent] {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let locks = manager_at(&proxy.url(), ms(500)).await;
        let me = Owner::new();
        let lock = locks.lock_apart("order").owner(&me).ttl(LONG);
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(lock.acquire().await.unwrap());
        }
        for left in (0..3).rev() {
            let lost = proxy.drop_next_reply_matching(is_release, mode);
            let before = proxy.count(is_release);
            let released = in_time("the release", guards.pop().unwrap().release()).await;
            released.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
            lost.wait().await;
            assert!(proxy.count(is_release) > before + 1, "it was repeated");
            if left > 0 {
                assert_eq!(hash(&server, "order").await, counted(&me, left));
                assert!(guards.iter().all(|guard| guard.is_held()));
            }
        }
        assert!(!server.exists("order").await);
        until_clean(&server).await;
        assert_eq!(locks.shutdown(LIMIT).await, 0);
    }
}

#[tokio::test]
async fn a_release_that_is_repeated_leaves_the_next_owner_alone() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), ms(500)).await;
    let guard = locks.lock_apart("order").acquire().await.unwrap();
    let lost = proxy.drop_next_reply_matching(is_release, DropMode::Close);
    let repeated = proxy.hold_next_request_matching({
        let mut seen = 0;
        move |request| {
            seen += usize::from(is_release(request));
            seen == 2
        }
    });
    let releasing = tokio::spawn(guard.release());
    lost.wait().await;
    repeated.wait().await;
    let next = manager(&server).await.lock_apart("order");
    let next = next.try_acquire().await.unwrap().expect("it is free");
    repeated.deliver();
    in_time("the release", releasing).await.unwrap().unwrap();
    assert!(next.is_held());
    assert_eq!(hash(&server, "order").await.len(), 1);
    next.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_try_without_any_answer_leaves_the_count_as_it_was() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), ms(500)).await;
    let me = Owner::new();
    let lock = locks.lock_apart("order").owner(&me).ttl(LONG);
    let outer = lock.acquire().await.unwrap();
    let lost = [
        proxy.drop_next_reply_matching(is_acquire, DropMode::Silent),
        proxy.drop_next_reply_matching(is_acquire, DropMode::Silent),
    ];
    let tried = in_time("the try", lock.try_acquire()).await;
    match tried {
        Err(LockError::Unavailable { .. }) => {
            for lost in lost {
                lost.wait().await;
            }
        }
        Ok(Some(inner)) => inner.release().await.unwrap(),
        other => panic!("{other:?}"),
    }
    eventually("one hold is counted", LIMIT, async || {
        hash(&server, "order").await == counted(&me, 1)
    })
    .await;
    assert!(outer.is_held());
    outer.release().await.unwrap();
    until_clean(&server).await;
}

#[tokio::test]
async fn a_nested_acquire_that_is_cancelled_on_its_way_is_not_counted() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), LIMIT).await;
    let me = Owner::new();
    let lock = locks.lock_apart("order").owner(&me).ttl(LONG);
    let outer = lock.acquire().await.unwrap();
    for _ in 0..5 {
        let on_its_way = proxy.hold_next_request_matching(is_acquire);
        let acquiring = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.map(drop) }
        });
        on_its_way.wait().await;
        let before = proxy.count(is_release);
        acquiring.abort();
        let _ = acquiring.await;
        on_its_way.deliver();
        proxy.on_count(before + 1, is_release).await;
        eventually("one hold is counted", LIMIT, async || {
            hash(&server, "order").await == counted(&me, 1)
        })
        .await;
        assert!(outer.is_held());
        assert_eq!(outer.hold_count(), 1);
    }
    outer.release().await.unwrap();
    until_clean(&server).await;
    assert_eq!(locks.shutdown(LIMIT).await, 0);
}
