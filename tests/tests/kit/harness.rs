//! The harness is what it says: otherwise the tests that use it prove nothing.

use std::time::{Duration, Instant};

use lock_tests::{
    Capture, Child, LIMIT, TestServer, boottime_now, connect, eventually, monotonic_now, servers,
};

const ECHO: &str = env!("CARGO_BIN_EXE_harness-echo");
const NO_ENV: [(&str, &str); 0] = [];

#[tokio::test]
async fn every_listed_server_starts_and_tells_its_name() {
    for binary in servers() {
        let server = TestServer::builder().binary(binary.path()).start().await;
        assert!(binary.major() >= 6, "{}", binary.name());
        let mut connection = connect(server.url()).await;
        let pong: String = redis::cmd("PING")
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(pong, "PONG");
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection)
            .await
            .unwrap();
        assert!(info.contains(&format!("process_id:{}\r\n", server.pid())));
    }
}

#[tokio::test]
async fn a_server_tells_what_it_holds_and_did() {
    let server = TestServer::builder()
        .arg("--maxmemory", "64mb")
        .start()
        .await;
    let mut connection = server.connection().await;
    server.reset_stats().await;
    for key in ["b", "a"] {
        redis::cmd("SET")
            .arg(key)
            .arg("1")
            .query_async::<()>(&mut connection)
            .await
            .unwrap();
    }
    redis::cmd("PEXPIRE")
        .arg("a")
        .arg(60_000)
        .query_async::<()>(&mut connection)
        .await
        .unwrap();
    let stats = server.commandstats().await;
    assert_eq!(stats.get("set"), Some(&2));
    assert_eq!(stats.get("pexpire"), Some(&1));
    assert!(!stats.contains_key("client|setinfo"), "{stats:?}");

    assert_eq!(server.keys().await, ["a", "b"]);
    assert!(server.exists("a").await);
    assert_eq!(server.get("a").await.as_deref(), Some("1"));
    assert!((1..=60_000).contains(&server.pttl("a").await));
    assert_eq!(server.pttl("b").await, -1);
    assert_eq!(server.pttl("c").await, -2);

    assert_eq!(server.client_kill_all().await, 1);
    let lost: redis::RedisResult<String> = redis::cmd("GET")
        .arg("a")
        .query_async(&mut connection)
        .await;
    assert!(lost.is_err());

    server.flushall().await;
    assert_eq!(server.keys().await, Vec::<String>::new());
    assert!(!server.exists("a").await);
}

#[tokio::test]
async fn a_stopped_server_answers_once_it_goes_on() {
    let server = TestServer::start().await;
    let mut connection = server.connection().await;
    server.stop();
    let mut ping = Box::pin(async move {
        redis::cmd("PING")
            .query_async::<String>(&mut connection)
            .await
    });
    let silence = tokio::time::timeout(Duration::from_millis(50), &mut ping).await;
    assert!(silence.is_err());
    server.cont();
    assert_eq!(ping.await.unwrap(), "PONG");
    // Again, so that the wait for the stop is not fooled by the first one.
    server.stop();
    server.cont();
    server.stop();
    server.cont();
    assert!(!server.exists("a").await);
}

#[tokio::test]
async fn a_killed_server_comes_back_empty_on_its_port() {
    let server = TestServer::start().await;
    let (port, pid) = (server.port(), server.pid());
    set(&server.url(), "a").await;
    server.kill();
    assert!(std::net::TcpStream::connect(server.addr()).is_err());
    server.restart().await;
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert!(!server.exists("a").await);
}

#[tokio::test]
async fn an_append_only_file_survives_the_kill() {
    let server = TestServer::builder()
        .arg("--appendonly", "yes")
        .start()
        .await;
    set(&server.url(), "a").await;
    server.restart().await;
    assert!(server.exists("a").await);
}

#[tokio::test]
async fn a_dropped_server_leaves_nothing() {
    let server = TestServer::start().await;
    let (addr, dir) = (server.addr(), server.dir().to_owned());
    assert!(dir.exists());
    server.stop();
    drop(server);
    assert!(std::net::TcpStream::connect(addr).is_err());
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_server_in_its_own_session_restarts_in_one_and_ends_with_its_handle() {
    let server = TestServer::builder().in_own_session().start().await;
    let session = |pid: u32| {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed());
        rustix::process::getsid(pid).map(|of| of.as_raw_nonzero().get().cast_unsigned())
    };
    assert_eq!(session(server.pid()), Ok(server.pid()));
    server.restart().await;
    let pid = server.pid();
    assert_eq!(session(pid), Ok(pid));
    drop(server);
    assert!(session(pid).is_err());
}

