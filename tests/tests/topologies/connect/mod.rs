//! `connect` looks whom it got, and says in one sentence what to write instead.

use std::net::SocketAddr;
use std::time::Duration;

use lock_core::{LockError, LockManager, Owner};
use lock_tests::{
    AclServer, Capture, LIMIT, Sentinel, TestCluster, TestServer, eventually, rights,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

mod evicted;
mod lazily;
mod proxies;

async fn connect(url: &str) -> Result<LockManager, LockError> {
    let builder = LockManager::builder().command_deadline(LIMIT);
    builder.connect(url).await
}

async fn refused(url: &str) -> String {
    match connect(url).await {
        Err(LockError::InvalidConfig { reason }) => reason,
        other => panic!("{url}: {other:?}"),
    }
}

const SCHEMES: &str = "write `redis://host:port`, `rediss://host:port` (TLS), `redis+unix:///path`, `redis+sentinel://s1,s2,s3/name`, `redis+cluster://h1,h2`, `redis+quorum://a,b,c` or `memory://`";

#[tokio::test]
async fn a_url_of_another_kind_names_its_mistake_and_the_schemes() {
    for (url, mistake) in [
        ("localhost:6379", "the URL has no scheme"),
        (
            "http://localhost:6379",
            "`http://` is not the scheme of a lock server",
        ),
        (
            "redis://a,b",
            "the URL names several servers: a cluster is `redis+cluster://`, a quorum `redis+quorum://`, and sentinels are `redis+sentinel://`",
        ),
    ] {
        assert_eq!(refused(url).await, format!("{mistake}: {SCHEMES}"));
    }
}

#[test]
fn an_option_that_is_not_known_or_is_there_twice_is_refused() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    for good in [
        "redis://h?protocol=resp2",
        "redis://h/?protocol=resp3&",
        "redis+unix:///s?db=1&user=u&pass=p&protocol=2",
        "redis+quorum://a,b?protocol=resp2,c?node=d&protocol=resp2",
    ] {
        let locks = LockManager::builder().connect_lazily(good);
        assert!(locks.is_ok(), "{good}: {locks:?}");
    }
    for wrong in [
        "redis://h?protocl=resp2",
        "redis://h/1?protocol=resp2&protocol=resp2",
        "valkey://h?node=a:1",
        "redis://h?db=1",
        "redis+unix:///s?db=1&db=2",
        "unix:///s?s3cret",
        "redis+sentinel://s/orders?protocl=resp2",
        "redis+cluster://a,b/?protocl=resp2",
        "redis+cluster://a,b?protocol=resp2&protocol=resp2",
        "redis+quorum://a,b,c?protocl=resp2",
        "redis+quorum://a,b,c?node=d&node=e",
    ] {
        let error = LockManager::builder().connect_lazily(wrong).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("has an option that is not known"), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
}

/// A server of another kind, which gives this answer to whatever comes.
async fn stranger(answer: &'static str) -> (SocketAddr, AbortHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, accepting.abort_handle())
}

#[tokio::test]
async fn an_http_server_is_called_one() {
    let answer = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    let (address, accepting) = stranger(answer).await;
    for query in ["", "/?protocol=resp2"] {
        assert_eq!(
            refused(&format!("redis://{address}{query}")).await,
            format!(
                "an HTTP server answers at {address}: name the port of the Redis or Valkey server"
            )
        );
    }
    accepting.abort();
}

#[tokio::test]
async fn a_server_that_does_not_speak_the_protocol_is_no_redis() {
    for answer in [
        "<!DOCTYPE HTML>\n<html lang=\"en\">\n    <head>\n",
        "\r\n<html>",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "220 mail.example.com ESMTP\r\n",
        "\u{4}\0\0\0",
    ] {
        let (address, accepting) = stranger(answer).await;
        for query in ["", "/?protocol=resp2"] {
            assert_eq!(
                refused(&format!("redis://{address}{query}")).await,
                format!(
                    "the server at {address} is no Redis or Valkey server: name the port of one"
                )
            );
        }
        accepting.abort();
    }
}

#[tokio::test]
async fn a_sentinel_is_called_one_and_its_master_named() {
    let master = TestServer::start().await;
    let sentinel = Sentinel::start("orders", master.addr()).await;
    let at = sentinel.addr();
    for query in ["", "/?protocol=resp2"] {
        assert_eq!(
            refused(&format!("redis://{at}{query}")).await,
            format!(
                "the server at {at} is a Sentinel, which holds no locks: write `redis+sentinel://{at}/orders`, and name the \
                 other sentinels as well"
            )
        );
    }
}

#[tokio::test]
async fn a_node_of_a_cluster_is_called_one() {
    let node = TestServer::builder()
        .arg("--cluster-enabled", "yes")
        .start()
        .await;
    let at = node.addr();
    for query in ["", "/?protocol=resp2"] {
        assert_eq!(
            refused(&format!("{}{query}", node.url())).await,
            format!(
                "the server at {at} is a node of a cluster: write `redis+cluster://{at}`, and name other nodes as well"
            )
        );
    }
}

#[tokio::test]
async fn a_replica_is_unavailable_and_names_its_master() {
    let master = TestServer::start().await;
    let replica = TestServer::builder()
        .arg("--replicaof", &format!("127.0.0.1 {}", master.port()))
        .start()
        .await;
    let error = connect(&replica.url()).await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!(
            "the lock server at {} is not available (it is a replica of {}, and only a master holds locks): connect to its master, \
             or through its sentinels (`redis+sentinel://`), or wait if it is being promoted",
            replica.addr(),
            master.addr()
        )
    );
}

