//! The watchdog's requests fail, and the lease follows the local clock (P2).

use std::time::Duration;

use lock_core::{LockGuard, LossReason};
use lock_tests::kit::command;
use lock_tests::{DropMode, LIMIT, Proxy, Request, boottime_now, eventually};

use crate::support::{KEY, LONG, NAME, in_time, is_extend, ms, now_or_never, warm_server};
use crate::support::{behind, direct, leftovers, until_clean, until_queued};

/// When the guard will stop believing, on the clock of the lease.
fn deadline(guard: &LockGuard) -> Duration {
    boottime_now() + guard.remaining()
}

/// How far two readings of one deadline may be apart: the clock and the guard are not read at one instant.
const READING: Duration = ms(250);

#[tokio::test]
async fn an_unconfirmed_renewal_moves_nothing_and_the_next_one_repairs() {
    for mode in [DropMode::Silent, DropMode::Close] {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let locks = behind(&proxy, ms(500)).await;
        let lost = proxy.drop_next_reply_matching(is_extend, mode);
        let lock = locks.lock(NAME).ttl(ms(6000));
        let guard = lock.acquire().await.unwrap();
        let granted = deadline(&guard);
        lost.wait().await;
        let unconfirmed = deadline(&guard);
        // Where the repair was faster than this test, there is nothing to see.
        if proxy.count(is_extend) == 1 {
            assert!(server.pttl(KEY).await > 4500, "the server has renewed");
            assert!(unconfirmed < granted + READING, "{mode:?}: moved");
        }
        eventually("the repair", LIMIT, async || {
            assert!(guard.is_held(), "{mode:?}: lost");
            deadline(&guard) > granted + ms(1500)
        })
        .await;
        assert!(proxy.count(is_extend) > 1);
        guard.release().await.unwrap();
        until_clean(&server).await;
    }
}

/// Cuts one direction under a guard while another manager waits for its lock.
async fn partition(cut: impl Fn(&Proxy)) {
    // What is certain is asserted each time. The instants also depend on when this machine runs which task.
    let mut times = Vec::new();
    for _ in 0..3 {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let locks = behind(&proxy, ms(300)).await;
        let lock = locks.lock(NAME).ttl(ms(1500));
        let guard = lock.acquire().await.unwrap();
        let other = direct(&server).await.lock(NAME).ttl(LONG);
        let rival = tokio::spawn(async move { other.acquire().await.map(|g| (g, boottime_now())) });
        until_queued(&server, 1).await;
        cut(&proxy);

        let loss = async {
            let reason = guard.lost().await;
            (reason, boottime_now())
        };
        let takeover = async {
            let taken = rival.await.unwrap().unwrap();
            assert!(!guard.is_held(), "two believers");
            assert_eq!(now_or_never(guard.lost()).await, Some(LossReason::Expired));
            taken
        };
        let both = async { tokio::join!(loss, takeover) };
        let ((reason, lost_at), (next, taken_at)) = in_time("the takeover", both).await;
        assert_eq!(reason, LossReason::Expired);
        assert!(next.is_held());
        drop(guard);
        next.release().await.unwrap();
        if lost_at <= taken_at {
            return;
        }
        times.push((lost_at, taken_at));
    }
    panic!("lost() fired after the server had let go: {times:?}");
}

#[tokio::test]
async fn the_loss_comes_before_the_takeover_when_no_request_gets_through() {
    partition(|proxy| proxy.cut_to_server(true)).await;
}

/// Proves P2.
#[tokio::test]
async fn the_loss_comes_before_the_takeover_when_no_reply_gets_through() {
    partition(|proxy| proxy.cut_to_client(true)).await;
}

#[tokio::test]
async fn a_partition_that_heals_in_time_costs_nothing() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(300)).await;
    let lock = locks.lock(NAME).ttl(ms(6000));
    let guard = lock.acquire().await.unwrap();
    let granted = deadline(&guard);
    proxy.cut_to_server(true);
    let swallowed = proxy.lost_requests();
    eventually("a renewal is swallowed", LIMIT, async || {
        proxy.lost_requests() > swallowed
    })
    .await;
    proxy.cut_to_server(false);
    eventually("a renewal gets through", LIMIT, async || {
        assert!(guard.is_held());
        deadline(&guard) > granted + ms(1500)
    })
    .await;
    guard.release().await.unwrap();
    until_clean(&server).await;
}

#[test]
fn a_starved_runtime_knows_at_once_that_the_lease_is_over() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = warm_server().await;
        let locks = direct(&server).await;
        let lock = locks.lock(NAME).ttl(ms(300));
        let guard = lock.acquire().await.unwrap();
        // Nothing else runs on this runtime meanwhile: no renewal, no timer.
        std::thread::sleep(ms(400));
        assert!(!guard.is_held());
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert_eq!(now_or_never(guard.lost()).await, Some(LossReason::Expired));
        // A renewal that was due long ago does not bring it back.
        let again = in_time("the lock", lock.acquire()).await.unwrap();
        assert!(!guard.is_held() && again.is_held());
        assert!(again.fencing_token() > guard.fencing_token());
        again.release().await.unwrap();
    });
}

#[tokio::test]
async fn leases_that_are_renewed_in_one_call_each_get_their_own_ttl() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let (short, long) = (ms(3000), ms(5500));
    let brief = locks.lock("brief").ttl(short).acquire().await.unwrap();
    let lasting = locks.lock("lasting").ttl(long).acquire().await.unwrap();
    let together = |request: &Request| request.has("lock:brief") && request.has("lock:lasting");
    // The short one is renewed every second; the long one after 1.8 s, together with the other, which joins what is due shortly before.
    eventually("a renewal of both", LIMIT, async || {
        let left = server.pttl("lock:brief").await;
        assert!(left <= short.as_millis() as i64, "{left} ms");
        proxy.count(together) > 0
    })
    .await;
    eventually("its ttl", LIMIT, async || {
        let left = server.pttl("lock:lasting").await;
        let remaining = lasting.remaining().as_millis() as i64;
        assert!(left <= long.as_millis() as i64, "{left} ms");
        remaining > 4000 && left >= remaining
    })
    .await;
    assert!(brief.is_held());
    drop((brief, lasting));
    until_clean(&server).await;
}

#[tokio::test]
async fn a_lock_that_is_to_be_kept_is_not_renewed_by_a_batch_due_before() {
    // More than three batches.
    const GUARDS: usize = 1200;
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let (ttl, least) = (ms(9000), ms(4000));
    let mut guards = Vec::new();
    for n in 0..GUARDS {
        let lock = locks.lock(format!("kept:{n}")).ttl(ttl).at_least(least);
        guards.push(lock.acquire().await.unwrap());
    }
    let first = proxy.hold_next_request_matching(is_extend);
    first.wait().await;
    drop(guards);
    first.deliver();
    // What was renewed after its guard had gone would stay for a ttl.
    eventually("all have ended", ttl / 2, async || {
        leftovers(&server).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_flushed_script_does_not_cost_a_short_lease_far_away() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(1000)).await;
    let guard = locks.lock(NAME).ttl(ms(1000)).acquire().await.unwrap();
    proxy.delay(ms(140));
    let renewed = async |times| {
        let before = proxy.count(is_extend);
        eventually("it is renewed", LIMIT, async || {
            assert!(guard.is_held());
            proxy.count(is_extend) >= before + times
        })
        .await;
    };
    renewed(2).await;
    let () = command(&server, "SCRIPT FLUSH").await;
    renewed(4).await;
    proxy.delay(Duration::ZERO);
    guard.release().await.unwrap();
}
