//! What is said aloud: spans with what operators need, and neither a token nor a password, however much is logged.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use lock_core::{LockError, LockManager, LossReason};
use lock_tests::{Capture, LIMIT, Said, TestServer, eventually};
use tokio::net::TcpListener;

const PASSWORD: &str = "hunter2-S3cr3t";

/// Everything that may not be shown, and everything that was.
struct Witness {
    capture: Capture,
    secrets: BTreeSet<String>,
    shown: Vec<String>,
}

impl Witness {
    fn start() -> Self {
        Self {
            capture: Capture::start(),
            secrets: BTreeSet::from([PASSWORD.to_owned()]),
            shown: Vec::new(),
        }
    }

    fn shown(&mut self, value: &impl Debug) {
        self.shown.push(format!("{value:?}\n{value:#?}\n"));
    }

    fn error(&mut self, error: &LockError) {
        self.shown(error);
        self.shown.push(format!("{error}\n"));
        let mut cause = std::error::Error::source(error);
        while let Some(source) = cause {
            self.shown
                .push(format!("{source}\n{source:?}\n{source:#?}\n"));
            cause = source.source();
        }
    }

    /// A token is the id of the manager, which is its part to guess, and a number.
    fn token(&mut self, token: &str) {
        let mut parts = token.splitn(3, ':');
        let [client, number, name] = [(); 3].map(|()| parts.next().expect("a token"));
        assert_eq!(client.len(), 36);
        assert!(number.parse::<u64>().is_ok() && !name.is_empty());
        self.secrets.insert(client.to_owned());
        // Nor a part of it beyond the eight characters by which managers are told apart.
        self.secrets.extend(
            client
                .split('-')
                .skip(1)
                .filter(|part| part.len() > 4)
                .map(str::to_owned),
        );
        self.secrets.insert(client[..13].to_owned());
    }

    fn spans(&self, name: &str, key: &str) -> Vec<Said> {
        let mut spans = self.capture.spans(name);
        spans.retain(|span| span.field("key") == Some(key));
        spans
    }

    fn outcomes(&self, name: &str, key: &str) -> Vec<String> {
        let spans = self.spans(name, key);
        let outcomes = spans.iter().filter_map(|span| span.field("outcome"));
        outcomes.map(str::to_owned).collect()
    }

    fn verdict(self) {
        let text = self.capture.text() + &self.shown.concat();
        assert!(text.contains("lock.acquire"), "nothing was captured");
        for secret in &self.secrets {
            if let Some(at) = text.find(secret) {
                let around = text[..at].chars().rev().take(300);
                let before: String = around.collect::<Vec<_>>().iter().rev().collect();
                panic!("{secret} is shown after: {before}");
            }
        }
    }
}

/// A server with a password, and a URL that knows it.
async fn guarded() -> (TestServer, String) {
    let server = TestServer::builder()
        .arg("--requirepass", PASSWORD)
        .start()
        .await;
    let url = format!("redis://:{PASSWORD}@{}", server.addr());
    (server, url)
}

/// The token that holds a lock, as the server has it.
async fn token(url: &str, key: &str) -> String {
    let mut connection = lock_tests::connect(url).await;
    redis::cmd("GET")
        .arg(format!("lock:{key}"))
        .query_async(&mut connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_whole_life_shows_neither_token_nor_password() {
    let (_server, url) = guarded().await;
    let mut witness = Witness::start();
    let builder = LockManager::builder().command_deadline(LIMIT);
    witness.shown(&builder);
    let locks = builder.clone().connect(&url).await.unwrap();
    let others = builder.connect(&url).await.unwrap();
    let (lock, other) = (locks.lock("a"), others.lock("a"));
    witness.shown(&locks);
    witness.shown(&lock);

    // Taken, refused to another, waited for, handed over.
    let guard = lock.acquire().await.unwrap();
    witness.token(&token(&url, "a").await);
    witness.shown(&guard);
    witness.shown(&lock.inspect().await.unwrap());
    let brief = Duration::from_millis(300);
    witness.error(&other.acquire_within(Duration::ZERO).await.unwrap_err());
    witness.error(&other.acquire_within(brief).await.unwrap_err());
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.acquire().await.unwrap() }
    });
    eventually("it is queued", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == 1
    })
    .await;
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();
    witness.token(&token(&url, "a").await);
    witness.shown(&guard);

    // Taken away, then renewed, then deleted, then dropped.
    assert!(lock.force_release().await.unwrap());
    assert_eq!(guard.lost().await, LossReason::ForceReleased);
    witness.error(&guard.release().await.unwrap_err());
    let kept = locks
        .lock("kept")
        .ttl(Duration::from_secs(3))
        .acquire()
        .await
        .unwrap();
    eventually("it was renewed", LIMIT, async || {
        let renewals = witness.capture.spans("lock.renew");
        renewals
            .iter()
            .any(|span| span.field("outcome") == Some("renewed"))
    })
    .await;
    let mut connection = lock_tests::connect(&*url).await;
    let () = redis::cmd("DEL")
        .arg("lock:kept")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(kept.lost().await, LossReason::Gone);
    drop(lock.acquire().await.unwrap());
    locks.shutdown(LIMIT).await;
    others.shutdown(LIMIT).await;
    witness.error(&lock.acquire().await.unwrap_err());
    witness.verdict();
}

