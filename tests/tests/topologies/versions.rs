//! Programs with different versions of lock-core on one server. `lock_core_next` is a second build of the same sources, whose wire
//! format has the next number.

use std::fmt::Debug;
use std::time::Duration;

use lock_core::{LockError, LockManager, LossReason};
use lock_tests::kit::{command, ms, try_command};
use lock_tests::{DropMode, LIMIT, Proxy, TestCluster, TestServer, eventually};
use tokio::time::timeout;

/// The sentence of a refused configuration, of either build.
fn refused<T: Debug, E: std::error::Error>(result: Result<T, E>) -> String {
    let text = result.expect_err("another format").to_string();
    let sentence = text.strip_prefix("lock configuration: ");
    sentence.unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn is_older(at: &str, key: &str) -> String {
    format!(
        "the locks on the server at {at} have format 1, and this program writes format 2: stop all programs with an older \
         lock-core, then `SET {key} 2`"
    )
}

fn is_newer(at: &str) -> String {
    format!(
        "the locks on the server at {at} have format 2, and this program knows format 1: build it with the version of lock-core \
         of the other programs, or stop those, then `SET lock-core:format 1`"
    )
}

async fn works(locks: &LockManager) {
    let guard = locks.lock("a").acquire_within(LIMIT).await.unwrap();
    guard.release().await.unwrap();
}

/// Proves P18.
#[tokio::test]
async fn a_newer_format_starts_when_the_operator_says_so() {
    let server = TestServer::start().await;
    let at = server.addr().to_string();
    let old = LockManager::connect(&server.url()).await.unwrap();
    let held = old.lock("a").acquire().await.unwrap();

    let new = lock_core_next::LockManager::connect(&server.url()).await;
    assert_eq!(refused(new), is_older(&at, "lock-core:format"));
    let new = lock_core_next::LockManager::builder().connect_lazily(&server.url());
    let asked = new.unwrap().lock("a").try_acquire().await;
    assert_eq!(refused(asked), is_older(&at, "lock-core:format"));
    // Nothing has changed for the others.
    assert!(held.is_held());
    held.release().await.unwrap();
    works(&LockManager::connect(&server.url()).await.unwrap()).await;

    assert_eq!(old.shutdown(LIMIT).await, 0);
    let () = command(&server, "SET lock-core:format 2").await;
    let new = lock_core_next::LockManager::connect(&server.url()).await;
    let guard = new.unwrap().lock("a").acquire().await.unwrap();
    let again = LockManager::connect(&server.url()).await;
    assert_eq!(refused(again), is_newer(&at));
    guard.release().await.unwrap();
}

/// Proves P18.
#[tokio::test]
async fn a_program_with_an_older_format_is_refused_when_it_connects_again() {
    let server = TestServer::start().await;
    let at = server.addr().to_string();
    let idle = LockManager::connect(&server.url()).await.unwrap();
    let busy = LockManager::connect(&server.url()).await.unwrap();
    let ttl = ms(600);
    let held = busy.lock("a").ttl(ttl).acquire().await.unwrap();

    let () = command(&server, "SET lock-core:format 2").await;
    server.client_kill_all().await;
    let reason = timeout(LIMIT, held.lost()).await.expect("lost");
    assert_eq!(reason, LossReason::Expired);
    for locks in [&idle, &busy] {
        assert_eq!(refused(locks.lock("b").try_acquire().await), is_newer(&at));
    }
}

/// Proves P18.
#[tokio::test]
async fn the_format_is_compared_without_a_further_round_trip() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let _unanswered = proxy.drop_next_reply_matching(
        |request| request.script() == Some("probe"),
        DropMode::Silent,
    );
    let compared = proxy.on_request(|request| request.script() == Some("format"));
    let url = proxy.url();
    let connecting = tokio::spawn(async move { LockManager::connect(&url).await });
    compared.await;
    connecting.abort();
}

/// Else a newer program could begin while the older ones run. Proves P18.
#[tokio::test]
async fn a_server_that_comes_back_empty_gets_the_format_of_its_clients() {
    let server = TestServer::start().await;
    let old = LockManager::connect(&server.url()).await.unwrap();
    server.kill();
    server.restart().await;
    assert_eq!(server.get("lock-core:format").await, None);
    works(&old).await;
    let new = lock_core_next::LockManager::connect(&server.url()).await;
    let at = server.addr().to_string();
    assert_eq!(refused(new), is_older(&at, "lock-core:format"));
}

