//! The server in memory that the tests of a service control.

use std::time::{Duration, Instant};

use lock_core::testing::{ManualClock, MemoryServer};
use lock_core::{LockError, LockGuard, LockManager, LossReason, Owner, distributed_lock};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_unavailable_and_comes_back() {
    let server = MemoryServer::on_tokio_time();
    let locks = server.manager().unwrap();
    server.goes_away();
    let refused = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(
        matches!(refused, LockError::Unavailable { .. }),
        "{refused}"
    );
    let (waited, ()) = tokio::join!(locks.lock("a").acquire_within(MINUTE), async {
        server.until_waited_for("a").await;
        sleep(10 * SECOND).await;
        server.comes_back();
    });
    waited.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_survives_a_short_absence_and_no_long_one() {
    let server = MemoryServer::on_tokio_time();
    let (locks, other) = (server.manager().unwrap(), server.manager().unwrap());
    let guard = locks.lock("a").ttl(30 * SECOND).acquire().await.unwrap();
    server.goes_away();
    sleep(15 * SECOND).await;
    server.comes_back();
    sleep(MINUTE).await;
    assert!(guard.is_held());
    server.goes_away();
    assert_eq!(guard.lost().await, LossReason::Expired);
    server.comes_back();
    // The server has it for a moment longer.
    let next = other.lock("a").acquire().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_off_loses_its_locks_to_another_copy() {
    let server = MemoryServer::on_tokio_time();
    let (locks, other) = (server.manager().unwrap(), server.manager().unwrap());
    let guard = locks.lock("a").ttl(30 * SECOND).acquire().await.unwrap();
    let (next, ()) = tokio::join!(other.lock("a").acquire(), async {
        server.until_waited_for("a").await;
        server.cuts_off(&locks);
    });
    assert!(!guard.is_held());
    next.unwrap().release().await.unwrap();
    // No message and no answer reaches it.
    let refused = locks.lock("b").try_acquire().await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })));
    server.comes_back();
    assert!(locks.lock("b").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn each_kind_is_lost_for_the_reason_that_the_test_wants() {
    let server = MemoryServer::on_tokio_time();
    let locks = server.manager().unwrap();
    let owner = Owner::new();
    for reason in [
        LossReason::Expired,
        LossReason::Gone,
        LossReason::ForceReleased,
        LossReason::MaxHold,
        LossReason::ShutDown,
    ] {
        let exclusive = locks.lock("a").acquire().await.unwrap();
        let reentrant = locks.reentrant_lock("r").owner(&owner).acquire().await;
        let permit = locks.semaphore("s", 2).acquire().await.unwrap();
        let reader = locks.rw_lock("w").read().await.unwrap();
        let leader = locks.election("e").campaign("me").await.unwrap();
        for key in ["a", "r", "s", "w", "e"] {
            assert_eq!(server.lose(key, reason), 1, "{key}");
        }
        assert_eq!(exclusive.lost().await, reason);
        assert_eq!(reentrant.unwrap().lost().await, reason);
        assert_eq!(permit.lost().await, reason);
        assert_eq!(reader.lost().await, reason);
        assert_eq!(leader.lost().await, reason);
    }
    assert_eq!(server.lose("a", LossReason::Gone), 0);
}

#[tokio::test(start_paused = true)]
async fn the_second_hold_of_a_function_is_lost_in_the_middle() {
    #[distributed_lock(key = "import", client = locks)]
    async fn import(locks: &LockManager) -> Result<(), LockError> {
        sleep(MINUTE).await;
        Ok(())
    }
    let server = MemoryServer::on_tokio_time();
    let locks = server.manager().unwrap();
    import(&locks).await.unwrap();
    let (outcome, ()) = tokio::join!(import(&locks), async {
        server.until_held("import").await;
        server.lose("import", LossReason::Gone);
    });
    let lost = LossReason::Gone;
    assert!(matches!(outcome, Err(LockError::Lost { reason, .. }) if reason == lost));
    let record = server.record();
    let losses: Vec<_> = record.iter().map(|taken| taken.lost).collect();
    assert_eq!(losses, [None, Some(lost)]);
    assert_eq!(record[0].held.as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_counts_against_the_limit_of_the_wait() {
    let server = MemoryServer::on_tokio_time();
    let lock = server.manager().unwrap().lock("a");
    server.answers_after(2 * SECOND);
    let began = tokio::time::Instant::now();
    lock.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2);
    let refused = lock.acquire_within(SECOND).await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })));
    server.answers_after(Duration::ZERO);
    let began = tokio::time::Instant::now();
    drop(lock.acquire().await.unwrap());
    assert!(began.elapsed() < SECOND);
}

