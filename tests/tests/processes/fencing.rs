//! What no lock can promise, and what the fencing token is for.

use std::time::Duration;

use lock_tests::TestServer;
use lock_tests::kit::command;

use crate::contender::Contender;

const TTL: Duration = Duration::from_secs(4);

/// A holder is paused between its last look at the lock and its write; meanwhile another process gets the lock
/// and writes. Answers the fencing tokens of the writes in the order in which the resource took them.
async fn late_write(how: &str, outcome: &str) -> Vec<u64> {
    let server = TestServer::start().await;
    let [mut late, mut next] = Contender::several(&server).await;
    late.acquire("a", "k", TTL).await;
    let aim = format!("{how} {} ledger", server.url());
    late.order(&format!("write a {aim}"));
    assert_eq!(late.answer("aims a").await, ["true"]);
    late.child.stop();

    let second = next.acquire("b", "k", TTL).await;
    next.order(&format!("write b {aim}"));
    assert_eq!(next.answer("aims b").await, ["true"]);
    next.order("fire b");
    next.answer("wrote b").await;

    late.order("fire a");
    late.child.cont();
    late.answer(&format!("{outcome} a")).await;

    let writers: Vec<u64> = command(&server, "LRANGE ledger 0 -1").await;
    assert_eq!(writers[0], second.fence);
    writers
}

#[tokio::test]
async fn a_resource_that_checks_the_fencing_token_refuses_a_late_write() {
    let writers = late_write("checked", "rejected").await;
    assert_eq!(writers.len(), 1);
}

/// Proves that the test above can see what it is looking for. Proves P10.
#[tokio::test]
async fn a_resource_that_does_not_check_takes_a_late_write() {
    let writers = late_write("plain", "wrote").await;
    assert_eq!(writers.len(), 2);
    assert!(writers[1] < writers[0], "an older hold wrote later");
}
