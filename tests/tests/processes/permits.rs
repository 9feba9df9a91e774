//! P7 for permits: what killed holders and waiters of each weight cost the others.

use std::time::Duration;

use lock_core::{LockManager, Semaphore};
use lock_tests::{LIMIT, TestServer, eventually};

use crate::contender::{Contender, LONG, nanos, stamp};

const TTL: Duration = Duration::from_secs(3);
const MAX: u32 = 4;

async fn semaphore(server: &TestServer) -> Semaphore {
    let locks = LockManager::connect(&server.url()).await.unwrap();
    locks.semaphore("k", MAX).ttl(LONG)
}

impl Contender {
    fn ask(&mut self, name: &str, ttl: Duration, weight: u32) {
        let millis = ttl.as_millis();
        self.order(&format!("permits {name} k {millis} {weight} {MAX}"));
    }

    /// Returns once the request has this place in the queue.
    async fn wait_for(&mut self, name: &str, weight: u32, semaphore: &Semaphore, place: u64) {
        self.ask(name, LONG, weight);
        eventually("it has queued", LIMIT, async || {
            semaphore.inspect().await.unwrap().waiters() == place
        })
        .await;
    }
}

/// Proves P7.
#[tokio::test]
async fn a_killed_holder_of_each_weight_costs_one_ttl() {
    for weight in [1, 2, MAX] {
        let server = TestServer::start().await;
        let [mut holder, mut waiter] = Contender::several(&server).await;
        let semaphore = semaphore(&server).await;
        // What is left beside it is held as well.
        let rest = match MAX - weight {
            0 => None,
            rest => Some(semaphore.clone().permits(rest).acquire().await.unwrap()),
        };
        holder.ask("a", TTL, weight);
        let first = holder.granted("a").await;
        waiter.wait_for("b", weight, &semaphore, 1).await;
        let killed = stamp();
        holder.child.kill();
        let second = waiter.granted("b").await;
        assert!(second.granted >= first.ends, "the lease was respected");
        assert!(
            second.granted - killed < nanos(2 * TTL),
            "one ttl, and a slack"
        );
        assert!(rest.is_none_or(|rest| rest.is_held()));
    }
}

/// Proves P7.
#[tokio::test]
async fn killed_waiters_of_each_weight_are_skipped_without_waiting() {
    let server = TestServer::start().await;
    let [mut one, mut two, mut four, mut alive] = Contender::several(&server).await;
    let semaphore = semaphore(&server).await;
    let held = semaphore.clone().permits(MAX).acquire().await.unwrap();
    one.wait_for("b1", 1, &semaphore, 1).await;
    two.wait_for("b2", 2, &semaphore, 2).await;
    four.wait_for("b4", MAX, &semaphore, 3).await;
    alive.wait_for("c", MAX, &semaphore, 4).await;
    for dead in [&mut one, &mut two, &mut four] {
        dead.child.kill();
    }
    let released = stamp();
    held.release().await.unwrap();
    let grant = alive.granted("c").await;
    // Before the first of them counts as dead by its time.
    assert!(grant.granted - released < nanos(Duration::from_secs(2)));
    assert_eq!(semaphore.inspect().await.unwrap().waiters(), 0);
}

/// A large request does not fit, and its process is gone: the small one behind it does. Proves P7.
#[tokio::test]
async fn a_killed_head_lets_the_one_behind_it_in_while_it_counts_as_alive() {
    let server = TestServer::start().await;
    let [mut head, mut small] = Contender::several(&server).await;
    let semaphore = semaphore(&server).await;
    let _held = semaphore.clone().permits(3).acquire().await.unwrap();
    head.wait_for("a", 2, &semaphore, 1).await;
    small.wait_for("b", 1, &semaphore, 2).await;
    let killed = stamp();
    head.child.kill();
    let grant = small.granted("b").await;
    // Three refreshes of three seconds.
    assert!(grant.granted - killed < nanos(Duration::from_secs(9)));
    println!("it took {} s", (grant.granted - killed) as f64 / 1e9);
}
