//! What compiles and would hang, skip or lose in silence: each is told at once.

use std::time::Duration;

use lock_core::{LockError, LockGuard, LockManager, Owner, distributed_lock};
use lock_tests::{Capture, LIMIT, TestServer, in_time};
use tokio::time::timeout;
use tracing::Level;

/// A memory server, and a real one.
async fn both(test: impl AsyncFn(&LockManager)) {
    let server = TestServer::start().await;
    for url in ["memory://", &server.url()] {
        let locks = LockManager::connect(url).await.unwrap();
        Box::pin(test(&locks)).await;
    }
}

fn is_deadlock<T>(result: &Result<T, LockError>, key: &str) -> bool {
    matches!(result, Err(LockError::Deadlock { key: named }) if named == key)
}

/// Proves P11.
#[tokio::test]
async fn a_function_that_calls_itself_under_its_own_lock_is_told() {
    #[distributed_lock(key = "trap:{depth_of}", client = locks)]
    async fn outer(locks: &LockManager, depth_of: &str) -> Result<(), LockError> {
        Box::pin(outer(locks, depth_of)).await
    }
    #[distributed_lock(key = "trap:unit", wait = "0s", on_busy = skip, client = locks)]
    async fn skips(locks: &LockManager, again: bool) -> Result<(), LockError> {
        if again {
            return Box::pin(skips(locks, false)).await;
        }
        Ok(())
    }
    both(async |locks| {
        let told = in_time("the error", outer(locks, "own")).await;
        assert!(is_deadlock(&told, "trap:own"), "{told:?}");
        let told = skips(locks, true).await;
        assert!(is_deadlock(&told, "trap:unit"), "not skipped: {told:?}");
        assert!(skips(locks, false).await.is_ok());
    })
    .await;
}

/// Proves P11.
#[tokio::test]
async fn a_lock_of_an_outer_scope_is_not_waited_for() {
    both(async |locks| {
        let (one, other) = (locks.lock("one"), locks.lock("other"));
        let nested = one.with(async |_| other.with(async |_| one.acquire().await).await);
        let told = in_time("the error", Box::pin(nested))
            .await
            .unwrap()
            .unwrap();
        assert!(is_deadlock(&told, "one"), "{told:?}");
        let within = one.with(async |_| one.acquire_within(LIMIT).await).await;
        assert!(is_deadlock(&within.unwrap(), "one"));
        let tried = one.with(async |_| one.try_acquire().await).await.unwrap();
        assert!(tried.unwrap().is_none(), "a try says that it is held");
        let me = Owner::new();
        let reentrant = locks.reentrant_lock("deep").owner(&me);
        let stranger = locks.reentrant_lock("deep").owner(&Owner::new());
        let told = reentrant.with(async |_| stranger.acquire().await).await;
        assert!(is_deadlock(&told.unwrap(), "deep"), "another owner");
        let again = reentrant.with(async |_| reentrant.acquire().await.map(drop));
        assert!(again.await.unwrap().is_ok(), "the same owner");
    })
    .await;
}

#[tokio::test]
async fn each_of_several_keys_is_known_in_the_scope() {
    #[distributed_lock(keys = ["trap:a", "trap:b", "trap:c"], client = locks)]
    async fn all(locks: &LockManager, again: &str) -> Result<(), LockError> {
        locks.lock(again).acquire().await.map(drop)
    }
    both(async |locks| {
        for key in ["trap:a", "trap:b", "trap:c"] {
            assert!(is_deadlock(&all(locks, key).await, key));
        }
        assert!(all(locks, "trap:d").await.is_ok());
    })
    .await;
}

