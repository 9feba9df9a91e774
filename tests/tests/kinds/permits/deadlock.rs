//! Waits for oneself.

use lock_core::LockError;

use super::rig::everywhere;

/// Proves P11.
#[tokio::test]
async fn a_read_or_a_write_inside_the_own_read_is_a_deadlock() {
    everywhere(async |rig| {
        let lock = rig.rw_lock().await;
        let inside = lock.with_read(async |_| {
            let again = [lock.read().await.map(drop), lock.write().await.map(drop)];
            for refused in again {
                assert!(
                    matches!(refused, Err(LockError::Deadlock { .. })),
                    "{refused:?}"
                );
            }
            // It never waits.
            assert!(lock.try_read().await.unwrap().is_some());
            assert!(lock.try_write().await.unwrap().is_none());
        });
        Box::pin(inside).await.unwrap();
        let inside = lock.with_write(async |_| {
            let refused = lock.read().await;
            assert!(
                matches!(refused, Err(LockError::Deadlock { .. })),
                "{refused:?}"
            );
        });
        Box::pin(inside).await.unwrap();
    })
    .await;
}

/// Proves P11.
#[tokio::test]
async fn permits_beside_the_own_ones_are_a_deadlock_if_too_few_are_left() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(3).await;
        let inside = semaphore.with(async |_| {
            semaphore
                .clone()
                .permits(2)
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
            // Scopes add up.
            let two = semaphore.clone().permits(2);
            let inner = two.with(async |_| semaphore.acquire().await.map(drop));
            let refused = Box::pin(inner).await.unwrap();
            assert!(
                matches!(refused, Err(LockError::Deadlock { .. })),
                "{refused:?}"
            );
            let refused = semaphore.clone().permits(3).acquire().await;
            assert!(
                matches!(refused, Err(LockError::Deadlock { .. })),
                "{refused:?}"
            );
        });
        Box::pin(inside).await.unwrap();
    })
    .await;
}
