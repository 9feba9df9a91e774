//! The table of errors in `docs/errors.md` has each sentence as the code gives it. `UPDATE_ERRORS=1` writes the page anew.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use std::{env, fs, io};

use lock_core::{
    Credentials, GuardedScript, LockError, LockManager, LockManagerBuilder, LossReason, Owner,
};
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisFuture, RedisResult, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HEAD: &str = "# Errors and their advice

Each sentence as the library gives it, with the server at `server:6379`. `cargo test -p lock-tests --test pages errors` compares this page with
the code, and writes it anew with `UPDATE_ERRORS=1`. What an operator does next is in [Operating][operating].

[operating]: operating.md
";

/// The rows of one kind of error.
#[derive(Default)]
struct Page(String);

impl Page {
    fn section(&mut self, name: &str) {
        let head = "| When | Where | Sentence |\n|---|---|---|";
        write!(self.0, "\n## {name}\n\n{head}\n").unwrap();
    }

    #[expect(clippy::needless_pass_by_value, reason = "an error or a text")]
    fn row(&mut self, when: &str, place: &str, sentence: impl ToString) {
        let sentence = sentence.to_string().replace('|', "\\|");
        assert!(!sentence.contains('\n'), "{sentence}");
        writeln!(self.0, "| {when} | {place} | {sentence} |").unwrap();
    }
}

/// Replies that a server gives to every request but HELLO.
const REPLIES: [(&str, &str); 22] = [
    ("it asks for a password", "NOAUTH Authentication required."),
    (
        "a wrong password",
        "WRONGPASS invalid username-password pair or user is disabled.",
    ),
    (
        "protected mode",
        "DENIED Redis is running in protected mode",
    ),
    ("a missing database", "ERR DB index is out of range"),
    (
        "a command that the user may not run",
        "NOPERM this user has no permissions to run the 'evalsha' command",
    ),
    (
        "a command that a script may not run",
        "ERR The user executing the script can't run this command or subcommand",
    ),
    (
        "a key that the user may not use",
        "NOPERM this user has no permissions to access one of the keys used as arguments",
    ),
    ("an unknown error", "ERR internal error"),
    (
        "full memory",
        "OOM command not allowed when used memory > 'maxmemory'.",
    ),
    (
        "a script that does not end",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    ),
    (
        "such a script that has written",
        "UNKILLABLE Sorry the script already executed write commands against the dataset.",
    ),
    (
        "a full disk",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    ),
    (
        "too few replicas",
        "NOREPLICAS Not enough good replicas to write.",
    ),
    (
        "a replica",
        "READONLY You can't write against a read only replica.",
    ),
    (
        "a replica without its master",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    ),
    (
        "a server that starts",
        "LOADING Redis is loading the dataset in memory",
    ),
    ("too many connections", "ERR max number of clients reached"),
    ("a node of a cluster", "MOVED 1 10.0.0.1:6379"),
    (
        "a node of a cluster",
        "CROSSSLOT Keys in request don't hash to the same slot",
    ),
    ("a node of a cluster", "CLUSTERDOWN The cluster is down"),
    (
        "a node of a cluster",
        "TRYAGAIN Multiple keys request during rehashing of slot",
    ),
    ("a node of a cluster", "ASK 1 10.0.0.1:6379"),
];

/// A server that greets in this way, and gives one reply to all else. Its address.
async fn server(greeting: String, reply: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (greeting, reply) = (greeting.clone(), reply.clone());
            tokio::spawn(async move {
                let mut requests = lock_tests::resp::Splitter::default();
                let mut bytes = [0; 8192];
                while let Ok(size @ 1..) = stream.read(&mut bytes).await {
                    requests.push(&bytes[..size]);
                    while let Ok(Some(request)) = requests.next_frame() {
                        let is_hello = request.windows(5).any(|it| it == b"HELLO");
                        let answer = if is_hello { &greeting } else { &reply };
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                }
            });
        }
    });
    address
}

fn greeting(mode: &str, role: &str, version: &str) -> String {
    let fields = [("mode", mode), ("role", role), ("version", version)];
    let fields = fields.map(|(name, value)| format!("+{name}\r\n+{value}\r\n"));
    format!("%3\r\n{}", fields.concat())
}

/// A server in order, but for its reply to all requests.
async fn replies(reply: &str) -> String {
    let master = greeting("standalone", "master", "8.0.0");
    server(master, format!("-{reply}\r\n")).await
}

const BROKEN: &str = "broken";

