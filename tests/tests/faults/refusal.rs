//! States in which a server refuses. Each is `Unavailable`, says why, and passes.

use lock_core::{GuardedScript, LockError, LockManager, Owner};
use lock_tests::{LIMIT, Proxy, TestServer, eventually};

use crate::support::until_waiting;
use crate::support::{KEY, LONG, NAME, command, in_time, ms, try_command, until_queued};
use crate::support::{assert_unavailable, connect, renewed, until_clean, until_gone, warm_server};

/// A manager whose clean-up of an unanswered request, which waits for one deadline, ends within a test.
async fn usual(server: &TestServer) -> LockManager {
    connect(&server.url(), ms(5000)).await
}

/// All ways to ask for a free lock are refused with this word.
async fn refuses(locks: &LockManager, word: &str) {
    let lock = locks.lock("free");
    assert_unavailable(lock.try_acquire().await, word);
    // Its time may run out in the middle of a last question.
    assert_unavailable(lock.acquire_within(ms(100)).await, "");
    assert_unavailable(lock.clone().ttl(ms(200)).acquire().await, word);
}

/// All is well again, and nothing of the refused calls is left.
async fn recovers(server: &TestServer, locks: &LockManager) {
    let lock = locks.lock("free").ttl(LONG);
    let guard = in_time("the lock", lock.acquire()).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    until_clean(server).await;
}

#[tokio::test]
async fn a_full_server_refuses_new_locks_but_renews_releases_and_hands_over() {
    let server = warm_server().await;
    let locks = usual(&server).await;
    let kept = locks.lock("renewed").ttl(ms(1500)).acquire().await.unwrap();
    let released = locks.lock("released").ttl(LONG).acquire().await.unwrap();
    let contended = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..2 {
        let lock = usual(&server).await.lock(NAME).ttl(LONG);
        waiters.push(tokio::spawn(async move { lock.acquire().await }));
        until_queued(&server, waiters.len()).await;
    }
    // In line behind the guard, not on the server: the release has to put it there.
    let lock = locks.lock(NAME).ttl(LONG);
    until_waiting(&lock, 2).await;
    let behind = lock.clone();
    waiters.push(tokio::spawn(async move { behind.acquire().await }));
    until_waiting(&lock, 3).await;
    command::<()>(&server, "CONFIG SET maxmemory 1").await;

    refuses(&locks, "OOM").await;
    assert!(renewed(&kept).await);
    released.release().await.unwrap();
    assert!(!server.exists("lock:released").await);
    contended.release().await.unwrap();
    for waiter in waiters {
        let next = in_time("the hand-over", waiter).await.unwrap().unwrap();
        assert!(next.is_held());
        assert!(next.fencing_token() > kept.fencing_token());
        next.release().await.unwrap();
    }
    assert!(!server.exists(KEY).await);
    kept.release().await.unwrap();

    command::<()>(&server, "CONFIG SET maxmemory 0").await;
    recovers(&server, &locks).await;
}

#[tokio::test]
async fn a_full_server_confirms_the_grant_of_a_short_lease() {
    let server = warm_server().await;
    let (one, other) = (usual(&server).await, usual(&server).await);
    let ttl = ms(1500);
    let guard = one.lock(NAME).ttl(ttl).acquire().await.unwrap();
    let lock = other.lock(NAME).ttl(ttl);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_queued(&server, 1).await;
    command::<()>(&server, "CONFIG SET maxmemory 1").await;
    // The last answer is then older than a third of the ttl, so the grant has to be confirmed.
    let refused = async || {
        let errors: String = command(&server, "INFO errorstats").await;
        errors.contains("errorstat_OOM")
    };
    eventually("a refresh is refused", LIMIT, refused).await;
    guard.release().await.unwrap();
    let next = tokio::time::timeout(ttl / 2, waiting).await;
    let next = next.expect("in time").unwrap().unwrap();
    assert!(renewed(&next).await);
    next.release().await.unwrap();
    command::<()>(&server, "CONFIG SET maxmemory 0").await;
    recovers(&server, &one).await;
}

