//! What a user of the server must be allowed, exactly: the lines that the page for operators gives.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::{GuardedScript, LockError, LockGuard, LockManager, LossReason, Owner};
use lock_tests::kit::{command, ms, until_clean};
use lock_tests::{AclServer, Capture, LIMIT, eventually, rights};
use tokio::time::timeout;

/// Of the exclusive lock, and of those that several may hold.
const PATTERNS: &str = "~lock:* ~lock-core:* &lock-core:*";

/// A kind of lock, and what its user is allowed.
struct Kind {
    commands: Vec<&'static str>,
    patterns: &'static str,
    /// The commands that can be done without.
    optional: &'static [&'static str],
    is_reentrant: bool,
}

fn exclusive() -> Kind {
    Kind {
        commands: commands(),
        patterns: PATTERNS,
        // The last two only tidy up, and save a look at the clock.
        optional: &["publish", "subscribe", "unsubscribe", "hgetall", "incr"],
        is_reentrant: false,
    }
}

/// The application's locks are `order:*`. The channel is passed to the scripts as a key, as Redisson passes it, so that a cluster
/// checks its slot; nothing is stored there.
fn reentrant() -> Kind {
    let commands = "evalsha eval set del type pttl pexpire time hset hget hdel hlen hkeys hexists hgetall \
                    hmget hincrby publish subscribe";
    Kind {
        commands: commands.split(' ').collect(),
        patterns: "~order:* ~lock-core:* ~redisson_lock__channel:* &lock-core:* &redisson_lock__channel:*",
        optional: &["publish", "subscribe"],
        is_reentrant: true,
    }
}

/// Each is needed; see `without_any_one_of_its_commands_something_is_refused`.
fn commands() -> Vec<&'static str> {
    let [of_one_master, ..] = rights();
    of_one_master.commands
}

fn all_but(missing: &str) -> impl Iterator<Item = &'static str> {
    let commands = commands().into_iter();
    commands.filter(move |name| *name != missing)
}

/// A server whose user has the rights of the exclusive lock, without this command.
async fn without(missing: &str) -> AclServer {
    let mut server = AclServer::start(PATTERNS).await;
    server.allow(all_but(missing)).await;
    server
}

async fn with_all_rights() -> AclServer {
    without("").await
}

async fn connect(server: &AclServer) -> Result<LockManager, LockError> {
    LockManager::builder()
        .command_deadline(LIMIT)
        .poll_interval(ms(10))
        .connect(&server.url())
        .await
}

fn step<T, E: Debug>(name: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{name}: {error:?}"))
}

/// Everything that a lock of any kind does. Answers whether the old holder was told of the forced release by a message.
macro_rules! whole_life {
    ($lock:expr, $other:expr, $foreign:expr) => {{
        let (lock, other) = ($lock, $other);
        // Taken, waited for, left, handed over.
        let guard = step("acquire", lock.acquire().await)?;
        assert!(step("try_acquire", other.try_acquire().await)?.is_none());
        match other.acquire_within(ms(500)).await {
            Err(LockError::TimedOut { .. }) => {}
            result => return step("wait", result).map(|_| unreachable!("it is held")),
        }
        // The place in the queue was given back. This also looks, so a refused look shows here.
        for _ in 0..500 {
            if step("inspect", other.inspect().await)?.waiters() == 0 {
                break;
            }
            tokio::time::sleep(ms(2)).await;
        }
        if step("inspect", other.inspect().await)?.waiters() != 0 {
            return Err("leave: still queued".to_owned());
        }
        let waiter = other.clone().ttl(ms(3000));
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        while step("inspect", other.inspect().await)?.waiters() == 0 && !waiting.is_finished() {
            tokio::task::yield_now().await;
        }
        step("release", guard.release().await)?;
        let next = timeout(LIMIT, waiting).await.expect("granted").unwrap();
        step("release", step("wait", next)?.release().await)?;

        // Writes behind a check; renewed, or lost for want of it.
        let guard = step("acquire", lock.clone().ttl(ms(1500)).acquire().await)?;
        let script = GuardedScript::new("return 1");
        assert_eq!(step("run", guard.guarded(&script).run::<i64>().await)?, 1);
        tokio::select! {
            reason = guard.lost() => return Err(format!("renew: {reason}")),
            () = renewed(&guard) => {}
        }
        step("release", guard.release().await)?;

        // A name that is taken is told by its kind.
        match $foreign.try_acquire().await {
            Err(LockError::NotALock { kind, .. }) => assert_eq!(kind, "list"),
            result => return step("foreign", result).map(|_| unreachable!("a list is no lock")),
        }

        // Taken away.
        let guard = step("acquire", lock.clone().ttl(ms(2000)).acquire().await)?;
        assert!(step("force_release", other.force_release().await)?);
        let told = timeout(LIMIT, guard.lost()).await.expect("lost") == LossReason::ForceReleased;
        let info = step("inspect", other.inspect().await)?;
        assert!(!info.is_held() && info.waiters() == 0);
        told
    }};
}

