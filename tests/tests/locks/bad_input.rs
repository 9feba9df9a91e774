//! Bad input is refused with a typed error whose one sentence says what to do.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use lock_core::{Lock, LockError, LockManager, LockManagerBuilder, Owner, default_manager};
use lock_tests::kit::command;
use lock_tests::{LIMIT, TestServer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

const DAY: Duration = Duration::from_secs(24 * 3600);
const EXTREMES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_secs(u64::MAX / 2),
    Duration::from_millis(u64::MAX),
    Duration::MAX,
];

/// The error as its user reads it: one sentence, which says `phrase`.
fn says(error: &LockError, phrase: &str) {
    let text = error.to_string();
    assert!(text.contains(phrase), "{text:?} does not say {phrase:?}");
    assert!(!text.contains('\n'), "{text:?} is more than a line");
    assert!(
        !text.ends_with('.') && !text.contains(". "),
        "{text:?} is more than a sentence"
    );
}

fn is_config<T>(result: Result<T, LockError>, phrase: &str) {
    match result.err() {
        Some(error @ LockError::InvalidConfig { .. }) => says(&error, phrase),
        other => panic!("InvalidConfig expected, {phrase:?}: {other:?}"),
    }
}

fn is_unavailable<T>(result: Result<T, LockError>) -> LockError {
    match result.err() {
        Some(error @ LockError::Unavailable { .. }) => {
            says(&error, "check that it runs and can be reached");
            error
        }
        other => panic!("Unavailable expected: {other:?}"),
    }
}

async fn memory() -> LockManager {
    LockManager::connect("memory://").await.unwrap()
}

/// Every way to ask for a lock refuses alike.
async fn each_way(lock: &Lock, check: impl Fn(LockError)) {
    check(lock.acquire().await.unwrap_err());
    check(lock.acquire_within(LIMIT).await.unwrap_err());
    check(lock.acquire_within(Duration::ZERO).await.unwrap_err());
    check(lock.try_acquire().await.unwrap_err());
    check(lock.with(async |_| ()).await.unwrap_err());
}

#[tokio::test]
async fn keys_that_cannot_be_used_are_refused_by_every_call() {
    let locks = memory().await;
    let long = "x".repeat(1025);
    let multibyte = "ä".repeat(513);
    let cases = [
        ("", "name what the lock protects"),
        (&long, "hash the long part"),
        (&multibyte, "hash the long part"),
        ("{", "one non-empty `{tag}`"),
        ("a}", "one non-empty `{tag}`"),
        ("}{", "one non-empty `{tag}`"),
        ("{}", "one non-empty `{tag}`"),
        ("{a}{b}", "one non-empty `{tag}`"),
        ("{{a}}", "one non-empty `{tag}`"),
    ];
    for (key, phrase) in cases {
        let lock = locks.lock(key);
        let check = |error: LockError| match &error {
            LockError::InvalidKey { key: shown, .. } => {
                says(&error, phrase);
                assert!(key.starts_with(shown) && shown.chars().count() <= 64);
            }
            other => panic!("{key:?}: {other:?}"),
        };
        each_way(&lock, check).await;
        check(lock.inspect().await.unwrap_err());
        check(lock.force_release().await.unwrap_err());
    }
}

#[tokio::test]
async fn a_reserved_key_is_refused_where_it_would_collide() {
    let bare = LockManager::builder()
        .prefix("")
        .connect("memory://")
        .await
        .unwrap();
    match bare.lock("lock-core:fence").acquire().await {
        Err(error @ LockError::InvalidKey { .. }) => says(&error, "use another name or a prefix"),
        other => panic!("{other:?}"),
    }
    assert!(
        memory()
            .await
            .lock("lock-core:fence")
            .acquire()
            .await
            .is_ok()
    );
}

/// Proves P10.
#[tokio::test]
async fn a_counter_that_has_no_next_token_is_refused_and_kept() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let largest = (1_u64 << 53).to_string();
    let mut connection = server.connection().await;
    let mut set = redis::cmd("SET");
    let () = set
        .arg("lock-core:fence")
        .arg(&largest)
        .query_async(&mut connection)
        .await
        .unwrap();
    each_way(&locks.lock("a"), |error| {
        is_config(
            Err::<(), _>(error),
            "lock-core:fence is too close to 2^53: set it to a smaller number, or delete it",
        );
    })
    .await;
    let refused = locks
        .reentrant_lock("b")
        .owner(&Owner::new())
        .acquire()
        .await;
    is_config(refused, "too close to 2^53");
    assert_eq!(server.get("lock-core:fence").await, Some(largest));
    assert_eq!(server.keys().await, ["lock-core:fence"]);
    server.flushall().await;
    assert!(locks.lock("a").acquire().await.is_ok());
}