fn words(commands: &str) -> impl Iterator<Item = &str> {
    commands.split(' ')
}

#[tokio::test]
async fn missing_rights_are_named_with_the_line_that_gives_them() {
    let mut acl = AclServer::start("~lock:* ~lock-core:* &lock-core:*").await;
    let most =
        "eval evalsha exists get set del pttl pexpire time hset hdel hlen hmget publish subscribe";
    acl.allow(words(most)).await;
    let at = acl.server().addr();
    assert_eq!(
        refused(&acl.url()).await,
        format!(
            "the user `app` of the server at {at} may not run llen, lindex, lrem, lpop, rpush, hgetall, type, incr, which locks need: an \
             administrator permits it with `ACL SETUSER app +llen +lindex +lrem +lpop +rpush +hgetall +type +incr`"
        )
    );
    // Without the script that tries them, all are named: as on the page for operators.
    acl.allow(["evalsha"]).await;
    let [page, ..] = rights();
    let line = page.commands.join(" +");
    let error = refused(&acl.url()).await;
    let end = format!("with `ACL SETUSER app +{line}`");
    assert!(error.ends_with(&end), "{error}");
    acl.allow(words(&format!("{most} llen lindex lrem lpop rpush")))
        .await;
    let locks = connect(&acl.url()).await.unwrap();
    locks
        .lock("a")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    // The probe leaves nothing behind.
    assert_eq!(acl.server().keys().await, ["lock-core:fence"]);
}

#[tokio::test]
async fn a_missing_pattern_for_the_keys_is_named_with_the_line_that_gives_it() {
    let mut acl = AclServer::start("~lock:* &lock-core:*").await;
    acl.allow(["@all"]).await;
    let at = acl.server().addr();
    assert_eq!(
        refused(&acl.url()).await,
        format!(
            "the user `app` of the server at {at} may not use the keys `lock-core:*`, which locks need: an administrator permits it \
             with `ACL SETUSER app ~lock-core:*`"
        )
    );
    let mut acl = AclServer::start("~lock-core:* &lock-core:*").await;
    acl.allow(["@all"]).await;
    let locks = connect(&acl.url()).await.unwrap();
    let said = locks.lock("a").try_acquire().await.unwrap_err().to_string();
    let line = "so permit them with `ACL SETUSER <user> ~lock:* ~lock-core:*`";
    assert!(said.ends_with(line), "{said}");
}

/// What the log says of the prefix at `connect`, and the text of its error, if any.
async fn of_prefix(patterns: &'static str, missing: &str) -> (usize, String) {
    let mut acl = AclServer::start(patterns).await;
    acl.allow(["@all"]).await;
    if !missing.is_empty() {
        acl.admin(&["ACL", "SETUSER", "app", missing]).await;
    }
    let capture = Capture::start();
    let error = connect(&acl.url()).await.err();
    let sentence = "may not write every key with the prefix of the locks";
    let warned = capture.text().matches(sentence).count();
    (warned, error.map_or_else(String::new, |it| it.to_string()))
}