/// The whole life of a lock of this kind, whose user has its rights, without this command.
async fn life_without(kind: &Kind, missing: &str) -> Result<bool, String> {
    let mut server = AclServer::start(kind.patterns).await;
    let commands = kind.commands.iter().copied();
    server.allow(commands.filter(|name| *name != missing)).await;
    Box::pin(life(&mut server, kind)).await
}

/// The lives of both kinds, whose users lack this command.
async fn lives_without(missing: &str) -> (Result<bool, String>, Result<bool, String>) {
    let (exclusive, reentrant) = (exclusive(), reentrant());
    tokio::join!(
        life_without(&exclusive, missing),
        life_without(&reentrant, missing)
    )
}

async fn life(server: &mut AclServer, kind: &Kind) -> Result<bool, String> {
    server.admin(&["RPUSH", "lock:foreign", "x"]).await;
    server.admin(&["RPUSH", "order:foreign", "x"]).await;
    let locks = step("connect", connect(server).await)?;
    let others = step("connect", connect(server).await)?;
    if kind.is_reentrant {
        let of = |locks: &LockManager, key| locks.reentrant_lock(key).owner(&Owner::new());
        let (lock, other) = (of(&locks, "order:7"), of(&others, "order:7"));
        let outer = step("acquire", lock.acquire().await)?;
        let inner = step("enter", lock.acquire().await)?;
        step("leave", inner.release().await)?;
        step("release", outer.release().await)?;
        return Ok(whole_life!(lock, other, of(&locks, "order:foreign")));
    }
    let told = whole_life!(locks.lock("a"), others.lock("a"), locks.lock("foreign"));
    step("permits", shared_life(&locks, &others).await)?;
    Ok(told)
}

/// Waits until the end of the lease is moved.
async fn renewed(guard: &LockGuard) {
    let mut before = guard.remaining();
    eventually("a renewal", LIMIT, async || {
        let now = guard.remaining();
        std::mem::replace(&mut before, now) < now
    })
    .await;
}

/// The same of locks that several may hold.
async fn shared_life(locks: &LockManager, others: &LockManager) -> Result<(), LockError> {
    let ttl = Duration::from_millis(900);
    let (one, other) = (locks.rw_lock("rw").ttl(ttl), others.rw_lock("rw").ttl(ttl));
    let writer = one.write().await?;
    assert!(other.try_read().await?.is_none());
    let waiting = tokio::spawn(async move { other.read().await });
    while one.inspect().await?.waiters() == 0 && !waiting.is_finished() {
        tokio::task::yield_now().await;
    }
    let reader = writer.downgrade().await?;
    let second = timeout(LIMIT, waiting).await.expect("granted").unwrap()?;
    tokio::time::sleep(ttl * 2).await;
    second.release().await?;
    reader.try_upgrade().await.expect("alone").release().await?;
    // A holder that has left without a word is swept out.
    let semaphore = locks.semaphore("s", 1).ttl(ttl).renew(false);
    let left = semaphore.acquire().await?;
    semaphore.resize(2).await?;
    others
        .semaphore("s", 2)
        .permits(2)
        .acquire()
        .await?
        .release()
        .await?;
    drop(left);
    locks.semaphore("s", 2).force_release().await.map(drop)
}

#[tokio::test]
async fn a_user_with_the_listed_permissions_can_do_everything() {
    assert_eq!(Box::pin(lives_without("")).await, (Ok(true), Ok(true)));
}

/// Those of the exclusive lock are read from the page, so that it names neither more nor fewer.
#[test]
fn the_page_for_operators_names_these_rights() {
    let [exclusive, more, ..] = rights();
    assert_eq!(exclusive.patterns, PATTERNS);
    let reentrant = reentrant();
    for pattern in reentrant.patterns.split(' ') {
        let named = [&exclusive, &more].map(|line| line.patterns.contains(pattern));
        assert!(named.contains(&true), "{pattern}");
    }
    for command in &reentrant.commands {
        let named = [&exclusive, &more].map(|line| line.commands.contains(command));
        assert!(named.contains(&true), "{command}");
    }
    for command in more.commands {
        assert!(reentrant.commands.contains(&command), "{command}");
    }
}

