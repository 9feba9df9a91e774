//! Each control of the proxy, proved on connections that speak the bare
//! protocol, so that no client repairs or hides anything.

use std::time::{Duration, Instant};

use lock_tests::resp::Splitter;
use lock_tests::{DropMode, LIMIT, Proxy, Request, TestServer, connect, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Long enough to see what should not come. Nothing may be concluded from it
/// about what should: on a slow machine that takes longer.
const SILENCE: Duration = Duration::from_millis(50);

struct Raw {
    stream: TcpStream,
    splitter: Splitter,
}

impl Raw {
    async fn open(proxy: &Proxy) -> Self {
        Self {
            stream: TcpStream::connect(proxy.addr()).await.unwrap(),
            splitter: Splitter::default(),
        }
    }

    async fn send(&mut self, words: &str) {
        let words: Vec<String> = words
            .split(' ')
            .map(|word| format!("${}\r\n{word}\r\n", word.len()))
            .collect();
        let bytes = format!("*{}\r\n{}", words.len(), words.concat());
        self.stream.write_all(bytes.as_bytes()).await.unwrap();
    }

    /// The next frame; `Ok(None)` at an orderly end.
    async fn read(&mut self) -> std::io::Result<Option<String>> {
        let mut buffer = [0; 1024];
        loop {
            if let Some(frame) = self.splitter.next_frame().unwrap() {
                return Ok(Some(String::from_utf8(frame).unwrap()));
            }
            let size = timeout(LIMIT, self.stream.read(&mut buffer))
                .await
                .expect("an answer or an end")?;
            if size == 0 {
                return Ok(None);
            }
            self.splitter.push(&buffer[..size]);
        }
    }

    async fn ask(&mut self, words: &str) -> String {
        self.send(words).await;
        self.read().await.unwrap().expect("a reply")
    }

    async fn assert_silent(&mut self) {
        assert!(timeout(SILENCE, self.read()).await.is_err(), "not silent");
    }

    async fn assert_closed(&mut self) {
        assert_eq!(self.read().await.unwrap(), None);
    }
}

fn is(name: &'static str) -> impl Fn(&Request) -> bool + Clone + Send + Sync {
    move |request| request.name() == name
}

/// For a request whose reply does not come, so that only this tells when it
/// has been executed.
async fn assert_becomes(server: &TestServer, key: &str, value: &str) {
    eventually("the request is executed", LIMIT, async || {
        server.get(key).await.as_deref() == Some(value)
    })
    .await;
}

async fn pair() -> (TestServer, Proxy) {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    (server, proxy)
}

#[tokio::test]
async fn requests_pass_in_order_and_are_counted() {
    let (server, proxy) = pair().await;
    let mut raw = Raw::open(&proxy).await;
    for _ in 0..100 {
        raw.send("incr n").await;
    }
    for n in 1..=100 {
        assert_eq!(raw.read().await.unwrap().unwrap(), format!(":{n}\r\n"));
    }
    assert_eq!(proxy.count(is("INCR")), 100);
    assert_eq!(proxy.requests().len(), 100);
    let first = &proxy.requests()[0];
    assert_eq!(first.arg(1), "n");
    assert!(first.has("n") && !first.has("N"));
    assert_eq!(first.connection(), 1);
    assert_eq!(proxy.connections(), 1);
    drop(raw);
    eventually("the end has passed", LIMIT, async || {
        proxy.live_connections() == 0
    })
    .await;
    assert_eq!(server.get("n").await.as_deref(), Some("100"));
}

#[tokio::test]
async fn a_client_library_works_through_it() {
    let (_server, proxy) = pair().await;
    for url in [proxy.url(), format!("{}/?protocol=resp3", proxy.url())] {
        let mut connection = connect(url).await;
        let big = "x".repeat(1_000_000);
        redis::cmd("SET")
            .arg("k")
            .arg(&big)
            .query_async::<()>(&mut connection)
            .await
            .unwrap();
        let back: String = redis::cmd("GET")
            .arg("k")
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(back, big);
    }
}

#[tokio::test]
async fn a_request_can_be_awaited() {
    let (_server, proxy) = pair().await;
    let mut raw = Raw::open(&proxy).await;
    raw.ask("GET before").await;
    let get = proxy.on_request(is("GET"));
    raw.send("SET k v").await;
    raw.send("GET k").await;
    assert_eq!(get.await.arg(1), "k");
    proxy.on_count(2, is("GET")).await;
}

#[tokio::test]
async fn a_delay_holds_up_both_ways() {
    let (_server, proxy) = pair().await;
    let mut raw = Raw::open(&proxy).await;
    raw.ask("PING").await;
    proxy.delay(Duration::from_millis(30));
    let start = Instant::now();
    raw.ask("PING").await;
    assert!(start.elapsed() >= Duration::from_millis(60));
    // Several at once wait side by side, in order.
    raw.send("INCR n").await;
    raw.send("INCR n").await;
    proxy.delay(Duration::ZERO);
    assert_eq!(raw.read().await.unwrap().unwrap(), ":1\r\n");
    assert_eq!(raw.read().await.unwrap().unwrap(), ":2\r\n");
}

#[tokio::test]
async fn a_silently_dropped_reply_belongs_to_an_executed_request() {
    let (server, proxy) = pair().await;
    let mut raw = Raw::open(&proxy).await;
    let dropped = proxy.drop_next_reply_matching(is("SET"), DropMode::Silent);
    raw.ask("PING").await;
    raw.send("SET k v").await;
    assert_eq!(dropped.wait().await.arg(1), "k");
    assert_eq!(server.get("k").await.as_deref(), Some("v"));
    // Not even later replies come: they would be taken for the lost one.
    raw.send("SET k w").await;
    raw.assert_silent().await;
    assert_becomes(&server, "k", "w").await;
    // Only once, and only there.
    assert_eq!(Raw::open(&proxy).await.ask("SET k x").await, "+OK\r\n");
}

#[tokio::test]
async fn a_dropped_reply_can_close_the_connection() {
    let (server, proxy) = pair().await;
    let mut raw = Raw::open(&proxy).await;
    assert_eq!(raw.ask("INCR n").await, ":1\r\n");
    let dropped = proxy.drop_next_reply_matching(is("INCR"), DropMode::Close);
    raw.send("INCR n").await;
    raw.assert_closed().await;
    dropped.wait().await;
    assert_eq!(server.get("n").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn two_equal_rules_drop_two_replies() {
    let (_server, proxy) = pair().await;
    for _ in 0..2 {
        proxy.drop_next_reply_matching(is("INCR"), DropMode::Close);
    }
    for _ in 0..2 {
        let mut raw = Raw::open(&proxy).await;
        raw.send("INCR n").await;
        raw.assert_closed().await;
    }
    assert_eq!(Raw::open(&proxy).await.ask("INCR n").await, ":3\r\n");
}

#[tokio::test]
async fn dropped_pushes_leave_replies_alone() {
    for hello in ["HELLO 2", "HELLO 3"] {
        let (_server, proxy) = pair().await;
        let mut listener = Raw::open(&proxy).await;
        listener.ask(hello).await;
        assert!(listener.ask("SUBSCRIBE c").await.contains("subscribe"));
        let mut speaker = Raw::open(&proxy).await;
        assert_eq!(speaker.ask("PUBLISH c one").await, ":1\r\n");
        assert!(listener.read().await.unwrap().unwrap().contains("one"));

        proxy.drop_pushes(true);
        assert_eq!(speaker.ask("PUBLISH c two").await, ":1\r\n");
        // In order behind the push, so the push is known to be lost.
        assert!(listener.ask("PING").await.to_lowercase().contains("pong"));
        assert!(listener.ask("SUBSCRIBE d").await.contains("subscribe"));
        proxy.drop_pushes(false);
        speaker.ask("PUBLISH c three").await;
        assert!(listener.read().await.unwrap().unwrap().contains("three"));
    }
}

#[tokio::test]
async fn the_reply_behind_a_push_can_be_dropped() {
    let (_server, proxy) = pair().await;
    let mut raw = Raw::open(&proxy).await;
    raw.ask("HELLO 3").await;
    raw.ask("SUBSCRIBE c").await;
    let dropped = proxy.drop_next_reply_matching(is("PUBLISH"), DropMode::Close);
    raw.send("PUBLISH c hi").await;
    // A server pushes to the publisher itself before it replies, or after.
    while let Some(frame) = raw.read().await.unwrap() {
        assert!(frame.starts_with('>'), "{frame}");
    }
    assert_eq!(dropped.wait().await.name(), "PUBLISH");
}

#[tokio::test]
async fn held_requests_come_through_once_released() {
    let (server, proxy) = pair().await;
    let mut raw = Raw::open(&proxy).await;
    raw.ask("PING").await;
    proxy.hold_requests();
    raw.send("INCR n").await;
    raw.send("INCR n").await;
    proxy.on_count(2, is("INCR")).await;
    raw.assert_silent().await;
    assert!(!server.exists("n").await);
    proxy.release_held();
    assert_eq!(raw.read().await.unwrap().unwrap(), ":1\r\n");
    assert_eq!(raw.read().await.unwrap().unwrap(), ":2\r\n");
}

#[tokio::test]
async fn held_requests_outlive_their_client() {
    let (server, proxy) = pair().await;
    for reset in [false, true] {
        let mut raw = Raw::open(&proxy).await;
        raw.ask("DEL k").await;
        proxy.hold_requests();
        let sets = proxy.count(is("SET"));
        raw.send("SET k zombie").await;
        proxy.on_count(sets + 1, is("SET")).await;
        if reset {
            proxy.reset();
            assert!(raw.read().await.is_err());
        }
        drop(raw);
        assert!(!server.exists("k").await);
        proxy.release_held();
        eventually("the zombie has struck", LIMIT, async || {
            server.exists("k").await
        })
        .await;
    }
    eventually("both ends have passed", LIMIT, async || {
        proxy.live_connections() == 0
    })
    .await;
}

#[tokio::test]
async fn one_held_request_is_overtaken_on_another_connection() {
    let (server, proxy) = pair().await;
    let held = proxy.hold_next_request_matching(is("SET"));
    let mut late = Raw::open(&proxy).await;
    late.send("SET k late").await;
    late.send("GET k").await;
    assert_eq!(held.wait().await.arg(2), "late");

    let mut early = Raw::open(&proxy).await;
    assert_eq!(early.ask("SET k early").await, "+OK\r\n");
    late.assert_silent().await;
    assert_eq!(server.get("k").await.as_deref(), Some("early"));

    held.deliver();
    assert_eq!(late.read().await.unwrap().unwrap(), "+OK\r\n");
    assert_eq!(late.read().await.unwrap().unwrap(), "$4\r\nlate\r\n");
}

#[tokio::test]
async fn one_held_request_is_delivered_after_its_client_has_gone() {
    let (server, proxy) = pair().await;
    let held = proxy.hold_next_request_matching(is("SET"));
    let mut raw = Raw::open(&proxy).await;
    raw.send("SET k zombie").await;
    held.wait().await;
    drop(raw);
    let mut other = Raw::open(&proxy).await;
    assert_eq!(other.ask("DEL k").await, ":0\r\n");
    held.deliver();
    eventually("the zombie has struck", LIMIT, async || {
        server.exists("k").await
    })
    .await;
}

#[tokio::test]
async fn an_unused_hold_is_called_off_by_its_drop() {
    let (_server, proxy) = pair().await;
    drop(proxy.hold_next_request_matching(is("PING")));
    assert_eq!(Raw::open(&proxy).await.ask("PING").await, "+PONG\r\n");
}

#[tokio::test]
async fn a_cut_to_the_server_keeps_requests_from_it() {
    let (server, proxy) = pair().await;
    let mut listener = Raw::open(&proxy).await;
    listener.ask("SUBSCRIBE c").await;
    let mut raw = Raw::open(&proxy).await;
    raw.ask("PING").await;
    proxy.cut_to_server(true);
    raw.send("SET k v").await;
    eventually("the request is lost", LIMIT, async || {
        proxy.lost_requests() == 1
    })
    .await;
    assert!(!server.exists("k").await);
    // The other direction works.
    let mut direct = server.connection().await;
    redis::cmd("PUBLISH")
        .arg("c")
        .arg("hi")
        .query_async::<()>(&mut direct)
        .await
        .unwrap();
    assert!(listener.read().await.unwrap().unwrap().contains("hi"));

    proxy.cut_to_server(false);
    raw.send("SET k w").await;
    raw.assert_silent().await;
    assert!(!server.exists("k").await, "nothing follows what was lost");
    assert!(listener.ask("PING").await.contains("pong"), "lost nothing");
}

#[tokio::test]
async fn a_cut_to_the_client_keeps_replies_from_it() {
    let (server, proxy) = pair().await;
    let mut raw = Raw::open(&proxy).await;
    raw.ask("PING").await;
    proxy.cut_to_client(true);
    raw.send("SET k v").await;
    assert_becomes(&server, "k", "v").await;
    // The end of the connection is lost too.
    server.client_kill_all().await;
    eventually("reply and end are lost", LIMIT, async || {
        proxy.lost_replies() == 2
    })
    .await;
    proxy.cut_to_client(false);
    raw.assert_silent().await;
    drop(raw);
    eventually("the connection has ended", LIMIT, async || {
        proxy.live_connections() == 0
    })
    .await;
}

#[tokio::test]
async fn a_reset_is_seen_as_a_reset() {
    let (_server, proxy) = pair().await;
    let mut raws = [Raw::open(&proxy).await, Raw::open(&proxy).await];
    for raw in &mut raws {
        raw.ask("PING").await;
    }
    proxy.reset();
    for raw in &mut raws {
        let error = raw.read().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert_eq!(Raw::open(&proxy).await.ask("PING").await, "+PONG\r\n");
}

#[tokio::test]
async fn refused_connections_end_at_once() {
    let (_server, proxy) = pair().await;
    let mut old = Raw::open(&proxy).await;
    old.ask("PING").await;
    proxy.refuse(true);
    Raw::open(&proxy).await.assert_closed().await;
    assert_eq!(old.ask("PING").await, "+PONG\r\n");
    proxy.refuse(false);
    assert_eq!(Raw::open(&proxy).await.ask("PING").await, "+PONG\r\n");
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test]
async fn the_end_of_the_server_reaches_the_client() {
    let (server, proxy) = pair().await;
    let mut raw = Raw::open(&proxy).await;
    raw.ask("PING").await;
    server.kill();
    raw.assert_closed().await;
    Raw::open(&proxy).await.assert_closed().await;
    server.restart().await;
    assert_eq!(Raw::open(&proxy).await.ask("PING").await, "+PONG\r\n");
}

#[tokio::test]
async fn the_end_of_the_proxy_ends_its_connections() {
    let (_server, proxy) = pair().await;
    let mut raw = Raw::open(&proxy).await;
    raw.ask("PING").await;
    let addr = proxy.addr();
    drop(proxy);
    assert!(!matches!(raw.read().await, Ok(Some(_))));
    // Not at once: a process another test is just starting has a copy of the
    // listening socket until it runs.
    eventually("the port is free", LIMIT, async || {
        TcpStream::connect(addr).await.is_err()
    })
    .await;
}

/// The controls must work while the test's own runtime is blocked.
#[tokio::test]
async fn a_blocked_test_does_not_block_the_proxy() {
    use std::io::{Read, Write};

    let (_server, proxy) = pair().await;
    let mut stream = std::net::TcpStream::connect(proxy.addr()).unwrap();
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}