/// Proves P18.
#[tokio::test]
async fn a_quorum_refuses_another_format() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(TestServer::start().await);
    }
    let urls: Vec<_> = nodes.iter().map(TestServer::url).collect();
    LockManager::builder().begin_quorum(&urls).await.unwrap();
    let old = LockManager::connect_quorum(&urls).await.unwrap();
    works(&old).await;
    // A node that comes back empty gets no note from a program that is refused.
    nodes[2].kill();
    nodes[2].restart().await;
    let new = lock_core_next::LockManager::connect_quorum(&urls).await;
    let text = new.expect_err("another format").to_string();
    let sentence = "its locks have format 2, and this program writes format 3: stop all programs with an older lock-core, then call \
                    `begin_quorum` with `anew`";
    assert_eq!(text.matches(sentence).count(), 2, "{text}");
    assert_eq!(nodes[2].keys().await, [""; 0]);
    works(&old).await;

    assert_eq!(old.shutdown(LIMIT).await, 0);
    let begin = lock_core_next::LockManager::builder().begin_quorum(&urls);
    begin.anew().await.unwrap();
    let new = lock_core_next::LockManager::connect_quorum(&urls)
        .await
        .unwrap();
    let held = new.lock("a").acquire().await.unwrap();
    let again = LockManager::connect_quorum(&urls).await;
    let text = again.expect_err("another format").to_string();
    assert!(text.contains("its locks have format 3"), "{text}");
    held.release().await.unwrap();
}

/// Proves P18.
#[tokio::test]
async fn a_cluster_refuses_another_format() {
    let cluster = TestCluster::start(3).await;
    let old = LockManager::connect(&cluster.url()).await.unwrap();
    works(&old).await;
    // The number moves with its slot, and a program that is refused leaves nothing.
    let slot = cluster.slot_of("lock-core:format").await;
    let from = cluster.master_of(slot);
    let to = (from + 1) % 3;
    cluster.move_slot(slot, from, to).await;
    let new = lock_core_next::LockManager::connect(&cluster.url()).await;
    let at = cluster.masters()[to].server.addr().to_string();
    assert_eq!(refused(new), is_older(&at, "lock-core:format"));
    works(&old).await;
    works(&LockManager::connect(&cluster.url()).await.unwrap()).await;

    assert_eq!(old.shutdown(LIMIT).await, 0);
    let () = command(&cluster.masters()[to].server, "SET lock-core:format 2").await;
    let new = lock_core_next::LockManager::connect(&cluster.url()).await;
    let held = new.unwrap().lock("a").acquire().await.unwrap();
    let again = LockManager::connect(&cluster.url()).await;
    assert_eq!(refused(again), is_newer(&at));
    held.release().await.unwrap();
}

