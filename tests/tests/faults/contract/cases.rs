//! What no fault may do to a lock of any kind.

use std::time::Duration;

use lock_core::LockError;
use lock_tests::kit::ms;
use lock_tests::{DropMode, LIMIT, eventually, in_time};
use tokio::time::Instant;

use super::rig::{LONG, RENEWED, Rig, SHORT};

/// The acquire and the release are done once each, and answered. Proves P6.
pub(crate) async fn a_lost_reply_counts_once(rig: &Rig) {
    lose_the_replies(rig, DropMode::Close, LIMIT).await;
}

/// The connection stays open: only the deadline of a command tells. Proves P6.
pub(crate) async fn a_reply_that_never_comes_counts_once(rig: &Rig) {
    lose_the_replies(rig, DropMode::Silent, ms(700)).await;
}

async fn lose_the_replies(rig: &Rig, mode: DropMode, deadline: Duration) {
    let other = rig.caller().await;
    let others = rig.clients();
    let caller = rig
        .caller_with(|builder| builder.command_deadline(deadline))
        .await;
    let lost = rig.lose_reply("acquire", mode, &others);
    let taking = tokio::spawn(caller.take());
    for lost in lost {
        in_time("the acquire", lost.wait()).await;
    }
    let held = in_time("the caller", taking).await.unwrap().unwrap();
    assert!(held.is_held() && other.seen().await.is_held());
    let lost = rig.lose_reply("release", mode, &others);
    let releasing = tokio::spawn(held.release());
    for lost in lost {
        in_time("the release", lost.wait()).await;
    }
    in_time("the answer", releasing).await.unwrap().unwrap();
    // A lock that was taken twice would still be held.
    other.until_free().await;
    let next = in_time("the next", other.rival().take()).await.unwrap();
    next.release().await.unwrap();
    rig.until_clean().await;
}

