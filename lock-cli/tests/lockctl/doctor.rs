//! `doctor` and `quorum`.

use lock_core::LockManager;
use lock_tests::kit::command;
use lock_tests::resp::Splitter;
use lock_tests::{AclServer, LIMIT, ServerBinary, ShiftedClock, TestServer, eventually};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::{answer, json, says};

/// The lines that are not fine, and the exit code.
async fn found(url: &str) -> (Vec<String>, Option<i32>) {
    let ended = answer(url, "doctor --rounds 3").await;
    assert_eq!(ended.err, "");
    let lines = ended.out.lines().filter(|line| !line.starts_with("fine "));
    (lines.map(str::to_owned).collect(), ended.code)
}

#[tokio::test]
async fn a_server_as_the_page_wants_it_has_no_finding() {
    let server = TestServer::builder()
        .arg("--appendonly", "yes")
        .start()
        .await;
    let all = says(&server.url(), "doctor").await;
    for words in [
        "version ",
        "it writes an append-only file",
        "(100 rounds)",
        "its clock agrees",
    ] {
        assert!(all.contains(words), "{all}");
    }
    assert_eq!(found(&server.url()).await, (vec![], Some(0)));
    let object = json(&server.url(), "doctor").await;
    assert_eq!(object[0]["severity"], "fine");
}

#[tokio::test]
async fn what_may_cost_locks_is_found_with_what_to_do() {
    let server = TestServer::builder()
        .arg("--maxmemory", "100mb")
        .arg("--maxmemory-policy", "allkeys-lru")
        .start()
        .await;
    let () = command(&server, "SET lock:report forever").await;
    let at = server.addr();
    let (lines, code) = found(&server.url()).await;
    assert_eq!(code, Some(1));
    let expected = [
        format!("problem  {at}: it deletes keys when its memory is full (maxmemory-policy allkeys-lru): set `maxmemory-policy noeviction`: a lock that is deleted is lost"),
        format!("advice   {at}: it writes no append-only file: set `appendonly yes`, `appendfsync everysec`: without it a server that restarts has forgotten the locks that are held"),
        "problem  `lock:report` is a string without a ttl, not a lock: nothing can lock this name. A holder that lives gives its lock a ttl again within a third of that: wait, and delete it if it stays and no program needs it".to_owned(),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn missing_rights_are_found_with_the_command_for_them() {
    let mut server = AclServer::start("~lock:* &lock-core:*").await;
    server.allow(["@all"]).await;
    let (lines, code) = found(&server.url()).await;
    assert_eq!((lines.len(), code), (1, Some(1)), "{lines:?}");
    assert!(
        lines[0].contains("`ACL SETUSER app ~lock-core:*`"),
        "{lines:?}"
    );

    let mut server = AclServer::start("~lock:* ~lock-core:* &lock-core:*").await;
    server.allow(["@all"]).await;
    server
        .admin(&["ACL", "SETUSER", "app", "+@all", "-info", "-pexpire"])
        .await;
    let (lines, _) = found(&server.url()).await;
    assert!(lines[0].contains("`ACL SETUSER app +pexpire`"), "{lines:?}");
    server.admin(&["ACL", "SETUSER", "app", "+pexpire"]).await;
    let (lines, code) = found(&server.url()).await;
    assert!(lines[0].contains("permit `+info` to the user"), "{lines:?}");
    assert_eq!(code, Some(0), "{lines:?}");
}

/// As many managed servers are.
#[tokio::test]
async fn a_server_without_commands_for_administrators_has_no_finding() {
    let mut server = AclServer::start("~* &*").await;
    server.allow(["@all"]).await;
    let less = "-config -client -script -acl -debug -cluster -wait -monitor -slowlog -latency";
    let words: Vec<_> = ["ACL", "SETUSER", "app", "+@all"]
        .into_iter()
        .chain(less.split(' '))
        .collect();
    server.admin(&words).await;
    let (lines, code) = found(&server.url()).await;
    assert_eq!((lines.len(), code), (1, Some(0)), "{lines:?}");
    assert!(
        lines[0].contains("it writes no append-only file"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_lock_that_is_refused_is_an_advice_with_the_words_of_the_server() {
    let mut server = AclServer::start("~lock:orders:* ~lock-core:* &lock-core:*").await;
    server.allow(["@all"]).await;
    let ended = answer(&server.url(), "doctor --rounds 3").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let line = "advice   the latency was not measured: ";
    assert!(ended.out.contains(line), "{ended:?}");
    assert!(ended.out.contains("refused (NOPERM "), "{ended:?}");
}

#[tokio::test]
async fn a_policy_that_evicts_is_a_problem_with_a_limit_and_advice_without() {
    for (limit, start, code) in [("100mb", "problem  ", 1), ("0", "advice   ", 0)] {
        let server = TestServer::builder()
            .arg("--maxmemory", limit)
            .arg("--maxmemory-policy", "volatile-lru");
        let server = server.start().await;
        let (lines, ended) = found(&server.url()).await;
        assert_eq!(ended, Some(code), "{lines:?}");
        assert!(lines[0].starts_with(start), "{lines:?}");
        assert!(
            lines[0].contains("maxmemory-policy noeviction"),
            "{lines:?}"
        );
    }
}

/// It answers each request as Kvrocks answers HELLO.
#[tokio::test]
async fn any_version_is_an_option() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let accepting = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut bytes, mut requests) = ([0; 4096], Splitter::default());
                while let Ok(size @ 1..) = stream.read(&mut bytes).await {
                    requests.push(&bytes[..size]);
                    while requests.next_frame().unwrap().is_some() {
                        let reply = b"%1\r\n+version\r\n+4.0.0\r\n";
                        stream.write_all(reply).await.unwrap();
                    }
                }
            });
        }
    });
    let refused = |ended: &crate::Ended| ended.err.contains("has version 4.0.0");
    let ended = answer(&url, "--deadline 1s inspect a").await;
    assert!(
        refused(&ended) && ended.err.contains("use `--any-version`"),
        "{ended:?}"
    );
    let ended = answer(&url, "--deadline 1s --any-version inspect a").await;
    assert!(!refused(&ended), "{ended:?}");
    accepting.abort();
}