#[tokio::test]
async fn errors_show_neither_token_nor_password() {
    let (server, url) = guarded().await;
    let mut witness = Witness::start();
    let address = server.addr();
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let wrong = format!("{PASSWORD}-wrong");
    for url in [
        format!("redis://:{wrong}@{address}"),
        format!("redis://{wrong}:{wrong}@{address}"),
        format!("redis://:{wrong}@{address}/?protocol=resp2"),
        format!("redis://:{PASSWORD}@{address}/9999"),
        format!("redis://:{PASSWORD}@{closed}"),
        format!("rediss://:{PASSWORD}@{closed}"),
        format!("http://:{PASSWORD}@{address}"),
        format!("redis://:{PASSWORD}@127.0.0.1:notaport"),
        format!("redis://:{PASSWORD}@127.0.0.1:99999"),
        format!("redis://:{PASSWORD}@{address}/notadatabase"),
        format!("redis://:{PASSWORD}"),
        format!("redis+unix:///nonexistent.sock?pass={PASSWORD}"),
        format!("{PASSWORD}@{address}"),
        PASSWORD.to_owned(),
    ] {
        // The password is no part of a message, whatever else is wrong.
        let result = LockManager::builder()
            .command_deadline(LIMIT)
            .connect(&url)
            .await;
        witness.error(&result.expect_err(&url));
    }

    let nodes = [&url, &url, &url];
    witness.shown(&LockManager::builder().begin_quorum(nodes));

    // A server that vanishes: holders, waiters and releases all have something to say.
    let locks = LockManager::builder()
        .command_deadline(LIMIT)
        .connect(&url)
        .await
        .unwrap();
    let lock = locks.lock("a").ttl(Duration::from_secs(3));
    let guard = lock.acquire().await.unwrap();
    let dropped = locks
        .lock("b")
        .ttl(Duration::from_secs(1))
        .acquire()
        .await
        .unwrap();
    witness.token(&token(&url, "a").await);
    server.kill();
    drop(dropped);
    let limit = Duration::from_millis(300);
    witness.error(&lock.acquire_within(limit).await.unwrap_err());
    witness.error(&lock.try_acquire().await.unwrap_err());
    witness.error(&lock.inspect().await.unwrap_err());
    witness.error(&lock.force_release().await.unwrap_err());
    assert_eq!(guard.lost().await, LossReason::Expired);
    witness.error(&guard.release().await.unwrap_err());
    eventually("the lost release is logged", LIMIT, async || {
        let events = witness.capture.events();
        events
            .iter()
            .any(|event| event.message().contains("did not confirm a release"))
    })
    .await;
    witness.verdict();
}

