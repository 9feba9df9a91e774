//! One node whose wall clock jumps, forward and back. The servers measure leases with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lock_tests::{ServerBinary, ShiftedClock, TestServer};
use tokio::task::JoinSet;

use super::forgets::{bare_majority, is_refused, wakes_up};
use super::rig::{LIMIT, LONG, Quorum};

/// The node whose clock jumps.
const JUMPING: usize = 1;

struct Jumping {
    quorum: Quorum,
    clock: ShiftedClock,
}

impl Jumping {
    async fn start(count: usize) -> Self {
        let clock = ShiftedClock::of(&ServerBinary::find());
        let mut nodes = Vec::new();
        for node in 0..count {
            let mut builder = TestServer::builder();
            if node == JUMPING {
                builder = builder.binary(clock.program());
            }
            nodes.push(builder.start().await);
        }
        let quorum = Quorum::of(nodes).await;
        Self { quorum, clock }
    }

    /// A clock that did not jump would prove nothing, so the server is asked.
    async fn jump(&self, seconds: i64) {
        self.clock.set(seconds);
        let (jumping, right) = (&self.quorum.nodes[JUMPING], &self.quorum.nodes[0]);
        let before = right.time().await.as_secs();
        let shown = jumping.time().await.as_secs();
        let after = right.time().await.as_secs();
        // A second more on both sides: whole seconds are compared.
        let allowed = before - 1..=after + 1;
        assert!(
            shown
                .checked_add_signed(-seconds)
                .is_some_and(|real| allowed.contains(&real)),
            "its clock shows {shown} and is to be off by {seconds} s: the clock of another node shows {allowed:?}"
        );
    }
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_on_one_node_never_makes_two_believers() {
    let jumping = Jumping::start(5).await;
    let quorum = &jumping.quorum;
    let believers = Arc::new(AtomicU64::new(0));
    let (violations, grants) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let last = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for client in 0..4 {
        let lock = quorum.manager().await.lock("a").ttl(Duration::from_secs(2));
        let (believers, violations, grants) = (
            Arc::clone(&believers),
            Arc::clone(&violations),
            Arc::clone(&grants),
        );
        let (stop, last) = (Arc::clone(&stop), Arc::clone(&last));
        clients.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                // Who waits gets the lock in turn; who only tries takes whatever votes there are.
                let guard = if client % 2 == 0 {
                    lock.acquire_within(LIMIT).await.ok()
                } else {
                    lock.try_acquire().await.ok().flatten()
                };
                let Some(guard) = guard else { continue };
                if believers.fetch_add(1, Ordering::SeqCst) > 0 {
                    violations.fetch_add(1, Ordering::SeqCst);
                }
                let fence = guard.fencing_token().get();
                if last.fetch_max(fence, Ordering::SeqCst) >= fence {
                    violations.fetch_add(1, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                let _ = guard.is_held();
                believers.fetch_sub(1, Ordering::SeqCst);
                grants.fetch_add(1, Ordering::SeqCst);
                let _ = guard.release().await;
            }
        });
    }
    let more = async |count| {
        let until = grants.load(Ordering::SeqCst) + count;
        lock_tests::eventually("work goes on", LIMIT, async || {
            grants.load(Ordering::SeqCst) >= until
        })
        .await;
    };
    more(20).await;
    for offset in [60, 0, -3600, 0, 60, -3600] {
        jumping.jump(offset).await;
        more(20).await;
    }
    // A jump in the middle of a hold: the node forgets its vote, the others do not.
    stop.store(true, Ordering::SeqCst);
    clients.join_all().await;
    jumping.jump(0).await;
    let (one, other) = (quorum.manager().await, quorum.manager().await);
    let guard = one
        .lock("b")
        .ttl(Duration::from_secs(20))
        .acquire()
        .await
        .unwrap();
    quorum.voted("b", &[0, 1, 2, 3, 4]).await;
    jumping.jump(60).await;
    quorum.voted("b", &[0, 2, 3, 4]).await;
    assert!(other.lock("b").try_acquire().await.unwrap().is_none());
    assert!(guard.is_held());
    assert_eq!(violations.load(Ordering::SeqCst), 0);
}

/// Longer than any wait of a node, s.
const FAR: i64 = 3 * 3600;

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_does_not_end_the_wait_of_a_node() {
    let jumping = Jumping::start(3).await;
    let quorum = &jumping.quorum;
    let (locks, rival) = (quorum.manager().await, quorum.manager().await);
    let guard = bare_majority(quorum, &locks, LONG).await;
    quorum.nodes[JUMPING].flushall().await;
    wakes_up(quorum).await;
    lock_tests::eventually("it waits", LIMIT, async || {
        is_refused(&rival, "a").await;
        quorum.nodes[JUMPING].exists("lock-core:quorum").await
    })
    .await;
    // Once more: the answer that wrote the note may still have been on its way.
    is_refused(&rival, "a").await;
    jumping.jump(FAR).await;
    is_refused(&rival, "a").await;
    assert!(guard.is_held());
    // By the clock of the node its wait has ended, and that is all that a newcomer knows of it. But that clock is too far from
    // those of the other nodes for its vote to count.
    let newcomer = quorum.manager().await;
    is_refused(&newcomer, "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_after_a_restart_does_not_end_the_wait_for_earlier_clients() {
    let jumping = Jumping::start(3).await;
    let quorum = &jumping.quorum;
    let (locks, idle) = (quorum.manager().await, quorum.manager().await);
    let used = idle.lock("used").acquire().await.unwrap();
    quorum.voted("used", &[0, 1, 2]).await;
    used.release().await.unwrap();
    let guard = bare_majority(quorum, &locks, LONG).await;
    quorum.nodes[JUMPING].restart().await;
    wakes_up(quorum).await;
    let noticing = quorum.manager().await;
    lock_tests::eventually("it waits", LIMIT, async || {
        is_refused(&noticing, "a").await;
        quorum.nodes[JUMPING].exists("lock-core:quorum").await
    })
    .await;
    jumping.jump(FAR).await;
    is_refused(&idle, "a").await;
    assert!(guard.is_held());
}
