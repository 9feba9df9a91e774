//! A lock in segments: any free one, never behind a busy one, and none that is exhausted.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use lock_core::{LockError, LockInfo, LockManager, SegmentGuard, SegmentedLock};
use lock_tests::kit::command;
use lock_tests::{LIMIT, TestServer, eventually};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Longer than any test: nothing here happens because a lease ran out.
const LONG: Duration = Duration::from_secs(3600);
const KEY: &str = "stock:phone";

async fn manager(url: &str) -> LockManager {
    let builder = LockManager::builder()
        .command_deadline(Duration::from_secs(10))
        .default_ttl(LONG);
    builder.connect(url).await.unwrap()
}

/// Ends a case that hangs.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(LIMIT * 2, work).await.expect("the case ends")
}

/// Takes all segments that are free.
async fn all_of(lock: &SegmentedLock) -> Vec<SegmentGuard> {
    let mut guards = Vec::new();
    while let Some(guard) = lock.try_acquire().await.unwrap() {
        guards.push(guard);
    }
    guards
}

fn segments(guards: &[SegmentGuard]) -> BTreeSet<usize> {
    guards.iter().map(SegmentGuard::segment).collect()
}

/// How many wait for a segment, as the server sees it.
async fn waiters(locks: &LockManager, segment: usize) -> u64 {
    let lock = locks.lock(format!("{{{KEY}:{segment}}}"));
    lock.inspect().await.unwrap().waiters()
}

async fn queued_at(locks: &LockManager, count: usize) -> usize {
    let mut found = None;
    eventually("somebody is queued", LIMIT, async || {
        for segment in 0..count {
            if waiters(locks, segment).await > 0 {
                found = Some(segment);
            }
        }
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// A grant that its waiter does not take ends soon.
const SHORT: Duration = Duration::from_millis(500);

type Acquire = Pin<Box<dyn Future<Output = Result<SegmentGuard, LockError>> + Send>>;

fn acquire(lock: &SegmentedLock) -> Acquire {
    let lock = lock.clone();
    Box::pin(async move { lock.acquire().await })
}

async fn poll_once(acquire: &mut Acquire) {
    let polled = poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx))).await;
    assert!(polled.is_pending());
}

/// A waiter that does not run until it is polled again, and the segment that it waits for.
async fn not_running(lock: &SegmentedLock, locks: &LockManager) -> (Acquire, usize) {
    let mut waiter = acquire(lock);
    loop {
        poll_once(&mut waiter).await;
        for segment in 0..lock.segments() {
            if waiters(locks, segment).await > 0 {
                return (waiter, segment);
            }
        }
    }
}

/// Each case on a server and in memory.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod on_a_server {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let server = lock_tests::TestServer::start().await;
                super::soon(super::$case(&server.url())).await;
            })+
        }
        mod in_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let url = concat!("memory://segmented-", stringify!($case));
                // The store lives as long as a manager of it does.
                let _anchor = super::manager(url).await;
                super::soon(super::$case(url)).await;
            })+
        }
    };
}

cases! {
    a_free_segment_is_taken_while_all_others_are_busy,
    each_segment_is_shown_with_its_holder,
    as_many_hold_as_there_are_segments_and_the_next_one_waits,
    no_segment_has_two_holders,
    a_waiter_takes_whatever_segment_becomes_free_in_another_process,
    a_waiter_takes_whatever_segment_becomes_free_in_its_own_process,
    waiters_of_a_handle_spread_over_the_segments,
    an_exhausted_segment_is_skipped_by_all_clones,
    a_waiter_leaves_a_segment_that_is_exhausted,
    where_all_is_exhausted_every_way_to_ask_says_so,
    a_wait_that_ends_is_told_from_one_that_is_not_wanted,
    a_cancelled_wait_leaves_nothing_behind,
    settings_that_cannot_work_are_refused,
    a_try_takes_the_segment_of_a_waiter_that_does_not_run,
    a_waiter_takes_the_segment_of_another_that_does_not_run,
    a_lost_guard_does_not_block_its_segment,
}

async fn each_segment_is_shown_with_its_holder(url: &str) {
    let (theirs, ours) = (manager(url).await, manager(url).await);
    let held = theirs.lock(format!("{{{KEY}:1}}")).acquire().await.unwrap();
    let states = ours.segmented_lock(KEY, 3).inspect().await.unwrap();
    let held_here: Vec<_> = states.iter().map(LockInfo::is_held).collect();
    assert_eq!(held_here, [false, true, false]);
    held.release().await.unwrap();
}