#[tokio::test]
async fn a_clock_that_is_turned_renews_what_is_due_and_ends_what_is_over() {
    let clock = ManualClock::new();
    let server = MemoryServer::with_clock(&clock);
    let lock = server.manager().unwrap().lock("a").ttl(30 * SECOND);
    let guard = lock.acquire().await.unwrap();
    for _ in 0..10 {
        clock.advance(12 * SECOND);
        // It is renewed.
        while guard.remaining() < 29 * SECOND {
            tokio::task::yield_now().await;
        }
    }
    assert!(guard.is_held(), "two minutes have passed");
    clock.advance(31 * SECOND);
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_a_function_are_known_and_its_body_does_not_run() {
    struct Shop {
        locks: LockManager,
    }
    impl Shop {
        #[distributed_lock(key = "order:{id}", client = self.locks)]
        async fn charge(&self, id: u64) -> Result<(), LockError> {
            panic!("the body runs")
        }
    }
    #[distributed_lock(keys = ["account:{from}", "account:{to}"])]
    async fn transfer(from: u32, to: u32) -> Result<(), LockError> {
        panic!("the body runs")
    }
    #[distributed_lock(key = "report", wait = "0s", on_busy = skip)]
    async fn report() -> Option<()> {
        panic!("the body runs")
    }
    let server = MemoryServer::new();
    let locks = server.manager().unwrap();
    let shop = Shop {
        locks: locks.clone(),
    };
    assert_eq!(server.keys_of(shop.charge(7)).await.unwrap(), ["order:7"]);
    let keys = server.keys_of(transfer(1, 2)).await.unwrap();
    assert_eq!(keys, ["account:1", "account:2"]);
    assert_eq!(server.keys_of(async {}).await.unwrap(), [""; 0]);
    let _held = locks.lock("order:7").acquire().await.unwrap();
    let busy = locks.lock("order:7").acquire_within(Duration::ZERO).await;
    assert!(matches!(busy, Err(LockError::Busy { .. })));
    // Without the server it is not skipped: that is no other holder.
    assert_eq!(server.keys_of(report()).await.unwrap(), ["report"]);
}

#[tokio::test(start_paused = true)]
async fn the_record_says_who_held_what_for_how_long() {
    let server = MemoryServer::on_tokio_time();
    let named = |name: &str| server.connect(LockManager::builder().client_name(name));
    let (one, two) = (named("orders-1").unwrap(), named("orders-2").unwrap());
    let guard = one.lock("a").acquire().await.unwrap();
    sleep(3 * SECOND).await;
    guard.release().await.unwrap();
    let permit = two.semaphore("s", 3).acquire().await.unwrap();
    sleep(SECOND).await;
    drop(permit);
    let record = server.record();
    let told = record
        .iter()
        .map(|it| (&*it.key, it.kind, &*it.by, it.held.as_secs()));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("a", "exclusive", "orders-1", 3),
            ("s", "semaphore", "orders-2", 1)
        ]
    );
}

