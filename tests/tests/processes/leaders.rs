//! P4 and P10 for elections: what a leader that is killed, resigns or is paused costs the others, and that it never acts after its term.

use std::time::Duration;

use lock_core::Lock;
use lock_tests::{LIMIT, TestServer, eventually};

use crate::contender::{Contender, nanos, observer, stamp};

const TTL: Duration = Duration::from_secs(1);

impl Contender {
    fn campaign(&mut self, name: &str, ttl: Duration) {
        self.order(&format!("lead {name} e {}", ttl.as_millis()));
    }

    /// Returns once the candidate waits.
    async fn wait_to_lead(&mut self, name: &str, ttl: Duration, lock: &Lock) {
        self.campaign(name, ttl);
        eventually("it has queued", LIMIT, async || {
            lock.inspect().await.unwrap().waiters() == 1
        })
        .await;
    }
}

/// Proves P7.
#[tokio::test]
async fn a_killed_leader_costs_one_ttl_and_one_that_resigns_a_moment() {
    let server = TestServer::start().await;
    let lock = observer(&server, "e").await;
    let [mut first, mut second, mut third] = Contender::several(&server).await;
    first.campaign("a", TTL);
    let first_term = first.granted("a").await;
    second.wait_to_lead("b", TTL, &lock).await;
    let killed = stamp();
    first.child.kill();
    let second_term = second.granted("b").await;
    assert!(second_term.granted >= first_term.ends && second_term.fence > first_term.fence);
    let after_kill = second_term.granted - killed;
    assert!(after_kill < nanos(2 * TTL), "one ttl, and a slack");
    third.wait_to_lead("c", TTL, &lock).await;
    let resigned = second.release("b").await;
    let third_term = third.granted("c").await;
    let after_resign = third_term.granted - resigned;
    assert!(third_term.fence > second_term.fence && after_resign < nanos(TTL));
    let millis = |nanos: u64| nanos as f64 / 1e6;
    println!(
        "the next leader: {:.1} ms after a kill (ttl {} ms), {:.2} ms after a resignation",
        millis(after_kill),
        TTL.as_millis(),
        millis(after_resign)
    );
}

/// It has looked at its leadership and is about to write, when it is paused until another one leads: only the resource can refuse.
/// Proves P10.
#[tokio::test]
async fn a_leader_that_is_paused_past_its_term_never_acts() {
    const SHORT: Duration = Duration::from_millis(400);
    let pauses = std::env::var("LOCK_CORE_PAUSES").map_or(3, |count| count.parse().unwrap());
    let server = TestServer::start().await;
    let lock = observer(&server, "e").await;
    let [mut leader, mut next] = Contender::several(&server).await;
    leader.campaign("t0", SHORT);
    let mut last = leader.granted("t0").await.fence;
    for n in 0..pauses {
        let (name, next_name) = (format!("t{n}"), format!("t{}", n + 1));
        let write = |name: &str| format!("write {name} checked {} writes", server.url());
        leader.order(&write(&name));
        assert_eq!(leader.answer(&format!("aims {name}")).await, ["true"]);
        next.wait_to_lead(&next_name, SHORT, &lock).await;
        leader.child.stop();
        let term = next.granted(&next_name).await.fence;
        assert!(term > last);
        last = term;
        next.order(&write(&next_name));
        assert_eq!(next.answer(&format!("aims {next_name}")).await, ["true"]);
        next.order(&format!("fire {next_name}"));
        next.answer(&format!("wrote {next_name}")).await;
        leader.order(&format!("fire {name}"));
        leader.order(&format!("look {name}"));
        leader.child.cont();
        leader.answer(&format!("rejected {name}")).await;
        assert_eq!(leader.answer(&format!("held {name}")).await[0], "false");
        std::mem::swap(&mut leader, &mut next);
    }
    println!("{pauses} pauses, {pauses} writes of earlier leaders rejected");
}