#[tokio::test]
async fn times_of_a_lock_that_cannot_work_are_refused() {
    let lock = memory().await.lock("a");
    let ms = Duration::from_millis;
    for ttl in [Duration::ZERO, ms(9), DAY * 24 + ms(1), Duration::MAX] {
        each_way(&lock.clone().ttl(ttl), |error| {
            is_config(Err::<(), _>(error), "choose one from 10 ms to 24 days");
        })
        .await;
    }
    for ttl in [ms(10), DAY * 24] {
        // A lease of 10 ms may be over before a busy machine has seen it begin; it is not refused.
        let acquired = lock.clone().ttl(ttl).acquire().await;
        let fits = !matches!(acquired, Err(LockError::InvalidConfig { .. }));
        assert!(fits, "{acquired:?}");
    }
    each_way(&lock.clone().max_hold(Duration::ZERO), |error| {
        is_config(Err::<(), _>(error), "leave it out for no limit");
    })
    .await;
    let capped = LockManager::builder()
        .max_hold(ms(50))
        .connect("memory://")
        .await
        .unwrap();
    let too_long = [
        lock.clone().max_hold(ms(50)).at_least(ms(51)),
        capped.lock("a").at_least(ms(51)),
    ];
    for lock in too_long {
        each_way(&lock, |error| {
            is_config(
                Err::<(), _>(error),
                "at_least = 51ms is longer than max_hold = 50ms",
            );
        })
        .await;
    }
    let fixed = lock.clone().renew(false).ttl(ms(500));
    each_way(&fixed.clone().at_least(ms(501)), |error| {
        is_config(
            Err::<(), _>(error),
            "at_least = 501ms is longer than ttl = 500ms, which is not renewed",
        );
    })
    .await;
    let whole = fixed.at_least(ms(500)).acquire().await;
    assert!(whole.is_ok(), "{whole:?}");
    drop(whole);
    let equal = capped.lock("equal").at_least(ms(50)).acquire().await;
    assert!(equal.is_ok(), "{equal:?}");
}

#[tokio::test]
async fn settings_of_a_manager_that_cannot_work_are_refused() {
    type Tweak = fn(LockManagerBuilder) -> LockManagerBuilder;
    let cases: [(Tweak, &str); 15] = [
        (
            |b| b.default_ttl(Duration::ZERO),
            "choose one from 10 ms to 24 days",
        ),
        (
            |b| b.default_ttl(Duration::from_millis(9)),
            "choose one from 10 ms to 24 days",
        ),
        (
            |b| b.default_ttl(DAY * 25),
            "choose one from 10 ms to 24 days",
        ),
        (|b| b.max_hold(Duration::ZERO), "leave it out for no limit"),
        (
            |b| b.command_deadline(Duration::ZERO),
            "give the server time to answer",
        ),
        (
            |b| b.poll_interval(Duration::ZERO),
            "use for example 100 ms",
        ),
        (|b| b.ttl_jitter(f64::NAN), "choose it between 0 and 1"),
        (|b| b.ttl_jitter(-0.1), "choose it between 0 and 1"),
        (|b| b.ttl_jitter(1.1), "choose it between 0 and 1"),
        (|b| b.ttl_jitter(f64::INFINITY), "choose it between 0 and 1"),
        (|b| b.prefix("a{b}"), "put the `{tag}` into the keys"),
        (|b| b.prefix("}"), "put the `{tag}` into the keys"),
        (|b| b.prefix("lock-core:mine"), "choose another"),
        (|b| b.prefix("x".repeat(256)), "choose shorter ones"),
        (
            |b| b.namespace("two words"),
            "choose printable ASCII characters",
        ),
    ];
    for (tweak, phrase) in cases {
        // Before anything is asked of a server: the address does not matter.
        for url in ["memory://", "redis://127.0.0.1:1"] {
            is_config(tweak(LockManager::builder()).connect(url).await, phrase);
        }
    }
}