#[tokio::test]
async fn a_server_made_a_replica_refuses_and_works_again_as_a_master() {
    let server = warm_server().await;
    let master = TestServer::start().await;
    let locks = usual(&server).await;
    let guard = locks.lock(NAME).ttl(ms(3000)).acquire().await.unwrap();
    command::<()>(&server, &format!("REPLICAOF 127.0.0.1 {}", master.port())).await;
    eventually("it has taken over the master's data", LIMIT, async || {
        !server.exists(KEY).await
    })
    .await;
    refuses(&locks, "read only replica").await;
    // Its data is gone, so the lock is; whether a renewal or the deadline tells comes down to timing.
    let _ = in_time("the loss", guard.lost()).await;
    drop(guard);
    command::<()>(&server, "REPLICAOF NO ONE").await;
    recovers(&server, &locks).await;
}

/// Proves P11.
#[tokio::test]
async fn a_replica_never_calls_a_lock_it_may_not_release_lost() {
    let server = warm_server().await;
    let locks = usual(&server).await;
    let kept = locks.lock("renewed").ttl(ms(6000)).acquire().await.unwrap();
    let released = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    // A master that does not exist: the data stays as it is.
    command::<()>(&server, "REPLICAOF 127.0.0.1 1").await;
    refuses(&locks, "read only replica").await;
    assert_unavailable(released.release().await, "read only replica");
    // The holder's key, but the server no longer says so.
    command::<()>(&server, "CONFIG SET replica-serve-stale-data no").await;
    refuses(&locks, "Link with MASTER is down").await;
    assert!(kept.is_held());
    command::<()>(&server, "REPLICAOF NO ONE").await;
    assert!(renewed(&kept).await);
    kept.release().await.unwrap();
    // The unconfirmed release goes on in the background.
    until_gone(&server, KEY).await;
    recovers(&server, &locks).await;
}

/// Proves P11.
#[tokio::test]
async fn a_replica_that_lags_behind_the_address_says_neither_lost_nor_busy() {
    let (master, replica) = (warm_server().await, warm_server().await);
    let proxy = Proxy::start(&master);
    let builder = LockManager::builder().handover_limit(1);
    let locks = builder.connect(&proxy.url()).await.unwrap();
    let kept = locks.lock("{a}:kept").ttl(LONG).acquire().await.unwrap();
    let reentrant = locks.reentrant_lock("r").owner(&Owner::new()).ttl(LONG);
    let counted = reentrant.acquire().await.unwrap();
    let passed = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let lock = locks.lock(NAME).ttl(LONG);
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    until_waiting(&lock, 1).await;
    // Its data is that of an earlier time: without what is held, and with what was released.
    command::<()>(&replica, "SET lock:old another PX 120000").await;
    command::<()>(&replica, "HSET r2 another 1").await;
    command::<()>(&replica, "PEXPIRE r2 120000").await;
    command::<()>(&replica, "REPLICAOF 127.0.0.1 1").await;
    proxy.retarget(replica.addr());
    proxy.reset();
    // Each renewal is refused, not answered.
    for script in ["extend", "reentrant extend"] {
        eventually("renewals", LIMIT, async || {
            proxy.count(|request| request.script() == Some(script)) >= 3
        })
        .await;
    }
    let write = GuardedScript::new("return redis.call('SET', KEYS[1], 1)");
    let written = kept.guarded(&write).key("{a}:n").run::<()>().await;
    assert_unavailable(written, "read only replica");
    assert_unavailable(locks.lock("old").try_acquire().await, "read only replica");
    let busy = locks
        .reentrant_lock("r2")
        .owner(&Owner::new())
        .try_acquire()
        .await;
    assert_unavailable(busy, "read only replica");
    assert_unavailable(
        locks.lock("gone").force_release().await,
        "read only replica",
    );
    assert_unavailable(passed.release().await, "read only replica");
    assert!(kept.is_held() && counted.is_held());

    proxy.retarget(master.addr());
    let both = tokio::join!(renewed(&kept), renewed(&counted));
    assert_eq!(both, (true, true));
    let next = in_time("the lock", next).await.unwrap().unwrap();
    for guard in [next, kept] {
        guard.release().await.unwrap();
    }
    counted.release().await.unwrap();
}