/// A connection of the user on which each request fails so.
#[derive(Clone)]
struct Fails(&'static str);

impl ConnectionLike for Fails {
    fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
        if self.0 == BROKEN {
            let broken = io::Error::from(io::ErrorKind::BrokenPipe);
            return Box::pin(async { Err(broken.into()) });
        }
        let reply = format!("-{}\r\n", self.0);
        let answer = redis::parse_redis_value(reply.as_bytes());
        Box::pin(async move { answer?.extract_error() })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async { RedisResult::Ok(Vec::new()) })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

fn builder() -> LockManagerBuilder {
    LockManager::builder().command_deadline(Duration::from_millis(500))
}

/// The error of `connect`, or that of the first call.
async fn error_of(builder: LockManagerBuilder, url: &str) -> LockError {
    match builder.connect(url).await {
        Err(error) => error,
        Ok(locks) => tried(&locks).await,
    }
}

async fn tried(locks: &LockManager) -> LockError {
    locks
        .lock("order:7")
        .try_acquire()
        .await
        .map(drop)
        .unwrap_err()
}

fn shown(error: &LockError, address: &str) -> String {
    error.to_string().replace(address, "server:6379")
}

fn kind(error: &LockError) -> &'static str {
    match error {
        LockError::InvalidConfig { .. } => "InvalidConfig",
        LockError::Unavailable { .. } => "Unavailable",
        other => panic!("{other:?}"),
    }
}

/// Variants that a caller gets from every backend.
fn of_calls(page: &mut Page) {
    page.section("`LockError` of a call");
    let key = || "order:7".to_owned();
    let holder = || Some("orders-7".into());
    let all = "each";
    let busy = |retry_after, holder| LockError::Busy {
        key: key(),
        retry_after,
        holder,
    };
    let rest = Some(Duration::from_millis(1500));
    page.row("`Busy`: another holder, no wait", all, busy(rest, holder()));
    page.row("`Busy`: the holder has no name", all, busy(None, None));
    let waited = Duration::from_secs(2);
    let late = LockError::TimedOut {
        key: key(),
        waited,
        holder: holder(),
    };
    page.row("`TimedOut`: the wait has ended", all, late);
    let own = LockError::Deadlock { key: key() };
    page.row("`Deadlock`: the caller holds it", all, own);
    let none = LockError::Exhausted { key: key() };
    page.row("`Exhausted`: a segmented lock without segments", all, none);
    for (name, reason) in [
        ("Expired", LossReason::Expired),
        ("Gone", LossReason::Gone),
        ("ForceReleased", LossReason::ForceReleased),
        ("MaxHold", LossReason::MaxHold),
        ("ShutDown", LossReason::ShutDown),
    ] {
        let lost = LockError::Lost { key: key(), reason };
        page.row(&format!("`Lost`: `LossReason::{name}`"), all, lost);
    }
    for kind in [
        "list",
        "hash",
        "string",
        "semaphore",
        "read-write",
        "string without a ttl",
    ] {
        let other = LockError::NotALock {
            key: key(),
            stored: format!("lock:{}", key()).into(),
            kind: kind.to_owned(),
        };
        page.row("`NotALock`: the name is used by something else", all, other);
    }
    let other = LockError::OtherMax {
        key: key(),
        max: 9,
        in_use: 8,
    };
    page.row(
        "`OtherMax`: programs name different numbers",
        "one master, a cluster, memory",
        other,
    );
    let late = LockError::NotOpen {
        key: key(),
        left: 2,
        waited: Duration::from_secs(5),
    };
    page.row(
        "`NotOpen`: a latch was not open in time",
        "one master, a cluster, memory",
        late,
    );
    let many = LockError::TooManyPermits {
        key: key(),
        permits: 9,
        max: 8,
    };
    page.row(
        "`TooManyPermits`: more than there are",
        "one master, a cluster, memory",
        many,
    );
    let other = LockError::OtherCount {
        key: key(),
        count: 4,
        made_for: 3,
    };
    page.row(
        "`OtherCount`: programs name different numbers",
        "one master, a cluster, memory",
        other,
    );
}

/// Those that real calls give.
async fn of_use(page: &mut Page) {
    let locks = LockManager::connect("memory://errors").await.unwrap();
    for key in ["", "lock-core:x", "a{}b", "a\nb", &"x".repeat(1100)] {
        if let Err(error) = locks.lock(key).try_acquire().await {
            page.row("`InvalidKey`: it cannot be used", "each", error);
        }
    }
    let guard = locks.lock("order:7").acquire().await.unwrap();
    let script = GuardedScript::new("return 1");
    let failed = guard.guarded(&script).run::<u64>().await;
    page.row("a guarded script", "memory", failed.unwrap_err());
    let reason = "user_script:1: on purpose".to_owned();
    let failed = LockError::Script { reason };
    page.row("`Script`: it has failed", "one master, a cluster", failed);
    page.row(
        "`NoDefaultManager`",
        "the attribute",
        LockError::NoDefaultManager,
    );
    page.row(
        "`ShutDown`: a call after `shutdown`",
        "each",
        LockError::ShutDown,
    );
}