/// Whatever time a setting has, connecting works or says what is wrong; and then a lock can be taken and given back.
async fn survives(url: &str, what: &str, builder: LockManagerBuilder) {
    // Nothing is sure to answer within a nanosecond; and what was sent may be carried out.
    let hopeless = what.starts_with("command_deadline 1ns");
    let connected = tokio::time::timeout(LIMIT, builder.connect(url)).await;
    let locks = match connected.expect(what) {
        Ok(locks) => locks,
        Err(LockError::InvalidConfig { .. }) => return,
        Err(LockError::Unavailable { .. }) if hopeless => return,
        Err(other) => panic!("{what}: {other:?}"),
    };
    let lock = locks.lock("time");
    let taken = async {
        let guard = lock.acquire_within(LIMIT).await?;
        // Behind others, as well as beside them.
        let others = async { tokio::join!(lock.acquire_within(LIMIT), guard.release()) };
        let (next, released) = others.await;
        if !what.starts_with("max_hold") {
            released?;
        }
        next.map(drop)
    };
    let outcome = tokio::time::timeout(LIMIT, taken).await.expect(what);
    match outcome {
        Err(LockError::Unavailable { .. }) if hopeless => return,
        outcome => assert!(outcome.is_ok(), "{what}: {outcome:?}"),
    }
    let left = tokio::time::timeout(LIMIT, locks.shutdown(LIMIT)).await;
    assert_eq!(left.expect(what), 0, "{what}");
}

#[tokio::test]
async fn no_time_of_a_manager_makes_it_panic_or_hang() {
    type Set = fn(LockManagerBuilder, Duration) -> LockManagerBuilder;
    let settings: [(&str, Set); 4] = [
        ("default_ttl", LockManagerBuilder::default_ttl),
        ("command_deadline", LockManagerBuilder::command_deadline),
        ("max_hold", LockManagerBuilder::max_hold),
        ("poll_interval", LockManagerBuilder::poll_interval),
    ];
    let server = TestServer::start().await;
    let nodes = [TestServer::start().await, TestServer::start().await];
    let addresses = [&server, &nodes[0], &nodes[1]].map(|node| node.addr().to_string());
    let urls = [
        "memory://".to_owned(),
        server.url(),
        format!("redis+quorum://{}", addresses.join(",")),
    ];
    let nodes = addresses.iter().map(|address| format!("redis://{address}"));
    LockManager::builder().begin_quorum(nodes).await.unwrap();
    for url in &urls {
        for (name, set) in settings {
            for time in EXTREMES {
                let what = format!("{name} {time:?} at {url}");
                survives(url, &what, set(LockManager::builder(), time)).await;
            }
        }
        for fraction in [0.0, 1.0, f64::NAN, f64::INFINITY, f64::MAX, -0.0] {
            let builder = LockManager::builder().ttl_jitter(fraction);
            survives(url, &format!("ttl_jitter {fraction}"), builder).await;
        }
        let longest = LockManager::builder().default_ttl(24 * DAY).ttl_jitter(1.0);
        survives(url, "the longest ttl, with jitter", longest).await;
    }
}

#[tokio::test]
async fn no_time_of_a_lock_makes_it_panic_or_hang() {
    type Set = fn(Lock, Duration) -> Lock;
    let settings: [(&str, Set); 3] = [
        ("ttl", Lock::ttl),
        ("max_hold", Lock::max_hold),
        ("at_least", Lock::at_least),
    ];
    let server = TestServer::start().await;
    for url in ["memory://", &server.url()] {
        let locks = LockManager::connect(url).await.unwrap();
        for (name, set) in settings {
            for time in EXTREMES {
                let lock = set(locks.lock(format!("{name}{time:?}")).ttl(DAY), time);
                match lock.acquire_within(LIMIT).await {
                    Ok(guard) => drop(guard),
                    Err(LockError::InvalidConfig { .. }) => {}
                    Err(other) => panic!("{name} {time:?}: {other:?}"),
                }
            }
        }
        for limit in EXTREMES {
            tokio::time::timeout(LIMIT, locks.shutdown(limit))
                .await
                .unwrap_or_else(|_| panic!("a shutdown within {limit:?}"));
        }
    }
}

#[tokio::test]
async fn to_acquire_within_all_time_is_to_acquire() {
    let server = TestServer::start().await;
    let locks = LockManager::builder()
        .command_deadline(Duration::from_millis(200))
        .connect(&server.url())
        .await
        .unwrap();
    let lock = locks.lock("a").ttl(Duration::from_millis(600));
    let guard = lock.acquire_within(Duration::MAX).await.unwrap();
    let (next, released) = tokio::join!(lock.acquire_within(Duration::MAX), guard.release());
    released.unwrap();
    next.unwrap().release().await.unwrap();
    let owner = lock_core::Owner::new();
    let reentrant = locks.reentrant_lock("a").owner(&owner);
    let reentrant = reentrant.ttl(Duration::from_millis(600));
    drop(reentrant.acquire_within(Duration::MAX).await.unwrap());
    server.kill();
    // It ends where the server has been away for a ttl, as without a limit.
    for limit in [Duration::MAX, 400_000 * DAY] {
        let waited = tokio::time::timeout(LIMIT, lock.acquire_within(limit)).await;
        is_unavailable(waited.expect("an end"));
        let waited = tokio::time::timeout(LIMIT, reentrant.acquire_within(limit)).await;
        is_unavailable(waited.expect("an end"));
    }
}