#[tokio::test]
async fn servers_start_side_by_side() {
    let starts: Vec<_> = (0..6)
        .map(|_| tokio::spawn(async { TestServer::start().await }))
        .collect();
    let mut ports = Vec::new();
    let mut running = Vec::new();
    for start in starts {
        let server = start.await.unwrap();
        ports.push(server.port());
        running.push(server);
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), running.len());
}

#[tokio::test]
async fn a_helper_answers_line_by_line() {
    let mut child = Child::spawn(ECHO, ["one", "two"], [("ECHO_GREETING", "hello")]);
    assert_eq!(child.expect("ready").await, "hello one two");
    child.send("x y");
    assert_eq!(child.recv_line().await, "echo x y");
    assert_eq!(child.try_line(), None);
    child.send("exit");
    assert_eq!(child.wait().await.code(), Some(7));
    assert_eq!(child.next_line().await, None);
}

#[tokio::test]
async fn a_stopped_helper_is_silent_until_it_goes_on() {
    let mut child = Child::spawn(ECHO, [""; 0], NO_ENV);
    child.expect("ready").await;
    child.stop();
    child.send("x");
    let silence = tokio::time::timeout(Duration::from_millis(50), child.recv_line()).await;
    assert!(silence.is_err());
    child.cont();
    assert_eq!(child.recv_line().await, "echo x");
    child.stop();
    child.kill();
    assert_eq!(child.next_line().await, None);
    assert!(!child.wait().await.success());
}

/// Runs this very test program again, as the process to be killed.
#[tokio::test]
async fn a_killed_test_process_takes_its_server_along() {
    const ROLE: &str = "HARNESS_TEST_OWNER";
    if std::env::var_os(ROLE).is_some() {
        let server = TestServer::start().await;
        // On a line of its own: the test runner writes without an end of line.
        println!("\nserver {} {}", server.port(), server.dir().display());
        tokio::time::sleep(LIMIT).await;
        return;
    }
    let mut owner = Child::spawn(
        std::env::current_exe().unwrap(),
        [
            "--exact",
            "--nocapture",
            "harness::a_killed_test_process_takes_its_server_along",
        ],
        [(ROLE, "1")],
    );
    let line = loop {
        let line = owner.recv_line().await;
        if let Some(rest) = line.strip_prefix("server ") {
            break rest.to_owned();
        }
    };
    let (port, dir) = line.split_once(' ').unwrap();
    let addr = format!("127.0.0.1:{port}");
    assert!(std::net::TcpStream::connect(&addr).is_ok());
    owner.kill();
    eventually("the server is gone", LIMIT, async || {
        std::net::TcpStream::connect(&addr).is_err() && !std::path::Path::new(dir).exists()
    })
    .await;
}

#[tokio::test]
async fn clocks_of_two_processes_compare() {
    let mut child = Child::spawn(ECHO, [""; 0], NO_ENV);
    child.expect("ready").await;
    let before = monotonic_now();
    child.send("clock");
    let theirs = child.expect("clock").await.parse().unwrap();
    let theirs = Duration::from_nanos(theirs);
    assert!(before < theirs && theirs < monotonic_now());
    assert!(boottime_now() >= before);
}

#[tokio::test]
async fn eventually_returns_as_soon_as_it_holds() {
    let start = Instant::now();
    let mut polls = 0;
    eventually("three polls", LIMIT, async || {
        polls += 1;
        polls == 3
    })
    .await;
    assert_eq!(polls, 3);
    assert!(start.elapsed() < LIMIT);
}

#[tokio::test]
#[should_panic(expected = "the moon is blue")]
async fn eventually_names_what_did_not_come() {
    eventually("the moon is blue", Duration::ZERO, async || false).await;
}

#[tokio::test]
#[should_panic(expected = "the tests need a Redis or Valkey server")]
async fn a_missing_server_fails_the_test() {
    let _ = TestServer::builder().binary("/nonexistent/redis-server");
}

#[tokio::test]
#[should_panic(expected = "Bad directive")]
async fn a_server_that_does_not_start_shows_its_log() {
    let builder = TestServer::builder().arg("--no-such-option", "1");
    drop(builder.start().await);
}

async fn set(url: &str, key: &str) {
    let mut connection = connect(url).await;
    redis::cmd("SET")
        .arg(key)
        .arg("1")
        .query_async::<()>(&mut connection)
        .await
        .unwrap();
}

#[test]
fn what_a_thread_that_captures_nothing_says_first_is_captured_later() {
    fn say() {
        tracing::info!("said");
    }
    let capture = Capture::start();
    std::thread::spawn(say).join().unwrap();
    assert!(capture.events().is_empty(), "it is another thread's");
    say();
    assert_eq!(capture.events()[0].message(), "said");
}
