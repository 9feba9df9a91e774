//! `ls`, `inspect`, `unlock` and `wait`.

use std::process::Stdio;
use std::time::Duration;

use lock_core::{LockManager, LossReason, Owner};
use lock_tests::kit::command;
use lock_tests::{LIMIT, Sentinel, TestCluster, TestServer, eventually};
use tokio::time::timeout;

use crate::{answer, json, lockctl, says};

pub(crate) async fn manager(url: &str, name: &str) -> LockManager {
    let builder = LockManager::builder().client_name(name);
    builder.connect(url).await.unwrap()
}

#[tokio::test]
async fn a_held_lock_is_listed_with_its_holder_and_shown_with_its_waiters() {
    let server = TestServer::start().await;
    let url = server.url();
    assert_eq!(
        says(&url, "ls").await,
        "KEY  KIND  HOLDER  HELD  TTL LEFT  WAITERS\n"
    );
    let (locks, others) = (
        manager(&url, "orders-1").await,
        manager(&url, "orders-2").await,
    );
    let held = locks.lock("order:7").acquire().await.unwrap();
    let _other = locks.lock("report").acquire().await.unwrap();
    let waiting = tokio::spawn(others.lock("order:7").acquire());
    let queued = async || locks.lock("order:7").inspect().await.unwrap().waiters() == 1;
    eventually("it waits", LIMIT, queued).await;

    let listed = says(&url, "ls").await;
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 3, "{listed}");
    assert_eq!(
        (rows[1][0], rows[1][2], rows[1].last()),
        ("order:7", "orders-1", Some(&"1"))
    );
    assert_eq!(
        (rows[2][0], rows[2][2], rows[2].last()),
        ("report", "orders-1", Some(&"0"))
    );
    let listed = json(&url, "ls order:*").await;
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["holder"], "orders-1");

    let shown = json(&url, "inspect order:7").await;
    assert_eq!(shown["queue"][0]["name"], "orders-2");
    assert!(shown["remaining_ms"].as_u64().unwrap() <= 30_000);
    let text = says(&url, "inspect order:7").await;
    for words in [
        "holder      orders-1\n",
        "waiters     1\n            1. orders-2, for ",
    ] {
        assert!(text.contains(words), "{text}");
    }
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(
        says(&url, "inspect order:7")
            .await
            .contains("state       free\n")
    );
}

#[tokio::test]
async fn a_forced_release_tells_the_holder_and_asks_before() {
    let server = TestServer::start().await;
    let url = server.url();
    let locks = manager(&url, "orders-1").await;
    let held = locks.lock("order:7").acquire().await.unwrap();

    let refused = answer(&url, "unlock order:7").await;
    assert_eq!(refused.code, Some(64));
    assert!(refused.err.contains("state `--yes`"), "{}", refused.err);
    assert!(held.is_held());

    assert_eq!(
        says(&url, "unlock order:7 --yes").await,
        "order:7 was taken from orders-1\n"
    );
    let told = timeout(LIMIT, held.lost()).await.expect("told");
    assert_eq!(told, LossReason::ForceReleased);
    let free = answer(&url, "unlock order:7 --yes").await;
    assert_eq!((free.code, &*free.out), (Some(1), "order:7 is free\n"));

    let me = Owner::new();
    let held = locks
        .reentrant_lock("account:7")
        .owner(&me)
        .acquire()
        .await
        .unwrap();
    let listed = json(&url, "ls").await;
    assert_eq!(
        (&listed[0]["key"], &listed[0]["kind"]),
        (&"account:7".into(), &"reentrant".into())
    );
    says(&url, "unlock --reentrant account:7 --yes").await;
    let told = timeout(LIMIT, held.lost()).await.expect("told");
    assert_eq!(told, LossReason::ForceReleased);
}

#[tokio::test]
async fn a_key_does_nothing_to_the_terminal_of_an_operator() {
    let server = TestServer::start().await;
    let locks = manager(&server.url(), "orders-1").await;
    let key = "evil\u{1b}[2J\nFAKE  exclusive  root";
    let held = locks.lock(key).acquire().await.unwrap();
    let listed = says(&server.url(), "ls").await;
    assert_eq!(listed.lines().count(), 2, "{listed:?}");
    assert!(listed.contains("evil\\u{1b}[2J\\nFAKE"), "{listed:?}");
    assert_eq!(json(&server.url(), "ls").await[0]["key"], key);
    held.release().await.unwrap();
}

#[tokio::test]
async fn waiting_ends_when_the_lock_is_free_or_the_time_is_over() {
    let server = TestServer::start().await;
    let url = server.url();
    let held = manager(&url, "orders-1")
        .await
        .lock("order:7")
        .acquire()
        .await
        .unwrap();
    assert_eq!(
        answer(&url, "wait order:7 --timeout 150ms").await.code,
        Some(1)
    );
    let mut waiting = lockctl(&url, "wait order:7")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let early = timeout(Duration::from_millis(300), waiting.wait()).await;
    assert!(early.is_err(), "{early:?}");
    held.release().await.unwrap();
    let code = timeout(LIMIT, waiting.wait()).await.expect("free").unwrap();
    assert!(code.success());
}

