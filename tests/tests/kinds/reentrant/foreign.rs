//! What stands under the name is no lock of this kind: it is left alone, and said.

use lock_core::{LockError, LockManager, Owner};
use lock_tests::{LIMIT, TestServer};
use redis::Value;

use crate::reentrant::apart::Apart;
use crate::reentrant::support::{command, manager};

#[tokio::test]
async fn data_under_the_name_is_foreign_and_left_alone() {
    let server = TestServer::start().await;
    let locks = manager(&server).await;
    for (how, kind) in [
        ("SET order x", "string"),
        ("RPUSH order x", "list"),
        ("SADD order x", "set"),
        ("ZADD order 1 x", "zset"),
        ("XADD order * a b", "stream"),
        // Data, or what a read-write lock or a rate limiter of Redisson keeps.
        ("HSET order name Ann age 40", "hash"),
        ("HSET order mode write", "hash"),
        ("HSET order me 0", "hash"),
        ("HSET order me -1", "hash"),
        ("HSET order me 01", "hash"),
        ("HSET order me 1.5", "hash"),
        ("HSET order me 99999999999999999999", "hash"),
        // Data that looks like a lock, but for the ttl.
        ("HSET order count 5", "hash without a ttl"),
        (
            "HSET order count 1 lock-core:tenure 1",
            "hash without a ttl",
        ),
    ] {
        let _: Value = command(&server, how).await;
        let before: Value = command(&server, "DUMP order").await;
        for lock in [
            locks.lock_apart("order"),
            locks.lock_apart("order").owner(&Owner::new()),
        ] {
            let results = [
                lock.try_acquire().await.map(drop),
                lock.acquire().await.map(drop),
                lock.acquire_within(LIMIT).await.map(drop),
                lock.force_release().await.map(drop),
            ];
            for result in results {
                match result {
                    Err(LockError::NotALock {
                        key, kind: shown, ..
                    }) => {
                        assert_eq!(key, "order");
                        assert!(shown.starts_with(kind), "{how}: {shown}");
                    }
                    other => panic!("{how}: {other:?}"),
                }
            }
            let info = lock.inspect().await.unwrap();
            assert!(info.foreign().is_some_and(|shown| shown.starts_with(kind)));
        }
        let after: Value = command(&server, "DUMP order").await;
        assert_eq!(before, after, "{how}");
        server.flushall().await;
    }
}

#[tokio::test]
async fn a_lock_of_any_owner_is_one() {
    let server = TestServer::start().await;
    let lock = manager(&server).await.lock_apart("order");
    for owner in ["me", "0", "with:many:colons", "ünïcode"] {
        let _: i64 = command(&server, &format!("HSET order {owner} 3")).await;
        let _: i64 = command(&server, "PEXPIRE order 30000").await;
        let info = lock.inspect().await.unwrap();
        assert_eq!((info.holds(), info.owner()), (3, Some(owner)));
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(lock.force_release().await.unwrap());
        assert!(!server.exists("order").await);
    }
}

#[tokio::test]
async fn a_semaphore_or_rw_lock_of_its_name_says_what_is_there() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let reentrant = locks.reentrant_lock("lock:s");
    let held = reentrant.owner(&Owner::new()).acquire().await.unwrap();
    for look in [
        locks.semaphore("s", 2).inspect().await.unwrap(),
        locks.rw_lock("s").inspect().await.unwrap(),
    ] {
        assert_eq!(look.foreign(), Some("reentrant"));
    }
    held.release().await.unwrap();
}
