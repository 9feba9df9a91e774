//! The sum of what is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_core::LockManager;
use tokio::task::JoinSet;

use super::rig::{Seen, everywhere, on_servers, used};
use crate::rig::Rig;

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_as_fit_hold_permits_and_no_more() {
    everywhere(async |rig| {
        let (one, other) = (rig.semaphore(3).await, rig.semaphore(3).await);
        let two = one.clone().permits(2).acquire().await.unwrap();
        assert!(
            other
                .clone()
                .permits(2)
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
        let last = other.acquire().await.unwrap();
        assert!(one.try_acquire().await.unwrap().is_none());
        let info = one.seen().await;
        assert_eq!((info.permits(), info.holds()), (Some((3, 3)), 2));
        two.release().await.unwrap();
        assert!(
            one.clone()
                .permits(3)
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
        let again = one.clone().permits(2).try_acquire().await.unwrap();
        assert!(again.is_some() && last.is_held());
    })
    .await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_and_a_writer_is_alone() {
    everywhere(async |rig| {
        let (one, other) = (rig.rw_lock().await, rig.rw_lock().await);
        let readers = [one.read().await.unwrap(), other.read().await.unwrap()];
        assert!(one.try_write().await.unwrap().is_none());
        drop(readers);
        used(&one, 0).await;
        let writer = other.write().await.unwrap();
        assert!(one.try_read().await.unwrap().is_none());
        assert!(one.try_write().await.unwrap().is_none());
        writer.release().await.unwrap();
        assert!(one.try_read().await.unwrap().is_some());
    })
    .await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_of_many_managers_never_have_more_than_the_max() {
    everywhere(async |rig| {
        let now = Arc::new(AtomicU32::new(0));
        let mut tasks = JoinSet::new();
        for n in 0..24_u32 {
            let (semaphore, now) = (rig.semaphore(5).await, Arc::clone(&now));
            tasks.spawn(async move {
                for round in 0..6 {
                    let permits = 1 + (n + round) % 3;
                    let guard = semaphore.clone().permits(permits).acquire().await.unwrap();
                    assert!(now.fetch_add(permits, Ordering::SeqCst) + permits <= 5);
                    tokio::task::yield_now().await;
                    now.fetch_sub(permits, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        used(&rig.semaphore(5).await, 0).await;
    })
    .await;
}

/// Proves P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_on_the_server() {
    on_servers(async |rig| {
        let locks = rig.manager().await;
        let (semaphore, rw) = (locks.semaphore("s", 2), locks.rw_lock("rw"));
        let held = semaphore.clone().permits(2).acquire().await.unwrap();
        let writer = rw.write().await.unwrap();
        let waiting = super::rig::queued(&semaphore, semaphore.acquire()).await;
        let reading = super::rig::queued(&rw, rw.read()).await;
        drop(held);
        writer.release().await.unwrap();
        drop((waiting.await.unwrap(), reading.await.unwrap()));
        assert_eq!(locks.shutdown(crate::rig::LONG).await, 0);
        let keys = rig.the_server().keys().await;
        assert_eq!(keys, [lock_tests::kit::FENCE], "the counter of the phases");
    })
    .await;
}

#[tokio::test]
async fn a_list_has_each_of_them_once() {
    everywhere(async |rig| {
        let locks = rig.named("orders-7").await;
        let _held = (
            locks.semaphore("s", 2).acquire().await.unwrap(),
            locks.rw_lock("rw").read().await.unwrap(),
            locks.lock("l").acquire().await.unwrap(),
        );
        let mut found = Vec::new();
        let mut list = locks.list();
        while let Some(page) = list.next_page().await.unwrap() {
            found.extend(page.iter().map(|lock| {
                assert_eq!(lock.info().holder(), Some("orders-7"));
                (lock.kind().to_owned(), lock.key().to_owned())
            }));
        }
        found.sort();
        let expected = [("exclusive", "l"), ("read-write", "rw"), ("semaphore", "s")];
        assert_eq!(
            found,
            expected.map(|(kind, key)| (kind.to_owned(), key.to_owned()))
        );
        if !matches!(rig, Rig::Memory(..)) {
            let findings = locks.examine().await;
            assert!(
                findings
                    .iter()
                    .all(|finding| !finding.what().contains("not a lock"))
            );
        }
    })
    .await;
}

/// Proves P16.
#[tokio::test]
async fn inspect_shows_holders_with_weights_and_names_and_waiters() {
    everywhere(async |rig| {
        let (one, other): (LockManager, LockManager) =
            (rig.named("orders-7").await, rig.named("orders-8").await);
        let _two = one.semaphore("s", 3).permits(2).acquire().await.unwrap();
        let _last = other.semaphore("s", 3).acquire().await.unwrap();
        let semaphore = other.semaphore("s", 3);
        let waiting = super::rig::queued(&semaphore, semaphore.clone().permits(3).acquire()).await;
        let info = semaphore.seen().await;
        let holders = info.holders().iter();
        let mut holders: Vec<_> = holders.map(|h| (h.name(), h.permits())).collect();
        holders.sort();
        assert_eq!(
            holders,
            [("orders-7".to_owned(), 2), ("orders-8".to_owned(), 1)]
        );
        assert!(info.holders().iter().all(|holder| holder.since().is_some()));
        assert!(
            info.remaining()
                .is_some_and(|left| left > crate::rig::LONG / 2)
        );
        assert_eq!(info.queue()[0].name(), Some("orders-8"));
        waiting.abort();
        super::rig::waiters(&semaphore, 0).await;
    })
    .await;
}

/// Proves P16.
#[tokio::test]
async fn a_look_at_many_holders_reads_a_part_of_them() {
    on_servers(async |rig| {
        let server = rig.the_server();
        let seed = "local t = redis.call('TIME')[1] * 1000 + 600000 \
             local max = ARGV[1] + 1 \
             redis.call('HSET', KEYS[1], 'lock', \
               t .. ' ' .. t .. ' ' .. ARGV[1] .. ' semaphore ' .. max .. ' 0 1700000000000000 1700000000000000 x') \
             for n = 1, ARGV[1] do \
               local client = string.format('%08d', n) .. '-0000-4000-8000-000000000000' \
               redis.call('HSET', KEYS[1], client .. ':64:orders-' .. n, t .. ' 1 ' .. string.format('%.0f', 1700000000000000 + n)) \
             end \
             return redis.call('PEXPIRE', KEYS[1], 600000)";
        let semaphore = rig.semaphore(20_001).await;
        for count in [900, 20_000] {
            let mut seeding = redis::cmd("EVAL");
            seeding.arg(seed).arg(1).arg("lock:s").arg(count);
            let mut connection = server.connection().await;
            assert_eq!(seeding.query_async(&mut connection).await, Ok(1));
            server.reset_stats().await;
            let info = semaphore.inspect().await.unwrap();
            assert_eq!(info.permits(), Some((count, count + 1)));
            assert_eq!(info.holders().len(), 100);
            let whole = server.commandstats().await.contains_key("hgetall");
            assert_eq!(whole, count == 900, "{count}");
            if whole {
                assert_eq!(info.holder(), Some("orders-1"), "the first");
            }
        }
        lock_tests::kit::command::<()>(server, "ACL SETUSER default -hscan").await;
        let info = semaphore.inspect().await.unwrap();
        assert_eq!(info.permits(), Some((20_000, 20_001)));
        assert_eq!(info.holders().len(), 100);
    })
    .await;
}
