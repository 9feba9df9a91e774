//! Locks of programs without async code.

use std::sync::mpsc::{RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lock_core::blocking::{Blocking, BlockingGuard};
use lock_core::{LockError, LockManager, LossReason, Owner};
use lock_tests::{LIMIT, TestServer};
use tokio::runtime::Runtime;

fn server() -> (Runtime, TestServer) {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(TestServer::start());
    (runtime, server)
}

fn queued(locks: &Blocking<LockManager>, key: &str, count: u64) {
    let began = std::time::Instant::now();
    while locks.lock(key).inspect().unwrap().waiters() != count {
        assert!(began.elapsed() < LIMIT, "{count} wait for {key}");
        thread::yield_now();
    }
}

#[test]
fn each_kind_is_held_by_a_plain_thread() {
    let (_runtime, server) = server();
    let locks = Blocking::connect(&server.url()).unwrap();
    locks.ping().unwrap();
    let guard = locks.lock("a").ttl(LIMIT).acquire().unwrap();
    assert!(guard.is_held() && guard.key() == "a");
    assert!(locks.lock("a").try_acquire().unwrap().is_none());
    let busy = locks.lock("a").acquire_within(Duration::ZERO);
    assert!(matches!(busy, Err(LockError::Busy { .. })));
    guard.extend(LIMIT * 2).unwrap();
    guard.release().unwrap();

    let me = Owner::new();
    let nested = locks.reentrant_lock("r").owner(&me);
    let outer = nested.acquire().unwrap();
    assert_eq!(nested.acquire().unwrap().hold_count(), 2);
    outer.release().unwrap();

    let pool = locks.semaphore("s", 3).permits(2);
    let two = pool.acquire().unwrap();
    assert!(pool.try_acquire().unwrap().is_none());
    pool.resize(4).unwrap();
    two.release().unwrap();

    let map = locks.rw_lock("w");
    let reader = map.read().unwrap();
    let writer = reader.try_upgrade().unwrap();
    assert!(map.try_read().unwrap().is_none());
    writer.downgrade().unwrap().release().unwrap();

    let both = locks.all(["x", "y"]).acquire().unwrap();
    assert_eq!(both.keys().collect::<Vec<_>>(), ["x", "y"]);
    both.release().unwrap();
    let segment = locks.segmented_lock("z", 2).acquire().unwrap();
    segment.release().unwrap();
}

#[test]
fn an_election_and_a_latch_serve_plain_threads() {
    let (_runtime, server) = server();
    let locks = Blocking::connect(&server.url()).unwrap();
    let election = locks.election("e");
    let mut leaders = election.observe().unwrap();
    let leadership = election.campaign("one").unwrap();
    let seen = leaders.by_ref().flatten().next().unwrap();
    assert_eq!((seen.value(), seen.term()), ("one", leadership.term()));
    assert_eq!(election.leader().unwrap().unwrap().value(), "one");
    leadership.resign().unwrap();

    let latch = locks.latch("l", 2);
    assert_eq!(latch.count_down("a").unwrap(), 1);
    let waiting = latch.clone();
    let opened = thread::spawn(move || waiting.wait());
    latch.count_down("b").unwrap();
    opened.join().unwrap().unwrap();
}

/// Proves P8.
#[test]
fn two_hundred_threads_have_the_lock_in_the_order_in_which_they_asked() {
    const THREADS: u64 = 200;
    let (_runtime, server) = server();
    let locks = Blocking::connect(&server.url()).unwrap();
    let held = locks.lock("hot").acquire().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (lock, order) = (locks.lock("hot"), Arc::clone(&order));
            let thread = thread::spawn(move || {
                let guard = lock.acquire().unwrap();
                order.lock().unwrap().push(number);
                if number % 2 == 0 {
                    guard.release().unwrap();
                }
            });
            queued(&locks, "hot", number + 1);
            thread
        })
        .collect();
    held.release().unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(order.lock().unwrap().iter().copied().eq(0..THREADS));
}

/// Proves P4.
#[test]
fn a_thousand_waits_that_end_without_the_lock_leave_nothing() {
    let (runtime, server) = server();
    let locks = Blocking::connect(&server.url()).unwrap();
    let other = Blocking::connect(&server.url()).unwrap();
    let held = other.lock("hot").acquire().unwrap();
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let limit = Duration::from_micros(fastrand::u64(1..3_000));
                    let waited = locks.lock("hot").acquire_within(limit);
                    assert!(waited.is_err(), "it is held");
                }
            });
        }
    });
    held.release().unwrap();
    assert_eq!(locks.shutdown(LIMIT), 0);
    assert_eq!(other.shutdown(LIMIT), 0);
    assert_eq!(runtime.block_on(server.keys()), ["lock-core:fence"]);
}