/// A comparison that the server refuses proves nothing, so a program does not start without one. Proves P18.
#[tokio::test]
async fn a_program_does_not_start_without_a_comparison() {
    let server = TestServer::start().await;
    let url = server.url();
    let connect = || lock_core_next::LockManager::connect(&url);
    let text = |error: lock_core_next::LockError| error.to_string();

    // It can be read, but not written.
    let () = command(&server, "CONFIG SET min-replicas-to-write 1").await;
    let refused = connect().await.map_err(text).unwrap_err();
    assert!(refused.contains("(NOREPLICAS "), "{refused}");
    let () = command(&server, "CONFIG SET min-replicas-to-write 0").await;
    let old = LockManager::connect(&server.url()).await.unwrap();
    let held = old.lock("a").acquire().await.unwrap();

    // The server is busy with a script of another client, which does not end by itself.
    let () = command(&server, "CONFIG SET busy-reply-threshold 50").await;
    let mut busy = server.connection().await;
    let endless = tokio::spawn(async move {
        let mut script = redis::cmd("EVAL");
        script.arg("while true do end").arg(0);
        script.query_async::<()>(&mut busy).await
    });
    eventually("busy", LIMIT, async || {
        let ping = try_command::<String>(&server, "PING").await;
        ping.is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    let refused = connect().await.map_err(text).unwrap_err();
    assert!(refused.contains("(BUSY "), "{refused}");
    let () = command(&server, "SCRIPT KILL").await;
    endless.await.unwrap().unwrap_err();
    assert!(held.is_held());
    let refused = connect().await.map_err(text).unwrap_err();
    assert!(refused.contains("have format 1"), "{refused}");

    // The user may not touch it.
    let rights = "on >secret resetchannels ~lock:* ~lock-core:queue:* ~lock-core:waiters:* ~lock-core:fence &* +@all";
    let () = command(&server, &format!("ACL SETUSER app {rights}")).await;
    let url = server.url().replace("redis://", "redis://app:secret@");
    let refused = lock_core_next::LockManager::connect(&url).await;
    let refused = refused.map_err(text).unwrap_err();
    assert!(
        refused.ends_with("permits it with `ACL SETUSER app ~lock-core:*`"),
        "{refused}"
    );
}

/// Proves P18.
#[tokio::test]
async fn each_database_has_a_format() {
    let server = TestServer::start().await;
    let url = format!("{}/3", server.url());
    works(&LockManager::connect(&url).await.unwrap()).await;
    let new = lock_core_next::LockManager::connect(&url).await;
    let text = refused(new);
    assert!(
        text.contains(&format!("at {} in database 3 have format 1", server.addr())),
        "{text}"
    );
    assert!(
        text.ends_with("then `SET lock-core:format 2` in database 3"),
        "{text}"
    );
    lock_core_next::LockManager::connect(&server.url())
        .await
        .unwrap();
}

/// Proves P18.
#[tokio::test]
async fn each_namespace_has_a_format() {
    let server = TestServer::start().await;
    works(&LockManager::connect(&server.url()).await.unwrap()).await;
    let new = lock_core_next::LockManager::builder().namespace("team-a:");
    let new = new.connect(&server.url()).await.unwrap();
    new.lock("a")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(
        server.get("team-a:lock-core:format").await.as_deref(),
        Some("2")
    );
}

/// What `docs/wire.md` permits a later version to append. Proves P18.
#[tokio::test]
async fn what_a_later_version_appends_is_no_error() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let lock = locks.lock("a");
    let other = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:1812345678912";
    let names = "lock:a lock-core:queue:{lock:a} lock-core:waiters:{lock:a}";
    let [key, queue, waiters] = names.split(' ').collect::<Vec<_>>()[..] else {
        unreachable!()
    };

    // A holder with more in its token.
    let () = command(
        &server,
        &format!("SET {key} {other}:later-1{{more}} PX 60000"),
    )
    .await;
    match lock.acquire_within(Duration::ZERO).await {
        Err(LockError::Busy { holder, .. }) => assert_eq!(holder.as_deref(), Some("later-1")),
        other => panic!("{other:?}"),
    }
    assert_eq!(lock.inspect().await.unwrap().holder(), Some("later-1"));
    let () = command(&server, &format!("DEL {key}")).await;

    // A waiter with more in its entries gets its turn, and its message.
    let held = lock.acquire().await.unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut messages = client.get_async_pubsub().await.unwrap();
    messages.subscribe("later").await.unwrap();
    let () = command(&server, &format!("RPUSH {queue} {other}:later-1{{more}}")).await;
    let mut entries = redis::cmd("HSET");
    entries
        .arg(waiters)
        .arg(format!("{other}:later-1{{more}}"))
        .arg("60000 7 more");
    entries.arg(&other[..36]).arg("9000000000000 later more");
    let () = entries
        .query_async(&mut server.connection().await)
        .await
        .unwrap();
    held.release().await.unwrap();
    let message = futures_util::StreamExt::next(&mut messages.on_message())
        .await
        .unwrap();
    let text: String = message.get_payload().unwrap();
    assert!(text.starts_with("granted aaaaaaaa-"), "{text}");
    assert_eq!(lock.inspect().await.unwrap().holder(), Some("later-1"));
    let () = command(&server, &format!("DEL {key}")).await;

    // Messages with more words.
    let held = lock.acquire().await.unwrap();
    let token = server.get(key).await.unwrap();
    let mut publish = redis::cmd("PUBLISH");
    publish.arg(format!("lock-core:client:{}", &token[..36]));
    publish.arg(format!("revoked {token} by operator"));
    let heard: u32 = publish
        .query_async(&mut server.connection().await)
        .await
        .unwrap();
    assert_eq!(heard, 1);
    let reason = timeout(LIMIT, held.lost()).await.expect("told");
    assert_eq!(reason, LossReason::ForceReleased);
    eventually("given back", LIMIT, async || !server.exists(key).await).await;
}
