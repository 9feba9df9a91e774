//! Scripts that run only while the lock is held, on a real server.

use std::time::Duration;

use lock_core::{GuardedScript, LockError, LockGuard, LockManager, LossReason, Owner};
use lock_tests::kit::command;
use lock_tests::{AclServer, TestServer};

async fn reentrant_guard(locks: &LockManager) -> LockGuard {
    let lock = locks.reentrant_lock("{a}:deep").owner(&Owner::new());
    lock.acquire().await.unwrap()
}

async fn rig() -> (TestServer, LockManager) {
    let server = TestServer::start().await;
    let locks = LockManager::builder()
        .command_deadline(Duration::from_secs(10))
        .connect(&server.url())
        .await
        .unwrap();
    (server, locks)
}

fn add() -> GuardedScript {
    GuardedScript::new("return redis.call('INCRBY', KEYS[1], ARGV[1])")
}

/// Counts `{a}:n` up by one, under a lock.
async fn count(guard: &LockGuard) -> Result<i64, LockError> {
    guard.guarded(&add()).key("{a}:n").arg(1).run().await
}

#[tokio::test]
async fn the_holder_writes_and_gets_a_typed_reply() {
    let (server, locks) = rig().await;
    let guard = locks.lock("{a}:lock").acquire().await.unwrap();
    let script = add();
    let one: i64 = guard
        .guarded(&script)
        .key("{a}:n")
        .arg(5)
        .run()
        .await
        .unwrap();
    let two: String = guard
        .guarded(&script)
        .key("{a}:n")
        .arg(2)
        .run()
        .await
        .unwrap();
    assert_eq!((one, &*two), (5, "7"));
    assert_eq!(server.get("{a}:n").await.as_deref(), Some("7"));
    let nothing: Option<i64> = guard
        .guarded(&GuardedScript::new("return redis.call('GET', KEYS[1])"))
        .key("{a}:absent")
        .run()
        .await
        .unwrap();
    assert_eq!(nothing, None);
    let table: Vec<i64> = guard
        .guarded(&GuardedScript::new("return {#KEYS, #ARGV}"))
        .key("{a}:x")
        .key("{a}:y")
        .arg(&[1, 2, 3])
        .run()
        .await
        .unwrap();
    assert_eq!(table, [2, 3], "the check took away what was its own");
}

#[tokio::test]
async fn a_holder_from_the_past_writes_nothing_and_hears_of_its_loss() {
    let (server, locks) = rig().await;
    let guard = locks.lock("{a}:lock").acquire().await.unwrap();
    // The lease is gone on the server, and the holder has no way to know yet.
    let () = command(&server, "SET lock:{a}:lock another PX 60000").await;
    assert!(guard.is_held());
    let refused = count(&guard).await;
    assert!(matches!(
        refused,
        Err(LockError::Lost {
            reason: LossReason::Gone,
            ..
        })
    ));
    assert_eq!(server.get("{a}:n").await, None);
    assert!(!guard.is_held());
    // From now on not even asked.
    let again = count(&guard).await;
    assert!(matches!(again, Err(LockError::Lost { .. })));
    assert_eq!(guard.lost().await, LossReason::Gone);
}