#[tokio::test]
async fn a_url_that_is_not_understood_is_refused() {
    let urls = [
        "",
        "garbage",
        "127.0.0.1:6379",
        "http://127.0.0.1:6379",
        "redis://",
        "redis://127.0.0.1:notaport",
        "redis://127.0.0.1:99999",
        "redis://127.0.0.1/notadatabase",
        "redis://127.0.0.1/?protocol=resp9",
        "memory:/x",
        "memory",
        "redis+unix://",
    ];
    for url in urls {
        let result = LockManager::connect(url).await;
        assert!(result.is_err(), "{url:?} was understood");
        is_config(result, "write `redis://");
    }
}

#[tokio::test]
async fn a_wrong_password_is_a_matter_of_configuration() {
    let server = TestServer::builder()
        .arg("--requirepass", "right")
        .start()
        .await;
    let address = server.addr();
    let wrong = "check the user and the password in the URL";
    for (credentials, phrase) in [
        ("", "it asks for a password"),
        (":wrong@", wrong),
        ("nobody:right@", wrong),
    ] {
        for query in ["", "/?protocol=resp2"] {
            let url = format!("redis://{credentials}{address}{query}");
            is_config(LockManager::connect(&url).await, phrase);
        }
    }
    let locks = LockManager::connect(&format!("redis://:right@{address}"))
        .await
        .unwrap();
    assert!(locks.lock("a").acquire().await.is_ok());
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_a_matter_of_configuration() {
    let server = TestServer::start().await;
    let url = format!("{}/9999", server.url());
    is_config(
        LockManager::connect(&url).await,
        "refused (ERR DB index is out of range)",
    );
}

#[test]
fn outside_a_runtime_connecting_says_so() {
    let polled = |url: &str| {
        let mut connecting = pin!(LockManager::connect(url));
        match connecting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("it waits for what cannot come"),
        }
    };
    for url in ["memory://", "redis://127.0.0.1:6379"] {
        is_config(polled(url), "connect inside one");
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_server, connection) = runtime.block_on(async {
        let server = TestServer::start().await;
        let connection = server.connection().await;
        (server, connection)
    });
    is_config(
        LockManager::from_connection(connection),
        "connect inside one",
    );
}

#[test]
fn a_missing_default_manager_says_how_to_install_one() {
    let error = default_manager().unwrap_err();
    assert!(matches!(error, LockError::NoDefaultManager));
    says(&error, "call `LockManager::install_default` at start-up");
}

#[tokio::test]
async fn a_manager_that_was_shut_down_says_so() {
    let locks = memory().await;
    locks.shutdown(LIMIT).await;
    each_way(&locks.lock("a"), |error| {
        assert!(matches!(error, LockError::ShutDown));
        says(&error, "connect a new one");
    })
    .await;
}

#[tokio::test]
async fn something_else_under_the_name_is_told_by_its_kind_and_left_alone() {
    let server = TestServer::start().await;
    let mut connection = server.connection().await;
    let commands = [
        ("list", "RPUSH lock:list x"),
        ("hash", "HSET lock:hash field x"),
        ("set", "SADD lock:set x"),
        ("string without a ttl", "SET lock:string without a ttl x"),
    ];
    let locks = LockManager::connect(&server.url()).await.unwrap();
    for (kind, command) in commands {
        // The name of the key is the kind, which may hold spaces.
        let (verb, rest) = command.split_once(' ').unwrap();
        let rest = rest.strip_prefix(&format!("lock:{kind} ")).unwrap();
        let mut command = redis::cmd(verb);
        command.arg(format!("lock:{kind}"));
        let () = command
            .arg(rest.split(' ').collect::<Vec<_>>())
            .query_async(&mut connection)
            .await
            .unwrap();
        let mut dump = redis::cmd("DUMP");
        dump.arg(format!("lock:{kind}"));
        let before: Vec<u8> = dump.query_async(&mut connection).await.unwrap();

        let lock = locks.lock(kind);
        let check = |error: LockError| match &error {
            LockError::NotALock {
                key, kind: shown, ..
            } => {
                assert_eq!((&**key, &**shown), (kind, kind));
                says(&error, "choose another key or prefix, or delete it there");
            }
            other => panic!("{kind}: {other:?}"),
        };
        each_way(&lock, check).await;
        check(lock.force_release().await.unwrap_err());
        let info = lock.inspect().await.unwrap();
        assert_eq!(
            (info.foreign(), info.is_held(), info.waiters()),
            (Some(kind), false, 0)
        );

        let after: Vec<u8> = dump.query_async(&mut connection).await.unwrap();
        assert_eq!(before, after, "{kind} was touched");
        assert_eq!(server.pttl(&format!("lock:{kind}")).await, -1);
    }
}

