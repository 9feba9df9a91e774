//! Programs with different versions of lock-core on one server. `lock_core_next` is a second build of the same sources, whose wire
//! format has the next number.

use std::fmt::Debug;
use std::time::Duration;

use lock_core::{LockError, LockManager, LossReason};
use lock_tests::kit::{command, ms};
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
         that the other programs use"
    )
}

async fn works(locks: &LockManager) {
    let guard = locks.lock("a").acquire_within(LIMIT).await.unwrap();
    guard.release().await.unwrap();
}

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

/// Else a newer program could begin while the older ones run.
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
    let new = lock_core_next::LockManager::connect_quorum(&urls).await;
    let text = new.expect_err("another format").to_string();
    for node in &nodes {
        let sentence = is_older(&node.addr().to_string(), "lock-core:format");
        assert!(text.contains(&sentence), "{text}");
    }
    works(&old).await;
}

#[tokio::test]
async fn a_cluster_refuses_another_format() {
    let cluster = TestCluster::start(3).await;
    let old = LockManager::connect(&cluster.url()).await.unwrap();
    works(&old).await;
    let new = lock_core_next::LockManager::connect(&cluster.url()).await;
    let text = refused(new);
    assert!(text.contains("then `SET lock-core:format:{"), "{text}");
    // As the sentences say, one after the other.
    assert_eq!(old.shutdown(LIMIT).await, 0);
    for _ in 0..3 {
        let new = lock_core_next::LockManager::connect(&cluster.url()).await;
        let text = refused(new);
        let at = text
            .split("server at ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        let set = text.split('`').nth(1).unwrap();
        let mut masters = cluster.masters().iter();
        let master = masters
            .find(|node| node.server.addr().to_string() == at)
            .unwrap();
        let () = command(&master.server, set).await;
    }
    let new = lock_core_next::LockManager::connect(&cluster.url())
        .await
        .unwrap();
    new.lock("a")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let text = refused(LockManager::connect(&cluster.url()).await);
    assert!(text.contains("have format 2"), "{text}");
}

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

/// What `docs/wire.md` permits a later version to append.
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