async fn a_free_segment_is_taken_while_all_others_are_busy(url: &str) {
    let (theirs, ours) = (manager(url).await, manager(url).await);
    for _ in 0..5 {
        let mut held = all_of(&theirs.segmented_lock(KEY, 20)).await;
        assert_eq!(segments(&held), (0..20).collect());
        let free = held.swap_remove(fastrand::usize(..held.len()));
        let segment = free.segment();
        free.release().await.unwrap();
        // Nobody lets go of the others, so whoever waits at one of them first waits for a while.
        let begun = Instant::now();
        let guard = ours.segmented_lock(KEY, 20).acquire().await.unwrap();
        assert_eq!(guard.segment(), segment);
        let queued = all_waiters(&ours, 20).await;
        assert_eq!(queued, 0, "after {:?}", begun.elapsed());
        guard.release().await.unwrap();
        for guard in held {
            guard.release().await.unwrap();
        }
    }
}

async fn all_waiters(locks: &LockManager, count: usize) -> u64 {
    let mut sum = 0;
    for segment in 0..count {
        sum += waiters(locks, segment).await;
    }
    sum
}

async fn as_many_hold_as_there_are_segments_and_the_next_one_waits(url: &str) {
    let locks = manager(url).await;
    let lock = locks.segmented_lock(KEY, 5);
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(lock.acquire().await.unwrap());
    }
    assert_eq!(segments(&held), (0..5).collect());
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    let at = queued_at(&locks, 5).await;
    assert!(!waiting.is_finished());
    let position = held.iter().position(|guard| guard.segment() == at);
    held.swap_remove(position.unwrap()).release().await.unwrap();
    assert_eq!(waiting.await.unwrap().segment(), at);
}

