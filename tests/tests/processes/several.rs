//! Processes that take random pairs and triples of the same few locks.

use std::io::Write;
use std::time::{Duration, Instant};

use lock_tests::kit::until_clean;
use lock_tests::{TestServer, in_time};

use crate::contender::Contender;

const PROCESSES: usize = 8;

/// How long they work, in seconds.
const SECONDS: &str = "LOCK_SEVERAL_SECONDS";

/// Proves P1.
#[tokio::test]
async fn random_pairs_and_triples_never_overlap_and_never_deadlock() {
    let seconds = std::env::var(SECONDS).map_or(5, |text| text.parse().unwrap());
    let server = TestServer::start().await;
    let mut processes: [Contender; PROCESSES] = Contender::several(&server).await;
    for (n, process) in processes.iter_mut().enumerate() {
        process.order(&format!("several {n} 2"));
    }
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let mut taken = Vec::new();
    for process in &mut processes {
        process.order("end");
    }
    for process in &mut processes {
        let line = in_time("they wait for each other", process.child.recv_line()).await;
        match line.strip_prefix("several ") {
            Some(count) => taken.push(count.parse::<u64>().unwrap()),
            None => panic!("{line}"),
        }
    }
    let speed = taken.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64();
    // Not `println`, which the test runner keeps to itself.
    let _ = writeln!(
        std::io::stdout(),
        "{PROCESSES} processes took {speed:.0} pairs and triples of 10 locks each second: {taken:?}"
    );
    assert!(taken.iter().all(|count| *count > 0), "{taken:?}");
    let mut connection = server.connection().await;
    let mut marks = redis::cmd("DEL");
    marks.arg(
        (0..10)
            .map(|n| format!("last:several:{n}"))
            .collect::<Vec<_>>(),
    );
    let () = marks.query_async(&mut connection).await.unwrap();
    until_clean(&server).await;
}
