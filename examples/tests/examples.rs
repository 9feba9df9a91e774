//! The examples do what they tell: each is run as a program, and its output is read.

#[expect(dead_code, reason = "another test program needs the rest")]
mod program;

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lock_examples::PrivateServer;

use program::{Ended, Running, command, run};

const EXAMPLES: [&str; 4] = ["quickstart", "reentrant_service", "workers", "leader"];

/// The rows of a table in the output: the lines that begin with two spaces, a number and two spaces.
fn rows(output: &str) -> Vec<Vec<&str>> {
    output
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
        })
        .map(Iterator::collect::<Vec<_>>)
        .filter(|cells| cells.len() > 1 && cells[0].parse::<u64>().is_ok())
        .collect()
}

fn quickstart_has_eight_turns(url: Option<&str>) {
    let output = run("quickstart", url).success();
    let rows = rows(&output);
    assert_eq!(rows.len(), 8, "{output}");
    let tokens: Vec<u64> = rows.iter().map(|row| row[3].parse().unwrap()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{output}");
    let mut tasks: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    tasks.sort_unstable();
    assert_eq!(tasks, ["1", "2", "3", "4", "5", "6", "7", "8"]);
    for (way, count) in [("guard", 4), ("attribute", 4)] {
        assert_eq!(rows.iter().filter(|row| row[1] == way).count(), count);
    }
    assert!(
        output.contains("The balance is 80: 8 of 8 deposits"),
        "{output}"
    );
}

#[test]
fn quickstart_runs_without_a_server_and_says_so() {
    quickstart_has_eight_turns(None);
    let output = run("quickstart", None).success();
    assert!(output.starts_with("REDIS_URL is not set"), "{output}");
}

#[test]
fn quickstart_runs_on_the_server_of_redis_url() {
    let server = PrivateServer::start().unwrap();
    quickstart_has_eight_turns(Some(&server.url()));
}

fn each_job_is_run_by_one_server(url: Option<&str>) {
    let output = run("scheduled_job", url).success();
    let rows = rows(&output);
    assert_eq!(rows.len(), 5, "{output}");
    for (number, row) in rows.iter().enumerate() {
        let city = format!("city {}", number + 1);
        assert_eq!(
            row.iter().filter(|cell| **cell == city).count(),
            1,
            "{output}"
        );
        let left_out = row.iter().filter(|cell| cell.starts_with("left out"));
        assert_eq!(left_out.count(), 3, "{output}");
        // Who hears of it last finds the lock, although the job is done.
        assert!(row.contains(&"left out (late)"), "{output}");
    }
}

#[test]
fn a_scheduled_job_is_run_by_one_server() {
    each_job_is_run_by_one_server(None);
}

#[test]
fn a_scheduled_job_is_run_by_one_server_on_the_server_of_redis_url() {
    let server = PrivateServer::start().unwrap();
    each_job_is_run_by_one_server(Some(&server.url()));
}

#[test]
fn transactions_do_what_the_example_tells() {
    let server = PrivateServer::start().unwrap();
    for url in [None, Some(server.url())] {
        let output = run("transaction_limits", url.as_deref()).success();
        let results: Vec<_> = output
            .lines()
            .filter(|line| line.contains(" in stock, orders: "))
            .filter_map(|line| line.split_once(": "))
            .collect();
        let told: Vec<_> = results.iter().map(|(_, result)| *result).collect();
        assert_eq!(
            told,
            [
                "10 in stock, orders: 0",
                "9 in stock, orders: 1",
                "9 in stock, orders: 2",
                "9 in stock, orders: 1",
                "9 in stock, orders: 0",
                "10 in stock, orders: 0",
            ]
        );
        let refused: Vec<_> = results
            .iter()
            .map(|(what, _)| what.contains("the server says"))
            .collect();
        assert_eq!(refused, [true, true, false, false, true, true], "{output}");
    }
    let client = redis::Client::open(server.url()).unwrap();
    let left: u64 = redis::cmd("DBSIZE")
        .query(&mut client.get_connection().unwrap())
        .unwrap();
    assert_eq!(left, 0, "the server is left as it was");
}

#[test]
fn the_lock_of_a_killed_worker_is_taken_over() {
    let output = run("workers", None).success();
    let rows = rows(&output);
    let killed = rows
        .iter()
        .position(|row| row[2].starts_with("is killed"))
        .unwrap_or_else(|| panic!("nobody was killed:\n{output}"));
    let victim = rows[killed][1];
    let next = rows[killed..]
        .iter()
        .find(|row| row[2].starts_with("holds"))
        .unwrap_or_else(|| panic!("nobody took over:\n{output}"));
    assert_ne!(next[1], victim, "{output}");
    assert!(rows[killed + 1..].iter().all(|row| row[1] != victim));

    let tokens: Vec<u64> = rows
        .iter()
        .filter_map(|row| row[2].strip_prefix("holds the lock, fencing token "))
        .map(|token| token.parse().unwrap())
        .collect();
    assert!(tokens.len() >= 8, "{output}");
    assert!(tokens.is_sorted_by(|a, b| a < b), "{output}");
    assert!(
        output.contains("nobody holds the lock and nobody waits"),
        "{output}"
    );
}

#[test]
fn workers_run_on_the_server_of_redis_url_and_leave_it_clean() {
    let server = PrivateServer::start().unwrap();
    let output = run("workers", Some(&server.url())).success();
    assert!(
        output.starts_with("The lock lives on the server of REDIS_URL"),
        "{output}"
    );
}

#[test]
fn leaders_follow_one_another_with_growing_terms() {
    let output = run("leader", None).success();
    let rows = rows(&output);
    let ends: Vec<_> = rows.iter().map(|row| row[3]).collect();
    let expected = ["-", "was killed", "was paused past its term", "resigned"];
    assert_eq!(ends, expected, "{output}");
    let terms: Vec<u64> = rows.iter().map(|row| row[2].parse().unwrap()).collect();
    assert!(terms.is_sorted_by(|a, b| a < b), "{output}");
    assert!(rows[1..].iter().all(|row| row[1] != rows[0][1]), "{output}");
}

fn owners_travel_and_strangers_wait(url: Option<&str>) {
    let output = run("reentrant_service", url).success();
    let words: Vec<Vec<&str>> = output
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    // Process, function, holds in that process, holds in all.
    let found: Vec<_> = words.iter().filter(|row| row.len() == 5).collect();
    let found = found.iter().filter(|row| row[2].parse::<u32>().is_ok());
    let found: Vec<_> = found.collect();
    let counts: Vec<_> = found.iter().map(|row| &row[..4]).collect();
    let expected = [
        ["bank", "transfer", "1", "1"],
        ["bank", "withdraw", "2", "2"],
        ["bank", "audit", "3", "3"],
        ["ledger", "book", "1", "3"],
        ["bank", "transfer", "1", "1"],
        ["stranger", "book", "1", "1"],
    ];
    assert_eq!(counts, expected, "{output}");
    let tokens: Vec<u64> = found.iter().map(|row| row[4].parse().unwrap()).collect();
    assert!(
        tokens[..5].iter().all(|token| *token == tokens[0]),
        "{output}"
    );
    assert!(tokens[5] > tokens[0], "the next tenure: {output}");
    let refused = words
        .iter()
        .position(|row| row.starts_with(&["stranger", "409"]));
    let booked = words.iter().position(|row| row.starts_with(&["ledger"]));
    assert!(refused > booked && booked.is_some(), "{output}");
    assert!(output.contains("the lock is held 0 times"), "{output}");
    // `<uuid>:<number>`: whoever reads it could enter.
    let is_owner = |word: &&str| word.len() > 36 && word.as_bytes()[36] == b':';
    assert!(
        !output.split_whitespace().any(|word| is_owner(&word)),
        "{output}"
    );
}

#[test]
fn an_owner_travels_between_processes_and_a_stranger_waits() {
    owners_travel_and_strangers_wait(None);
}

#[test]
fn the_reentrant_service_runs_on_the_server_of_redis_url() {
    let server = PrivateServer::start().unwrap();
    owners_travel_and_strangers_wait(Some(&server.url()));
}

#[test]
fn a_ledger_answers_each_request_and_ends_with_its_input() {
    let server = PrivateServer::start().unwrap();
    let mut ledger = program::command("reentrant_service", Some(&server.url()));
    ledger.args(["ledger", "account:7"]).stdin(Stdio::piped());
    let mut ledger = ledger.stdout(Stdio::piped()).spawn().unwrap();
    let mut requests = ledger.stdin.take().unwrap();
    requests.write_all(b"30\n30 not-an-owner\n").unwrap();
    // The end of its input: its client has gone.
    drop(requests);
    let output = program::Ended::new(ledger.wait_with_output().unwrap());
    let output = output.success();
    let answers: Vec<&str> = output.lines().collect();
    assert_eq!(answers.len(), 2, "{output}");
    assert!(answers[0].starts_with("200 book"), "{output}");
    assert!(answers[1].starts_with("503 lock configuration"), "{output}");
    assert!(!answers[1].contains("not-an-owner"), "{output}");
}

#[test]
fn the_lock_over_five_servers_outlives_two_of_them_and_not_three() {
    let output = run("redlock", None).success();
    let turns: Vec<&str> = output
        .lines()
        .filter(|line| line.contains("votes: "))
        .collect();
    assert_eq!(turns.len(), 24, "{output}");
    let tokens: Vec<u64> = turns
        .iter()
        .map(|turn| turn.split_whitespace().nth(3).unwrap().parse().unwrap())
        .collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{output}");
    for turn in &turns {
        assert!(turn.matches(" yes").count() >= 3, "{turn}");
    }
    for turn in &turns[12..] {
        assert!(
            turn.contains("1 silent") && turn.contains("3 silent"),
            "{turn}"
        );
    }
    assert!(output.contains("3 of 5 nodes did not vote"), "{output}");
}

/// How a program that runs is ended.
fn ended_workers_leave_nothing_behind(signal: &str, status: Option<i32>) {
    let mut workers = Running::start("workers", None);
    let server = workers.line_with("redis://127.0.0.1:");
    let address = server
        .split("redis://")
        .nth(1)
        .unwrap()
        .trim_end_matches('.')
        .to_owned();
    workers.line_with("holds the lock");
    let family = workers.family();
    assert!(family.len() >= 5, "four workers and a server: {family:?}");
    workers.signal(signal);
    assert_eq!(workers.end().status.code(), status);

    let start = Instant::now();
    while family.iter().any(|pid| program::lives(*pid))
        || std::net::TcpStream::connect(&address).is_ok()
    {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "left behind by {signal}: {family:?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn interrupted_workers_leave_nothing_behind() {
    ended_workers_leave_nothing_behind("INT", Some(1));
}

#[test]
fn terminated_workers_leave_nothing_behind() {
    ended_workers_leave_nothing_behind("TERM", Some(1));
}

#[test]
fn killed_workers_leave_nothing_behind() {
    ended_workers_leave_nothing_behind("KILL", None);
}

#[test]
fn an_address_without_a_server_is_one_sentence() {
    for example in EXAMPLES {
        // Port 1: nothing has listened there for decades.
        let complaint = run(example, Some("redis://me:secret@127.0.0.1:1")).failure();
        assert!(complaint.contains("is not available"), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
    for example in ["scheduled_job", "transaction_limits"] {
        let complaint = run(example, Some("redis://me:secret@127.0.0.1:1")).failure();
        assert!(complaint.contains("refused"), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
}

#[test]
fn a_url_that_is_none_is_one_sentence() {
    for example in EXAMPLES {
        let complaint = run(example, Some("localhost:6379")).failure();
        assert!(
            complaint.starts_with(&format!("{example}: lock configuration")),
            "{complaint}"
        );
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
}

#[test]
fn a_missing_redis_server_is_named() {
    for example in ["reentrant_service", "workers"] {
        let complaint = program::command(example, None)
            .env("REDIS_SERVER_BIN", "/nonexistent/redis-server")
            .output()
            .map(program::Ended::new)
            .unwrap()
            .failure();
        assert!(
            complaint.contains("/nonexistent/redis-server"),
            "{complaint}"
        );
        assert!(complaint.contains("REDIS_URL"), "{complaint}");
    }
}

#[test]
fn no_lock_is_lost_in_a_cluster_though_slots_move_and_a_master_is_killed() {
    let mut cluster = command("cluster", None);
    cluster.args(["--seconds", "1", "--held", "40", "--waited", "10"]);
    let output = Ended::new(cluster.output().expect("it starts")).success();
    let rows = |name| output.lines().filter(move |line| line.starts_with(name));
    assert_eq!(rows("  half moved").count(), 2, "{output}");
    for row in rows("  moved key by key").chain(rows("  a master is killed")) {
        let words: Vec<_> = row.split("  ").filter(|word| !word.is_empty()).collect();
        // Lost locks, two holders and for how long, falling tokens.
        let bad: Vec<_> = words[6..10].iter().map(|word| word.trim()).collect();
        assert_eq!(bad, ["0", "0", "0.0", "0"], "{output}");
    }
    assert!(
        output.contains("40 locks were held all the time, 0 of these were lost"),
        "{output}"
    );
}
