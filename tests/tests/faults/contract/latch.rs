//! What no fault may do to a latch.

use lock_core::{Latch, LockError, LockManager};
use lock_tests::{DropMode, LIMIT, eventually, in_time};

use super::rig::{LONG, Rig};

const KEY: &str = "lock-core:latch:{lock:l}";

async fn latch(rig: &Rig) -> (LockManager, Latch) {
    let locks = rig.manager(LONG).await;
    let latch = locks.latch("l", 2);
    (locks, latch)
}

/// Waits until this many counts are left.
async fn until_left(latch: &Latch, left: u32) {
    eventually("the counts", LIMIT, async || {
        latch.left().await.is_ok_and(|remaining| remaining == left)
    })
    .await;
}

/// Proves P6.
pub(crate) async fn a_lost_reply_counts_once(rig: &Rig) {
    let (_locks, latch) = latch(rig).await;
    let lost = rig.lose_reply("count_down", DropMode::Close, &rig.any_client());
    let ended = in_time("the count", latch.count_down("a")).await;
    for lost in lost {
        in_time("the count", lost.wait()).await;
    }
    assert!(
        matches!(ended, Ok(1) | Err(LockError::Unavailable { .. })),
        "{ended:?}"
    );
    // The caller that was not told asks again.
    eventually("the answer", LIMIT, async || {
        latch.count_down("a").await.is_ok()
    })
    .await;
    assert_eq!(latch.left().await.unwrap(), 1);
}

pub(crate) async fn a_lost_message_is_made_good_by_asking(rig: &Rig) {
    let (_locks, latch) = latch(rig).await;
    let (_others, other) = self::latch(rig).await;
    other.count_down("a").await.unwrap();
    for proxy in &rig.proxies {
        proxy.drop_pushes(true);
    }
    let waiting = tokio::spawn(async move { latch.wait().await });
    other.count_down("b").await.unwrap();
    in_time("the waiter", waiting).await.unwrap().unwrap();
}

/// Proves P11.
pub(crate) async fn something_else_at_its_key_is_left_alone(rig: &Rig) {
    let (_locks, latch) = latch(rig).await;
    rig.command(&format!("RPUSH {KEY} mine")).await;
    for refused in [latch.count_down("a").await.map(drop), latch.wait().await] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, LockError::NotALock { .. }),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("list"), "{refused}");
    }
    rig.command(&format!("LRANGE {KEY} 0 -1")).await;
    rig.command(&format!("DEL {KEY}")).await;
    assert_eq!(latch.count_down("a").await.unwrap(), 1);
}

pub(crate) async fn a_server_that_empties_has_no_counts(rig: &Rig) {
    let (_locks, latch) = latch(rig).await;
    latch.count_down("a").await.unwrap();
    let waiter = latch.clone();
    let waiting = tokio::spawn(async move { waiter.wait().await });
    rig.command("FLUSHALL").await;
    until_left(&latch, 2).await;
    assert!(!waiting.is_finished());
    for id in ["a", "b"] {
        latch.count_down(id).await.unwrap();
    }
    in_time("the waiter", waiting).await.unwrap().unwrap();
}

pub(crate) async fn a_full_server_counts_nothing(rig: &Rig) {
    let (_locks, latch) = latch(rig).await;
    rig.command("CONFIG SET maxmemory 1").await;
    let refused = in_time("the count", latch.count_down("a"))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, LockError::Unavailable { .. }),
        "{refused:?}"
    );
    rig.command("CONFIG SET maxmemory 0").await;
    until_left(&latch, 2).await;
    assert_eq!(latch.count_down("b").await.unwrap(), 1);
}

/// Its caller has left, and counts once more.
pub(crate) async fn a_count_that_comes_late_counts_once(rig: &Rig) {
    let (_others, other) = latch(rig).await;
    other.left().await.unwrap();
    let others = rig.clients();
    let (_locks, latch) = latch(rig).await;
    let late = rig.hold("count_down", &others);
    let counting = tokio::spawn(async move { latch.count_down("a").await });
    for late in &late {
        in_time("the count", late.wait()).await;
    }
    counting.abort();
    let _ = counting.await;
    for proxy in &rig.proxies {
        proxy.reset();
    }
    eventually("it is counted again", LIMIT, async || {
        other.count_down("a").await.is_ok_and(|left| left == 1)
    })
    .await;
    for late in late {
        late.deliver();
    }
    assert_eq!(other.left().await.unwrap(), 1);
    assert_eq!(other.count_down("b").await.unwrap(), 0);
}