#[tokio::test]
async fn a_replica_and_a_master_without_needed_replicas_are_found() {
    let (master, replica) = (TestServer::start().await, TestServer::start().await);
    let address = master.addr();
    let () = command(
        &replica,
        &format!("REPLICAOF {} {}", address.ip(), address.port()),
    )
    .await;
    eventually("a replica", LIMIT, async || {
        let info: String = command(&master, "INFO replication").await;
        info.contains("connected_slaves:1")
    })
    .await;
    let (lines, code) = found(&replica.url()).await;
    assert_eq!((lines.len(), code), (1, Some(1)), "{lines:?}");
    assert!(
        lines[0].contains(&format!("it is a replica of {address}")),
        "{lines:?}"
    );
    let (lines, _) = found(&master.url()).await;
    let replicas =
        |line: &String| line.contains("it has 1 replica, and min-replicas-to-write is 0");
    assert!(lines.iter().any(replicas), "{lines:?}");
    let () = command(&master, "CONFIG SET min-replicas-to-write 1").await;
    let (lines, _) = found(&master.url()).await;
    assert!(!lines.iter().any(replicas), "{lines:?}");
}

#[tokio::test]
async fn a_clock_that_lags_is_found() {
    let clock = ShiftedClock::of(&ServerBinary::find());
    let server = TestServer::builder().binary(clock.program()).start().await;
    clock.set(-30);
    let (lines, code) = found(&server.url()).await;
    assert_eq!(code, Some(1));
    let lags =
        |line: &String| line.contains("its clock is 30.") || line.contains("its clock is 29.9");
    assert!(
        lines
            .iter()
            .any(|line| lags(line) && line.contains("s behind")),
        "{lines:?}"
    );
}

#[tokio::test]
async fn the_nodes_of_a_quorum_are_shown_before_and_after_its_beginning() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(TestServer::start().await);
    }
    let addresses: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
    let url = format!("redis+quorum://{}", addresses.join(","));
    let blank = answer(&url, "quorum status").await;
    assert_eq!(blank.code, Some(1));
    assert_eq!(
        blank.out.matches("no: it belongs to no quorum").count(),
        3,
        "{}",
        blank.out
    );

    assert_eq!(
        says(&url, "quorum begin").await,
        "the quorum has begun: its nodes vote\n"
    );
    let status = says(&url, "quorum status").await;
    assert!(status.contains("3 of 3 vote; the clocks are "), "{status}");
    let locks = LockManager::connect(&url).await.unwrap();
    let held = locks.lock("a").acquire().await.unwrap();
    held.release().await.unwrap();

    // One is away, and one has lost its data.
    nodes[0].kill();
    nodes[2].kill();
    nodes[2].restart().await;
    let status = answer(&url, "quorum status").await;
    assert_eq!(status.code, Some(1), "{}", status.out);
    for words in [
        "Connection refused",
        "1 of 3 vote",
        "no: it belongs to no quorum",
    ] {
        assert!(status.out.contains(words), "{}", status.out);
    }
    let object = json_of(&url).await;
    assert_eq!(object[1]["votes"], true);
    assert!(
        object[0]["error"]
            .as_str()
            .unwrap()
            .contains("Connection refused")
    );

    // By their URLs, in words.
    let named: Vec<_> = addresses.iter().map(|at| format!("redis://{at}")).collect();
    nodes[0].restart().await;
    let (lines, code) = found(&url).await;
    let blank = |line: &String| line.contains(": it does not vote for another ");
    assert_eq!(
        (lines.iter().filter(|line| blank(line)).count(), code),
        (2, Some(1)),
        "{lines:?}"
    );
    let refused = answer(&url, "quorum begin --anew").await;
    assert_eq!(refused.code, Some(64), "{refused:?}");
    let begun = format!("quorum begin --anew --yes {}", named.join(" "));
    says("redis://127.0.0.1:1", &begun).await;
    assert!(says(&url, "quorum status").await.contains("3 of 3 vote"));
}

async fn json_of(url: &str) -> serde_json::Value {
    let ended = answer(url, "quorum status --json").await;
    serde_json::from_str(&ended.out).unwrap()
}
