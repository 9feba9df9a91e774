//! What a user of the server must be allowed for the reentrant lock, exactly: the line that the README gives.

use std::fmt::Debug;
use std::time::Duration;

use lock_core::{LockError, LockManager, LossReason, Owner};
use lock_tests::{LIMIT, TestServer, eventually};
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use crate::support::ms;

/// Each is needed; see `without_any_one_of_its_commands_something_is_refused`.
const COMMANDS: [&str; 19] = [
    "evalsha",
    "eval",
    "set",
    "del",
    "type",
    "pttl",
    "pexpire",
    "time",
    "hset",
    "hget",
    "hdel",
    "hlen",
    "hkeys",
    "hexists",
    "hgetall",
    "hmget",
    "hincrby",
    "publish",
    "subscribe",
];
/// The application's locks are `order:*`. The channel is passed to the scripts as a key, as Redisson passes it, so that a
/// cluster checks its slot; nothing is stored there.
const KEYS: &str = "~order:* ~lock-core:* ~redisson_lock__channel:*";
const CHANNELS: &str = "&lock-core:* &redisson_lock__channel:*";

struct Guarded {
    server: TestServer,
    admin: MultiplexedConnection,
}

impl Guarded {
    async fn start() -> Self {
        let server = TestServer::start().await;
        let admin = server.connection().await;
        Self { server, admin }
    }

    async fn admin(&mut self, words: &[&str]) {
        let mut command = redis::cmd(words[0]);
        let () = command
            .arg(&words[1..])
            .query_async(&mut self.admin)
            .await
            .unwrap();
    }

    /// The user `app`, with these commands and nothing else.
    async fn allow(&mut self, commands: impl IntoIterator<Item = &str>) {
        let commands: Vec<_> = commands
            .into_iter()
            .map(|name| format!("+{name}"))
            .collect();
        let mut words = vec!["ACL", "SETUSER", "app", "reset", "on", ">secret"];
        words.extend(KEYS.split(' ').chain(CHANNELS.split(' ')));
        words.extend(commands.iter().map(String::as_str));
        self.admin(&words).await;
    }

    async fn allow_all_but(&mut self, missing: &str) {
        self.allow(COMMANDS.into_iter().filter(|name| *name != missing))
            .await;
    }

    async fn locks(&self) -> Result<LockManager, LockError> {
        LockManager::builder()
            .command_deadline(LIMIT)
            .connect(&format!("redis://app:secret@{}", self.server.addr()))
            .await
    }
}

/// Everything that a reentrant lock does. Answers whether the old holder was told of the forced release by a message.
async fn whole_life(guarded: &mut Guarded) -> Result<bool, String> {
    fn step<T, E: Debug>(name: &str, result: Result<T, E>) -> Result<T, String> {
        result.map_err(|error| format!("{name}: {error:?}"))
    }

    // So that every script is sent anew.
    guarded.admin(&["SCRIPT", "FLUSH"]).await;
    guarded.admin(&["FLUSHALL"]).await;
    guarded.admin(&["RPUSH", "order:foreign", "x"]).await;
    let locks = step("connect", guarded.locks().await)?;
    let others = step("connect", guarded.locks().await)?;
    let lock = locks.reentrant_lock("order:7").owner(&Owner::new());
    let other = others.reentrant_lock("order:7");

    // Taken twice, waited for, given back twice.
    let outer = step("acquire", lock.acquire().await)?;
    let inner = step("enter", lock.acquire().await)?;
    assert!(step("try_acquire", other.try_acquire().await)?.is_none());
    match other.acquire_within(ms(500)).await {
        Err(LockError::TimedOut { .. }) => {}
        result => return step("wait", result).map(|_| unreachable!("it is held")),
    }
    let waiter = other.clone();
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    step("leave", inner.release().await)?;
    step("release", outer.release().await)?;
    let next = timeout(LIMIT, waiting).await.expect("granted").unwrap();
    step("release", step("wait", next)?.release().await)?;

    // Renewed, or lost for want of it.
    let ttl = ms(900);
    let guard = step("acquire", lock.clone().ttl(ttl).acquire().await)?;
    if let Ok(reason) = timeout(ttl * 2, guard.lost()).await {
        return Err(format!("renew: {reason}"));
    }
    step("release", guard.release().await)?;

    // A name that is taken is told by its kind.
    match locks.reentrant_lock("order:foreign").try_acquire().await {
        Err(LockError::ForeignKey { kind, .. }) => assert_eq!(kind, "list"),
        result => return step("foreign", result).map(|_| unreachable!("a list is no lock")),
    }

    // Taken away.
    let ttl = Duration::from_secs(2);
    let guard = step("acquire", lock.clone().ttl(ttl).acquire().await)?;
    assert!(step("force_release", other.force_release().await)?);
    assert!(!step("inspect", other.inspect().await)?.is_held());
    Ok(timeout(LIMIT, guard.lost()).await.expect("lost") == LossReason::ForceReleased)
}

#[tokio::test]
async fn a_user_with_the_listed_permissions_can_do_everything() {
    let mut guarded = Guarded::start().await;
    guarded.allow(COMMANDS).await;
    assert_eq!(whole_life(&mut guarded).await, Ok(true));
    println!(
        "ACL SETUSER app on >secret {KEYS} {CHANNELS} +{}",
        COMMANDS.join(" +")
    );
}

#[tokio::test]
async fn without_any_one_of_its_commands_something_is_refused() {
    // Not the two that can be done without, which have a test of their own.
    for missing in COMMANDS
        .into_iter()
        .filter(|name| !["publish", "subscribe"].contains(name))
    {
        let mut guarded = Guarded::start().await;
        guarded.allow_all_but(missing).await;
        let refused = whole_life(&mut guarded).await;
        println!("without {missing}: {refused:?}");
        assert!(refused.is_err(), "{missing} is not needed");
    }
}

#[tokio::test]
async fn without_messages_a_waiter_asks_now_and_then() {
    for missing in ["publish", "subscribe"] {
        let mut guarded = Guarded::start().await;
        guarded.allow_all_but(missing).await;
        assert_eq!(whole_life(&mut guarded).await, Ok(false), "{missing}");
    }
    // The channels of the locks alone: the client's own still tells of a forced release.
    let mut guarded = Guarded::start().await;
    guarded.allow(COMMANDS).await;
    guarded
        .admin(&["ACL", "SETUSER", "app", "resetchannels", "&lock-core:*"])
        .await;
    assert_eq!(whole_life(&mut guarded).await, Ok(true));
}

#[tokio::test]
async fn a_lock_outside_the_pattern_is_a_matter_of_configuration_and_leaves_nothing() {
    let mut guarded = Guarded::start().await;
    guarded.allow(COMMANDS).await;
    let locks = guarded.locks().await.unwrap();
    let refused = locks.reentrant_lock("elsewhere").acquire().await;
    assert!(
        matches!(refused, Err(LockError::InvalidConfig { .. })),
        "{refused:?}"
    );
    eventually("nothing is left", LIMIT, async || {
        guarded.server.keys().await.is_empty()
    })
    .await;
}
