//! Servers and proxies that refuse what only messages need: waiters poll, and one warning says so.

use std::net::SocketAddr;
use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_tests::kit::command;
use lock_tests::resp::{Splitter, parse_request};
use lock_tests::{AclServer, Capture, LIMIT, TestServer, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

const POLLS: &str = "the server does not push messages to us: waiting for locks will poll";

/// What becomes of a request.
enum Verdict {
    Forward,
    Refuse(&'static str),
    Answer(String),
    End,
}

type Rule = fn(&str, &'static str) -> Verdict;

/// A proxy in front of a server, which passes on one request after the other.
struct Strict {
    addr: SocketAddr,
    accepting: AbortHandle,
}

impl Strict {
    async fn start(server: SocketAddr, rule: Rule, text: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(relay(client, server, rule, text));
            }
        });
        let accepting = accepting.abort_handle();
        Self { addr, accepting }
    }

    fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The next whole frame; `None` at the end of the stream.
async fn frame(stream: &mut TcpStream, splitter: &mut Splitter) -> Option<Vec<u8>> {
    loop {
        if let Some(frame) = splitter.next_frame().unwrap() {
            return Some(frame);
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes).await {
            Ok(size @ 1..) => splitter.push(&bytes[..size]),
            _ => return None,
        }
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, rule: Rule, text: &'static str) {
    let (mut requests, mut answers) = (Splitter::default(), Splitter::default());
    while let Some(request) = frame(&mut client, &mut requests).await {
        let words = parse_request(&request).unwrap();
        let words: Vec<_> = words.iter().map(|it| String::from_utf8_lossy(it)).collect();
        let answer = match rule(&words.join(" ").to_uppercase(), text) {
            Verdict::End => return,
            Verdict::Refuse(text) => format!("-{text}\r\n").into_bytes(),
            Verdict::Answer(answer) => answer.into_bytes(),
            Verdict::Forward => {
                server.write_all(&request).await.unwrap();
                frame(&mut server, &mut answers).await.unwrap()
            }
        };
        client.write_all(&answer).await.unwrap();
    }
}

/// Connects, and waits for a lock that another client holds.
async fn waits_by_polling(server: &TestServer, url: &str) {
    let capture = Capture::start();
    let direct = LockManager::connect(&server.url()).await.unwrap();
    let held = direct.lock("a").acquire().await.unwrap();
    let locks = LockManager::builder().poll_interval(Duration::from_millis(20));
    let locks = locks.connect(url).await;
    let lock = locks.unwrap_or_else(|error| panic!("{error}")).lock("a");
    let waiting = tokio::spawn(async move { lock.acquire_within(LIMIT).await });
    eventually("it waits", LIMIT, async || {
        direct.lock("a").inspect().await.unwrap().waiters() == 1
    })
    .await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let events = capture.events();
    let warnings = events.iter().filter(|event| event.message() == POLLS);
    assert_eq!(warnings.count(), 1, "{}", capture.text());
}

#[tokio::test]
async fn a_refused_hello_means_resp2_whatever_its_text() {
    let server = TestServer::start().await;
    for text in [
        "ERR unsupported command 'hello'",
        "ERR unknown command 'HELLO', with args beginning with: '3' ",
        "ERR unknown command `hello`",
        "ERR invalid request",
        "NOPROTO sorry, this protocol version is not supported",
        "NOPROTO unsupported protocol version",
        "WHATEVER",
    ] {
        let refuse: Rule = |request, text| match request {
            "HELLO 3" => Verdict::Refuse(text),
            _ => Verdict::Forward,
        };
        let proxy = Strict::start(server.addr(), refuse, text).await;
        waits_by_polling(&server, &proxy.url()).await;
    }
}

#[tokio::test]
async fn a_refused_subscription_means_polling_whatever_its_text() {
    let server = TestServer::start().await;
    for text in [
        "ERR unsupported command 'subscribe'",
        "ERR unknown command 'SUBSCRIBE', with args beginning with: 'x' ",
        "ERR invalid request",
        "WHATEVER",
    ] {
        let refuse: Rule = |request, text| {
            if request.starts_with("SUBSCRIBE") {
                Verdict::Refuse(text)
            } else {
                Verdict::Forward
            }
        };
        let proxy = Strict::start(server.addr(), refuse, text).await;
        waits_by_polling(&server, &proxy.url()).await;
    }
}

#[tokio::test]
async fn a_server_that_has_renamed_the_commands_is_polled() {
    for name in ["HELLO", "SUBSCRIBE"] {
        let (pid, dir) = (std::process::id(), std::env::temp_dir());
        let file = dir.join(format!("lock-tests-{pid}-{name}.conf"));
        std::fs::write(&file, format!("rename-command {name} \"\"\n")).unwrap();
        let server = TestServer::builder().arg("--include", file.to_str().unwrap());
        let server = server.start().await;
        std::fs::remove_file(file).unwrap();
        // The first client of the two warns as well.
        let capture = Capture::start();
        LockManager::connect(&server.url()).await.unwrap();
        let events = capture.events();
        let warnings = events.iter().filter(|event| event.message() == POLLS);
        assert_eq!(warnings.count(), 1, "{name}: {}", capture.text());
    }
}

#[tokio::test]
async fn a_proxy_that_ends_at_client_setinfo_is_no_hindrance() {
    let server = TestServer::start().await;
    let end: Rule = |request, _| {
        if request.starts_with("CLIENT SETINFO") {
            Verdict::End
        } else {
            Verdict::Forward
        }
    };
    for query in ["", "/?protocol=resp2"] {
        let proxy = Strict::start(server.addr(), end, "").await;
        let locks = LockManager::connect(&format!("{}{query}", proxy.url())).await;
        let locks = locks.unwrap_or_else(|error| panic!("{error}"));
        assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_proxy_that_ends_at_hello_can_be_used_with_resp2() {
    let server = TestServer::start().await;
    let end: Rule = |request, _| {
        if request.starts_with("HELLO") {
            Verdict::End
        } else {
            Verdict::Forward
        }
    };
    let proxy = Strict::start(server.addr(), end, "").await;
    let locks = LockManager::connect(&format!("{}/?protocol=resp2", proxy.url())).await;
    let locks = locks.unwrap_or_else(|error| panic!("{error}"));
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
}

/// Says its version as a server with RESP3 does, or in INFO as one of Redis 5.
async fn refusal_of_version(server: &TestServer, rule: Rule, version: &'static str) -> String {
    let proxy = Strict::start(server.addr(), rule, version).await;
    match LockManager::connect(&proxy.url()).await {
        Err(LockError::InvalidConfig { reason }) => {
            reason.replace(&proxy.addr.to_string(), "ADDRESS")
        }
        Ok(_) => "accepted".to_owned(),
        Err(other) => panic!("{other:?}"),
    }
}

/// Says a version in INFO, as a server without HELLO.
fn in_info(request: &str, version: &'static str) -> Verdict {
    match request {
        "HELLO" | "HELLO 3" => Verdict::Refuse("ERR unknown command `HELLO`"),
        "INFO" => {
            let info = format!("# Server\r\nredis_version:{version}\r\n");
            Verdict::Answer(format!("${}\r\n{info}\r\n", info.len()))
        }
        _ => Verdict::Forward,
    }
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_with_its_version() {
    let server = TestServer::start().await;
    let in_hello: Rule = |request, version| match request {
        "HELLO 3" => Verdict::Answer(format!("%1\r\n+version\r\n+{version}\r\n")),
        _ => Verdict::Forward,
    };
    let refused = |version| {
        format!(
            "the server at ADDRESS has version {version}, and locks need Redis 6.2 or later, or Valkey: upgrade the server, or use \
             `any_version` if it is another server that has the commands of Redis 6.2"
        )
    };
    for (rule, version, expected) in [
        (in_hello, "6.0.16", refused("6.0.16")),
        (in_hello, "6.2.0", "accepted".to_owned()),
        (in_info, "5.0.14", refused("5.0.14")),
        (in_info, "7.2.4", "accepted".to_owned()),
    ] {
        assert_eq!(refusal_of_version(&server, rule, version).await, expected);
    }
}

#[tokio::test]
async fn any_version_takes_a_server_with_the_version_of_another_one() {
    let server = TestServer::start().await;
    // As some releases of Kvrocks.
    let proxy = Strict::start(server.addr(), in_info, "4.0.0").await;
    let locks = LockManager::builder().any_version();
    let locks = locks.connect(&proxy.url()).await.unwrap();
    let held = locks.lock("a").try_acquire().await.unwrap().unwrap();
    held.release().await.unwrap();

    // What else is wrong with a server is still said.
    let sentinel: Rule = |request, mode| match request {
        "HELLO 3" => Verdict::Answer(format!("%1\r\n+mode\r\n+{mode}\r\n")),
        _ => Verdict::Forward,
    };
    let proxy = Strict::start(server.addr(), sentinel, "cluster").await;
    let locks = LockManager::builder().any_version();
    let refused = locks.connect(&proxy.url()).await.unwrap_err().to_string();
    assert!(refused.contains("is a node of a cluster"), "{refused}");
}

/// As Kvrocks with its default `resp3-enabled no`.
#[tokio::test]
async fn a_server_that_answers_hello_and_stays_with_resp2_is_polled() {
    let server = TestServer::start().await;
    let stays: Rule = |request, _| match request {
        "HELLO 3" => Verdict::Answer("*2\r\n+proto\r\n:2\r\n".to_owned()),
        _ => Verdict::Forward,
    };
    let proxy = Strict::start(server.addr(), stays, "").await;
    waits_by_polling(&server, &proxy.url()).await;
}

/// One address for several shards: it routes by the first key, and refuses a script with keys of two slots.
#[tokio::test]
async fn a_proxy_in_front_of_shards_is_answered_with_the_url_of_a_cluster() {
    let server = TestServer::builder().arg("--cluster-enabled", "yes");
    let server = server.start().await;
    let () = command(&server, "CLUSTER ADDSLOTSRANGE 0 16383").await;
    eventually("the slots are served", LIMIT, async || {
        let info: String = command(&server, "CLUSTER INFO").await;
        info.contains("cluster_state:ok")
    })
    .await;
    let hides: Rule = |request, _| match request {
        "INFO" => Verdict::Refuse("ERR not here"),
        _ => Verdict::Forward,
    };
    let proxy = Strict::start(server.addr(), hides, "").await;
    let url = format!("{}/?protocol=resp2", proxy.url());
    let locks = LockManager::connect(&url).await.unwrap();
    let refused = locks.lock("a").try_acquire().await.unwrap_err().to_string();
    assert!(refused.contains("CROSSSLOT"), "{refused}");
    assert!(
        refused.contains("`redis+cluster://host1,host2`"),
        "{refused}"
    );
}

/// As a cache that takes no script without keys, and knows no TIME in scripts.
#[tokio::test]
async fn what_the_probe_could_not_try_is_the_error_of_the_first_lock() {
    let mut acl = AclServer::start("~* &*").await;
    acl.allow(["@all"]).await;
    acl.admin(&["ACL", "SETUSER", "app", "-time"]).await;
    let takes_keys: Rule = |request, _| {
        let is_probe = request.starts_with("EVAL") && request.contains("LOCK-CORE:PROBE");
        let hash = request.strip_prefix("EVALSHA ").unwrap_or_default();
        if is_probe || hash.ends_with(" 0") {
            Verdict::Refuse("ERR Lua scripts without any input keys are not supported.")
        } else {
            Verdict::Forward
        }
    };
    let proxy = Strict::start(acl.server().addr(), takes_keys, "").await;
    let url = acl.url();
    let (login, _) = url.rsplit_once('@').unwrap();
    let url = format!("{login}@{}/?protocol=resp2", proxy.addr);
    let locks = LockManager::connect(&url).await.unwrap();
    let refused = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(
        matches!(refused, LockError::InvalidConfig { .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("script"), "{refused}");
}