#[tokio::test]
async fn a_thread_of_its_own_has_not_the_time_of_tokio() {
    let builder = LockManager::builder().own_thread();
    let refused = MemoryServer::on_tokio_time().connect(builder.clone());
    assert!(matches!(refused, Err(LockError::InvalidConfig { .. })));
    let locks = MemoryServer::new().connect(builder).unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_latch_and_a_kept_lock_end_by_the_time_of_the_test() {
    let server = MemoryServer::on_tokio_time();
    let locks = server.manager().unwrap();
    let guard = locks.lock("a").at_least(MINUTE).acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    sleep(MINUTE).await;
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
    let began = Instant::now();
    let late = locks.latch("l", 2).wait_within(MINUTE).await;
    assert!(matches!(late, Err(LockError::NotOpen { .. })));
    assert!(began.elapsed() < MINUTE / 2, "by the clock of the machine");
}

#[tokio::test(start_paused = true)]
async fn keys_are_those_of_the_call_alone_and_nothing_else_changes() {
    #[distributed_lock(key = "order:{id}")]
    async fn charge(id: u64) -> Result<(), LockError> {
        panic!("the body runs")
    }
    let server = MemoryServer::on_tokio_time();
    let (one, two) = (server.manager().unwrap(), server.manager().unwrap());
    server.cuts_off(&one);
    let busy = tokio::spawn(async move {
        loop {
            drop(two.lock("other").acquire().await.unwrap());
            sleep(SECOND).await;
        }
    });
    let late = |id: u64| async move {
        sleep(Duration::from_secs(id)).await;
        charge(id).await
    };
    let (first, second) = tokio::join!(server.keys_of(late(3)), server.keys_of(late(5)));
    assert_eq!(first.unwrap(), ["order:3"]);
    assert_eq!(second.unwrap(), ["order:5"]);
    assert!(!busy.is_finished(), "it had its locks meanwhile");
    busy.abort();
    let refused = one.lock("a").try_acquire().await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })));
    // It waits in the line of its manager, which is not asked again.
    let locks = server.manager().unwrap();
    let _held = locks.lock("order:7").acquire().await.unwrap();
    let keys = locks.scope(server.keys_of(charge(7))).await;
    assert_eq!(keys.unwrap(), ["order:7"]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_is_free_for_the_next_copy_at_once() {
    let server = MemoryServer::on_tokio_time();
    let (one, two) = (server.manager().unwrap(), server.manager().unwrap());
    for reason in [LossReason::Expired, LossReason::Gone, LossReason::MaxHold] {
        let guard = one.lock("a").acquire().await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(server.lose("a", reason), 1);
        let next = two.lock("a").acquire().await.unwrap();
        assert!(began.elapsed() < SECOND && !guard.is_held());
        next.release().await.unwrap();
    }
    assert_eq!(server.record()[1].by, "copy-2");
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_dropped_while_its_thread_ends() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<LockGuard>> = const { std::cell::RefCell::new(None) };
    }
    let server = MemoryServer::on_tokio_time();
    let lock = server.manager().unwrap().lock("a");
    let guard = lock.acquire().await.unwrap();
    let keep = move || KEPT.set(Some(guard));
    std::thread::spawn(keep).join().unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_clock_that_is_turned_as_far_as_possible_ends_every_lease() {
    let clock = ManualClock::new();
    let lock = MemoryServer::with_clock(&clock)
        .manager()
        .unwrap()
        .lock("a");
    let guard = lock.acquire().await.unwrap();
    clock.advance(Duration::MAX);
    clock.advance(Duration::MAX);
    assert!(!guard.is_held());
}

/// An hour in which the leader crashes each minute, and a new copy comes in its place. A hundred times as fast as the clock that
/// is paused, also on a busy machine.
#[tokio::test(start_paused = true)]
async fn an_hour_of_an_election_whose_leaders_crash_takes_a_moment() {
    let (server, began) = (MemoryServer::on_tokio_time(), Instant::now());
    let (told, mut terms) = tokio::sync::mpsc::unbounded_channel();
    let candidate = |number: u32| {
        let (locks, told) = (server.manager().unwrap(), told.clone());
        tokio::spawn(async move {
            let election = locks.election("e").ttl(10 * SECOND);
            let leadership = election.campaign(&format!("copy {number}")).await.unwrap();
            let _ = told.send((locks, leadership));
        })
    };
    let _first: Vec<_> = (0..3).map(candidate).collect();
    let mut last = 0;
    for number in 3..63 {
        let (locks, leadership) = terms.recv().await.unwrap();
        assert!(leadership.term().get() > last, "the terms grow");
        last = leadership.term().get();
        sleep(MINUTE).await;
        assert!(leadership.is_held());
        // It crashes: nothing is released.
        server.cuts_off(&locks);
        drop(candidate(number));
    }
    assert!(began.elapsed() < 36 * SECOND, "{:?}", began.elapsed());
}
