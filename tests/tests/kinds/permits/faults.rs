//! Replies and messages that are lost, connections that break, and runtimes that stand still.

use std::time::Duration;

use lock_core::{LockError, LockManager, RwLock, Semaphore};
use lock_tests::kit::{ms, warm_server};
use lock_tests::{DropMode, LIMIT, Proxy, Request, TestServer, in_time};

use super::rig::{Seen, queued, used, waiters};
use crate::rig::LONG;

const MODES: [DropMode; 2] = [DropMode::Close, DropMode::Silent];

struct Rig {
    server: TestServer,
    proxy: Proxy,
    /// Behind the proxy.
    locks: LockManager,
    /// Straight on the server.
    others: LockManager,
}

impl Rig {
    async fn start() -> Self {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let connect = async |url: &str, deadline| {
            let builder = LockManager::builder().default_ttl(LONG);
            builder
                .command_deadline(deadline)
                .connect(url)
                .await
                .unwrap()
        };
        Self {
            locks: connect(&proxy.url(), ms(700)).await,
            others: connect(&server.url(), LIMIT).await,
            server,
            proxy,
        }
    }

    fn semaphore(&self) -> (Semaphore, Semaphore) {
        (self.locks.semaphore("s", 2), self.others.semaphore("s", 2))
    }

    fn rw_lock(&self) -> (RwLock, RwLock) {
        (self.locks.rw_lock("rw"), self.others.rw_lock("rw"))
    }
}

