//! What cannot be used.

use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_tests::TestServer;

use super::rig::{everywhere, on_servers, queued};

#[tokio::test]
async fn another_max_is_an_error_that_names_both() {
    everywhere(async |rig| {
        let _held = rig.semaphore(4).await.acquire().await.unwrap();
        match rig.semaphore(5).await.acquire().await {
            Err(
                error @ LockError::OtherMax {
                    max: 5, in_use: 4, ..
                },
            ) => {
                let shown = error.to_string();
                assert!(
                    shown.contains("has 4 permits") && shown.contains("names 5"),
                    "{shown}"
                );
            }
            other => panic!("{other:?}"),
        }
        assert!(rig.semaphore(5).await.try_acquire().await.is_err());
    })
    .await;
}

#[tokio::test]
async fn the_max_of_an_idle_semaphore_is_that_of_the_next_holder() {
    everywhere(async |rig| {
        rig.semaphore(4)
            .await
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        rig.semaphore(5)
            .await
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        // What has expired does not count either.
        let short = rig
            .semaphore(2)
            .await
            .ttl(Duration::from_millis(30))
            .renew(false);
        let guard = short.acquire().await.unwrap();
        guard.lost().await;
        let six = rig
            .semaphore(6)
            .await
            .acquire_within(Duration::from_secs(5))
            .await;
        assert!(
            matches!(six, Ok(_) | Err(LockError::OtherMax { .. })),
            "{six:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn more_permits_than_there_are_is_an_error() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(2).await;
        let error = semaphore.permits(3).acquire().await.unwrap_err();
        let too_many = LockError::TooManyPermits {
            key: "s".to_owned(),
            permits: 3,
            max: 2,
        };
        assert_eq!(error.to_string(), too_many.to_string());
        for (permits, max) in [(0, 2), (1, 0), (1, u32::MAX)] {
            let wrong = rig.semaphore(max).await.permits(permits).acquire().await;
            assert!(
                matches!(wrong, Err(LockError::InvalidConfig { .. })),
                "{wrong:?}"
            );
        }
    })
    .await;
}

/// Proves P1.
#[tokio::test]
async fn a_name_is_that_of_one_kind_of_lock() {
    everywhere(async |rig| {
        let locks = rig.manager().await;
        let held = locks.semaphore("a", 2).acquire().await.unwrap();
        for refused in [
            locks.lock("a").acquire().await.map(drop),
            locks.rw_lock("a").read().await.map(drop),
            locks.rw_lock("a").try_write().await.map(drop),
            locks.rw_lock("a").force_release().await.map(drop),
        ] {
            assert!(
                matches!(refused, Err(LockError::NotALock { .. })),
                "{refused:?}"
            );
        }
        assert!(
            locks
                .rw_lock("a")
                .inspect()
                .await
                .unwrap()
                .foreign()
                .is_some()
        );
        held.release().await.unwrap();
        let held = locks.rw_lock("a").read().await.unwrap();
        let refused = locks.semaphore("a", 2).acquire().await;
        assert!(
            matches!(refused, Err(LockError::NotALock { .. })),
            "{refused:?}"
        );
        held.release().await.unwrap();
        let held = locks.lock("a").acquire().await.unwrap();
        let refused = locks.semaphore("a", 2).acquire().await;
        assert!(
            matches!(refused, Err(LockError::NotALock { .. })),
            "{refused:?}"
        );
        held.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_key_of_the_user_is_left_alone() {
    on_servers(async |rig| {
        use lock_tests::kit::command;
        let locks = LockManager::builder()
            .prefix("")
            .connect(&rig.the_server().url())
            .await
            .unwrap();
        command::<()>(rig.the_server(), "HSET mine field value lock none").await;
        command::<()>(rig.the_server(), "SET text value").await;
        for key in ["mine", "text"] {
            let semaphore = locks.semaphore(key, 2);
            let refused = semaphore.acquire().await;
            assert!(
                matches!(refused, Err(LockError::NotALock { .. })),
                "{refused:?}"
            );
            assert!(semaphore.force_release().await.is_err());
            assert!(semaphore.resize(3).await.is_err());
        }
        let left: Vec<String> = command(rig.the_server(), "HGETALL mine").await;
        assert_eq!(left, ["field", "value", "lock", "none"]);
        let ttl: i64 = command(rig.the_server(), "PTTL mine").await;
        assert_eq!(ttl, -1);
    })
    .await;
}

/// Proves P1.
#[tokio::test]
async fn a_quorum_refuses_with_a_sentence() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(TestServer::start().await);
    }
    let urls = || nodes.iter().map(TestServer::url);
    let builder = || LockManager::builder().quorum_wait(Duration::from_secs(3600));
    builder().begin_quorum(urls()).await.unwrap();
    let locks = builder().connect_quorum(urls()).await.unwrap();
    let refused = [
        locks.semaphore("a", 2).acquire().await.map(drop),
        locks.rw_lock("a").try_read().await.map(drop),
        locks.semaphore("a", 2).resize(3).await.map(drop),
        locks.rw_lock("a").inspect().await.map(drop),
    ];
    for refused in refused {
        match refused {
            Err(LockError::InvalidConfig { reason }) => {
                assert!(reason.contains("not over a quorum"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Proves P16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_names_a_holder() {
    everywhere(async |rig| {
        let _held = rig
            .named("orders-7")
            .await
            .semaphore("s", 1)
            .acquire()
            .await
            .unwrap();
        let semaphore = rig.semaphore(1).await;
        for limit in [Duration::ZERO, Duration::from_millis(50)] {
            match semaphore.acquire_within(limit).await {
                Err(LockError::Busy { holder, .. } | LockError::TimedOut { holder, .. }) => {
                    assert_eq!(holder.as_deref(), Some("orders-7"));
                }
                other => panic!("{other:?}"),
            }
        }
        super::rig::waiters(&semaphore, 0).await;
        let waiting = queued(&semaphore, semaphore.acquire()).await;
        waiting.abort();
    })
    .await;
}
