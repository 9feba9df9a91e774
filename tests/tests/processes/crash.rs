//! P4 and P7: what killed and paused processes leave behind, and what they cost others.

use std::time::Duration;

use lock_tests::{DropMode, LIMIT, Proxy, Request, TestServer, eventually};

use crate::contender::{Contender, FENCE, LONG, nanos, nothing_is_left, observer, stamp};

#[tokio::test]
async fn a_killed_holder_costs_one_ttl() {
    const TTL: Duration = Duration::from_secs(3);
    let server = TestServer::start().await;
    let [mut holder, mut waiter] = Contender::several(&server).await;
    let first = holder.acquire("a", "k", TTL).await;
    let lock = observer(&server, "k").await;
    waiter.queue("b", &lock, LONG, 1).await;
    let killed = stamp();
    holder.child.kill();
    let second = waiter.granted("b").await;
    assert!(second.granted >= first.ends, "the lease was respected");
    assert!(second.fence > first.fence);
    // One ttl, and a slack that is shorter than another one.
    let cost = second.granted - killed;
    assert!(cost < nanos(2 * TTL), "{cost} ns");
    println!("the kill cost {} of a ttl", cost as f64 / nanos(TTL) as f64);
    waiter.release("b").await;
    assert_eq!(server.keys().await, [FENCE]);
}

/// Proves P7.
#[tokio::test]
async fn a_killed_waiter_is_skipped_without_waiting() {
    let server = TestServer::start().await;
    let [mut holder, mut dead, mut too, mut alive] = Contender::several(&server).await;
    let lock = observer(&server, "k").await;
    holder.acquire("a", "k", LONG).await;
    dead.queue("b1", &lock, LONG, 1).await;
    // In line behind that one, so that the dead process leaves more than its place on the server.
    dead.order(&format!("acquire b2 k {}", LONG.as_millis()));
    dead.until_waiting("k", 2).await;
    too.queue("b3", &lock, LONG, 2).await;
    alive.queue("c", &lock, LONG, 3).await;
    dead.child.kill();
    too.child.kill();
    let released = holder.release("a").await;
    let grant = alive.granted("c").await;
    assert!(grant.granted - released < nanos(LONG));
    let info = lock.inspect().await.unwrap();
    assert!(info.is_held());
    assert_eq!(info.waiters(), 0, "the dead ones are gone from the queue");
    alive.release("c").await;
    assert_eq!(server.keys().await, [FENCE]);
}

/// Proves P7.
#[tokio::test]
async fn a_paused_waiter_costs_at_most_its_ttl_and_queues_again() {
    const TTL: Duration = Duration::from_secs(3);
    let server = TestServer::start().await;
    let [mut holder, mut paused, mut alive] = Contender::several(&server).await;
    let lock = observer(&server, "k").await;
    holder.acquire("a", "k", LONG).await;
    paused.queue("b", &lock, TTL, 1).await;
    alive.queue("c", &lock, LONG, 2).await;
    paused.child.stop();
    let released = holder.release("a").await;
    let grant = alive.granted("c").await;
    // Its connection stands, so it was granted the lock; nobody but its lease could end that.
    let cost = grant.granted - released;
    assert!(cost < nanos(2 * TTL), "{cost} ns");

    // It finds the message of its grant, which is over; it must not believe it.
    paused.child.cont();
    eventually("it queues again", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == 1
    })
    .await;
    assert!(alive.look("c").await.0);
    let released = alive.release("c").await;
    let late = paused.granted("b").await;
    assert!(late.granted >= released && late.fence > grant.fence);
    paused.release("b").await;
    assert_eq!(server.keys().await, [FENCE]);
}

#[tokio::test]
async fn a_process_killed_while_it_waits_leaves_nothing() {
    const TTL: Duration = Duration::from_secs(3);
    let server = TestServer::start().await;
    let [mut holder, mut waiter] = Contender::several(&server).await;
    let lock = observer(&server, "k").await;

    // The holder goes on: its release finds the dead waiter, and clears up.
    holder.acquire("a", "k", LONG).await;
    waiter.queue("b", &lock, LONG, 1).await;
    waiter.child.kill();
    holder.release("a").await;
    assert_eq!(server.keys().await, [FENCE]);

    // Nobody goes on: the lock goes with its ttl, the queue with its own.
    let [mut waiter] = Contender::several(&server).await;
    holder.acquire("c", "k", TTL).await;
    waiter.queue("d", &lock, TTL, 1).await;
    waiter.child.kill();
    holder.child.kill();
    eventually("the lock is gone", LIMIT, async || {
        !server.exists("lock:k").await
    })
    .await;
    let left = server.keys().await;
    assert_eq!(left.len(), 3, "{left:?}");
    for key in left.iter().filter(|key| *key != FENCE) {
        let pttl = server.pttl(key).await;
        assert!((0..=30_000).contains(&pttl), "{key} stays for {pttl} ms");
    }
    // A newcomer does not wait for the dead one, and takes the queue along.
    let [mut newcomer] = Contender::several(&server).await;
    newcomer.acquire("e", "k", LONG).await;
    newcomer.release("e").await;
    assert_eq!(server.keys().await, [FENCE]);
}

fn is_acquire(request: &Request) -> bool {
    request.script() == Some("acquire")
}

#[tokio::test]
async fn a_process_killed_before_it_hears_of_its_grant_leaves_nothing_for_long() {
    const TTL: Duration = Duration::from_secs(1);
    let server = TestServer::start().await;
    know_the_scripts(&server).await;
    let proxy = Proxy::start(&server);
    let mut killed = Contender::start(&proxy.url(), "multi").await;
    let reply = proxy.drop_next_reply_matching(is_acquire, DropMode::Silent);
    killed.order(&format!("acquire a k {}", TTL.as_millis()));
    reply.wait().await;
    killed.child.kill();
    let pttl = server.pttl("lock:k").await;
    assert!(pttl <= TTL.as_millis() as i64, "{pttl} ms");
    nothing_is_left(&server, LIMIT).await;
}

/// Proves P4.
#[tokio::test]
async fn a_request_that_outlives_its_process_leaves_nothing_after_the_ttl() {
    const TTL: Duration = Duration::from_secs(1);
    let server = TestServer::start().await;
    know_the_scripts(&server).await;
    let proxy = Proxy::start(&server);
    let mut killed = Contender::start(&proxy.url(), "current").await;
    let held = proxy.hold_next_request_matching(is_acquire);
    killed.order(&format!("acquire a k {}", TTL.as_millis()));
    held.wait().await;
    killed.child.kill();
    assert!(!server.exists("lock:k").await);
    held.deliver();
    eventually("the dead one has the lock", LIMIT, async || {
        server.exists("lock:k").await
    })
    .await;
    nothing_is_left(&server, LIMIT).await;

    // The same where another holds the lock: the dead one queues, and is skipped.
    let lock = observer(&server, "k").await;
    let holder = lock.clone().ttl(LONG).acquire().await.unwrap();
    let mut killed = Contender::start(&proxy.url(), "current").await;
    let held = proxy.hold_next_request_matching(is_acquire);
    killed.order(&format!("acquire a k {}", LONG.as_millis()));
    held.wait().await;
    killed.child.kill();
    held.deliver();
    eventually("the dead one has queued", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == 1
    })
    .await;
    holder.release().await.unwrap();
    assert_eq!(server.keys().await, [FENCE]);
}

/// A script is sent by its hash only where the server knows it.
async fn know_the_scripts(server: &TestServer) {
    let guard = observer(server, "warm-up").await.acquire().await.unwrap();
    guard.release().await.unwrap();
}
