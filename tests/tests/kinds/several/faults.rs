//! Replies that are lost, and servers that refuse.

use lock_core::{LockError, LockManager};
use lock_tests::kit::{FENCE, command, leftovers, ms, until_clean, warm_server};
use lock_tests::scripts::scripts;
use lock_tests::{DropMode, LIMIT, Proxy, Request, TestServer, connect, eventually, in_time};
use redis::{RedisResult, Value};

use super::rig::{KEYS, waiters};
use crate::rig::{LONG, builder};

fn is_all(request: &Request) -> bool {
    request.script() == Some("acquire_all")
}

async fn behind(proxy: &Proxy) -> LockManager {
    let builder = LockManager::builder().default_ttl(LONG);
    let builder = builder.command_deadline(ms(500));
    builder.connect(&proxy.url()).await.unwrap()
}

/// Proves P6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_whose_reply_was_lost_finds_what_it_has() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy).await;
    let lost = proxy.drop_next_reply_matching(is_all, DropMode::Close);
    let trying = tokio::spawn(locks.all(KEYS).try_acquire());
    lost.wait().await;
    let guard = in_time("the caller", trying).await.unwrap().unwrap();
    let guard = guard.expect("it has them already");
    assert!(guard.is_held());
    assert_eq!(proxy.count(is_all), 2);
    guard.release().await.unwrap();
    until_clean(&server).await;
}

/// One call for the locks `a` and `b`, by a client that does nothing else.
async fn call(url: String) -> RedisResult<Value> {
    let keys = ["a", "b"].map(|key| format!("lock:{key}"));
    let beside = |of: &str| keys.clone().map(|key| format!("lock-core:{of}:{{{key}}}"));
    let mut call = redis::cmd("EVAL");
    call.arg(&scripts()["acquire_all"].text).arg(7);
    call.arg(&keys)
        .arg(&beside("queue"))
        .arg(&beside("waiters"));
    call.arg(FENCE);
    call.arg(&["", "one:1", "one:2", "60000", "60000"]);
    call.query_async(&mut connect(url).await).await
}

/// Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_does_not_overtake_the_waiters_of_a_lock_that_is_free() {
    let server = warm_server().await;
    let (locks, other) = (
        builder().connect(&server.url()).await.unwrap(),
        builder().connect(&server.url()).await.unwrap(),
    );
    let _held = locks.lock("b").acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("b").acquire());
    waiters(&locks, "b", 1).await;
    command::<()>(&server, "DEL lock:b").await;
    assert!(locks.all(KEYS).try_acquire().await.unwrap().is_none());
    let guard = in_time("the waiter", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
    eventually("nothing is left", LIMIT, async || {
        locks.all(KEYS).try_acquire().await.unwrap().is_some()
    })
    .await;
}

/// Proves P8.
#[tokio::test]
async fn dead_waiters_do_not_keep_a_free_lock() {
    let server = warm_server().await;
    let locks = builder().connect(&server.url()).await.unwrap();
    let dead = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";
    let queue = "lock-core:queue:{lock:b}";
    let waiters = "lock-core:waiters:{lock:b}";
    command::<()>(&server, &format!("RPUSH {queue} {dead}:1")).await;
    let mut entry = redis::cmd("HSET");
    entry.arg(waiters).arg(format!("{dead}:1")).arg("60000 7");
    entry.arg(dead).arg("1 heard");
    let () = entry
        .query_async(&mut server.connection().await)
        .await
        .unwrap();
    let guard = locks.all(["b", "c"]).try_acquire().await.unwrap();
    guard.expect("no waiter lives").release().await.unwrap();
    assert!(leftovers(&server).await.is_empty());
}

/// Proves P11.
#[tokio::test]
async fn a_replica_does_not_say_that_a_lock_is_busy() {
    let (master, replica) = (TestServer::start().await, TestServer::start().await);
    command::<()>(
        &replica,
        &format!("SET lock:a other:1 PX {}", LONG.as_millis()),
    )
    .await;
    command::<()>(&replica, &format!("REPLICAOF 127.0.0.1 {}", master.port())).await;
    command::<()>(
        &master,
        &format!("SET lock:a other:1 PX {}", LONG.as_millis()),
    )
    .await;
    eventually("the replica has the lock", LIMIT, async || {
        replica.exists("lock:a").await
    })
    .await;
    let answer = call(replica.url()).await;
    let error = answer.expect_err("the data of a replica may be old");
    assert_eq!(error.code(), Some("READONLY"));
}

/// The last lock is busy, and little is left of the limit when the call comes to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_lock_on_a_slow_network_has_timed_out() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let near = builder().connect(&server.url()).await.unwrap();
    let far = behind(&proxy).await;
    let busy = near.lock(KEYS[2]).acquire().await.unwrap();
    // So that its scripts are known.
    drop(far.all(&KEYS[..2]).acquire().await.unwrap());
    until_only_held(&server).await;
    proxy.delay(ms(20));
    for limit in [110, 130, 150] {
        let late = far.all(KEYS).acquire_within(ms(limit)).await.unwrap_err();
        let LockError::TimedOut { waited, .. } = late else {
            panic!("{limit}: {late}");
        };
        assert!(waited >= ms(limit), "{waited:?}");
    }
    assert!(busy.is_held());
}

async fn until_only_held(server: &TestServer) {
    eventually("the others are free", LIMIT, async || {
        server.exists(&format!("lock:{}", KEYS[2])).await
            && !server.exists(&format!("lock:{}", KEYS[0])).await
    })
    .await;
}

/// What it has already is released in the background, if the server does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_while_the_server_stalls() {
    let server = warm_server().await;
    let locks = builder().command_deadline(LIMIT);
    let locks = locks.connect(&server.url()).await.unwrap();
    let busy = locks.lock(KEYS[2]).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.all(KEYS).acquire_within(ms(700)));
    waiters(&locks, KEYS[2], 1).await;
    server.stop();
    let late = tokio::time::timeout(LIMIT / 2, waiting).await;
    server.cont();
    let late = late.expect("long before the command deadline");
    assert!(late.unwrap().unwrap_err().is_contention());
    drop(busy);
    until_clean(&server).await;
}