/// Proves P16.
#[tokio::test]
async fn rights_that_can_be_added_show_more() {
    let mut server = AclServer::start(PATTERNS).await;
    let builder = || {
        LockManager::builder()
            .command_deadline(LIMIT)
            .client_name("orders-7")
    };
    for added in [&[][..], &["lrange", "scan", "client|setname"]] {
        server
            .allow(commands().into_iter().chain(added.iter().copied()))
            .await;
        let more = !added.is_empty();
        let locks = builder().connect(&server.url()).await.unwrap();
        let other = builder().connect(&server.url()).await.unwrap();
        let lock = locks.lock("a");
        let guard = lock.acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = other.lock("a");
            async move { lock.acquire().await.unwrap().release().await.unwrap() }
        });
        eventually("it waits", LIMIT, async || {
            lock.inspect().await.unwrap().waiters() == 1
        })
        .await;
        let info = lock.inspect().await.unwrap();
        assert_eq!(info.queue().len(), usize::from(more), "lrange");
        match locks.list().next_page().await {
            Ok(page) => assert!(more && page.unwrap().len() == 1),
            Err(error) => {
                assert!(
                    !more && matches!(error, LockError::InvalidConfig { .. }),
                    "{error:?}"
                );
            }
        }
        let clients: String = command(server.server(), "CLIENT LIST").await;
        assert_eq!(clients.contains("name=orders-7 "), more, "{clients}");
        guard.release().await.unwrap();
        waiting.await.unwrap();
    }
}

#[tokio::test]
async fn a_list_leaves_out_the_locks_that_the_user_may_not_touch() {
    let mut server = AclServer::start("~lock:a* ~lock-core:* &lock-core:*").await;
    server.allow(commands().into_iter().chain(["scan"])).await;
    let locks = connect(&server).await.unwrap();
    let all = LockManager::connect(&server.server().url()).await.unwrap();
    let _guards = (
        all.lock("a1").acquire().await.unwrap(),
        all.lock("b1").acquire().await.unwrap(),
    );
    let mut list = locks.list();
    let mut keys = Vec::new();
    while let Some(page) = list.next_page().await.unwrap() {
        keys.extend(page.iter().map(|lock| lock.key().to_owned()));
    }
    assert_eq!(keys, ["a1"]);
}

#[tokio::test]
async fn without_any_one_of_its_commands_something_is_refused() {
    for kind in [exclusive(), reentrant()] {
        let needed = kind.commands.iter();
        for missing in needed.filter(|name| !kind.optional.contains(name)) {
            let refused = life_without(&kind, missing).await;
            println!("without {missing}: {refused:?}");
            assert!(refused.is_err(), "{missing} is not needed");
        }
    }
}

#[tokio::test]
async fn a_get_that_is_refused_is_a_matter_of_configuration_and_no_loss() {
    let mut server = with_all_rights().await;
    let lock = connect(&server).await.unwrap().lock("a");
    // Of a manager of its own: behind a guard of the same one it would wait without asking the server.
    let other = connect(&server).await.unwrap().lock("a");
    let guard = lock.acquire().await.unwrap();
    server.allow(all_but("get")).await;
    // Nobody knows now who holds it: nothing may be made of that.
    let refused = [
        other.acquire().await.map(drop),
        lock.inspect().await.map(drop),
        lock.force_release().await.map(drop),
        guard.release().await,
    ];
    for result in refused {
        assert!(
            matches!(result, Err(LockError::InvalidConfig { .. })),
            "{result:?}"
        );
    }
}

/// Proves P2.
#[tokio::test]
async fn a_key_that_is_refused_from_now_on_costs_no_other_lease_its_renewal() {
    let mut server = with_all_rights().await;
    let locks = connect(&server).await.unwrap();
    let ttl = Duration::from_millis(1500);
    let mut good = Vec::new();
    for n in 0..20 {
        let lock = locks.lock(format!("good:{n}")).ttl(ttl);
        good.push(lock.acquire().await.unwrap());
    }
    let bad = locks.lock("bad").ttl(ttl).acquire().await.unwrap();
    let patterns = ["resetkeys", "~lock:good:*", "~lock-core:*"];
    let words = ["ACL", "SETUSER", "app"];
    server.admin(&[&words[..], &patterns[..]].concat()).await;
    assert_eq!(bad.lost().await, LossReason::Expired);
    let loss = timeout(ttl, good[0].lost()).await;
    assert!(loss.is_err(), "{loss:?}");
    assert!(good.iter().all(|guard| guard.is_held()));
}