#[tokio::test]
async fn spans_tell_key_label_outcome_holder_and_times() {
    let server = TestServer::start().await;
    let witness = Witness::start();
    let builder = LockManager::builder().command_deadline(LIMIT);
    let locks = builder.connect(&server.url()).await.unwrap();
    let lock = locks.lock("order:42").label("order");
    let lock = lock.ttl(Duration::from_secs(3));

    let guard = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let limit = Duration::from_millis(400);
    assert!(lock.acquire_within(limit).await.is_err());
    let patience = Duration::from_millis(1);
    assert!(
        tokio::time::timeout(patience, lock.acquire())
            .await
            .is_err()
    );
    eventually("it was renewed", LIMIT, async || {
        let renewals = witness.capture.spans("lock.renew");
        renewals
            .iter()
            .any(|span| span.field("outcome") == Some("renewed"))
    })
    .await;
    guard.release().await.unwrap();
    drop(lock.acquire().await.unwrap());
    let guard = lock.acquire().await.unwrap();
    assert!(lock.force_release().await.unwrap());
    guard.lost().await;
    assert!(guard.release().await.is_err());

    let key = "order:42";
    assert_eq!(
        witness.outcomes("lock.acquire", key),
        ["free", "busy", "timed_out", "cancelled", "free", "granted"]
    );
    assert_eq!(
        witness.outcomes("lock.hold", key),
        ["released", "dropped", "lost"]
    );
    assert_eq!(witness.outcomes("lock.release", key), ["released", "lost"]);
    let number = |span: &Said, field: &str| -> f64 {
        let value = span
            .field(field)
            .unwrap_or_else(|| panic!("{field} of {span:?}"));
        value.parse().unwrap()
    };
    let acquires = witness.spans("lock.acquire", key);
    for span in &acquires {
        assert_eq!(span.field("label"), Some("order"));
        // A free lock takes less than a millisecond, and is no zero.
        assert!(number(span, "waited_ms") > 0.0);
    }
    assert!(number(&acquires[2], "waited_ms") >= 400.0);
    for refused in &acquires[1..3] {
        assert!(refused.field("holder").is_some(), "{refused:?}");
    }
    let holds = witness.spans("lock.hold", key);
    for span in &holds {
        number(span, "held_ms");
        number(span, "fencing_token");
    }
    // The first was held until it was renewed, which is due after about a third of its ttl.
    assert!(number(&holds[0], "held_ms") >= 500.0);
    // A renewal is for many locks, so it tells how many.
    assert_eq!(
        witness.capture.spans("lock.renew")[0].field("locks"),
        Some("1")
    );
    witness.verdict();
}

#[tokio::test]
async fn a_loss_is_one_warning_with_key_reason_and_time() {
    let server = TestServer::start().await;
    let capture = Capture::start();
    let builder = LockManager::builder().command_deadline(LIMIT);
    let locks = builder.connect(&server.url()).await.unwrap();
    let lock = locks.lock("order:42");
    // Told while it is held, found by a scope, and found by the release.
    let told = lock.acquire().await.unwrap();
    assert!(lock.force_release().await.unwrap());
    assert_eq!(told.lost().await, LossReason::ForceReleased);
    drop(told);
    let result = lock
        .with(async |guard| {
            assert!(lock.force_release().await.unwrap());
            guard.lost().await;
        })
        .await;
    assert!(result.is_err());
    let found = lock.acquire().await.unwrap();
    server.flushall().await;
    assert!(found.release().await.is_err());
    let warnings: Vec<_> = capture
        .events()
        .into_iter()
        .filter(|event| event.level == tracing::Level::WARN)
        .collect();
    let shown = warnings.iter().map(|warning| {
        (
            warning.message(),
            warning.field("key"),
            warning.field("reason"),
        )
    });
    let lost = |reason| ("a lock was lost", Some("order:42"), Some(reason));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            lost("it was force-released"),
            lost("it was force-released"),
            lost("the server no longer has it"),
        ]
    );
    for warning in warnings {
        assert!(
            warning
                .field("held_ms")
                .is_some_and(|held| held.parse::<u64>().is_ok())
        );
    }
}

#[tokio::test]
async fn a_loss_is_reported_while_no_task_looks_at_the_guard() {
    let server = TestServer::start().await;
    let capture = Capture::start();
    let builder = LockManager::builder().command_deadline(LIMIT);
    let locks = builder.connect(&server.url()).await.unwrap();
    let ttl = Duration::from_millis(900);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    server.flushall().await;
    let lost = || {
        let mut events = capture.events();
        events.retain(|event| event.message() == "a lock was lost");
        events
    };
    eventually("the loss is reported", LIMIT, async || !lost().is_empty()).await;
    drop(guard);
    locks.shutdown(LIMIT).await;
    assert_eq!(lost().len(), 1);
}