#[tokio::test]
async fn completions_and_the_page_for_man_name_each_command() {
    let (zsh, man) = (says("", "completions zsh").await, says("", "man").await);
    for command in [
        "ls", "inspect", "unlock", "resize", "wait", "quorum", "doctor",
    ] {
        assert!(zsh.contains(&format!("{command})")), "{command}: {zsh}");
        let section = format!(".SH {}\n", command.to_uppercase());
        assert!(man.contains(&section), "{command}: {man}");
    }
}

#[tokio::test]
async fn what_only_lockctl_starts_is_in_no_completion() {
    for shell in ["bash", "zsh", "fish"] {
        let text = says("", &format!("completions {shell}")).await;
        assert!(
            !text.contains("run-keeper") && !text.contains("run-start"),
            "{shell}"
        );
    }
}

#[tokio::test]
async fn a_reader_of_a_page_that_has_gone_is_no_error() {
    for words in ["man", "completions bash"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = lockctl("", words).stdout(writer).status().await.unwrap();
        assert_eq!(status.code(), Some(0), "{words}");
    }
}

#[tokio::test]
async fn two_stars_of_a_pattern_are_one() {
    let server = TestServer::start().await;
    let locks = manager(&server.url(), "orders-1").await;
    let _held = locks.lock("order:7").acquire().await.unwrap();
    for (pattern, found) in [("o**7", 1), ("**", 1), ("***:7", 1), ("b**", 0)] {
        let listed = json(&server.url(), &format!("ls {pattern}")).await;
        assert_eq!(listed.as_array().unwrap().len(), found, "{pattern}");
    }
}

#[tokio::test]
async fn a_hash_of_counters_is_not_taken_for_a_reentrant_lock() {
    let server = TestServer::start().await;
    let url = server.url();
    let _: i64 = command(&server, "HSET stock:7 count 5").await;
    let text = says(&url, "inspect --reentrant stock:7").await;
    assert!(
        text.contains("state       no lock, but a hash without a ttl\n"),
        "{text}"
    );
    let refused = answer(&url, "unlock --reentrant stock:7 --yes").await;
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(
        refused.err.contains("state another key or `--prefix`"),
        "{refused:?}"
    );
    let left: String = command(&server, "HGET stock:7 count").await;
    assert_eq!(left, "5");
}

#[tokio::test]
async fn an_election_is_shown_with_its_leader_and_a_latch_with_its_count() {
    let server = TestServer::start().await;
    let url = server.url();
    let locks = manager(&url, "orders-1").await;
    assert!(json(&url, "inspect --election chief").await["leader"].is_null());
    let led = locks.election("chief").campaign("10.0.0.1").await.unwrap();
    let term = led.term().get();
    let text = says(&url, "inspect --election chief").await;
    let leader = format!("leader      10.0.0.1\nterm        {term}\n");
    assert!(
        text.contains("kind        election\n") && text.ends_with(&leader),
        "{text}"
    );
    let shown = json(&url, "inspect --election chief").await;
    let leader = serde_json::json!({ "value": "10.0.0.1", "term": term });
    assert_eq!(
        (&shown["leader"], &shown["holder"]),
        (&leader, &"orders-1".into())
    );

    let latch = locks.latch("parts", 2);
    for (id, text) in [
        ("a", "closed\nleft        1 of 2\n"),
        ("b", "open\nleft        0 of 2\n"),
    ] {
        latch.count_down(id).await.unwrap();
        let shown = says(&url, "inspect --latch 2 parts").await;
        assert_eq!(shown, format!("latch       parts\nstate       {text}"));
    }
    assert_eq!(json(&url, "inspect --latch 2 parts").await["open"], true);
    let other = answer(&url, "inspect --latch 3 parts").await;
    assert_eq!(other.code, Some(78));
    assert!(other.err.contains("state `--latch 2`"), "{other:?}");
}

#[tokio::test]
async fn mistakes_have_their_exit_codes_and_one_sentence() {
    let server = TestServer::start().await;
    let url = server.url();
    for (url, words, code, sentence) in [
        (
            "",
            "ls",
            64,
            "there is no server: state `--url`, or LOCK_URL in the environment",
        ),
        ("redis://127.0.0.1:1", "ls", 69, "Connection refused"),
        (
            "http://127.0.0.1",
            "ls",
            78,
            "is not the scheme of a lock server",
        ),
        (
            &url,
            "inspect a{b",
            78,
            "braces are allowed only as one non-empty `{tag}`",
        ),
        (&url, "inspect", 64, "<KEY>"),
        ("memory://", "ls", 78, "inside one process"),
        ("memory://", "run a -- true", 78, "inside one process"),
        (
            "redis+cluster://a",
            "quorum status",
            78,
            "not that of a quorum",
        ),
    ] {
        let mut command = lockctl(url, words);
        if url.is_empty() {
            command.env_remove("LOCK_URL");
        }
        let ended = crate::Ended::from(command.output().await.unwrap());
        assert_eq!(ended.code, Some(code), "{words}: {ended:?}");
        assert!(ended.err.contains(sentence), "{words}: {ended:?}");
    }
}