#[tokio::test]
async fn a_server_without_its_replicas_refuses_and_keeps_what_is_held() {
    let server = warm_server().await;
    let locks = usual(&server).await;
    let kept = locks.lock("renewed").ttl(ms(6000)).acquire().await.unwrap();
    let released = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    command::<()>(&server, "CONFIG SET min-replicas-to-write 1").await;
    refuses(&locks, "NOREPLICAS").await;
    assert_unavailable(released.release().await, "NOREPLICAS");
    assert!(kept.is_held());
    command::<()>(&server, "CONFIG SET min-replicas-to-write 0").await;
    assert!(renewed(&kept).await);
    kept.release().await.unwrap();
    until_gone(&server, KEY).await;
    recovers(&server, &locks).await;
}

#[tokio::test]
async fn a_server_that_cannot_save_refuses_until_it_can() {
    let server = warm_server().await;
    let locks = usual(&server).await;
    // A folder in the place of the file: the snapshot cannot be put there.
    let file = server.dir().join("dump.rdb");
    std::fs::create_dir(&file).unwrap();
    // Without a rule to save, failing to does not matter to it.
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("save")
        .arg("3600 1000000")
        .query_async::<()>(&mut server.connection().await)
        .await
        .unwrap();
    command::<String>(&server, "BGSAVE").await;
    until_saved(&server, "err").await;
    refuses(&locks, "MISCONF").await;
    std::fs::remove_dir(&file).unwrap();
    command::<String>(&server, "BGSAVE").await;
    until_saved(&server, "ok").await;
    recovers(&server, &locks).await;
}

async fn until_saved(server: &TestServer, status: &str) {
    eventually("the snapshot", LIMIT, async || {
        let info: String = command(server, "INFO persistence").await;
        info.contains("rdb_bgsave_in_progress:0")
            && info.contains(&format!("rdb_last_bgsave_status:{status}"))
    })
    .await;
}

#[tokio::test]
async fn a_server_busy_with_a_script_refuses_and_recovers() {
    let server = warm_server().await;
    let locks = usual(&server).await;
    let guard = locks.lock(NAME).ttl(ms(6000)).acquire().await.unwrap();
    command::<()>(&server, "CONFIG SET lua-time-limit 100").await;
    let mut connection = server.connection().await;
    let endless = tokio::spawn(async move {
        redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query_async::<()>(&mut connection)
            .await
    });
    eventually("it is busy", LIMIT, async || {
        let ping = try_command::<String>(&server, "PING").await;
        ping.is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    refuses(&locks, "BUSY").await;
    command::<()>(&server, "SCRIPT KILL").await;
    endless.await.unwrap().unwrap_err();
    assert!(renewed(&guard).await);
    guard.release().await.unwrap();
    recovers(&server, &locks).await;
}

#[tokio::test]
async fn what_a_sleeping_server_was_sent_is_taken_back() {
    let server = warm_server().await;
    let locks = connect(&server.url(), ms(200)).await;
    let mut connection = server.connection().await;
    let asleep = tokio::spawn(async move {
        redis::cmd("DEBUG")
            .arg("SLEEP")
            .arg("1.5")
            .query_async::<()>(&mut connection)
            .await
    });
    eventually("it sleeps", LIMIT, async || {
        let ping = tokio::time::timeout(ms(100), try_command::<String>(&server, "PING"));
        ping.await.is_err()
    })
    .await;
    let lock = locks.lock(NAME).ttl(LONG);
    assert_unavailable(lock.try_acquire().await, "");
    assert_unavailable(lock.acquire_within(ms(100)).await, "");
    asleep.await.unwrap().unwrap();
    // What it had received is carried out now, and taken back.
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_server_that_loads_its_data_refuses_and_is_waited_for() {
    let server = TestServer::builder()
        .arg("--key-load-delay", "1000")
        .arg("--loading-process-events-interval-bytes", "1024")
        .start()
        .await;
    let locks = usual(&server).await;
    command::<()>(&server, "DEBUG POPULATE 2000 load 10").await;
    command::<()>(&server, "SAVE").await;
    let meanwhile = async {
        let lock = locks.lock("free").ttl(LONG);
        eventually("it loads", LIMIT, async || {
            match lock.try_acquire().await {
                // Before it loads it is not there at all.
                Err(LockError::Unavailable { cause }) => cause.to_string().contains("loading"),
                other => panic!("{other:?}"),
            }
        })
        .await;
        in_time("the lock", lock.acquire()).await.unwrap()
    };
    server.kill();
    let (guard, ()) = tokio::join!(meanwhile, server.restart());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    command::<()>(&server, "FLUSHALL").await;
    recovers(&server, &locks).await;
}
