//! What a user of the server must be allowed for the reentrant lock, exactly: the second line that the page for
//! operators gives.

use std::fmt::Debug;
use std::time::Duration;

use lock_core::{GuardedScript, LockError, LockManager, LossReason, Owner};
use lock_tests::{AclServer, LIMIT, eventually, rights};
use tokio::time::timeout;

use crate::reentrant::apart::Apart;
use crate::reentrant::support::ms;

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
const PATTERNS: &str =
    "~order:* ~lock-core:* ~redisson_lock__channel:* &lock-core:* &redisson_lock__channel:*";

fn all_but(missing: &str) -> impl Iterator<Item = &'static str> {
    COMMANDS.into_iter().filter(move |name| *name != missing)
}

async fn connect(server: &AclServer) -> Result<LockManager, LockError> {
    LockManager::builder()
        .command_deadline(LIMIT)
        .connect(&server.url())
        .await
}

/// Everything that a reentrant lock does. Answers whether the old holder was told of the forced release by a message.
async fn whole_life(server: &mut AclServer) -> Result<bool, String> {
    fn step<T, E: Debug>(name: &str, result: Result<T, E>) -> Result<T, String> {
        result.map_err(|error| format!("{name}: {error:?}"))
    }

    // So that every script is sent anew.
    server.admin(&["SCRIPT", "FLUSH"]).await;
    server.admin(&["FLUSHALL"]).await;
    server.admin(&["RPUSH", "order:foreign", "x"]).await;
    let locks = step("connect", connect(server).await)?;
    let others = step("connect", connect(server).await)?;
    let lock = locks.lock_apart("order:7").owner(&Owner::new());
    let other = others.lock_apart("order:7");

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

    // Writes behind a check; renewed, or lost for want of it.
    let ttl = ms(900);
    let guard = step("acquire", lock.clone().ttl(ttl).acquire().await)?;
    let script = GuardedScript::new("return 1");
    assert_eq!(step("run", guard.guarded(&script).run::<i64>().await)?, 1);
    if let Ok(reason) = timeout(ttl * 2, guard.lost()).await {
        return Err(format!("renew: {reason}"));
    }
    step("release", guard.release().await)?;

    // A name that is taken is told by its kind.
    match locks.lock_apart("order:foreign").try_acquire().await {
        Err(LockError::NotALock { kind, .. }) => assert_eq!(kind, "list"),
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
    let mut server = AclServer::start(PATTERNS).await;
    server.allow(COMMANDS).await;
    assert_eq!(whole_life(&mut server).await, Ok(true));
    println!(
        "ACL SETUSER app on >secret {PATTERNS} +{}",
        COMMANDS.join(" +")
    );
}

#[test]
fn the_page_for_operators_names_these_rights() {
    let [exclusive, reentrant, ..] = rights();
    for pattern in PATTERNS.split(' ') {
        let named = [&exclusive, &reentrant].map(|line| line.patterns.contains(pattern));
        assert!(named.contains(&true), "{pattern}");
    }
    for command in COMMANDS {
        let named = [&exclusive, &reentrant].map(|line| line.commands.contains(&command));
        assert!(named.contains(&true), "{command}");
    }
    for command in reentrant.commands {
        assert!(COMMANDS.contains(&command), "{command}");
    }
}

#[tokio::test]
async fn without_any_one_of_its_commands_something_is_refused() {
    // Not the two that can be done without, which have a test of their own.
    for missing in COMMANDS
        .into_iter()
        .filter(|name| !["publish", "subscribe"].contains(name))
    {
        let mut server = AclServer::start(PATTERNS).await;
        server.allow(all_but(missing)).await;
        let refused = whole_life(&mut server).await;
        println!("without {missing}: {refused:?}");
        assert!(refused.is_err(), "{missing} is not needed");
    }
}

#[tokio::test]
async fn without_messages_a_waiter_asks_now_and_then() {
    for missing in ["publish", "subscribe"] {
        let mut server = AclServer::start(PATTERNS).await;
        server.allow(all_but(missing)).await;
        assert_eq!(whole_life(&mut server).await, Ok(false), "{missing}");
    }
    // The channels of the locks alone: the client's own still tells of a forced release.
    let mut server = AclServer::start(PATTERNS).await;
    server.allow(COMMANDS).await;
    server
        .admin(&["ACL", "SETUSER", "app", "resetchannels", "&lock-core:*"])
        .await;
    assert_eq!(whole_life(&mut server).await, Ok(true));
}

#[tokio::test]
async fn a_lock_outside_the_pattern_is_a_configuration_error_and_leaves_nothing() {
    let mut server = AclServer::start(PATTERNS).await;
    server.allow(COMMANDS).await;
    let locks = connect(&server).await.unwrap();
    let refused = locks.lock_apart("elsewhere").acquire().await;
    assert!(
        matches!(refused, Err(LockError::InvalidConfig { .. })),
        "{refused:?}"
    );
    eventually("nothing is left", LIMIT, async || {
        server.server().keys().await.is_empty()
    })
    .await;
}