/// What all commands say of the lock `order:7`, on any kind of server.
async fn whole_life(url: &str) {
    let locks = manager(url, "orders-1").await;
    let mut held = Vec::new();
    for n in 5..10 {
        held.push(locks.lock(format!("order:{n}")).acquire().await.unwrap());
    }
    let listed = json(url, "ls order:*").await;
    assert_eq!(listed.as_array().unwrap().len(), 5, "{url}");
    assert_eq!(json(url, "inspect order:7").await["holder"], "orders-1");
    let examined = answer(url, "doctor --rounds 20").await;
    assert!(examined.out.contains("(20 rounds)"), "{url}: {examined:?}");
    assert!(!examined.out.contains("problem"), "{url}: {examined:?}");
    assert_eq!(
        answer(url, "wait order:7 --timeout 1ms").await.code,
        Some(1)
    );
    says(url, "unlock order:7 --yes").await;
    // It was told before the command has ended.
    let told = timeout(Duration::from_millis(50), held[2].lost()).await;
    assert_eq!(told, Ok(LossReason::ForceReleased), "{url}");
    says(url, "wait order:7").await;
    for guard in held.drain(..).filter(|guard| guard.is_held()) {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn each_kind_of_server_is_shown_alike() {
    let master = TestServer::start().await;
    whole_life(&master.url()).await;
    let sentinel = Sentinel::start("mymaster", master.addr()).await;
    whole_life(&format!("redis+sentinel://{}/mymaster", sentinel.addr())).await;
    whole_life(&TestCluster::start(3).await.url()).await;

    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(TestServer::start().await);
    }
    let addresses: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
    let url = format!("redis+quorum://{}", addresses.join(","));
    says(&url, "quorum begin").await;
    whole_life(&url).await;
    let held = manager(&url, "orders-1")
        .await
        .lock("order:7")
        .acquire()
        .await
        .unwrap();
    let voted = async || {
        let shown = json(&url, "inspect order:7").await;
        let nodes = shown["nodes"].as_array().unwrap();
        nodes
            .iter()
            .filter(|node| node["holder"] == "orders-1")
            .count()
            == 3
    };
    eventually("all vote", LIMIT, voted).await;
    held.release().await.unwrap();
}

#[tokio::test]
async fn ten_thousand_locks_are_listed_in_few_requests() {
    let server = TestServer::start().await;
    let url = server.url();
    let locks = manager(&url, "orders-1").await;
    let taken = (0..10_000).map(|n| locks.lock(format!("order:{n}")).acquire());
    let held = futures_util::future::join_all(taken).await;
    assert!(held.iter().all(Result::is_ok));
    server.reset_stats().await;
    let listed = says(&url, "ls").await;
    let stats: String = command(&server, "INFO stats").await;
    assert_eq!(listed.lines().count(), 10_001);
    // As often as the server found something to read, renewals among it.
    let reads = stats
        .lines()
        .find_map(|line| line.strip_prefix("total_reads_processed:"));
    let reads: u32 = reads.unwrap().parse().unwrap();
    assert!(reads < 1_000, "{reads}");
    // A reader that has seen enough.
    let mut piped = lockctl(&url, "ls").stdout(Stdio::piped()).spawn().unwrap();
    drop(piped.stdout.take());
    assert_eq!(piped.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_waiter_that_was_killed_is_listed_until_it_counts_as_dead() {
    let server = TestServer::start().await;
    let url = server.url();
    let locks = manager(&url, "orders-1").await;
    let _held = locks.lock("order:7").acquire().await.unwrap();
    let mut waiting = lockctl(&url, "run order:7 -- true").spawn().unwrap();
    let others = manager(&url, "orders-2").await;
    let _living = tokio::spawn(others.lock("order:7").acquire());
    let waiters = async || {
        json(&url, "inspect order:7").await["waiters"]
            .as_u64()
            .unwrap()
    };
    eventually("both wait", LIMIT, async || waiters().await == 2).await;
    waiting.kill().await.unwrap();
    eventually("one waits", LIMIT, async || waiters().await == 1).await;
    let shown = json(&url, "inspect order:7").await;
    assert_eq!(shown["queue"].as_array().unwrap().len(), 1);
    let queued: i64 = command(&server, "LLEN lock-core:queue:{lock:order:7}").await;
    assert_eq!(queued, 2, "the server keeps its place");
}
