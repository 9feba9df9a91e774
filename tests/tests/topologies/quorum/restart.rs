//! A node that was killed and comes back empty, while its vote was needed.

use std::time::Duration;

use lock_tests::eventually;
use lock_tests::kit::command;

use super::forgets::is_refused;
use super::rig::{LIMIT, Quorum};

/// A lock that is held on nodes 0, 1 and 2 only, the last of which has forgotten it; and a rival that was connected before.
async fn forgotten_vote() -> (Quorum, lock_core::LockGuard, lock_core::LockManager) {
    let quorum = Quorum::start(5).await;
    let holder = quorum.manager().await;
    let rival = quorum.manager().await;
    // It holds a bare majority: the other two hear of it too late.
    quorum.nodes[3].stop();
    quorum.nodes[4].stop();
    let guard = holder.lock("a").renew(false).acquire().await.unwrap();
    assert!(quorum.nodes[2].exists("lock:a").await);
    quorum.nodes[2].kill();
    for node in [3, 4] {
        // They never heard of it, as far as anybody can tell.
        quorum.nodes[node].cont();
        eventually("it answers and has nothing", LIMIT, async || {
            let derived = "lock-core:queue:{lock:a} lock-core:waiters:{lock:a}";
            let _: u64 = command(&quorum.nodes[node], &format!("DEL lock:a {derived}")).await;
            !quorum.nodes[node].exists("lock:a").await
        })
        .await;
    }
    quorum.nodes[2].restart().await;
    assert!(guard.is_held());
    (quorum, guard, rival)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgot_a_vote_gives_no_second_majority() {
    let (quorum, guard, rival) = forgotten_vote().await;
    // Neither to whoever knew it before, nor to whoever meets it for the first time.
    for locks in [rival, quorum.manager().await] {
        is_refused(&locks, "a").await;
    }
    assert!(guard.is_held());
    // Other locks do without it.
    let other = quorum.manager().await.lock("b");
    assert!(other.try_acquire().await.unwrap().is_some());
    assert!(!quorum.nodes[2].exists("lock:b").await, "it has no vote");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_votes_again_after_the_wait() {
    let quorum = Quorum::start_with(3, Duration::from_secs(5)).await;
    let locks = quorum.manager().await;
    let guard = locks.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
    quorum.nodes[1].restart().await;
    // Only with its vote there is a majority.
    quorum.nodes[2].kill();
    let lock = locks.lock("b");
    eventually("it says how long", LIMIT, async || {
        let tried = lock.try_acquire().await;
        tried.is_err_and(|error| error.to_string().contains("votes in"))
    })
    .await;
    let guard = locks.lock("b").acquire().await.unwrap();
    assert!(quorum.nodes[1].exists("lock:b").await);
    guard.release().await.unwrap();
}
