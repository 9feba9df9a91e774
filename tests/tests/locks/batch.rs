//! Free locks that are asked for at the same moment share a script call, and nobody can tell.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use lock_core::{Lock, LockError, LockGuard, LockManager};
use lock_tests::{LIMIT, TestServer, eventually};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(3600);
const TASKS: usize = 64;

fn lock(locks: &LockManager, n: usize) -> Lock {
    locks.lock(format!("together:{n}")).ttl(LONG)
}

/// One try of each lock, all at once.
async fn try_all(locks: &LockManager) -> Vec<Result<Option<LockGuard>, LockError>> {
    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        let lock = lock(locks, n);
        tasks.spawn(async move { (n, lock.try_acquire().await) });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|(n, _)| *n);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn release_all(guards: Vec<LockGuard>) {
    let mut tasks = JoinSet::new();
    for guard in guards {
        tasks.spawn(guard.release());
    }
    for released in tasks.join_all().await {
        released.unwrap();
    }
}

async fn calls(server: &TestServer) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut server.connection().await)
        .await
        .unwrap();
    let calls = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls
        .map(|c| c.split(',').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_locks_that_are_asked_for_at_once_share_calls() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    for _ in 0..2 {
        // Once for the scripts to be known.
        release_all(
            try_all(&locks)
                .await
                .into_iter()
                .map(|g| g.unwrap().unwrap())
                .collect(),
        )
        .await;
    }
    let before = calls(&server).await;
    for _ in 0..10 {
        let guards: Vec<_> = try_all(&locks)
            .await
            .into_iter()
            .map(|g| g.unwrap().unwrap())
            .collect();
        let tokens: HashSet<_> = guards.iter().map(|guard| guard.fencing_token()).collect();
        assert_eq!(tokens.len(), TASKS, "a fencing token was given twice");
        release_all(guards).await;
    }
    let calls = calls(&server).await - before;
    assert!(
        calls < 10 * TASKS as u64,
        "{calls} calls for {} locks",
        10 * TASKS
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_over_the_grants_of_each_lock() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        let lock = lock(&locks, n);
        tasks.spawn(async move {
            let mut last = 0;
            for _ in 0..50 {
                let guard = lock.acquire().await.unwrap();
                let token = guard.fencing_token().get();
                assert!(token > last, "{token} after {last}");
                last = token;
                guard.release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_and_a_foreign_key_spoil_nothing_for_the_others() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let other = LockManager::connect(&server.url()).await.unwrap();
    let mut held = Vec::new();
    for n in (0..TASKS).step_by(2) {
        held.push(lock(&other, n).acquire().await.unwrap());
    }
    let foreign = redis::cmd("LPUSH")
        .arg("lock:together:1")
        .arg("a list")
        .to_owned();
    let () = foreign
        .query_async(&mut server.connection().await)
        .await
        .unwrap();
    for _ in 0..20 {
        let mut guards = Vec::new();
        for (n, answer) in try_all(&locks).await.into_iter().enumerate() {
            match answer {
                Ok(None) => assert_eq!(n % 2, 0, "{n} is free"),
                Err(LockError::NotALock { .. }) => assert_eq!(n, 1),
                Ok(Some(guard)) => {
                    assert!(n % 2 == 1 && n != 1, "{n} is taken");
                    guards.push(guard);
                }
                Err(error) => panic!("{n}: {error:?}"),
            }
        }
        assert_eq!(guards.len(), TASKS / 2 - 1);
        release_all(guards).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_the_lock_from_a_release_that_was_gathered() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let other = LockManager::connect(&server.url()).await.unwrap();
    for _ in 0..10 {
        let guards: Vec<_> = try_all(&locks)
            .await
            .into_iter()
            .map(|g| g.unwrap().unwrap())
            .collect();
        let mut waiters = JoinSet::new();
        for n in 0..TASKS {
            let lock = lock(&other, n);
            waiters.spawn(async move { lock.acquire().await?.release().await });
        }
        let queues = || async {
            let mut waiting = 0;
            for n in 0..TASKS {
                waiting += lock(&other, n).inspect().await.unwrap().waiters();
            }
            waiting == TASKS as u64
        };
        eventually("all wait", LIMIT, queues).await;
        release_all(guards).await;
        for n in 0..TASKS {
            // Without a hand-over they would be there until they ask again.
            let waiting = lock(&other, n).inspect().await.unwrap().waiters();
            assert_eq!(waiting, 0, "the release of {n} forgot its waiter");
        }
        let answers = timeout(LIMIT, waiters.join_all())
            .await
            .expect("a waiter was forgotten");
        for answer in answers {
            answer.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquisitions_that_are_given_up_leave_no_key() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    for _ in 0..40 {
        let mut tasks = JoinSet::new();
        for n in 0..TASKS {
            let lock = lock(&locks, n);
            tasks.spawn(async move {
                let patience = Duration::from_micros(fastrand::u64(..1_500));
                // Dropped in the queue of the call, on its way, or just after the answer.
                let _ = timeout(patience, lock.acquire()).await;
            });
        }
        tasks.join_all().await;
        let empty = || async {
            let keys: Vec<String> = redis::cmd("KEYS")
                .arg("lock:*")
                .query_async(&mut server.connection().await)
                .await
                .unwrap();
            keys.is_empty()
        };
        eventually("nothing is left", LIMIT, empty).await;
    }
}

/// Two processes' worth of tasks that give up at any moment: in line, while a request is on its way, while it is let go.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_tasks_that_give_up_leaves_no_key_and_no_two_holders() {
    const LOCKS: usize = 40;
    let server = TestServer::start().await;
    let managers = [
        LockManager::connect(&server.url()).await.unwrap(),
        LockManager::connect(&server.url()).await.unwrap(),
    ];
    let inside: Arc<Vec<AtomicUsize>> = Arc::new((0..LOCKS).map(|_| AtomicUsize::new(0)).collect());
    let end = Instant::now() + Duration::from_secs(5);
    let mut tasks = JoinSet::new();
    for task in 0..120 {
        let (locks, inside) = (managers[task % 2].clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            while Instant::now() < end {
                let n = fastrand::usize(..LOCKS);
                let lock = lock(&locks, n);
                let patience = Duration::from_micros(fastrand::u64(..1_500));
                let taken = match fastrand::u8(..4) {
                    0 => lock.try_acquire().await,
                    1 => lock.acquire_within(patience * 20).await.map(Some),
                    2 => timeout(patience, lock.acquire())
                        .await
                        .map_or(Ok(None), |taken| taken.map(Some)),
                    _ => timeout(patience, lock.try_acquire())
                        .await
                        .unwrap_or(Ok(None)),
                };
                let guard = match taken {
                    Ok(Some(guard)) => guard,
                    // The time given may be too short for any answer.
                    Ok(None)
                    | Err(
                        LockError::Busy { .. }
                        | LockError::TimedOut { .. }
                        | LockError::Unavailable { .. },
                    ) => continue,
                    Err(error) => panic!("{error:?}"),
                };
                assert_eq!(inside[n].fetch_add(1, SeqCst), 0, "two hold {n}");
                yield_now().await;
                inside[n].fetch_sub(1, SeqCst);
                match fastrand::u8(..3) {
                    0 => drop(guard),
                    1 => drop(timeout(patience, guard.release()).await),
                    _ => guard.release().await.unwrap(),
                }
            }
        });
    }
    timeout(LIMIT, tasks.join_all()).await.expect("it hangs");
    for locks in managers {
        assert_eq!(locks.shutdown(LIMIT).await, 0);
    }
    let left: Vec<String> = redis::cmd("KEYS")
        .arg("lock:*")
        .query_async(&mut server.connection().await)
        .await
        .unwrap();
    assert!(left.is_empty(), "{left:?}");
}