/// Proves P11.
#[tokio::test]
async fn a_prefix_that_may_not_be_written_is_a_warning_as_patterns_differ() {
    for (patterns, warnings) in [
        ("~lock:* ~lock-core:* &lock-core:*", 0),
        ("~lock-core:* &lock-core:*", 1),
        ("%R~lock:* ~lock-core:* &lock-core:*", 1),
        ("~lock:orders:* ~lock-core:* &lock-core:*", 1),
    ] {
        let outcome = of_prefix(patterns, "").await;
        assert_eq!(outcome, (warnings, String::new()), "{patterns}");
    }
    let acl = AclServer::start("~* &*").await;
    let rights = "on >secret ~lock:orders:* ~lock-core:* &lock-core:* +@all";
    let mut words = vec!["ACL", "SETUSER", "app"];
    words.extend(rights.split(' '));
    let mut acl = acl;
    acl.admin(&words).await;
    let locks = connect(&acl.url()).await.unwrap();
    assert!(
        locks
            .lock("orders:1")
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

/// Proves P11.
#[tokio::test]
async fn missing_keys_and_commands_are_named_at_once() {
    let (warned, said) = of_prefix("~none &*", "-@list").await;
    assert_eq!(warned, 1);
    let line = "`ACL SETUSER app ~lock-core:* +llen +lindex +lrem +lpop +rpush`";
    assert!(said.ends_with(line), "{said}");
    // Also those that are tried on a key that cannot be removed.
    let (_, said) = of_prefix("~* &*", "-del").await;
    assert!(said.ends_with("`ACL SETUSER app +del`"), "{said}");
    let mut acl = AclServer::start("~* &*").await;
    acl.allow(["@all"]).await;
    let less = ["-del", "-rpush", "-hset"];
    acl.admin(&[&["ACL", "SETUSER", "app"][..], &less].concat())
        .await;
    let said = refused(&acl.url()).await;
    assert!(
        said.ends_with("`ACL SETUSER app +del +rpush +hset`"),
        "{said}"
    );
    // What it cannot remove ends by itself.
    eventually("nothing is left", LIMIT, async || {
        let keys = acl.server().keys().await;
        keys.iter().all(|it| it != "lock-core:probe")
    })
    .await;
}

#[tokio::test]
async fn a_refused_key_is_answered_with_the_pattern_of_its_lock() {
    let mut acl = AclServer::start("~lock-core:* &*").await;
    acl.allow(["@all"]).await;
    let builder = LockManager::builder().prefix("shop:");
    let locks = builder.connect(&acl.url()).await.unwrap();
    let owner = Owner::new();
    let reentrant = locks.reentrant_lock("order:7").owner(&owner);
    let refused = [
        locks.lock("a").try_acquire().await.map(drop).unwrap_err(),
        reentrant.try_acquire().await.map(drop).unwrap_err(),
    ];
    for (error, patterns) in refused
        .iter()
        .zip(["~shop:* ~lock-core:*", "~order:7 ~lock-core:*"])
    {
        let line = format!("`ACL SETUSER <user> {patterns}`");
        assert!(error.to_string().ends_with(&line), "{error}");
    }
}

/// Proves P11.
#[tokio::test]
async fn a_node_of_a_cluster_over_a_connection_of_the_user_is_called_one() {
    let cluster = TestCluster::shared().await;
    let node = cluster.nodes[0].server.connection().await;
    let locks = LockManager::from_connection(node).unwrap();
    for key in ["a", "b", "c", "{x}", "{y}"] {
        let said = locks.lock(key).try_acquire().await.unwrap_err();
        assert!(matches!(said, LockError::InvalidConfig { .. }), "{said:?}");
        let advice = "it is a node of a cluster, so connect with `redis+cluster://host1,host2`";
        assert!(said.to_string().ends_with(advice), "{said}");
    }
}

#[tokio::test]
async fn a_lost_connection_of_the_user_is_advised_to_connect_again() {
    let server = TestServer::start().await;
    let connection = server.connection().await;
    let locks = LockManager::from_connection(connection).unwrap();
    server.kill();
    let said = locks.lock("a").try_acquire().await.unwrap_err().to_string();
    assert!(said.ends_with("as a `ConnectionManager`"), "{said}");
}

#[tokio::test]
async fn a_command_that_was_renamed_is_named() {
    for [one, other] in [["LPOP", "TIME"], ["TIME", "PEXPIRE"]] {
        let server = TestServer::builder()
            .arg("--rename-command", one)
            .arg("ONE", "--rename-command")
            .arg(other, "OTHER")
            .start()
            .await;
        let at = server.addr();
        assert_eq!(
            refused(&server.url()).await,
            format!(
                "the server at {at} does not know {}, {}, which locks need: it was renamed or disabled (`rename-command` in its \
                 settings)",
                one.to_lowercase(),
                other.to_lowercase()
            )
        );
    }
}

#[tokio::test]
async fn a_list_without_the_right_to_scan_names_it() {
    let mut acl = AclServer::start("~lock:* ~lock-core:* &lock-core:*").await;
    acl.allow(["@all"]).await;
    acl.admin(&["ACL", "SETUSER", "app", "-scan"]).await;
    let locks = connect(&acl.url()).await.unwrap();
    let said = locks.list().next_page().await.unwrap_err().to_string();
    assert!(
        said.contains("permit it with `ACL SETUSER <user> +scan`"),
        "{said}"
    );
}

#[tokio::test]
async fn a_user_that_may_do_all_but_the_list_commands_is_refused() {
    let mut acl = AclServer::start("~* &*").await;
    acl.allow(["@all"]).await;
    acl.admin(&["ACL", "SETUSER", "app", "-@list"]).await;
    assert!(
        refused(&acl.url())
            .await
            .contains("may not run llen, lindex, lrem, lpop, rpush, which locks need")
    );
}

#[tokio::test]
async fn a_full_server_says_so() {
    let server = TestServer::builder().arg("--maxclients", "1").start().await;
    let _only = server.connection().await;
    let error = connect(&server.url()).await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    // Its words are lost if the greeting of the client comes after the end.
    assert!(error.to_string().contains("`maxclients`"), "{error}");
}

#[tokio::test]
async fn a_refused_probe_proves_nothing() {
    // No key of the probe, no INFO and no HELLO.
    let patterns = "~lock:* ~lock-core:f* ~lock-core:queue:* ~lock-core:waiters:* &lock-core:*";
    let mut acl = AclServer::start(patterns).await;
    acl.allow(words("eval evalsha exists")).await;
    let error = refused(&acl.url()).await;
    assert!(error.contains("may not run get, llen,"), "{error}");
    let all = "eval evalsha exists get set del pttl pexpire time hset hdel hlen hmget llen lindex lrem lpop rpush";
    acl.allow(words(all)).await;
    assert!(connect(&acl.url()).await.is_ok());
}

#[tokio::test]
async fn a_server_that_evicts_gets_one_warning_with_the_setting() {
    let server = TestServer::builder()
        .arg("--maxmemory", "100mb")
        .arg("--maxmemory-policy", "volatile-lru")
        .start()
        .await;
    let capture = Capture::start();
    connect(&server.url()).await.unwrap();
    let sentence = "the server deletes keys when its memory is full (maxmemory-policy volatile-lru), and a lock that is deleted is \
                    lost: set maxmemory-policy to noeviction";
    let warnings = || {
        let events = capture.events();
        let mut warnings = events
            .into_iter()
            .filter(|event| event.message().contains("maxmemory"));
        (warnings.next(), warnings.next().is_some())
    };
    let (Some(warning), false) = warnings() else {
        panic!("one warning expected: {}", capture.text())
    };
    assert_eq!(warning.message(), sentence);
    assert_eq!(warning.field("server"), Some(&*server.addr().to_string()));
}

#[tokio::test]
async fn a_missing_database_and_a_missing_password_have_fitting_advice() {
    let server = TestServer::start().await;
    let at = server.addr();
    assert_eq!(
        refused(&format!("redis://{at}/99")).await,
        format!(
            "the server at {at} refused (ERR DB index is out of range): it has no database of the number in the URL, so leave out \
             `/db` or name another"
        )
    );
    let server = TestServer::builder()
        .arg("--requirepass", "secret")
        .start()
        .await;
    let at = server.addr();
    for query in ["", "/?protocol=resp2"] {
        let error = refused(&format!("redis://{at}{query}")).await;
        let start = format!("the server at {at} refused (NOAUTH ");
        let end =
            "): it asks for a password, so write `user:password@` in front of the host in the URL";
        assert!(error.starts_with(&start) && error.ends_with(end), "{error}");
    }
    assert_eq!(
        refused(&format!("redis://:wrong@{at}")).await,
        format!(
            "the server at {at} refused (WRONGPASS invalid username-password pair or user is disabled.): check the user and the \
             password in the URL"
        )
    );
}

#[tokio::test]
async fn an_error_names_the_server_and_its_cause_once() {
    let server = TestServer::start().await;
    let locks = LockManager::builder()
        .command_deadline(Duration::from_millis(300))
        .connect(&server.url())
        .await
        .unwrap();
    server.kill();
    let lock = locks.lock("a");
    let error = anyhow::Error::new(lock.try_acquire().await.unwrap_err());
    let chain = format!("{error:?}");
    assert!(
        chain.starts_with(&format!(
            "the lock server at {} is not available (",
            server.addr()
        )),
        "{chain}"
    );
    assert_eq!(
        chain.to_lowercase().matches("refused").count(),
        1,
        "{chain}"
    );
    assert_eq!(
        chain.matches(&server.addr().to_string()).count(),
        1,
        "{chain}"
    );
    let error = lock
        .acquire_within(Duration::from_millis(100))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains(&server.addr().to_string()),
        "{error}"
    );
}
