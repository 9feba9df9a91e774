//! What an attempt that was refused has left on a node behind a connection that broke.

use lock_tests::kit::command;
use lock_tests::{Held, LIMIT, Request, eventually};

use super::rig::{LONG, Trio, is_vote};

const KEY: &str = "lock:a";

fn is_undo(request: &Request) -> bool {
    request.has(KEY) && request.script() == Some("quorum undo")
}

impl Trio {
    /// The votes of the first and the third node are another's: no attempt can win.
    async fn contested() -> Self {
        let trio = Self::start(LONG).await;
        for node in [&trio.nodes[0], &trio.nodes[2]] {
            Self::give_to_another(node).await;
        }
        trio
    }

    /// A try that is refused. Its vote and the undo behind it are held back, in this order.
    async fn refused(&self) -> [Held; 2] {
        for _ in 0..1000 {
            let votes = self.proxy.count(is_vote);
            self.nodes[1].reset_stats().await;
            let vote = self.proxy.hold_next_request_matching(is_vote);
            let undo = self.proxy.hold_next_request_matching(is_undo);
            assert!(self.locks.lock("a").try_acquire().await.unwrap().is_none());
            undo.wait().await;
            if self.proxy.count(is_vote) > votes {
                return [vote, undo];
            }
            // The other nodes were so fast that the vote was never sent.
            undo.deliver();
            self.until_undone().await;
        }
        panic!("no vote is sent");
    }

    /// An undo that removes nothing makes sure that the node is no replica.
    async fn until_undone(&self) {
        eventually("the undo is carried out", LIMIT, async || {
            self.nodes[1].commandstats().await.contains_key("hdel")
        })
        .await;
    }

    async fn until_voted(&self) {
        eventually("the vote arrives", LIMIT, async || {
            self.nodes[1].exists(KEY).await
        })
        .await;
    }

    async fn until_taken_back(&self) {
        eventually("the vote is taken back", LIMIT, async || {
            !self.nodes[1].exists(KEY).await
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_is_taken_back_once_the_node_can_be_reached_again() {
    let rig = Trio::contested().await;
    let [vote, _undo] = rig.refused().await;
    vote.deliver();
    rig.until_voted().await;
    // The undo is lost with the connection.
    rig.proxy.refuse(true);
    rig.proxy.reset();
    eventually("the node is not reached", LIMIT, async || {
        rig.proxy.refused_connections() >= 3
    })
    .await;
    assert!(rig.nodes[1].exists(KEY).await);
    rig.proxy.refuse(false);
    rig.until_taken_back().await;
}

/// Proves P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_arrives_behind_its_undo_is_taken_back() {
    let rig = Trio::contested().await;
    let [late, _lost] = rig.refused().await;
    rig.proxy.reset();
    rig.until_undone().await;
    let again = rig.proxy.hold_next_request_matching(is_undo);
    assert!(!rig.nodes[1].exists(KEY).await);
    late.deliver();
    rig.until_voted().await;
    // It comes after a while. Here it does so once the vote has arrived, however long that takes.
    again.deliver();
    rig.until_taken_back().await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_that_arrives_on_an_old_connection_takes_back_no_later_vote() {
    let rig = Trio::contested().await;
    let undo = rig.proxy.hold_next_request_matching(is_undo);
    let waiting = tokio::spawn({
        let lock = rig.locks.lock("a");
        async move { lock.acquire().await.unwrap() }
    });
    undo.wait().await;
    rig.proxy.reset();
    let () = command(&rig.nodes[0], &format!("DEL {KEY}")).await;
    // It asks again now and then, on a new connection, and has the votes of the first and the third.
    let guard = waiting.await.unwrap();
    assert!(rig.nodes[1].exists(KEY).await);
    rig.nodes[1].reset_stats().await;
    undo.deliver();
    rig.until_undone().await;
    assert!(rig.nodes[1].exists(KEY).await);
    guard.release().await.unwrap();
    rig.until_taken_back().await;
}

/// The vote of a far node comes when the lock is released: the release is behind it already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_comes_before_its_release_needs_no_undo() {
    let rig = Trio::start(LONG).await;
    let cycles = 200;
    for _ in 0..cycles {
        let guard = rig.locks.lock("a").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    rig.until_taken_back().await;
    assert!(rig.proxy.count(is_vote) >= cycles);
    let undone = rig.proxy.count(is_undo);
    // A thread may stop between a vote and what follows.
    assert!(undone <= cycles / 20, "{undone} of {cycles}");
}
