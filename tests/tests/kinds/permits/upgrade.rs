//! A writer that becomes a reader, and a reader that becomes the writer.

use std::time::Duration;

use lock_core::{LockError, LockManager, LossReason};
use lock_tests::{LIMIT, Proxy, TestServer, eventually};
use tokio::time::timeout;

use super::rig::{Seen, everywhere, on_servers, queued, waiters};

/// Proves P8, P10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_lets_the_readers_up_to_the_next_writer_in() {
    everywhere(async |rig| {
        let lock = rig.rw_lock().await;
        let writer = lock.write().await.unwrap();
        let reader = queued(&lock, rig.rw_lock().await.read()).await;
        let next = queued(&lock, rig.rw_lock().await.write()).await;
        let late = queued(&lock, rig.rw_lock().await.read()).await;
        let token = writer.fencing_token();
        let own = writer.downgrade().await.unwrap();
        let reader = timeout(LIMIT, reader).await.unwrap().unwrap();
        assert_eq!(
            (own.fencing_token(), reader.fencing_token()),
            (token, token)
        );
        assert!(!next.is_finished() && own.is_held());
        own.release().await.unwrap();
        reader.release().await.unwrap();
        let next = next.await.unwrap();
        assert!(next.fencing_token() > token);
        next.release().await.unwrap();
        late.await.unwrap().release().await.unwrap();
    })
    .await;
}

/// Proves P8, P10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_becomes_the_writer_only_if_it_is_alone() {
    everywhere(async |rig| {
        let (lock, other) = (rig.rw_lock().await, rig.rw_lock().await);
        let (one, two) = (lock.read().await.unwrap(), other.read().await.unwrap());
        let phase = one.fencing_token();
        let (one, why) = one.try_upgrade().await.unwrap_err();
        assert!(one.is_held() && why.is_contention(), "{why}");
        two.release().await.unwrap();
        let waiting = queued(&lock, other.write()).await;
        let (one, why) = one.try_upgrade().await.unwrap_err();
        assert!(why.is_contention(), "{why}");
        waiting.abort();
        waiters(&lock, 0).await;
        let writer = one.try_upgrade().await.unwrap();
        assert!(writer.fencing_token() > phase);
        assert!(other.try_read().await.unwrap().is_none());
        let reader = writer.downgrade().await.unwrap();
        let second = other.read().await.unwrap();
        assert_eq!(second.fencing_token(), reader.fencing_token());
        assert!(reader.try_upgrade().await.is_err());
    })
    .await;
}

/// Proves P7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_waiter_does_not_keep_a_reader_from_the_upgrade() {
    on_servers(async |rig| {
        let lock = rig.rw_lock().await;
        let reader = lock.read().await.unwrap();
        tokio::task::block_in_place(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let dying = rig.rw_lock().await;
                drop(queued(&dying, dying.write()).await);
            });
        });
        // The server may see the end of the connection a little later.
        let mut reader = Some(reader);
        eventually("it is the writer", LIMIT, async || {
            let outcome = reader.take().unwrap().try_upgrade().await;
            reader = outcome.err().map(|(reader, _)| reader);
            reader.is_none()
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_lost_guard_neither_downgrades_nor_upgrades() {
    everywhere(async |rig| {
        let lock = rig.rw_lock().await;
        let writer = lock.write().await.unwrap();
        lock.force_release().await.unwrap();
        assert_eq!(writer.lost().await, LossReason::ForceReleased);
        assert!(writer.downgrade().await.is_err());
        let reader = lock.read().await.unwrap();
        lock.force_release().await.unwrap();
        reader.lost().await;
        let (_, why) = reader.try_upgrade().await.unwrap_err();
        assert!(matches!(why, LockError::Lost { .. }), "{why}");
        assert!(!lock.seen().await.is_held());
    })
    .await;
}

#[tokio::test]
async fn a_downgrade_that_is_not_held_on_the_server_is_a_loss() {
    on_servers(async |rig| {
        let lock = rig.rw_lock().await;
        let writer = lock.write().await.unwrap();
        lock_tests::kit::command::<()>(rig.the_server(), "DEL lock:rw").await;
        let error = writer.downgrade().await.unwrap_err();
        assert!(error.to_string().contains("was lost"), "{error}");
        let reader = lock.read().await.unwrap();
        lock_tests::kit::command::<()>(rig.the_server(), "DEL lock:rw").await;
        let (reader, why) = reader.try_upgrade().await.unwrap_err();
        assert!(matches!(why, LockError::Lost { .. }), "{why}");
        assert!(!reader.is_held());
    })
    .await;
}

/// Proves P11.
#[tokio::test]
async fn an_upgrade_that_is_not_answered_says_so_and_gives_the_reader_back() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let builder = LockManager::builder().command_deadline(Duration::from_millis(100));
    let lock = builder.connect(&proxy.url()).await.unwrap().rw_lock("rw");
    let reader = lock.read().await.unwrap();
    proxy.cut_to_server(true);
    let upgrade = timeout(LIMIT, reader.try_upgrade()).await.unwrap();
    let (reader, why) = upgrade.unwrap_err();
    assert!(matches!(why, LockError::Unavailable { .. }), "{why}");
    assert!(reader.is_held());
    proxy.cut_to_server(false);
    let mut reader = Some(reader);
    eventually("it is the writer", LIMIT, async || {
        let upgrade = reader.take().unwrap().try_upgrade().await;
        reader = upgrade.err().map(|(reader, _)| reader);
        reader.is_none()
    })
    .await;
}

/// The server carries the request out while the lease lasts, and its answer comes when the lease has ended. Proves P11.
#[tokio::test]
async fn an_upgrade_or_a_downgrade_that_is_answered_too_late_is_lost() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = LockManager::builder()
        .command_deadline(LIMIT)
        .connect(&proxy.url())
        .await
        .unwrap();
    let late = Duration::from_millis(600);
    let lock = locks.rw_lock("rw").ttl(Duration::from_secs(1)).renew(false);
    let reader = lock.read().await.unwrap();
    proxy.delay(late);
    let (reader, _) = reader.try_upgrade().await.expect_err("its lease is over");
    assert_eq!(reader.lost().await, LossReason::Expired);
    proxy.delay(Duration::ZERO);
    let writer = lock.write().await.unwrap();
    proxy.delay(late);
    let error = writer.downgrade().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
}