/// Proves P9.
pub(crate) async fn a_lost_message_is_made_good_by_asking(rig: &Rig) {
    let (other, caller) = (rig.caller().await, rig.caller().await);
    let held = other.rival().take().await.unwrap();
    let waiting = tokio::spawn(caller.take());
    caller.until_waiting(1).await;
    for proxy in &rig.proxies {
        proxy.drop_pushes(true);
    }
    held.release().await.unwrap();
    let next = in_time("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_held());
    next.release().await.unwrap();
    rig.until_clean().await;
}

/// Proves P7.
pub(crate) async fn a_dead_waiter_is_skipped(rig: &Rig) {
    let other = rig.caller().await;
    let held = other.rival().take().await.unwrap();
    in_a_process_that_dies(async {
        let dead = rig.caller().await;
        let waiting = tokio::spawn(dead.take());
        other.until_waiting(1).await;
        drop(waiting);
    });
    let caller = rig.caller().await;
    let waiting = tokio::spawn(caller.take());
    held.release().await.unwrap();
    let next = in_time("the next waiter", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

/// Proves P7.
pub(crate) async fn a_dead_holder_costs_one_ttl(rig: &Rig) {
    let other = rig.caller().await;
    let began = Instant::now();
    let dead = in_a_process_that_dies(async {
        let dead = rig.caller().await.with_ttl(SHORT);
        dead.take().await.unwrap()
    });
    let next = in_time("the next", other.rival().take()).await.unwrap();
    assert!(
        began.elapsed() + ms(50) >= SHORT,
        "it lived: {:?}",
        began.elapsed()
    );
    assert!(!dead.is_held() && next.fence() > dead.fence());
    next.release().await.unwrap();
    rig.until_clean().await;
}

/// Proves P11.
pub(crate) async fn something_else_at_its_key_is_left_alone(rig: &Rig) {
    let caller = rig.caller().await;
    let key = caller.key();
    rig.command(&format!("RPUSH {key} mine")).await;
    let refused = in_time("the error", caller.take()).await.unwrap_err();
    assert!(
        matches!(&refused, LockError::NotALock { .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("list"), "{refused}");
    let keys = rig.keys().await;
    assert!(
        keys.iter().all(|left| *left == key) && !keys.is_empty(),
        "{keys:?}"
    );
    rig.command(&format!("LRANGE {key} 0 -1")).await;
    rig.command(&format!("DEL {key}")).await;
    let held = in_time("the caller", caller.take()).await.unwrap();
    held.release().await.unwrap();
    rig.until_clean().await;
}

/// Proves P1.
pub(crate) async fn a_server_that_empties_ends_the_hold_and_serves_the_waiter(rig: &Rig) {
    let (other, caller) = (rig.caller().await, rig.caller().await.with_ttl(RENEWED));
    let held = caller.take().await.unwrap();
    let waiting = tokio::spawn(other.rival().take());
    other.until_waiting(1).await;
    rig.command("FLUSHALL").await;
    in_time("the loss", held.lost()).await;
    assert!(!held.is_held());
    let next = in_time("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_held());
    drop(held);
    next.release().await.unwrap();
    rig.until_clean().await;
}

/// It renews and releases what is held, and takes nothing new. Proves P2, P11.
pub(crate) async fn a_full_server_takes_nothing_and_keeps_what_is_held(rig: &Rig) {
    let caller = rig.caller().await.with_ttl(RENEWED);
    let held = caller.take().await.unwrap();
    rig.command("CONFIG SET maxmemory 1").await;
    let before = held.remaining();
    eventually("a renewal", LIMIT, async || held.remaining() > before).await;
    in_time("the release", held.release()).await.unwrap();
    caller.until_free().await;
    let ended = in_time("the error", caller.take()).await;
    let refused = ended.expect_err("there is no room");
    assert!(
        matches!(refused, LockError::Unavailable { .. }),
        "{refused:?}"
    );
    assert!(!caller.seen().await.is_held());
    rig.command("CONFIG SET maxmemory 0").await;
    let held = in_time("the caller", caller.take()).await.unwrap();
    held.release().await.unwrap();
    rig.until_clean().await;
}

/// Also one that is idle: nothing is due before the long ttl is a third over. Proves P15.
pub(crate) async fn a_broken_connection_costs_neither_holder_nor_waiter(rig: &Rig) {
    let (holder, caller) = (rig.caller().await, rig.caller().await);
    let held = holder.rival().take().await.unwrap();
    let waiting = tokio::spawn(caller.take());
    caller.until_waiting(1).await;
    for proxy in &rig.proxies {
        proxy.reset();
    }
    assert!(held.is_held());
    in_time("the release", held.release()).await.unwrap();
    let next = in_time("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_held());
    next.release().await.unwrap();
    rig.until_clean().await;
}

/// Its caller has left, and so has its connection: it blocks for one ttl at most. Proves P4.
pub(crate) async fn an_acquire_that_comes_late_blocks_for_one_ttl_at_most(rig: &Rig) {
    let other = rig.caller().await;
    let others = rig.clients();
    let caller = rig.caller().await.with_ttl(SHORT);
    let late = rig.hold("acquire", &others);
    let taking = tokio::spawn(caller.take());
    for late in &late {
        in_time("the acquire", late.wait()).await;
    }
    taking.abort();
    assert!(taking.await.unwrap_err().is_cancelled());
    for proxy in &rig.proxies {
        proxy.reset();
    }
    assert_eq!(
        caller.locks.shutdown(LIMIT).await,
        0,
        "the clean-up is done"
    );
    for late in late {
        late.deliver();
    }
    let next = in_time("the next", other.rival().take()).await.unwrap();
    assert!(next.is_held());
    next.release().await.unwrap();
    rig.until_clean().await;
}

/// Proves P3.
pub(crate) async fn a_release_that_comes_late_leaves_the_next_holder_alone(rig: &Rig) {
    let other = rig.caller().await;
    let others = rig.clients();
    let caller = rig.caller().await.with_ttl(SHORT);
    let held = caller.take().await.unwrap();
    let late = rig.hold("release", &others);
    let releasing = tokio::spawn(held.release());
    for late in &late {
        in_time("the release", late.wait()).await;
    }
    let next = in_time("the takeover", other.rival().with_ttl(LONG).take())
        .await
        .unwrap();
    for late in late {
        late.deliver();
    }
    let released = in_time("the answer", releasing).await.unwrap();
    assert!(
        matches!(released, Err(LockError::Lost { .. })),
        "{released:?}"
    );
    assert!(next.is_held() && other.seen().await.is_held());
    next.release().await.unwrap();
    rig.until_clean().await;
}

/// Runs a future on a runtime that is gone, with its connections, when this returns: a process that dies.
fn in_a_process_that_dies<T>(life: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(life)
    })
}
