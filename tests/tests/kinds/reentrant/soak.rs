//! Many tasks, keys, owners, cancels, time limits, drops and broken connections: at the end nothing is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use lock_core::{LockError, LockManager, Owner};
use lock_tests::{LIMIT, Proxy, TestServer};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::reentrant::apart::Apart;
use crate::reentrant::redisson_client::{Redisson, Unlocked};
use crate::reentrant::support::{LONG, PATIENT, Section, manager_at, ms, until_clean};

const KEYS: usize = 6;
const MANAGERS: usize = 2;
/// Of each manager.
const TASKS: usize = 12;

/// Longer by `LOCK_TESTS_SOAK_SECS`.
fn how_long() -> Duration {
    let seconds = std::env::var("LOCK_TESTS_SOAK_SECS");
    Duration::from_secs(seconds.map_or(8, |seconds| seconds.parse().expect("seconds")))
}

struct World {
    sections: Vec<Section>,
    /// How often each task had a lock.
    entered: Vec<AtomicUsize>,
    until: Instant,
}

impl World {
    /// What services do with locks, until the time is over.
    async fn work(self: Arc<Self>, locks: LockManager, task: usize, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        while Instant::now() < self.until {
            let key = rng.usize(..KEYS);
            let mut lock = locks.lock_apart(format!("key:{key}")).ttl(LONG);
            if rng.bool() {
                lock = lock.owner(&Owner::new());
            }
            let patience = Duration::from_micros(rng.u64(200..60_000));
            let acquired = match rng.u8(..4) {
                0 => lock.try_acquire().await,
                1 => lock.acquire_within(patience).await.map(Some),
                // A cancel at any moment.
                2 => match timeout(patience, lock.acquire()).await {
                    Ok(acquired) => acquired.map(Some),
                    Err(_) => continue,
                },
                _ => lock.acquire().await.map(Some),
            };
            let guard = match acquired {
                Ok(Some(guard)) => guard,
                Ok(None)
                | Err(
                    LockError::Busy { .. }
                    | LockError::TimedOut { .. }
                    | LockError::Unavailable { .. },
                ) => continue,
                Err(other) => panic!("{other}"),
            };
            let nested = lock.try_acquire().await.ok().flatten();
            self.sections[key]
                .work(Duration::from_micros(rng.u64(..2_000)))
                .await;
            assert!(guard.is_held());
            self.entered[task].fetch_add(1, Ordering::Relaxed);
            // In any order, by release or by drop.
            if rng.bool() {
                drop(nested);
            }
            if rng.bool() {
                // The connection may be cut in between.
                let _ = guard.release().await;
            }
        }
    }

    async fn work_as_redisson(self: Arc<Self>, java: Redisson, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        while Instant::now() < self.until {
            let key = rng.usize(..KEYS);
            let name = format!("key:{key}");
            if java.try_lock(&name, LONG).await.is_none() {
                self.sections[key]
                    .work(Duration::from_micros(rng.u64(..2_000)))
                    .await;
                self.entered[MANAGERS * TASKS].fetch_add(1, Ordering::Relaxed);
                assert_eq!(java.unlock(&name, LONG).await, Unlocked::Free);
            }
            sleep(ms(2)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_soak_no_subscription_no_key_and_no_registration_is_left() {
    let server = TestServer::start().await;
    let proxies: [Proxy; MANAGERS] = std::array::from_fn(|_| Proxy::start(&server));
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let world = Arc::new(World {
        sections: (0..KEYS).map(|_| Section::default()).collect(),
        entered: (0..=MANAGERS * TASKS)
            .map(|_| AtomicUsize::new(0))
            .collect(),
        until: Instant::now() + how_long(),
    });
    let mut managers = Vec::new();
    let mut tasks = JoinSet::new();
    for (number, proxy) in proxies.iter().enumerate() {
        let locks = manager_at(&proxy.url(), PATIENT).await;
        for task in 0..TASKS {
            let task = number * TASKS + task;
            let seed = seed.wrapping_add(task as u64);
            tasks.spawn(Arc::clone(&world).work(locks.clone(), task, seed));
        }
        managers.push(locks);
    }
    let java = Redisson::new(&server).await;
    tasks.spawn(Arc::clone(&world).work_as_redisson(java, seed));
    let cuts = tokio::spawn({
        let world = Arc::clone(&world);
        async move {
            while Instant::now() < world.until {
                sleep(ms(700)).await;
                proxies[fastrand::usize(..MANAGERS)].reset();
            }
            proxies
        }
    });
    let ended = timeout(how_long() + LIMIT * 2, async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    });
    ended.await.expect("every task comes to its end");
    let _proxies = cuts.await.unwrap();
    let entered = world.entered.iter();
    let entered: Vec<_> = entered.map(|count| count.load(Ordering::Relaxed)).collect();
    // The last one is Redisson, which only tries.
    assert!(entered.iter().all(|count| *count >= 10), "{entered:?}");
    for section in &world.sections {
        section.assert_exclusive();
    }
    // While the managers live on: what is left would be theirs.
    until_clean(&server).await;
    for locks in managers {
        assert_eq!(locks.shutdown(LIMIT).await, 0);
    }
    until_clean(&server).await;
}