#[tokio::test]
async fn a_lock_that_is_none_for_an_exclusive_lock_has_its_own_advice() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    // As Redisson keeps it: the owner, and the number of its holds.
    let _: i64 = command(&server, "HSET lock:a 8743c9c0:1 1").await;
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    says(
        &error,
        "is a hash, not a lock: if it is a lock of Redisson, use `reentrant_lock`",
    );
    let held = locks.lock("b").acquire().await.unwrap();
    let persisted: i64 = command(&server, "PERSIST lock:b").await;
    assert_eq!(persisted, 1);
    let other = LockManager::connect(&server.url()).await.unwrap();
    let error = other.lock("b").try_acquire().await.unwrap_err();
    says(
        &error,
        "if `PERSIST` has removed the ttl of a lock, set one with `PEXPIRE`",
    );
    drop(held);
}

#[tokio::test]
async fn a_server_that_refuses_writes_is_not_said_to_be_out_of_reach() {
    for (setting, code, advice) in [
        ("--maxmemory", "(OOM ", "give the server more memory"),
        (
            "--min-replicas-to-write",
            "(NOREPLICAS ",
            "too few replicas are connected",
        ),
    ] {
        let server = TestServer::builder().arg(setting, "1").start().await;
        // The first program of a server writes the number of the format, and the next one a lock.
        let first = LockManager::connect(&server.url()).await.unwrap_err();
        let () = command(&server, &format!("CONFIG SET {} 0", &setting[2..])).await;
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let () = command(&server, &format!("CONFIG SET {} 1", &setting[2..])).await;
        let next = locks.lock("a").try_acquire().await.unwrap_err();
        for error in [first, next].map(|error| error.to_string()) {
            assert!(
                error.contains(code) && error.contains(advice) && !error.contains("reached"),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn a_refused_connection_is_unavailable_and_keeps_its_cause() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let error = is_unavailable(LockManager::connect(&format!("redis://{address}")).await);
    let LockError::Unavailable { cause } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(cause.server(), Some(&*address.to_string()));
    let mut cause: Option<&(dyn Error + 'static)> = Some(cause);
    let mut refused = false;
    while let Some(source) = cause {
        refused |= source
            .downcast_ref::<io::Error>()
            .map_or(source.to_string().contains("refused"), |io| {
                io.kind() == io::ErrorKind::ConnectionRefused
            });
        cause = source.source();
    }
    assert!(refused, "{error:?}");
    let nowhere = LockManager::connect("redis+unix:///nonexistent/redis.sock").await;
    let error = is_unavailable(nowhere);
    says(
        &error,
        "the lock server at /nonexistent/redis.sock is not available",
    );
}

/// A server of another kind: greets each connection, then keeps it.
async fn stranger(greeting: &'static [u8]) -> (SocketAddr, AbortHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(greeting).await;
            kept.push(stream);
        }
    });
    (address, accepting.abort_handle())
}

#[tokio::test]
async fn a_server_that_never_answers_is_unavailable_by_the_command_deadline() {
    let (address, accepting) = stranger(b"").await;
    let deadline = Duration::from_millis(200);
    let started = Instant::now();
    let builder = LockManager::builder().command_deadline(deadline);
    let error = is_unavailable(builder.connect(&format!("redis://{address}")).await);
    says(
        &error,
        &format!("the lock server at {address} is not available"),
    );
    assert!(started.elapsed() >= deadline, "it was given its time");
    assert!(started.elapsed() < LIMIT);
    accepting.abort();
}

#[tokio::test]
async fn a_server_that_talks_otherwise_is_a_matter_of_configuration() {
    for greeting in [
        &b"\0\x01\x02\xff\xfe garbage without an end"[..],
        b"220 mail.example ESMTP\r\n",
    ] {
        let (address, accepting) = stranger(greeting).await;
        let connecting = LockManager::builder().command_deadline(Duration::from_millis(500));
        let result = connecting.connect(&format!("redis://{address}")).await;
        let phrase = format!("the server at {address} is no Redis or Valkey server");
        is_config(result, &phrase);
        accepting.abort();
    }
}