#[tokio::test]
async fn a_reentrant_lock_guards_scripts_too() {
    let (server, locks) = rig().await;
    let me = Owner::new();
    let lock = locks.reentrant_lock("{a}:lock").owner(&me);
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    for guard in [&outer, &inner] {
        count(guard).await.unwrap();
    }
    assert!(lock.force_release().await.unwrap());
    let refused = count(&inner).await;
    assert!(matches!(refused, Err(LockError::Lost { .. })));
    assert_eq!(server.get("{a}:n").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn a_key_in_another_slot_is_refused_before_anything_is_sent() {
    let (server, locks) = rig().await;
    let guard = locks.lock("{a}:lock").acquire().await.unwrap();
    let stray = guard
        .guarded(&add())
        .key("elsewhere")
        .arg(1)
        .run::<i64>()
        .await;
    match stray {
        Err(LockError::InvalidKey { key, reason }) => {
            assert_eq!(key, "elsewhere");
            assert!(reason.contains("{tag}"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(server.get("elsewhere").await, None);
}

#[tokio::test]
async fn a_script_that_fails_says_why_and_the_lock_stays() {
    let (_server, locks) = rig().await;
    let guard = locks.lock("{a}:lock").acquire().await.unwrap();
    let broken = [
        ("error('on purpose')", "on purpose"),
        ("return redis.call('NO SUCH COMMAND')", "called from script"),
        ("return redis.error_reply('on purpose')", "on purpose"),
        (
            "return {redis.pcall('NO SUCH COMMAND')}",
            "called from script",
        ),
        ("return 'no number'", "no number"),
        ("\n\nerror('on purpose')", "user_script:3:"),
        (
            "return lock or holds or owner or token",
            "global variable 'lock'",
        ),
    ];
    for (text, why) in broken {
        let answer = guard.guarded(&GuardedScript::new(text)).run::<i64>().await;
        assert!(
            matches!(answer, Err(LockError::Script { .. })),
            "{text}: {answer:?}"
        );
        let shown = answer.unwrap_err().to_string();
        assert!(shown.starts_with("the guarded script failed"), "{shown}");
        assert!(shown.contains(why), "{shown}");
        assert!(!shown.contains("ACL"), "no fault of the set-up: {shown}");
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_script_that_is_no_lua_is_told_what_lua_says_of_which_line() {
    let (_server, locks) = rig().await;
    let guard = locks.lock("{a}:lock").acquire().await.unwrap();
    let script = GuardedScript::new("local a = 1\nthis is no Lua");
    let error = guard.guarded(&script).run::<i64>().await.unwrap_err();
    assert!(matches!(error, LockError::Script { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the guarded script failed: the server does not understand its Lua (user_script:2: '=' expected near 'is')"
    );
    assert!(guard.is_held());
}

#[tokio::test]
async fn no_fault_of_a_scripts_lua_is_taken_for_one_of_the_set_up() {
    let (_server, locks) = rig().await;
    let guard = locks.lock("a").acquire().await.unwrap();
    for body in [
        "return 'abc",
        "if true then",
        "end",
        "break",
        "return \"a\nb\"",
        "--[[ to no end",
        "local a <const> = 1",
        "error('NOAUTH of its own')",
    ] {
        let error = guard.guarded(&GuardedScript::new(body)).run::<i64>().await;
        let error = error.expect_err(body);
        assert!(
            matches!(error, LockError::Script { .. }),
            "{body}: {error:?}"
        );
        assert!(!error.to_string().contains("password"), "{body}: {error}");
    }
    assert!(guard.is_held());
}

/// What both kinds of lock need, and the script.
const COMMANDS: [&str; 23] = [
    "llen", "lindex", "lrem", "lpop", "rpush", "hmget", "evalsha", "eval", "exists", "get", "set",
    "del", "pttl", "pexpire", "time", "hset", "hget", "hdel", "hlen", "hgetall", "hexists",
    "hincrby", "incrby",
];
const PATTERNS: &str = "~{a}* ~lock:{a}* ~lock-core:* ~redisson_lock__channel:* &lock-core:* &redisson_lock__channel:*";

#[tokio::test]
async fn a_check_that_the_server_refuses_is_a_configuration_error_and_no_loss() {
    let mut server = AclServer::start(PATTERNS).await;
    server.allow(COMMANDS).await;
    let locks = LockManager::builder()
        .command_deadline(Duration::from_secs(10))
        .connect(&server.url())
        .await
        .unwrap();
    let exclusive = locks.lock("{a}:lock").acquire().await.unwrap();
    let reentrant = reentrant_guard(&locks).await;
    for (guard, check) in [(&exclusive, "get"), (&reentrant, "hexists")] {
        server
            .allow(COMMANDS.into_iter().filter(|name| *name != check))
            .await;
        let refused = count(guard).await;
        let shown = match refused {
            Err(error @ LockError::InvalidConfig { .. }) => error.to_string(),
            other => panic!("without {check}: {other:?}"),
        };
        assert!(shown.contains("check the rights of its user"), "{shown}");
        assert_eq!(server.server().get("{a}:n").await, None, "it did not run");
        assert!(guard.is_held());
        // Once the right is there, the guard still works.
        server.allow(COMMANDS).await;
        assert_eq!(count(guard).await.unwrap(), 1);
        server.admin(&["DEL", "{a}:n"]).await;
    }
}

#[tokio::test]
async fn a_key_that_the_user_may_not_touch_is_no_fault_of_the_script() {
    let mut server = AclServer::start("~lock:* ~lock-core:* &lock-core:*").await;
    server.allow(COMMANDS).await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("{a}:lock").acquire().await.unwrap();
    let refused = count(&guard).await;
    assert!(
        matches!(refused, Err(LockError::InvalidConfig { .. })),
        "{refused:?}"
    );
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_name_that_has_become_something_else_is_no_longer_our_lock() {
    let (server, locks) = rig().await;
    let exclusive = locks.lock("{a}:lock").acquire().await.unwrap();
    let reentrant = reentrant_guard(&locks).await;
    let mut connection = server.connection().await;
    for (guard, name) in [(exclusive, "lock:{a}:lock"), (reentrant, "{a}:deep")] {
        let mut replace = redis::pipe();
        replace.del(name).rpush(name, "x");
        let () = replace.query_async(&mut connection).await.unwrap();
        let refused = count(&guard).await;
        assert!(
            matches!(refused, Err(LockError::Lost { .. })),
            "{refused:?}"
        );
        assert_eq!(server.get("{a}:n").await, None);
    }
}

#[tokio::test]
async fn a_script_that_the_server_has_lost_is_sent_again() {
    let (server, locks) = rig().await;
    let guard = locks.lock("{a}:lock").acquire().await.unwrap();
    for round in 1..=3_i64 {
        let () = command(&server, "SCRIPT FLUSH").await;
        assert_eq!(count(&guard).await.unwrap(), round);
    }
}

/// Proves P3.
#[tokio::test]
async fn memory_has_no_scripts_and_says_so() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let guard = locks.lock("{a}:lock").acquire().await.unwrap();
    match guard.guarded(&add()).key("{a}:n").run::<i64>().await {
        Err(LockError::InvalidConfig { reason }) => {
            assert_eq!(
                reason,
                "memory:// runs no scripts: use a server for guarded scripts"
            );
        }
        other => panic!("{other:?}"),
    }
}