#[tokio::test]
async fn a_database_other_than_the_first_needs_select() {
    let mut server = with_all_rights().await;
    let url = format!("{}/1", server.url());
    let refused = LockManager::connect(&url).await;
    assert!(
        matches!(refused, Err(LockError::InvalidConfig { .. })),
        "{refused:?}"
    );
    server.allow(commands().into_iter().chain(["select"])).await;
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_users_own_connection_needs_no_subscribe() {
    let server = without("subscribe").await;
    let connection = redis::Client::open(server.url())
        .unwrap()
        .get_connection_manager()
        .await
        .unwrap();
    let lock = LockManager::from_connection(connection).unwrap().lock("a");
    let guard = lock.acquire().await.unwrap();
    assert!(
        lock.acquire_within(Duration::from_millis(50))
            .await
            .is_err()
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn without_subscribe_waiting_polls_and_a_warning_says_so() {
    let capture = Capture::start();
    // A forced release is found at the next renewal.
    assert_eq!(
        Box::pin(lives_without("subscribe")).await,
        (Ok(false), Ok(false))
    );
    let warned = capture.events().into_iter().any(|event| {
        event.level == tracing::Level::WARN
            && event.message().contains("waiting for locks will poll")
    });
    assert!(warned);
}

/// Whether the server pushes messages to a manager of the user.
async fn hears(server: &mut AclServer) -> bool {
    subscribers(server).await > 0
}

/// Number of managers that the server pushes messages to.
async fn subscribers(server: &mut AclServer) -> usize {
    let channels: Vec<String> =
        command(server.server(), "PUBSUB CHANNELS lock-core:client:*").await;
    channels.len()
}

/// Breaks the user's connections; a lock is asked for on a new one.
async fn reconnect(server: &mut AclServer, locks: &LockManager) {
    server.admin(&["CLIENT", "KILL", "USER", "app"]).await;
    eventually("a new connection", LIMIT, async || {
        let again = locks.lock("again").acquire().await;
        again.unwrap().release().await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_refused_subscription_is_tried_again_with_the_next_connection() {
    let mut server = with_all_rights().await;
    let locks = connect(&server).await.unwrap();
    assert!(hears(&mut server).await);
    server.allow(all_but("subscribe")).await;
    reconnect(&mut server, &locks).await;
    assert!(!hears(&mut server).await);
    server.allow(commands()).await;
    reconnect(&mut server, &locks).await;
    assert!(hears(&mut server).await);
    // And it is made use of.
    let others = connect(&server).await.unwrap();
    let guard = others.lock("a").acquire().await.unwrap();
    let lock = locks.lock("a");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    eventually("it waits", LIMIT, async || {
        others.lock("a").inspect().await.unwrap().waiters() == 1
    })
    .await;
    guard.release().await.unwrap();
    let next = timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
}

/// Proves P1.
#[tokio::test]
async fn a_forced_release_is_told_once_a_refused_subscription_succeeds() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut server = without("subscribe").await;
    let locks = LockManager::builder()
        .default_ttl(HOUR)
        // No request is late when the clock is put forward, so the connection stays.
        .command_deadline(HOUR)
        .connect(&server.url())
        .await
        .unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    let kept = locks.lock("b").acquire().await.unwrap();
    server.allow(commands()).await;
    let others = connect(&server).await.unwrap();
    assert!(others.lock("a").force_release().await.unwrap());
    // A waiter without messages subscribes again, at most once a minute.
    let blocking = others.lock("c").acquire().await.unwrap();
    let waiting = locks.lock("c");
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    eventually("it waits", LIMIT, async || {
        others.lock("c").inspect().await.unwrap().waiters() == 1
    })
    .await;
    assert_eq!(subscribers(&mut server).await, 1, "only the other manager");
    assert!(guard.is_held(), "nothing has told it");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    let reason = timeout(LIMIT, guard.lost()).await.expect("lost");
    assert_eq!(reason, LossReason::Gone);
    assert_eq!(subscribers(&mut server).await, 2);
    assert!(kept.is_held());
    blocking.release().await.unwrap();
    let next = timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
}

/// The client's own channel alone tells of a forced release of a reentrant lock.
#[tokio::test]
async fn without_channels_waiting_polls() {
    for (kind, channels, told) in [
        (exclusive(), &["resetchannels"][..], false),
        (reentrant(), &["resetchannels", "&lock-core:*"], true),
    ] {
        let mut server = AclServer::start(kind.patterns).await;
        server.allow(kind.commands.iter().copied()).await;
        let words = [&["ACL", "SETUSER", "app"], channels].concat();
        server.admin(&words).await;
        assert_eq!(life(&mut server, &kind).await, Ok(told));
    }
}

#[tokio::test]
async fn with_the_rights_of_the_page_no_subscription_stays() {
    let server = with_all_rights().await;
    let locks = connect(&server).await.unwrap();
    let subscribed = async |server: &AclServer| {
        let channels = "PUBSUB CHANNELS lock-core:latch:*";
        command::<Vec<String>>(server.server(), channels)
            .await
            .len()
    };
    let latch = locks.latch("a", 1);
    let waiting = tokio::spawn(async move { latch.wait().await });
    eventually("it is subscribed", LIMIT, async || {
        subscribed(&server).await == 1
    })
    .await;
    waiting.abort();
    eventually("it is not any more", LIMIT, async || {
        subscribed(&server).await == 0
    })
    .await;
}

#[tokio::test]
async fn without_publish_a_hand_over_is_found_by_the_refresh() {
    assert_eq!(
        Box::pin(lives_without("publish")).await,
        (Ok(false), Ok(false))
    );
}

/// Nothing tells the holders that another process waits. Its first refresh finds that it has the lock, a second one is 6 s away.
/// Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_publish_a_busy_lock_is_let_go_before_the_first_refresh() {
    let server = without("publish").await;
    let (busy, waiting) = (connect(&server).await, connect(&server).await);
    let (busy, lock) = (busy.unwrap().lock("a"), waiting.unwrap().lock("a"));
    let holds = Arc::new(AtomicUsize::new(0));
    let holders: Vec<_> = (0..4)
        .map(|_| {
            let (lock, holds) = (busy.clone(), Arc::clone(&holds));
            tokio::spawn(async move {
                loop {
                    let _guard = lock.acquire().await.unwrap();
                    // Until then the turns grow, up to 1023 holds.
                    if holds.fetch_add(1, Ordering::SeqCst) > 1000 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            })
        })
        .collect();
    eventually("the turns are long", LIMIT, async || {
        holds.load(Ordering::SeqCst) > 1000
    })
    .await;
    let before = holds.load(Ordering::SeqCst);
    drop(lock.acquire_within(LIMIT).await.unwrap());
    let meanwhile = holds.load(Ordering::SeqCst) - before;
    assert!(meanwhile < 500, "{meanwhile} holds");
    holders.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_key_outside_the_pattern_is_a_matter_of_configuration() {
    let patterns =
        "~lock:a ~lock-core:* ~redisson_lock__channel:* &lock-core:* &redisson_lock__channel:*";
    let mut server = AclServer::start(patterns).await;
    server
        .allow(commands().into_iter().chain(reentrant().commands))
        .await;
    let locks = LockManager::builder()
        .prefix("elsewhere:")
        .connect(&server.url())
        .await
        .unwrap();
    let reentrant = locks.reentrant_lock("elsewhere").owner(&Owner::new());
    let refused = [locks.lock("a").acquire().await, reentrant.acquire().await];
    // What a refused acquire would have left is nothing.
    eventually("nothing is left", LIMIT, async || {
        server.server().keys().await.is_empty()
    })
    .await;
    let several = connect(&server).await.unwrap().all(["a", "b"]);
    let one_of_two = several.acquire().await.map(drop);
    let all = refused.map(|result| result.map(drop));
    let all = all.map(Result::unwrap_err);
    let said = all[0].to_string();
    assert!(
        said.ends_with("`ACL SETUSER <user> ~elsewhere:* ~lock-core:*`"),
        "{said}"
    );
    for error in all.into_iter().chain([one_of_two.unwrap_err()]) {
        assert!(
            matches!(error, LockError::InvalidConfig { .. }),
            "{error:?}"
        );
    }
    until_clean(server.server()).await;
}
