//! What the nodes count.

use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use lock_core::LockManager;
use lock_tests::{TestServer, eventually};
use tokio::time::timeout;

use super::rig::{LIMIT, LONG, Quorum, Trio, counter_of, is_vote};

async fn token(locks: &LockManager) -> u64 {
    let guard = locks.lock("a").acquire_within(LIMIT).await.unwrap();
    let token = guard.fencing_token().get();
    guard.release().await.unwrap();
    token
}

/// Writes the counter of a node that votes.
async fn set_counter(node: &TestServer, write: &[&str]) {
    let key = counter_of(node).await;
    let mut command = vec![write[0], &key];
    command.extend(&write[1..]);
    replace(node, &command).await;
}

/// Runs a command in place of whatever was there.
async fn replace(node: &TestServer, command: &[&str]) {
    let mut connection = node.connection().await;
    let mut script = redis::cmd("EVAL");
    script.arg("redis.call('DEL', KEYS[1]) return redis.call(unpack(ARGV))");
    script.arg(1).arg(command[1]).arg(command);
    let answer = script.query_async(&mut connection).await;
    let _: redis::Value = answer.unwrap();
}

/// Proves P10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_whatever_becomes_of_the_counters() {
    // A node without a valid counter has lost data, and waits.
    let quorum = Quorum::start_with(3, Duration::from_secs(2)).await;
    let locks = quorum.manager().await;
    let mut last = token(&locks).await;
    for counter in [
        &["DEL"][..],
        &["SET", "-5"],
        &["SET", "no number"],
        // Scripts cannot tell it from the next one, and it cannot be counted further.
        &["SET", "9007199254740993"],
        &["SET", "9223372036854775807"],
        &["LPUSH", "no number"],
    ] {
        for node in &quorum.nodes {
            set_counter(node, counter).await;
        }
        let next = token(&locks).await;
        assert!(next > last, "{next} after {last}: {counter:?}");
        last = next;
        // After a request that was in vain there are some with scripts only.
        for _ in 0..20 {
            let next = token(&locks).await;
            assert!(next > last, "{next} after {last}: {counter:?}");
            last = next;
        }
    }
}

/// What keeps them in step is that all count the same: then no counter has to be raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_counts_every_request_whatever_comes_of_it() {
    let quorum = Quorum::start(5).await;
    let (locks, other) = (quorum.manager().await, quorum.manager().await);
    let held = other.lock("b").acquire().await.unwrap();
    for node in &quorum.nodes[3..] {
        replace(node, &["SET", "lock:a", "another's", "PX", "3600000"]).await;
    }
    // All are connected.
    let ready = locks.lock("ready").acquire().await.unwrap();
    quorum.voted("ready", &[0, 1, 2, 3, 4]).await;
    // A node that was slow may have been left out for a while, and counts with all others then.
    eventually("all have counted as often", LIMIT, async || {
        for node in &quorum.nodes {
            node.reset_stats().await;
        }
        token(&locks).await;
        assert!(locks.lock("b").try_acquire().await.unwrap().is_none());
        token(&locks).await;
        let even = async || while !counted_evenly(&quorum).await {};
        timeout(Duration::from_secs(1), even()).await.is_ok()
    })
    .await;
    drop((held, ready));
}

async fn counted_evenly(quorum: &Quorum) -> bool {
    let mut counted = Vec::new();
    for node in &quorum.nodes {
        let stats = node.commandstats().await;
        counted.push(stats.get("incrby").copied().unwrap_or(0));
    }
    // Three locks; an attempt whose votes were split is made again.
    counted[0] >= 3 && counted.windows(2).all(|pair| pair[0] == pair[1])
}

/// The file of a server may say that it had counted further than its clock: the clock of another node was ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_restart_count_on_above_what_their_files_say() {
    let quorum = Quorum::start_with(3, Duration::from_secs(3)).await;
    let locks = quorum.manager().await;
    for node in &quorum.nodes {
        set_counter(node, &["SET", "8000000000000000"]).await;
    }
    let before = token(&locks).await;
    assert!(before > 8_000_000_000_000_000, "{before}");
    for node in &quorum.nodes {
        let _: redis::Value = lock_tests::kit::command(node, "SAVE").await;
        node.restart().await;
    }
    for locks in [quorum.manager().await, locks] {
        let after = token(&locks).await;
        assert!(after > before, "{after} after {before}");
    }
}

/// A node whose vote was another's may have minted the same token for that one already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_is_raised_in_vain_where_the_vote_is_that_of_another() {
    let trio = Trio::start(LONG).await;
    let [other, behind, ahead] = &trio.nodes;
    Trio::give_to_another(other).await;
    // The other two have to vote, and they count differently.
    set_counter(behind, &["SET", "4000000000000000"]).await;
    set_counter(ahead, &["SET", "4000000000001000"]).await;
    let raise = trio
        .proxy
        .hold_next_request_matching(|request| request.script() == Some("quorum raise"));
    let lock = trio.locks.lock("a");
    let mut acquiring = tokio::spawn(async move { lock.acquire().await });
    raise.wait().await;
    // It loses the vote of the node that is behind, before that counter is raised.
    Trio::give_to_another(behind).await;
    let asks_again = trio.proxy.on_request(is_vote);
    raise.deliver();
    tokio::select! {
        granted = &mut acquiring => panic!("with one vote: {granted:?}"),
        _ = asks_again => acquiring.abort(),
    }
}

/// The tokens of hand-overs inside a process are counted with the one that the nodes have given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_handed_over_is_not_given_again_where_the_counter_was_behind() {
    const WAITERS: usize = 20;
    let trio = Trio::start(LONG).await;
    let [other, behind, ahead] = &trio.nodes;
    let holder = trio.locks.lock("a").acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        let lock = trio.locks.lock("a");
        let mut waiter = Box::pin(async move { lock.acquire().await.unwrap() });
        assert!((&mut waiter).now_or_never().is_none(), "it is in the line");
        waiters.push(tokio::spawn(async move {
            let guard = waiter.await;
            guard.fencing_token().get()
        }));
    }
    // The next grant needs the votes of the other two, and they count differently.
    Trio::give_to_another(other).await;
    set_counter(behind, &["SET", "4000000000000000"]).await;
    set_counter(ahead, &["SET", "4000000000001000"]).await;
    holder.release().await.unwrap();
    let tokens = timeout(LIMIT, join_all(waiters)).await.unwrap();
    let tokens: Vec<u64> = tokens.into_iter().map(Result::unwrap).collect();
    let last = *tokens.iter().max().unwrap();
    assert_eq!(trio.locks.shutdown(LIMIT).await, 0);
    // The next one has the vote of the node that was behind, and not that of the other.
    ahead.kill();
    replace(other, &["DEL", "lock:a"]).await;
    let next = token(&trio.manager(LONG).await).await;
    assert!(next > last, "{next} after {tokens:?}");
}