async fn no_segment_has_two_holders(url: &str) {
    const SEGMENTS: usize = 3;
    let handles = [
        manager(url).await.segmented_lock(KEY, SEGMENTS),
        manager(url).await.segmented_lock(KEY, SEGMENTS),
    ];
    let inside: Arc<[AtomicBool; SEGMENTS]> = Arc::default();
    let count = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..24 {
        let lock = handles[task % 2].clone();
        let (inside, count) = (Arc::clone(&inside), Arc::clone(&count));
        tasks.spawn(async move {
            for round in 0..8 {
                let guard = lock.acquire().await.unwrap();
                let inside = &inside[guard.segment()];
                assert!(!inside.swap(true, Ordering::SeqCst), "two at one segment");
                tokio::time::sleep(Duration::from_millis(1)).await;
                inside.store(false, Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
                // Both ways to let go take part.
                if (task + round) % 2 == 0 {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(count.load(Ordering::SeqCst), 24 * 8);
}

async fn a_waiter_takes_whatever_segment_becomes_free_in_another_process(url: &str) {
    let (theirs, ours) = (manager(url).await, manager(url).await);
    let mut held = all_of(&theirs.segmented_lock(KEY, 4)).await;
    let lock = ours.segmented_lock(KEY, 4);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let at = queued_at(&theirs, 4).await;
    // Not the one it is queued at: the holder of that is stuck.
    let other = held.iter().position(|guard| guard.segment() != at);
    let other = held.swap_remove(other.unwrap());
    let segment = other.segment();
    other.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().segment(), segment);
    eventually("it has left the queue", LIMIT, async || {
        waiters(&theirs, at).await == 0
    })
    .await;
}

async fn a_waiter_takes_whatever_segment_becomes_free_in_its_own_process(url: &str) {
    let locks = manager(url).await;
    let lock = locks.segmented_lock(KEY, 4);
    let mut held = all_of(&lock).await;
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    let at = queued_at(&locks, 4).await;
    let other = held.iter().position(|guard| guard.segment() != at);
    let other = held.swap_remove(other.unwrap());
    let segment = other.segment();
    // A drop, too, is heard of.
    drop(other);
    assert_eq!(waiting.await.unwrap().segment(), segment);
}

async fn waiters_of_a_handle_spread_over_the_segments(url: &str) {
    let (theirs, ours) = (manager(url).await, manager(url).await);
    let held = all_of(&theirs.segmented_lock(KEY, 4)).await;
    let lock = ours.segmented_lock(KEY, 4);
    let mut waiting = JoinSet::new();
    for _ in 0..12 {
        let lock = lock.clone();
        waiting.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            guard.release().await.unwrap();
        });
    }
    for segment in 0..4 {
        eventually("a quarter of them waits here", LIMIT, async || {
            waiters(&ours, segment).await == 3
        })
        .await;
    }
    for guard in held {
        guard.release().await.unwrap();
    }
    waiting.join_all().await;
}

async fn an_exhausted_segment_is_skipped_by_all_clones(url: &str) {
    let lock = manager(url).await.segmented_lock(KEY, 3);
    let clone = lock.clone();
    lock.exhausted(1);
    lock.exhausted(99);
    let guard = loop {
        let guard = clone.acquire().await.unwrap();
        assert_ne!(guard.segment(), 1);
        if guard.segment() == 2 {
            break guard;
        }
        guard.release().await.unwrap();
    };
    guard.exhausted();
    guard.release().await.unwrap();
    for _ in 0..20 {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(guard.segment(), 0);
        guard.release().await.unwrap();
    }
}

async fn a_waiter_leaves_a_segment_that_is_exhausted(url: &str) {
    let (theirs, ours) = (manager(url).await, manager(url).await);
    let held = all_of(&theirs.segmented_lock(KEY, 2)).await;
    let lock = ours.segmented_lock(KEY, 2);
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    let at = queued_at(&theirs, 2).await;
    lock.exhausted(at);
    eventually("it waits at the other one", LIMIT, async || {
        waiters(&theirs, at).await == 0 && waiters(&theirs, 1 - at).await == 1
    })
    .await;
    drop(held);
    assert_eq!(waiting.await.unwrap().segment(), 1 - at);
}

async fn where_all_is_exhausted_every_way_to_ask_says_so(url: &str) {
    let (theirs, ours) = (manager(url).await, manager(url).await);
    let _held = all_of(&theirs.segmented_lock(KEY, 2)).await;
    let lock = ours.segmented_lock(KEY, 2);
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    queued_at(&theirs, 2).await;
    lock.exhausted(0);
    lock.exhausted(1);
    let second = Duration::from_secs(1);
    for answer in [
        waiting.await.unwrap().map(Some),
        lock.acquire().await.map(Some),
        lock.acquire_within(second).await.map(Some),
        lock.acquire_within(Duration::ZERO).await.map(Some),
        lock.try_acquire().await,
    ] {
        let error = answer.unwrap_err();
        assert!(
            matches!(&error, LockError::Exhausted { key } if key == KEY),
            "{error:?}"
        );
        assert!(!error.is_contention());
    }
    // Another handle does not know.
    assert!(
        ours.segmented_lock(KEY, 2)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
}

async fn a_wait_that_ends_is_told_from_one_that_is_not_wanted(url: &str) {
    let lock = manager(url).await.segmented_lock(KEY, 2);
    let _held = all_of(&lock).await;
    let error = lock.acquire_within(Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(&error, LockError::Busy { key, .. } if key == KEY),
        "{error:?}"
    );
    let brief = Duration::from_millis(150);
    let error = lock.acquire_within(brief).await.unwrap_err();
    assert!(
        matches!(&error, LockError::TimedOut { key, waited, .. } if key == KEY && *waited >= brief),
        "{error:?}"
    );
}

async fn a_cancelled_wait_leaves_nothing_behind(url: &str) {
    let (theirs, ours) = (manager(url).await, manager(url).await);
    let _held = all_of(&theirs.segmented_lock(KEY, 2)).await;
    let lock = ours.segmented_lock(KEY, 2);
    let mut waiting = JoinSet::new();
    for _ in 0..10 {
        let lock = lock.clone();
        waiting.spawn(async move { lock.acquire().await.map(|_| ()) });
    }
    eventually("all of them wait", LIMIT, async || {
        all_waiters(&ours, 2).await == 10
    })
    .await;
    waiting.shutdown().await;
    eventually("nobody waits", LIMIT, async || {
        all_waiters(&ours, 2).await == 0
    })
    .await;
    assert_eq!(ours.shutdown(LIMIT).await, 0);
}

async fn settings_that_cannot_work_are_refused(url: &str) {
    let locks = manager(url).await;
    for count in [0, 1025] {
        let lock = locks.segmented_lock(KEY, count);
        assert_eq!(lock.segments(), 0);
        for answer in [
            lock.acquire().await.map(Some),
            lock.acquire_within(LONG).await.map(Some),
            lock.try_acquire().await,
        ] {
            assert!(matches!(answer, Err(LockError::InvalidConfig { .. })));
        }
    }
    assert_eq!(locks.segmented_lock(KEY, 1024).segments(), 1024);
    for key in ["", "a{", "a}", "{}", "{a}{b}", &"x".repeat(1024)] {
        let refused = locks.segmented_lock(key, 2).acquire().await;
        assert!(
            matches!(refused, Err(LockError::InvalidKey { .. })),
            "{key:?}"
        );
    }
    let never = locks
        .segmented_lock(KEY, 2)
        .ttl(Duration::ZERO)
        .acquire()
        .await;
    assert!(matches!(never, Err(LockError::InvalidConfig { .. })));
}

async fn a_try_takes_the_segment_of_a_waiter_that_does_not_run(url: &str) {
    let (theirs, ours) = (manager(url).await, manager(url).await);
    let held = all_of(&theirs.segmented_lock(KEY, 1)).await;
    let lock = ours.segmented_lock(KEY, 1).ttl(SHORT);
    let (waiter, _) = not_running(&lock, &theirs).await;
    assert!(lock.try_acquire().await.unwrap().is_none());
    drop(held);
    let guard = until_taken_by_a_try(&lock).await;
    guard.release().await.unwrap();
    // It has lost its turn, and not its claim.
    drop(waiter.await.unwrap());
}

async fn until_taken_by_a_try(lock: &SegmentedLock) -> SegmentGuard {
    let mut taken = None;
    eventually("a try finds the segment free", LIMIT, async || {
        taken = lock.try_acquire().await.unwrap();
        taken.is_some()
    })
    .await;
    taken.unwrap()
}

async fn a_waiter_takes_the_segment_of_another_that_does_not_run(url: &str) {
    let (theirs, ours) = (manager(url).await, manager(url).await);
    let mut held = all_of(&theirs.segmented_lock(KEY, 2)).await;
    let lock = ours.segmented_lock(KEY, 2).ttl(SHORT);
    let (_waiter, segment) = not_running(&lock, &theirs).await;
    let running = tokio::spawn(acquire(&lock));
    eventually("it waits for the other one", LIMIT, async || {
        waiters(&theirs, 1 - segment).await == 1
    })
    .await;
    // The holder of the other one is stuck.
    held.retain(|guard| guard.segment() != segment);
    assert_eq!(running.await.unwrap().unwrap().segment(), segment);
}

async fn a_lost_guard_does_not_block_its_segment(url: &str) {
    let lock = manager(url).await.segmented_lock(KEY, 1);
    let lost = lock
        .clone()
        .ttl(SHORT)
        .renew(false)
        .acquire()
        .await
        .unwrap();
    let guard = until_taken_by_a_try(&lock).await;
    assert!(!lost.is_held());
    drop(lost);
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(guard.is_held());
}

/// A guard of a segment without a queue.
async fn not_queued_at(locks: &LockManager, held: &mut Vec<SegmentGuard>) -> SegmentGuard {
    for position in 0..held.len() {
        if waiters(locks, held[position].segment()).await == 0 {
            return held.swap_remove(position);
        }
    }
    panic!("a waiter is queued at each segment");
}

/// Time passes only while all tasks wait for it.
#[tokio::test(start_paused = true)]
async fn a_dropped_segment_goes_to_a_waiter_at_another_one_at_once() {
    let locks = manager("memory://").await;
    let lock = locks.segmented_lock(KEY, 4);
    let mut held = all_of(&lock).await;
    let mut waiting = acquire(&lock);
    poll_once(&mut waiting).await;
    let guard = not_queued_at(&locks, &mut held).await;
    let (segment, begun) = (guard.segment(), Instant::now());
    drop(guard);
    // The waiter is polled before the task that sends the release.
    poll_once(&mut waiting).await;
    assert_eq!(waiting.await.unwrap().segment(), segment);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// Time passes only while all tasks wait for it.
#[tokio::test(start_paused = true)]
async fn a_waiter_hears_soon_of_a_segment_that_another_process_let_go() {
    let url = "memory://segments-elsewhere";
    let (theirs, ours) = (manager(url).await, manager(url).await);
    let mut held = all_of(&theirs.segmented_lock(KEY, 4)).await;
    let waiting = tokio::spawn(acquire(&ours.segmented_lock(KEY, 4)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let guard = not_queued_at(&theirs, &mut held).await;
    let begun = Instant::now();
    guard.release().await.unwrap();
    let _guard = waiting.await.unwrap();
    let waited = begun.elapsed();
    assert!(waited <= Duration::from_millis(201), "{waited:?}");
}

#[tokio::test]
async fn a_try_takes_the_segment_that_another_asked_for_and_did_not_take() {
    let server = TestServer::start().await;
    let lock = manager(&server.url())
        .await
        .segmented_lock(KEY, 1)
        .ttl(SHORT);
    let mut asking = acquire(&lock);
    poll_once(&mut asking).await;
    let guard = soon(until_taken_by_a_try(&lock)).await;
    guard.release().await.unwrap();
    drop(soon(asking).await.unwrap());
}

#[tokio::test]
async fn a_segment_is_a_lock_whose_data_can_live_in_its_slot() {
    let server = TestServer::start().await;
    let locks = manager(&server.url()).await;
    for (key, lock) in [
        ("stock", "lock:{stock:0}"),
        ("{shop}:stock", "lock:{shop}:stock:0"),
    ] {
        let guard = locks.segmented_lock(key, 1).acquire().await.unwrap();
        assert_eq!(format!("lock:{}", guard.key()), lock);
        assert!(server.exists(lock).await);
        guard.release().await.unwrap();
        assert!(!server.exists(lock).await);
    }
    // The segments are not the locks that somebody else may have named with a number.
    let _guard = locks.segmented_lock("stock", 1).acquire().await.unwrap();
    assert!(locks.lock("stock:0").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_free_segment_costs_one_request_and_its_release_another() {
    let server = TestServer::start().await;
    let lock = manager(&server.url()).await.segmented_lock(KEY, 20);
    lock.acquire().await.unwrap().release().await.unwrap();
    server.reset_stats().await;
    for _ in 0..10 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let stats = server.commandstats().await;
    assert_eq!(stats.get("evalsha"), Some(&20), "{stats:?}");
}

#[tokio::test]
async fn a_crowd_of_waiters_asks_no_more_often_than_in_the_queue_of_one_lock() {
    let server = TestServer::start().await;
    let (theirs, ours) = (manager(&server.url()).await, manager(&server.url()).await);
    let _held = all_of(&theirs.segmented_lock(KEY, 4)).await;
    let lock = ours.segmented_lock(KEY, 4);
    server.reset_stats().await;
    let mut waiting = JoinSet::new();
    for _ in 0..40 {
        let lock = lock.clone();
        waiting.spawn(async move { lock.acquire().await.map(|_| ()) });
    }
    eventually("somebody waits at each segment", LIMIT, async || {
        let mut sum = 0;
        for segment in 0..4 {
            let queue = format!("lock-core:queue:{{{KEY}:{segment}}}:lock:{{{KEY}:{segment}}}");
            let waiting: u64 = command(&server, &format!("LLEN {queue}")).await;
            sum += waiting;
        }
        sum == 4
    })
    .await;
    // One request for each segment, in the name of all who wait there. The looks before that: at most one at each segment
    // for those who came first, and while they looked others may have begun to look as well.
    let asked = server.commandstats().await["evalsha"];
    assert!((4..=4 + 4 * 4).contains(&asked), "{asked}");
    let all = async || all_waiters(&ours, 4).await;
    eventually("all of them wait", LIMIT, async || all().await == 40).await;
}

#[tokio::test]
async fn a_server_that_hangs_is_told_from_segments_that_are_busy() {
    let server = TestServer::start().await;
    // Later than the limits below: those are kept, whatever a single request may take.
    let builder = LockManager::builder().command_deadline(LIMIT * 4);
    let lock = builder.connect(&server.url()).await.unwrap();
    let lock = lock.segmented_lock(KEY, 20);
    lock.acquire().await.unwrap().release().await.unwrap();
    server.stop();
    for limit in [50, 1500] {
        let limit = Duration::from_millis(limit);
        let begun = Instant::now();
        let answer = soon(lock.acquire_within(limit)).await;
        assert!(
            matches!(answer, Err(LockError::Unavailable { .. })),
            "{answer:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(15), "{limit:?}");
    }
    server.cont();
}

/// The futures move between threads, as a service needs it.
#[test]
fn its_futures_and_guards_are_send() {
    fn send<T: Send>(_: T) {}
    fn check(lock: &SegmentedLock) {
        send(lock.acquire());
        send(lock.acquire_within(LONG));
        send(lock.try_acquire());
    }
    fn guards<T: Send + Sync>() {}
    guards::<SegmentGuard>();
    guards::<SegmentedLock>();
    let _ = check;
}