#[tokio::test]
async fn another_task_and_a_lost_scope_are_served() {
    both(async |locks| {
        let lock = locks.lock("a");
        let mut waiting = None;
        let body = async |_: &LockGuard| {
            let lock = lock.clone();
            let wait = async move { lock.acquire().await.map(drop) };
            waiting = Some(tokio::spawn(wait));
        };
        lock.with(body).await.unwrap();
        let waiting = waiting.unwrap();
        in_time("its turn", waiting).await.unwrap().unwrap();
        // The scope is still open, and its lock is gone.
        let held = lock.acquire().await.unwrap();
        assert!(LockGuard::current().is_none());
        held.release().await.unwrap();
        let lost = lock
            .with(async |guard| {
                lock.force_release().await.unwrap();
                guard.lost().await;
                lock.try_acquire().await
            })
            .await;
        // The body may run on until it awaits.
        assert!(
            matches!(lost, Err(LockError::Lost { .. }) | Ok(Ok(Some(_)))),
            "{lost:?}"
        );
        drop(lost);
        drop(lock.acquire_within(LIMIT).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn the_current_guard_is_known_inside_with() {
    both(async |locks| {
        let (one, other) = (locks.lock("one"), locks.lock("other"));
        one.with(async |outer| {
            let seen = LockGuard::current().unwrap();
            assert_eq!(seen.fencing_token(), outer.fencing_token());
            other
                .with(async |_| assert_eq!(LockGuard::current().unwrap().key(), "other"))
                .await
                .unwrap();
            assert_eq!(LockGuard::current().unwrap().key(), "one");
        })
        .await
        .unwrap();
        assert!(LockGuard::current().is_none());
    })
    .await;
}

/// The warnings of a wait for a lock of the same task: where it is held, and where it is waited for.
fn warned(capture: &Capture) -> Vec<(String, String)> {
    let text = "a task waits for a lock whose guard it has taken itself";
    let events = capture.events().into_iter();
    let warnings = events.filter(|event| event.message().starts_with(text));
    warnings
        .map(|event| {
            assert_eq!(event.level, Level::WARN);
            let field = |name| event.field(name).unwrap().to_owned();
            (field("held_at"), field("waits_at"))
        })
        .collect()
}

/// Proves P11.
#[tokio::test]
async fn a_task_that_waits_for_its_own_guard_is_warned_of_once_with_both_places() {
    let capture = Capture::start();
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let lock = locks.lock("a");
    let held_at = line!() + 1;
    let guard = lock.acquire().await.unwrap();
    let waits_at = line!() + 1;
    let late = lock.acquire_within(Duration::from_millis(1500)).await;
    assert!(matches!(late, Err(LockError::TimedOut { .. })), "{late:?}");
    let here = |line| format!("{}:{line}:", file!());
    let warned = warned(&capture);
    let [(held, waits)] = warned.as_slice() else {
        panic!("{warned:?}")
    };
    assert!(held.starts_with(&here(held_at)), "{held}");
    assert!(waits.starts_with(&here(waits_at)), "{waits}");
    drop(guard);
}

/// Each waits in a task of its own, all at one time. Proves P11.
#[tokio::test]
async fn a_task_that_is_in_its_own_way_is_warned_of_for_every_kind_and_manager() {
    const WAIT: Duration = Duration::from_millis(1500);
    async fn write_beside_the_own_read(locks: LockManager) {
        let lock = locks.rw_lock("rw");
        let _reader = lock.read().await.unwrap();
        assert!(lock.write_within(WAIT).await.is_err());
    }
    async fn two_permits_beside(own: u32, locks: LockManager) {
        let semaphore = locks.semaphore(format!("s{own}"), 3);
        let _own = semaphore.clone().permits(own).acquire().await.unwrap();
        let rest = tokio::spawn(semaphore.clone().permits(3 - own).acquire());
        let _rest = rest.await.unwrap().unwrap();
        assert!(
            semaphore
                .clone()
                .permits(2)
                .acquire_within(WAIT)
                .await
                .is_err()
        );
    }
    async fn a_second_candidate(locks: LockManager) {
        let election = locks.election("e1");
        let _leads = election.campaign("a").await.unwrap();
        assert!(timeout(WAIT, election.campaign("a")).await.is_err());
    }
    async fn a_lock_beside_the_own_leadership(locks: LockManager) {
        let _leads = locks.election("e2").campaign("a").await.unwrap();
        assert!(locks.lock("e2").acquire_within(WAIT).await.is_err());
    }
    async fn two_managers(locks: LockManager, other: LockManager) {
        let _guard = locks.lock("m").acquire().await.unwrap();
        assert!(other.lock("m").acquire_within(WAIT).await.is_err());
    }
    let capture = Capture::start();
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let other = LockManager::connect(&server.url()).await.unwrap();
    let waits = [
        tokio::spawn(write_beside_the_own_read(locks.clone())),
        tokio::spawn(two_permits_beside(2, locks.clone())),
        tokio::spawn(a_second_candidate(locks.clone())),
        tokio::spawn(a_lock_beside_the_own_leadership(locks.clone())),
        tokio::spawn(two_managers(locks.clone(), other)),
        // This one is in the way of others only.
        tokio::spawn(two_permits_beside(1, locks)),
    ];
    let expected = waits.len() - 1;
    for wait in waits {
        wait.await.unwrap();
    }
    let warned = warned(&capture);
    assert_eq!(warned.len(), expected, "{warned:?}");
}

/// Proves P11.
#[tokio::test]
async fn a_campaign_or_a_lock_inside_the_own_leadership_is_told() {
    both(async |locks| {
        let (election, lock) = (locks.election("e"), locks.lock("e"));
        let told = election.run("a", async |_| {
            let told = election.campaign("a").await.map(drop);
            assert!(is_deadlock(&told, "e"), "the same value: {told:?}");
            let told = election.campaign("b").await.map(drop);
            assert!(is_deadlock(&told, "e"), "another value: {told:?}");
            let told = locks.all(["d", "e"]).acquire().await.map(drop);
            assert!(is_deadlock(&told, "e"), "{told:?}");
            lock.acquire().await.map(drop)
        });
        let told = in_time("the error", Box::pin(told)).await.unwrap();
        assert!(is_deadlock(&told, "e"), "{told:?}");
        let told = lock.with(async |_| election.campaign("a").await.map(drop));
        let told = in_time("the error", Box::pin(told)).await.unwrap();
        assert!(is_deadlock(&told, "e"), "{told:?}");
    })
    .await;
}

#[tokio::test]
async fn a_wait_for_another_task_or_one_that_ends_is_not_warned_of() {
    let capture = Capture::start();
    let locks = LockManager::connect("memory://").await.unwrap();
    let lock = locks.lock("a");
    let hold = async |time| {
        let guard = lock.acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(time)).await;
        guard.release().await.unwrap();
    };
    tokio::join!(hold(100), hold(100), hold(100));
    let other = lock.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        let _guard = other.acquire().await.unwrap();
        tell.send(()).unwrap();
        tokio::time::sleep(Duration::from_millis(1300)).await;
    });
    told.await.unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    task.await.unwrap();
    assert_eq!(warned(&capture), []);
}

/// Proves P11.
#[tokio::test]
async fn a_reentrant_lock_without_an_owner_is_refused_with_what_to_do() {
    both(async |locks| {
        let lock = locks.reentrant_lock("a");
        let refused = [
            lock.acquire().await.map(drop),
            lock.acquire_within(LIMIT).await.map(drop),
            lock.try_acquire().await.map(drop),
        ];
        for refused in refused {
            let Err(LockError::InvalidConfig { reason }) = refused else {
                panic!("{refused:?}")
            };
            assert!(reason.contains("`.owner(&owner)`"), "{reason}");
            assert!(reason.contains("`Owner::scope`"), "{reason}");
        }
        let scope = Owner::new().scope(async {
            let _outer = lock.acquire().await.unwrap();
            lock.acquire().await.unwrap().hold_count()
        });
        assert_eq!(scope.await, 2);
        assert_eq!(
            lock.with(async |guard| guard.hold_count()).await.unwrap(),
            1
        );
    })
    .await;
}

/// Tries again and again just after a guard was dropped.
async fn tries_after_drops(locks: &LockManager, rounds: u32) {
    let lock = locks.lock("a");
    let me = locks.reentrant_lock("r").owner(&Owner::new());
    for round in 0..rounds {
        drop(lock.acquire().await.unwrap());
        assert!(lock.try_acquire().await.unwrap().is_some(), "{round}");
        let within = lock.acquire_within(Duration::ZERO).await;
        assert!(within.is_ok(), "{round}: {within:?}");
        drop(within);
        if round % 4 == 0 && me.inspect().await.is_ok() {
            drop(me.acquire().await.unwrap());
            let other = locks.reentrant_lock("r").owner(&Owner::new());
            assert!(other.try_acquire().await.unwrap().is_some(), "{round}");
        }
    }
}

/// Proves P11.
#[tokio::test]
async fn a_try_after_a_drop_finds_the_lock_free() {
    both(async |locks| tries_after_drops(locks, 1000).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_after_a_drop_finds_the_lock_free_on_several_threads() {
    let server = TestServer::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let tasks = (0..8).map(|task| {
        let lock = locks.lock(format!("a{task}"));
        tokio::spawn(async move {
            for round in 0..500 {
                drop(lock.acquire().await.unwrap());
                assert!(lock.try_acquire().await.unwrap().is_some(), "{round}");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_try_after_a_drop_finds_the_lock_free_on_a_quorum() {
    let servers = [
        TestServer::start().await,
        TestServer::start().await,
        TestServer::start().await,
    ];
    let urls: Vec<_> = servers.iter().map(TestServer::url).collect();
    LockManager::builder().begin_quorum(&urls).await.unwrap();
    let locks = LockManager::connect_quorum(urls).await.unwrap();
    let lock = locks.lock("a");
    for round in 0..200 {
        drop(lock.acquire().await.unwrap());
        assert!(lock.try_acquire().await.unwrap().is_some(), "{round}");
    }
}

#[tokio::test]
async fn a_function_without_a_value_and_a_manager_says_why_it_did_not_run() {
    #[distributed_lock(key = "trap:cleanup", wait = "0s", on_busy = skip)]
    async fn clean_up() {
        unreachable!("there is no default manager in this program");
    }
    let capture = Capture::start();
    clean_up().await;
    let events = capture.events();
    let said: Vec<_> = events
        .iter()
        .filter(|event| event.level == Level::ERROR)
        .collect();
    let [said] = said.as_slice() else {
        panic!("{events:?}")
    };
    assert!(said.message().contains("did not run"), "{said:?}");
    assert!(said.field("function").unwrap().ends_with("clean_up"));
    let error = said.field("error").unwrap();
    assert!(error.contains("no default lock manager"), "{error}");
    assert!(error.contains("install_default"), "{error}");
}

/// Proves P11.
#[tokio::test]
async fn a_default_wait_ends_every_wait_without_a_limit_of_its_own() {
    #[distributed_lock(key = "a", client = locks)]
    async fn work(locks: &LockManager) -> Result<(), LockError> {
        unreachable!("another task holds it")
    }
    let server = TestServer::start().await;
    let builder = LockManager::builder().default_wait(Duration::from_millis(50));
    let locks = builder.connect(&server.url()).await.unwrap();
    let lock = locks.lock("a");
    let held = lock.acquire().await.unwrap();
    let late = [
        lock.acquire().await.map(drop),
        lock.with(async |_| ()).await,
        work(&locks).await,
    ];
    for late in late {
        assert!(matches!(late, Err(LockError::TimedOut { .. })), "{late:?}");
    }
    let patient = lock.clone();
    let waits = tokio::spawn(async move { patient.acquire_within(Duration::MAX).await });
    lock_tests::eventually("it waits", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == 1
    })
    .await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    held.release().await.unwrap();
    drop(in_time("its turn", waits).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_try_after_a_drop_finds_a_segment_free() {
    both(async |locks| {
        let lock = locks.segmented_lock("s", 3);
        for round in 0..50 {
            let held = [
                lock.acquire().await.unwrap(),
                lock.acquire().await.unwrap(),
                lock.acquire().await.unwrap(),
            ];
            assert!(lock.try_acquire().await.unwrap().is_none());
            drop(held);
            assert!(lock.try_acquire().await.unwrap().is_some(), "{round}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_task_that_is_driven_inside_a_scope_is_not_in_it() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let lock = locks.lock("a");
    let tasks = tokio::task::LocalSet::new();
    let other = lock.clone();
    let task = tasks.spawn_local(async move { other.acquire().await.map(drop) });
    let drive = async |_: &LockGuard| {
        let some_turns = tokio::time::sleep(Duration::from_millis(20));
        tasks.run_until(some_turns).await;
    };
    lock.with(drive).await.unwrap();
    let served = tasks.run_until(in_time("its turn", task)).await;
    served.unwrap().unwrap();
}

#[tokio::test]
async fn a_task_that_gives_its_guards_to_others_is_warned_of_once() {
    let capture = Capture::start();
    let locks = LockManager::connect("memory://").await.unwrap();
    let lock = locks.lock("a");
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let guard = lock.acquire().await.unwrap();
        jobs.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1100)).await;
            drop(guard);
        }));
    }
    for job in jobs {
        job.await.unwrap();
    }
    assert_eq!(warned(&capture).len(), 1);
}
