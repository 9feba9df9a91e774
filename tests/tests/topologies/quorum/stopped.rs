//! Nodes that accept what they are sent, and answer nothing: nobody waits for them twice.

use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_tests::{Child, Proxy, eventually};
use tokio::time::timeout;

use super::rig::{DEFAULT, LIMIT, LONG, Quorum, behind};

const ALL: [usize; 5] = [0, 1, 2, 3, 4];
const NO_ENV: [(&str, &str); 0] = [];

/// Much longer than [`LIMIT`]: who waits for a silent node fails the test.
const DEADLINE: Duration = Duration::from_secs(600);

async fn patient(quorum: &Quorum) -> LockManager {
    let locks = quorum.manager_with(|builder| builder.command_deadline(DEADLINE));
    locks.await
}

/// Takes and releases for much longer than nodes take to answer, so that it is known which ones are silent.
async fn get_used(locks: &LockManager) {
    for _ in 0..300 {
        let guard = locks.lock("used").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}

/// Grants to each of ten processes that take the same lock again and again, one task each.
async fn contest(urls: &[String]) -> Vec<usize> {
    let url = format!("redis+quorum://{}", urls.join(","));
    let mut racers: Vec<_> = (0..10)
        .map(|_| Child::spawn(env!("CARGO_BIN_EXE_contender"), [&url, "current"], NO_ENV))
        .collect();
    for racer in &mut racers {
        racer.expect("ready").await;
    }
    for racer in &mut racers {
        racer.send("race hot 1 30000");
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    for racer in &mut racers {
        racer.send("stop");
    }
    let mut grants = Vec::new();
    for racer in &mut racers {
        let mut granted = 0;
        // Each has to be granted the lock once more to end.
        while racer.recv_line().await != "done" {
            granted += 1;
        }
        grants.push(granted);
    }
    grants
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_of_five_stopped_contenders_do_not_stand_still() {
    let quorum = Quorum::start_with(5, DEFAULT).await;
    let healthy = contest(&quorum.urls()).await;
    for node in [1, 4] {
        quorum.nodes[node].stop();
    }
    let stopped = contest(&quorum.urls()).await;
    println!("healthy {healthy:?}, with two stopped {stopped:?}");
    let sum = |grants: &[usize]| grants.iter().sum::<usize>();
    assert!(
        sum(&stopped) * 6 > sum(&healthy),
        "{stopped:?} of {healthy:?}"
    );
    let least = stopped.iter().min().copied().unwrap_or_default();
    assert!(least * 40 > sum(&stopped), "one starves: {stopped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_go_on_after_a_node_has_stopped_for_a_second() {
    let quorum = Quorum::start_with(5, DEFAULT).await;
    let healthy = contest(&quorum.urls()).await;
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        quorum.nodes[1].stop();
        tokio::time::sleep(Duration::from_secs(1)).await;
        quorum.nodes[1].cont();
    };
    let urls = quorum.urls();
    let (during, ()) = tokio::join!(contest(&urls), stop);
    let after = contest(&urls).await;
    println!("healthy {healthy:?}, during {during:?}, after {after:?}");
    let sum = |grants: &[usize]| grants.iter().sum::<usize>();
    assert!(
        sum(&during) * 6 > sum(&healthy),
        "{during:?} of {healthy:?}"
    );
    assert!(sum(&after) * 6 > sum(&healthy), "{after:?} of {healthy:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_do_not_wait_for_two_nodes_that_are_far_away() {
    let quorum = Quorum::start_with(5, DEFAULT).await;
    let healthy = contest(&quorum.urls()).await;
    let (near, far) = (
        Proxy::start(&quorum.nodes[0]),
        Proxy::start(&quorum.nodes[3]),
    );
    let mut urls = quorum.urls();
    urls[0] = behind(&near, &quorum.nodes[0]);
    urls[3] = behind(&far, &quorum.nodes[3]);
    near.delay(Duration::from_millis(50));
    far.delay(Duration::from_millis(200));
    let sum = |grants: &[usize]| grants.iter().sum::<usize>();
    let mut apart = Vec::new();
    // Where other tests take the processors, an attempt may find a near node late, too, and then needs a far one.
    for _ in 0..3 {
        apart = contest(&urls).await;
        println!("healthy {healthy:?}, apart {apart:?}");
        if sum(&apart) * 6 > sum(&healthy) {
            return;
        }
    }
    panic!("{apart:?} of {healthy:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_does_not_wait_for_nodes_that_are_silent() {
    let quorum = Quorum::start(5).await;
    let locks = patient(&quorum).await;
    get_used(&locks).await;
    for node in [0, 2, 3] {
        quorum.nodes[node].stop();
    }
    // At first nobody knows it.
    for _ in 0..3 {
        let lock = locks.lock("job");
        let tried = timeout(LIMIT, lock.try_acquire()).await.expect("in time");
        assert!(
            matches!(tried, Err(LockError::Unavailable { .. })),
            "{tried:?}"
        );
    }
    for node in [0, 2, 3] {
        quorum.nodes[node].cont();
    }
    eventually("they vote again", LIMIT, async || {
        matches!(locks.lock("job").try_acquire().await, Ok(Some(_)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_of_a_bare_majority_does_not_wait_for_a_silent_node_of_it() {
    let quorum = Quorum::start(5).await;
    let locks = patient(&quorum).await;
    for node in [3, 4] {
        quorum.nodes[node].stop();
    }
    get_used(&locks).await;
    let lock = locks.lock("job").ttl(LONG);
    let guard = lock.acquire().await.unwrap();
    quorum.voted("job", &[0, 1, 2]).await;
    quorum.nodes[2].stop();
    let released = timeout(LIMIT, guard.release()).await.expect("in time");
    released.expect("the lock was held");
    quorum.no_votes("job", &[0, 1]).await;
    for node in [2, 3, 4] {
        quorum.nodes[node].cont();
    }
    quorum.no_votes("job", &ALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_votes_again_soon_after_it_answers() {
    let quorum = Quorum::start(5).await;
    let locks = patient(&quorum).await;
    quorum.nodes[1].stop();
    get_used(&locks).await;
    quorum.nodes[1].cont();
    eventually("it votes", LIMIT, async || {
        let guard = locks.lock("job").acquire().await.unwrap();
        let votes = quorum.votes("job", &[1]).await;
        guard.release().await.unwrap();
        !votes.is_empty()
    })
    .await;
}