/// What a server replies, by the way in which the manager was made.
async fn of_replies(page: &mut Page) {
    page.section("`InvalidConfig` and `Unavailable`: what the server replies");
    for (when, reply) in REPLIES {
        let address = replies(reply).await;
        let by_url = error_of(builder(), &format!("redis://{address}")).await;
        let users = LockManager::from_connection(Fails(reply)).unwrap();
        for (place, error) in [
            ("a URL", by_url),
            ("`from_connection`", tried(&users).await),
        ] {
            let when = format!("`{}`: {when}", kind(&error));
            page.row(&when, place, shown(&error, &address));
        }
    }
    let broken = LockManager::from_connection(Fails(BROKEN)).unwrap();
    let error = tried(&broken).await;
    page.row("`Unavailable`: it is lost", "`from_connection`", error);
    let users = LockManager::from_connection(Fails(REPLIES[6].1)).unwrap();
    let owner = Owner::new();
    let lock = users.reentrant_lock("order:7").owner(&owner);
    let error = lock.try_acquire().await.map(drop).unwrap_err();
    page.row("`InvalidConfig`: a key of a reentrant lock", "each", error);
}

/// What answers at the address.
async fn of_servers(page: &mut Page) {
    page.section("`InvalidConfig` and `Unavailable`: what is at the address");
    let ok = || "+OK\r\n".to_owned();
    for (when, greeting, reply) in [
        (
            "a replica",
            greeting("standalone", "replica", "8.0.0"),
            ok(),
        ),
        ("a sentinel", greeting("sentinel", "master", "8.0.0"), ok()),
        (
            "a node of a cluster",
            greeting("cluster", "master", "8.0.0"),
            ok(),
        ),
        (
            "an old server",
            greeting("standalone", "master", "6.0.16"),
            ok(),
        ),
        (
            "an HTTP server",
            "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned(),
            ok(),
        ),
        ("another server", "220 mail ESMTP\r\n".to_owned(), ok()),
        ("no answer", String::new(), String::new()),
    ] {
        let address = server(greeting, reply).await;
        let error = error_of(builder(), &format!("redis://{address}")).await;
        let when = format!("`{}`: {when}", kind(&error));
        page.row(&when, "a URL", shown(&error, &address));
    }
    let master = greeting("standalone", "master", "8.0.0");
    let disabled = "-ERR This instance has cluster support disabled\r\n";
    let address = server(master, disabled.to_owned()).await;
    let error = error_of(builder(), &format!("redis+cluster://{address}")).await;
    page.row(
        &format!("`{}`: no cluster", kind(&error)),
        "a cluster",
        shown(&error, &address),
    );
    for (place, url) in [
        ("a URL", "redis://127.0.0.1:1"),
        ("a Unix socket", "redis+unix:///none.sock"),
        ("sentinels", "redis+sentinel://127.0.0.1:1/orders"),
        ("a cluster", "redis+cluster://127.0.0.1:1"),
        (
            "a quorum",
            "redis+quorum://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
        ),
    ] {
        let error = error_of(builder(), url).await;
        page.row("`Unavailable`: nothing listens", place, error);
    }
}

/// A provider of credentials.
async fn of_providers(page: &mut Page) {
    page.section("`Unavailable`: a provider of credentials");
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let address = server(wrong.to_owned(), wrong.to_owned()).await;
    let url = format!("redis://{address}");
    let gives = async || Ok::<_, LockError>(Credentials::new("orders", "old"));
    let refused = builder().credentials(gives);
    let error = error_of(refused, &url).await;
    page.row("a login that is refused", "a URL", shown(&error, &address));
    let fails = builder().credentials(|| async { Err::<Credentials, _>("the vault is sealed") });
    let error = error_of(fails, &url).await;
    page.row("it has none", "a URL", shown(&error, &address));
}

