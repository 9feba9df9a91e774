//! P2: a holder that is paused, or whose server is, knows the end of its lease before anybody else gets the lock.

use std::time::Duration;

use lock_tests::TestServer;

use crate::contender::{Contender, Grant, LONG, nanos, observer};

const TTL: Duration = Duration::from_secs(2);

/// Proves P2.
#[tokio::test]
async fn a_holder_paused_past_its_ttl_wakes_up_without_the_lock() {
    let server = TestServer::start().await;
    let [mut paused, mut next] = Contender::several(&server).await;
    let first = paused.acquire("a", "k", TTL).await;
    let lock = observer(&server, "k").await;
    next.queue("b", &lock, LONG, 1).await;
    paused.child.stop();
    let second = next.granted("b").await;
    assert!(second.granted >= first.ends);
    assert!(second.fence > first.fence);
    // It is asked before it runs again, so the answer is the first thing it says.
    paused.order("look a");
    paused.child.cont();
    let line = paused.child.recv_line().await;
    assert!(
        line.starts_with("held a false") || line.starts_with("lost a"),
        "{line}"
    );
    if line.starts_with("held") {
        paused.lost("a").await;
    } else {
        assert_eq!(paused.answer("held a").await[0], "false");
    }
    assert!(next.look("b").await.0, "the new holder is not disturbed");
    paused.order("release a");
    assert!(paused.answer("refused a").await.join(" ").contains("lost"));
    next.release("b").await;
}

/// A lease without renewal: its end is known to the nanosecond, and nothing is paused.
#[tokio::test]
async fn a_fixed_lease_is_over_for_its_holder_before_it_is_over_on_the_server() {
    const TTL: Duration = Duration::from_secs(4);
    const DRIFT: Duration = Duration::from_millis(42);
    let server = TestServer::start().await;
    let mut first = Contender::start(&server.url(), "current").await;
    let mut second = Contender::start(&server.url(), "multi").await;
    first.order(&format!("acquire a k {} fixed", TTL.as_millis()));
    let Grant { ends, granted, .. } = first.granted("a").await;
    second.order(&format!("acquire b k {}", TTL.as_millis()));
    let (lost, reason) = first.lost("a").await;
    assert_eq!(reason, "Expired");
    assert!(granted < ends && lost >= ends);
    assert!(!first.look("a").await.0);
    // On the server the whole ttl was the holder's (as exactly as two clocks go): the drift is its own precaution.
    let next = second.granted("b").await;
    assert!(next.granted >= ends + nanos(DRIFT * 9 / 10), "{next:?}");
}

#[tokio::test]
async fn a_server_stopped_for_a_ttl_costs_the_lock_before_another_gets_it() {
    let server = TestServer::start().await;
    let [mut holder, mut waiter] = Contender::several(&server).await;
    let first = holder.acquire("a", "k", TTL).await;
    let lock = observer(&server, "k").await;
    waiter.queue("b", &lock, LONG, 1).await;
    server.stop();
    let (lost, reason) = holder.lost("a").await;
    assert_eq!(reason, "Expired");
    assert!(lost >= first.ends);
    assert!(!holder.look("a").await.0);
    server.cont();
    let second = waiter.granted("b").await;
    assert!(lost <= second.granted, "{lost} {second:?}");
    assert!(second.fence > first.fence);
    waiter.release("b").await;

    // Both have recovered by themselves.
    holder.acquire("c", "k", LONG).await;
    holder.release("c").await;
    waiter.acquire("d", "k", LONG).await;
}

/// The lease ends on the server while it stands still, and the waiter is served the moment it runs on.
#[tokio::test]
async fn a_server_stopped_for_longer_than_the_ttl_finds_the_holder_gone() {
    let server = TestServer::start().await;
    let [mut holder, mut waiter] = Contender::several(&server).await;
    holder.acquire("a", "k", TTL).await;
    let lock = observer(&server, "k").await;
    waiter.queue("b", &lock, LONG, 1).await;
    server.stop();
    tokio::time::sleep(TTL + TTL / 2).await;
    server.cont();
    let second = waiter.granted("b").await;
    let (lost, _) = holder.lost("a").await;
    assert!(lost <= second.granted, "{lost} {second:?}");
}