fn is(script: &'static str) -> impl Fn(&Request) -> bool {
    move |request| request.script() == Some(script)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_reply_was_lost_gives_back_once() {
    for mode in MODES {
        let rig = Rig::start().await;
        let (semaphore, other) = rig.semaphore();
        let (one, _two) = (
            semaphore.acquire().await.unwrap(),
            other.acquire().await.unwrap(),
        );
        let next = queued(&other, other.acquire()).await;
        let lost = rig
            .proxy
            .drop_next_reply_matching(is("permits release"), mode);
        let releasing = tokio::spawn(one.release());
        lost.wait().await;
        let next = in_time("the next", next).await.unwrap();
        in_time("the release", releasing).await.unwrap().unwrap();
        assert_eq!(other.seen().await.permits(), Some((2, 2)));
        assert!(next.is_held());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_whose_reply_was_lost_is_done_once() {
    for mode in MODES {
        let rig = Rig::start().await;
        let (lock, other) = rig.rw_lock();
        let writer = lock.write().await.unwrap();
        let token = writer.fencing_token();
        let lost = rig
            .proxy
            .drop_next_reply_matching(is("permits reweigh"), mode);
        let downgrading = tokio::spawn(writer.downgrade());
        lost.wait().await;
        let reader = in_time("the reader", downgrading).await.unwrap().unwrap();
        assert_eq!(reader.fencing_token(), token);
        let second = other.read().await.unwrap();
        assert_eq!(other.seen().await.permits().map(|(used, _)| used), Some(2));
        reader.release().await.unwrap();
        assert!(second.is_held());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_whose_reply_was_lost_is_found_and_leaves_nothing() {
    for mode in MODES {
        let rig = Rig::start().await;
        let (lock, other) = rig.rw_lock();
        let reader = lock.read().await.unwrap();
        let phase = reader.fencing_token();
        let lost = rig
            .proxy
            .drop_next_reply_matching(is("permits reweigh"), mode);
        let upgrading = tokio::spawn(reader.try_upgrade());
        lost.wait().await;
        let writer = match in_time("the writer", upgrading).await.unwrap() {
            Ok(writer) => writer,
            // It gave up, and asks once more.
            Err((reader, _)) => reader.try_upgrade().await.unwrap(),
        };
        assert!(writer.fencing_token() > phase);
        assert!(other.try_read().await.unwrap().is_none());
        writer.release().await.unwrap();
        assert!(other.try_write().await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_is_cancelled_leaves_nothing() {
    let rig = Rig::start().await;
    let (lock, other) = rig.rw_lock();
    let reader = lock.read().await.unwrap();
    let held = rig.proxy.hold_next_request_matching(is("permits reweigh"));
    let upgrading = tokio::spawn(reader.try_upgrade());
    held.wait().await;
    upgrading.abort();
    held.deliver();
    assert!(upgrading.await.is_err());
    let writer = other.write_within(LIMIT).await.unwrap();
    writer.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_lost_alone_blocks_no_newcomer() {
    let rig = Rig::start().await;
    let (semaphore, other) = rig.semaphore();
    let held = other.clone().permits(2).acquire().await.unwrap();
    let waiting = queued(&other, semaphore.acquire()).await;
    let keys = "lock-core:semaphore:queue:{lock:s} lock-core:semaphore:waiters:{lock:s}";
    lock_tests::kit::command::<()>(&rig.server, &format!("DEL {keys}")).await;
    held.release().await.unwrap();
    assert!(other.try_acquire().await.unwrap().is_some());
    in_time("the waiter", waiting)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// P14: the future is alive and not polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_is_not_taken_goes_on_after_its_ttl() {
    let rig = Rig::start().await;
    let ttl = ms(1500);
    let (semaphore, other) = (
        rig.locks.semaphore("s", 1).ttl(ttl),
        rig.others.semaphore("s", 1),
    );
    let held = other.acquire().await.unwrap();
    let mut waiting = Box::pin(semaphore.acquire());
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("it was to wait"),
        () = waiters(&other, 1) => {}
    }
    held.release().await.unwrap();
    used(&other, 1).await;
    let next = other.acquire_within(ttl * 4).await.unwrap();
    next.release().await.unwrap();
    let late = in_time("the sleeper", waiting).await.unwrap();
    assert!(late.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_is_unavailable_and_nothing_stays() {
    let rig = Rig::start().await;
    let (semaphore, other) = rig.semaphore();
    let _held = semaphore.acquire().await.unwrap();
    rig.proxy.cut_to_client(true);
    match semaphore.acquire_within(ms(800)).await {
        Err(LockError::Unavailable { .. }) => {}
        other => panic!("{other:?}"),
    }
    rig.proxy.cut_to_client(false);
    rig.proxy.reset();
    used(&other, 1).await;
    let limit = Duration::from_secs(10);
    assert!(other.acquire_within(limit).await.unwrap().is_held());
}

/// As after a failover, or a restart from a copy, that has lost the upgrade and not the read. Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_upgrade_the_server_has_lost_is_lost() {
    let rig = Rig::start().await;
    let lock = rig.locks.rw_lock("{a}rw").ttl(ms(1500));
    let reader = lock.read().await.unwrap();
    let mut connection = rig.server.connection().await;
    let mut dump = redis::cmd("DUMP");
    let copy: Vec<u8> = dump
        .arg("lock:{a}rw")
        .query_async(&mut connection)
        .await
        .unwrap();
    let writer = reader.try_upgrade().await.unwrap();
    let mut restore = redis::cmd("RESTORE");
    restore
        .arg("lock:{a}rw")
        .arg(60_000)
        .arg(copy)
        .arg("REPLACE");
    restore.query_async::<()>(&mut connection).await.unwrap();
    let script = lock_core::GuardedScript::new("return redis.call('INCR', KEYS[1])");
    let ran = writer.guarded(&script).key("{a}n").run::<i64>().await;
    assert!(matches!(ran, Err(LockError::Lost { .. })), "{ran:?}");

    let other = rig.locks.rw_lock("{b}rw").ttl(ms(1500));
    let reader = other.read().await.unwrap();
    let mut dump = redis::cmd("DUMP");
    let copy: Vec<u8> = dump
        .arg("lock:{b}rw")
        .query_async(&mut connection)
        .await
        .unwrap();
    let writer = reader.try_upgrade().await.unwrap();
    let mut restore = redis::cmd("RESTORE");
    restore
        .arg("lock:{b}rw")
        .arg(60_000)
        .arg(copy)
        .arg("REPLACE");
    restore.query_async::<()>(&mut connection).await.unwrap();
    in_time("the loss, by the renewal", writer.lost()).await;
}

/// P7: at most a second where it polls, however many of them. Proves P7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_waiters_that_polled_cost_at_most_a_second() {
    let rig = Rig::start().await;
    let other = rig.others.semaphore("s", 2);
    let held = other.clone().permits(2).acquire().await.unwrap();
    tokio::task::block_in_place(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let url = format!("{}/?protocol=resp2", rig.server.url());
            let polling = LockManager::builder()
                .default_ttl(LONG)
                .connect(&url)
                .await
                .unwrap();
            for _ in 0..3 {
                let polling = polling.semaphore("s", 2);
                drop(queued(&other, polling.permits(2).acquire()).await);
            }
        });
    });
    let next = queued(&other, other.clone().permits(2).acquire()).await;
    let released = std::time::Instant::now();
    held.release().await.unwrap();
    in_time("the waiter", next)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let took = released.elapsed();
    assert!(
        took < ms(2000),
        "a refresh comes after three seconds: {took:?}"
    );
}