#[test]
fn a_loss_is_told_by_a_channel_and_a_function_and_a_release_is_none() {
    let (_runtime, server) = server();
    let locks = Blocking::connect(&server.url()).unwrap();
    let lock = locks.lock("a");
    let guard = lock.acquire().unwrap();
    let losses = guard.losses();
    let (tell, told) = channel();
    guard.on_loss(move |reason| tell.send(reason).unwrap());
    assert!(losses.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Timeout));
    assert!(lock.force_release().unwrap());
    assert_eq!(losses.recv_timeout(LIMIT), Ok(LossReason::ForceReleased));
    assert_eq!(told.recv_timeout(LIMIT), Ok(LossReason::ForceReleased));
    assert_eq!(guard.lost(), LossReason::ForceReleased);
    assert!(matches!(guard.release(), Err(LockError::Lost { .. })));

    for is_dropped in [false, true] {
        let guard = lock.acquire().unwrap();
        let losses = guard.losses();
        if is_dropped {
            drop(guard);
        } else {
            guard.release().unwrap();
        }
        let over = losses.recv_timeout(LIMIT);
        assert_eq!(over, Err(RecvTimeoutError::Disconnected));
    }
}

#[test]
fn a_call_in_an_async_task_panics_and_one_in_spawn_blocking_waits() {
    let locks = Blocking::connect("memory://").unwrap();
    let runtime = Runtime::new().unwrap();
    let lock = locks.lock("a");
    let panicked = runtime.block_on(async {
        let lock = lock.clone();
        tokio::spawn(async move { drop(lock.try_acquire()) }).await
    });
    assert!(panicked.unwrap_err().is_panic());
    let taken = runtime.spawn_blocking(move || lock.try_acquire().unwrap().is_some());
    assert!(runtime.block_on(taken).unwrap());
    // A guard is dropped anywhere.
    let guard = locks.lock("a").acquire().unwrap();
    runtime.block_on(async { drop(guard) });
    assert_eq!(locks.shutdown(LIMIT), 0);
}

#[test]
fn the_two_faces_of_a_manager_share_its_locks() {
    let locks = Blocking::connect("memory://").unwrap();
    let guard = locks.lock("a").acquire().unwrap();
    let again = locks.block_on(locks.face().lock("a").try_acquire());
    assert!(again.unwrap().is_none());
    drop(guard);
    let runtime = Runtime::new().unwrap();
    let refused = runtime.block_on(async {
        let locks = LockManager::connect("memory://").await.unwrap();
        Blocking::of(locks).err().unwrap()
    });
    assert!(matches!(refused, LockError::InvalidConfig { .. }));
    assert!(refused.to_string().contains("own_thread"), "{refused}");
    assert!(matches!(
        Blocking::connect("redis://127.0.0.1:1"),
        Err(LockError::Unavailable { .. })
    ));
}

#[test]
fn a_guard_that_changes_or_does_not_is_watched_on() {
    let locks = Blocking::connect("memory://").unwrap();
    let lock = locks.rw_lock("w");
    let (reader, other) = (lock.read().unwrap(), lock.read().unwrap());
    let losses = reader.losses();
    let (reader, why) = reader.try_upgrade().err().unwrap();
    assert!(why.is_contention() && reader.is_held());
    other.release().unwrap();
    let reader = reader.try_upgrade().unwrap().downgrade().unwrap();
    assert_eq!(losses.try_recv(), Err(TryRecvError::Empty));
    assert!(lock.force_release().unwrap());
    assert_eq!(losses.recv_timeout(LIMIT), Ok(LossReason::ForceReleased));
    assert!(!reader.is_held());
}

#[test]
fn a_thousand_losses_are_told_however_long_their_channels_are_not_read() {
    let locks = Blocking::connect("memory://").unwrap();
    let guards: Vec<_> = (0..1_000)
        .map(|number| locks.lock(format!("l:{number}")).acquire().unwrap())
        .collect();
    let losses: Vec<_> = guards.iter().map(BlockingGuard::losses).collect();
    locks.shutdown(Duration::ZERO);
    for lost in losses {
        assert_eq!(lost.recv_timeout(LIMIT), Ok(LossReason::ShutDown));
    }
}