/// Mistakes in a URL.
fn of_urls(page: &mut Page) {
    page.section("`InvalidConfig`: the URL");
    for url in [
        "localhost:6379",
        "http://host",
        "other://host",
        "redis://a,b",
        "redis://host/x",
        "redis://host?protocol=resp9",
        "redis://host?protocl=resp2",
        "redis://host?protocol=resp2&protocol=resp2",
        "rediss://host#insecure",
        "redis+unix:///path?database=1",
        "redis+sentinel://s1,s2",
        "redis+sentinel://s1,,s2/orders",
        "redis+sentinel://s1/orders?node=a",
        "redis+cluster://a,b/1",
        "redis+cluster://a:x",
        "redis+cluster://a,,b",
        "redis+quorum://a,b",
        "redis+quorum://a,b,a",
        "redis+quorum://a,b,c?protocl=resp2",
        "redis+quorum://a,b,c?node=",
    ] {
        let error = builder().connect_lazily(url).unwrap_err();
        page.row(&format!("`{url}`"), "each URL", error);
    }
    let provided = builder().credentials(async || Ok::<_, LockError>(Credentials::new("a", "b")));
    let error = provided
        .connect_lazily("redis://user:password@host")
        .unwrap_err();
    page.row("a provider and a password", "a URL", error);
}

/// Settings out of range.
fn of_settings(page: &mut Page) {
    page.section("`InvalidConfig`: settings");
    let (zero, day) = (Duration::ZERO, Duration::from_secs(86_400));
    let with = LockManager::builder;
    for (setting, builder) in [
        ("prefix", with().prefix("a{b}")),
        ("prefix", with().prefix("lock-core:")),
        ("prefix", with().prefix("x".repeat(256))),
        ("namespace", with().namespace("a b")),
        ("client_name", with().client_name("a b")),
        ("ttl_jitter", with().ttl_jitter(2.0)),
        ("default_ttl", with().default_ttl(zero)),
        ("max_hold", with().max_hold(zero)),
        ("default_wait", with().default_wait(zero)),
        ("unavailable_after", with().unavailable_after(zero)),
        ("command_deadline", with().command_deadline(zero)),
        ("poll_interval", with().poll_interval(day)),
        ("handover_limit", with().handover_limit(0)),
        ("clock_skew", with().clock_skew(zero)),
        ("quorum_wait", with().quorum_wait(zero)),
    ] {
        let error = builder.connect_lazily("memory://").unwrap_err();
        page.row(&format!("`{setting}`"), "each", error);
    }
}

/// Settings of one lock, and kinds that a backend has not.
async fn of_locks(page: &mut Page) {
    page.section("`InvalidConfig`: a lock");
    let locks = LockManager::connect("memory://errors").await.unwrap();
    let (second, lock) = (Duration::from_secs(1), || locks.lock("a"));
    let fixed = lock().ttl(second).renew(false).at_least(second * 2);
    let capped = lock().max_hold(second).at_least(second * 2);
    for (setting, lock) in [
        ("`at_least` without renewal", fixed),
        ("`at_least` and `max_hold`", capped),
        ("`at_least`", lock().at_least(second * 86_400 * 30)),
    ] {
        let error = lock.try_acquire().await.map(drop).unwrap_err();
        page.row(setting, "each", error);
    }
    let errors = [
        locks.semaphore("s", 0).try_acquire().await.map(drop),
        locks.semaphore("s", 3).permits(0).acquire().await.map(drop),
        locks.segmented_lock("s", 0).try_acquire().await.map(drop),
        locks.latch("l", 0).wait().await,
        locks.latch("l", 3).count_down("").await.map(drop),
    ];
    for error in errors {
        page.row(
            "a number or a text out of range",
            "each",
            error.unwrap_err(),
        );
    }
    let quorum = "redis+quorum://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    let quorum = builder().connect_lazily(quorum).unwrap();
    let owner = Owner::new();
    let errors = [
        quorum
            .reentrant_lock("a")
            .owner(&owner)
            .try_acquire()
            .await
            .map(drop),
        quorum.latch("l", 3).wait().await,
    ];
    for error in errors {
        page.row("a kind that it has not", "a quorum", error.unwrap_err());
    }
}

/// Proves P11.
#[tokio::test]
async fn the_page_of_errors_has_each_sentence_of_the_code() {
    let mut page = Page(HEAD.to_owned());
    of_calls(&mut page);
    of_use(&mut page).await;
    of_replies(&mut page).await;
    of_servers(&mut page).await;
    of_providers(&mut page).await;
    of_urls(&mut page);
    of_settings(&mut page);
    of_locks(&mut page).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors.md");
    if env::var_os("UPDATE_ERRORS").is_some() {
        fs::write(&file, &page.0).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    for (line, (now, then)) in page.0.lines().zip(written.lines()).enumerate() {
        assert_eq!(
            now,
            then,
            "line {} of docs/errors.md: UPDATE_ERRORS=1",
            line + 1
        );
    }
    assert_eq!(
        page.0.len(),
        written.len(),
        "docs/errors.md: UPDATE_ERRORS=1"
    );
}
