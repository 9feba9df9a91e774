//! Another number of permits.

use lock_core::LockError;
use lock_tests::LIMIT;
use tokio::time::timeout;

use super::rig::{everywhere, queued, used};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_permits_serve_the_waiters_at_once() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(1).await;
        let _one = semaphore.acquire().await.unwrap();
        let next = queued(&semaphore, rig.semaphore(1).await.acquire()).await;
        semaphore.resize(2).await.unwrap();
        let _two = timeout(LIMIT, next).await.unwrap().unwrap();
        used(&semaphore, 2).await;
        // Twice is once.
        semaphore.resize(2).await.unwrap();
    })
    .await;
}

/// Proves P1.
#[tokio::test]
async fn fewer_permits_leave_the_holders_alone() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(4).await;
        let (three, one) = (
            semaphore.clone().permits(3).acquire().await.unwrap(),
            semaphore.acquire().await.unwrap(),
        );
        semaphore.resize(2).await.unwrap();
        let semaphore = rig.semaphore(2).await;
        assert!(three.is_held());
        one.release().await.unwrap();
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        three.release().await.unwrap();
        let both = semaphore.clone().permits(2).acquire().await.unwrap();
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        both.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_max_before_the_last_resize_is_served_also_while_idle() {
    everywhere(async |rig| {
        let old = rig.semaphore(2).await;
        let permit = old.acquire().await.unwrap();
        old.resize(3).await.unwrap();
        permit.release().await.unwrap();
        let new = rig.semaphore(3).await;
        let all = new.clone().permits(3).acquire().await.unwrap();
        assert!(old.try_acquire().await.unwrap().is_none());
        all.release().await.unwrap();
        let other = rig.semaphore(7).await;
        assert!(matches!(
            other.acquire().await,
            Err(LockError::OtherMax { in_use: 3, .. })
        ));
        assert!(matches!(
            other.resize(9).await,
            Err(LockError::OtherMax { in_use: 3, .. })
        ));
        new.resize(4).await.unwrap();
        assert!(matches!(
            old.acquire().await,
            Err(LockError::OtherMax { in_use: 4, .. })
        ));
    })
    .await;
}

/// Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_asks_for_too_many_after_a_resize_is_told() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(4).await;
        let held = semaphore.clone().permits(4).acquire().await.unwrap();
        let other = rig.semaphore(4).await;
        let waiting = tokio::spawn(async move { other.clone().permits(3).acquire().await });
        super::rig::waiters(&semaphore, 1).await;
        let behind = queued(&semaphore, rig.semaphore(4).await.acquire()).await;
        semaphore.resize(2).await.unwrap();
        held.release().await.unwrap();
        let refused = timeout(LIMIT, waiting).await.unwrap().unwrap();
        assert!(
            matches!(
                refused,
                Err(LockError::TooManyPermits {
                    permits: 3,
                    max: 2,
                    ..
                })
            ),
            "{refused:?}"
        );
        assert!(timeout(LIMIT, behind).await.unwrap().unwrap().is_held());
    })
    .await;
}

/// Proves P4.
#[tokio::test]
async fn a_resize_never_creates() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(2).await;
        let refused = semaphore.resize(3).await;
        let Err(LockError::InvalidConfig { reason }) = &refused else {
            panic!("{refused:?}")
        };
        assert!(reason.contains("no permit of semaphore `s` is held"));
        for (from, to) in [(0, 1), (1, 0)] {
            let refused = rig.semaphore(from).await.resize(to).await;
            assert!(
                matches!(&refused, Err(LockError::InvalidConfig { reason }) if reason.contains("2^30")),
                "{refused:?}"
            );
        }
        let other = rig.manager().await.lock("s");
        let free = other.try_acquire().await.unwrap().expect("free");
        free.release().await.unwrap();
        // Nothing is left of one that was used.
        let permit = rig.semaphore(4).await.acquire().await.unwrap();
        permit.release().await.unwrap();
        assert!(semaphore.resize(4).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_resize_from_the_number_before_is_refused() {
    everywhere(async |rig| {
        let old = rig.semaphore(8).await;
        let _held = old.acquire().await.unwrap();
        old.resize(12).await.unwrap();
        old.resize(12).await.unwrap();
        let stale = old.resize(6).await;
        assert!(
            matches!(
                stale,
                Err(LockError::OtherMax {
                    max: 8,
                    in_use: 12,
                    ..
                })
            ),
            "{stale:?}"
        );
        // Both programs of the roll-out are served on.
        assert!(old.try_acquire().await.unwrap().is_some());
        let new = rig.semaphore(12).await;
        assert!(new.try_acquire().await.unwrap().is_some());
        new.resize(8).await.unwrap();
        assert!(old.try_acquire().await.unwrap().is_some());
    })
    .await;
}

/// Proves P1.
#[tokio::test]
async fn the_same_resize_mends_a_roll_out_whose_server_lost_its_data() {
    everywhere(async |rig| {
        let (old, new) = (rig.semaphore(8).await, rig.semaphore(12).await);
        // After the loss, a program of the new version comes first.
        let _held = new.acquire().await.unwrap();
        assert!(matches!(
            old.try_acquire().await,
            Err(LockError::OtherMax { in_use: 12, .. })
        ));
        old.resize(12).await.unwrap();
        assert!(old.try_acquire().await.unwrap().is_some());
        assert!(new.try_acquire().await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn a_manager_that_was_shut_down_resizes_nothing() {
    everywhere(async |rig| {
        let holder = rig.semaphore(1).await;
        let _held = holder.acquire().await.unwrap();
        let locks = rig.manager().await;
        locks.shutdown(LIMIT).await;
        let refused = locks.semaphore("s", 1).resize(2).await;
        assert!(matches!(refused, Err(LockError::ShutDown)), "{refused:?}");
        assert_eq!(holder.inspect().await.unwrap().permits(), Some((1, 1)));
    })
    .await;
}
