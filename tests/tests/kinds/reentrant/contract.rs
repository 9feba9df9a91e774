//! What the handle promises, on every backend alike: one suite that runs unchanged on `memory://` and on each server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use lock_core::{LockError, LockGuard, LockManager, Owner};
use lock_tests::{LIMIT, TestServer, eventually, servers};
use tokio::time::timeout;

use crate::reentrant::apart::Apart;
use crate::reentrant::contract_states::{
    a_list_has_each_held_lock_once_with_its_kind, an_owner_travels_between_managers,
    force_release_takes_all_holds, inspect_shows_each_state,
    max_hold_ends_one_hold_and_leaves_the_others, names_that_cannot_be_used_say_why,
    prefixes_separate_locks_and_the_managers_does_not_apply, shutdown_leaves_nothing,
    the_other_kind_of_lock_under_the_same_name_is_foreign, tokens_grow_from_tenure_to_tenure_only,
};
use crate::reentrant::support::{LONG, in_time, manager_at, ms};

/// A backend that any number of managers share.
pub(crate) struct Rig {
    pub(crate) url: String,
}

impl Rig {
    pub(crate) async fn manager(&self) -> LockManager {
        manager_at(&self.url, LIMIT).await
    }
}

async fn on_memory(case: impl AsyncFn(&Rig)) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let rig = Rig {
        url: format!("memory://reentrant-{number}"),
    };
    // The store lives as long as a manager of it does.
    let _anchor = rig.manager().await;
    in_time_for_a_case(case(&rig)).await;
}

async fn on_servers(query: &str, case: impl AsyncFn(&Rig)) {
    for binary in servers() {
        let server = TestServer::builder().binary(binary.path()).start().await;
        println!("on {}", binary.name());
        let rig = Rig {
            url: format!("{}{query}", server.url()),
        };
        in_time_for_a_case(case(&rig)).await;
    }
}

async fn in_time_for_a_case(case: impl Future<Output = ()>) {
    timeout(LIMIT * 3, case).await.expect("the case ends");
}

macro_rules! suite {
    ($($case:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::on_memory(super::$case).await;
            })+
        }
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::on_servers("", super::$case).await;
            })+
        }
        /// Without messages: who waits polls.
        mod resp2 {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::on_servers("/?protocol=resp2", super::$case).await;
            })+
        }
    };
}

suite! {
    eight_nested_functions_count_up_to_8_and_back_to_0,
    without_an_owner_each_acquisition_is_its_own,
    joined_futures_share_a_lock_only_with_an_owner,
    spawned_tasks_do_not_inherit_the_owner,
    the_error_of_a_wait_says_why_it_ended,
    a_busy_lock_names_the_client_that_began_the_tenure,
    a_waiter_gets_it_when_the_last_hold_goes,
    an_owner_does_not_wait_behind_those_who_wait_for_it,
    waiters_of_one_owner_enter_together,
    a_waiter_takes_the_lock_for_its_own_owner_after_any_other,
    waiters_of_a_process_are_served_in_their_order,
    a_hold_that_is_dropped_is_given_back,
    force_release_takes_all_holds,
    inspect_shows_each_state,
    a_list_has_each_held_lock_once_with_its_kind,
    prefixes_separate_locks_and_the_managers_does_not_apply,
    the_other_kind_of_lock_under_the_same_name_is_foreign,
    names_that_cannot_be_used_say_why,
    max_hold_ends_one_hold_and_leaves_the_others,
    tokens_grow_from_tenure_to_tenure_only,
    an_owner_travels_between_managers,
    shutdown_leaves_nothing,
}

async fn eight_nested_functions_count_up_to_8_and_back_to_0(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k");
    let lock = &lock;
    let mut counts = Vec::new();
    let mut tokens = Vec::new();
    let me = Owner::new();
    me.scope(async {
        let mut guards = Vec::new();
        for _ in 0..8 {
            let guard = lock.acquire().await.unwrap();
            counts.push(guard.hold_count());
            tokens.push(guard.fencing_token());
            guards.push(guard);
        }
        while let Some(guard) = guards.pop() {
            guard.release().await.unwrap();
            counts.push(u32::try_from(lock.inspect().await.unwrap().holds()).unwrap());
        }
    })
    .await;
    assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    assert!(tokens.iter().all(|token| *token == tokens[0]));
}

async fn without_an_owner_each_acquisition_is_its_own(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k");
    let guard = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_some());
}

async fn joined_futures_share_a_lock_only_with_an_owner(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k");
    let inside = AtomicU64::new(0);
    let most = AtomicU64::new(0);
    let body = async || {
        let guard = lock.acquire().await.unwrap();
        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        // Until the other one is inside, too, or has had its chance.
        for _ in 0..20 {
            tokio::time::sleep(ms(1)).await;
        }
        inside.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
    };
    tokio::join!(body(), body());
    assert_eq!(most.load(Ordering::SeqCst), 1);
    // Each waits inside until both are.
    let both = tokio::sync::Barrier::new(2);
    let meet = async || {
        let guard = lock.acquire().await.unwrap();
        both.wait().await;
        guard.release().await.unwrap();
    };
    let shared = Owner::new().scope(async { tokio::join!(meet(), meet()) });
    in_time("both are inside", shared).await;
}

async fn spawned_tasks_do_not_inherit_the_owner(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k");
    let me = Owner::new();
    me.scope(async {
        let _guard = lock.acquire().await.unwrap();
        let stranger = lock.clone();
        let entered = tokio::spawn(async move { stranger.try_acquire().await.unwrap().is_some() });
        assert!(!entered.await.unwrap());
        let part = lock.clone();
        let part = me.scope(async move { part.try_acquire().await.unwrap().is_some() });
        assert!(tokio::spawn(part).await.unwrap(), "it was passed on");
    })
    .await;
}

async fn the_error_of_a_wait_says_why_it_ended(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k");
    let _guard = lock.acquire().await.unwrap();
    match lock.acquire_within(Duration::ZERO).await {
        Err(LockError::Busy {
            key, retry_after, ..
        }) => {
            assert_eq!(key, "k");
            let after = retry_after.expect("the lease has an end");
            assert!(after <= LONG && after > LONG / 2, "{after:?}");
        }
        other => panic!("{other:?}"),
    }
    match lock.acquire_within(ms(500)).await {
        Err(error @ LockError::TimedOut { .. }) => assert!(error.is_contention()),
        other => panic!("{other:?}"),
    }
}

async fn a_busy_lock_names_the_client_that_began_the_tenure(rig: &Rig) {
    let named = async |name| {
        let builder = LockManager::builder().command_deadline(LIMIT);
        builder.client_name(name).connect(&rig.url).await.unwrap()
    };
    let (one, other) = (named("orders-1").await, named("orders-2").await);
    for owner in [None, Some(Owner::new())] {
        let mut lock = one.lock_apart("k");
        if let Some(owner) = &owner {
            lock = lock.owner(owner);
        }
        let began = SystemTime::now() - ms(1);
        let guard = lock.acquire().await.unwrap();
        let waiting = other.lock_apart("k");
        for limit in [Duration::ZERO, ms(200)] {
            let error = waiting.acquire_within(limit).await.unwrap_err();
            assert!(error.to_string().contains("held by `orders-1`"), "{error}");
        }
        let info = waiting.inspect().await.unwrap();
        assert_eq!(info.holder(), Some("orders-1"));
        assert_eq!(info.fence(), Some(guard.fencing_token()));
        let since = info.held_since().unwrap();
        assert!(
            began <= since && since <= SystemTime::now() + ms(2),
            "{since:?}"
        );
        guard.release().await.unwrap();
    }
}

async fn a_waiter_gets_it_when_the_last_hold_goes(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k").owner(&Owner::new());
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    let other = rig.manager().await.lock_apart("k");
    let mut waiting = tokio::spawn(async move { other.acquire().await });
    outer.release().await.unwrap();
    let early = timeout(ms(100), &mut waiting).await;
    assert!(early.is_err(), "one hold is left");
    inner.release().await.unwrap();
    let guard = in_time("the lock", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

async fn an_owner_does_not_wait_behind_those_who_wait_for_it(rig: &Rig) {
    let locks = rig.manager().await;
    let mine = locks.lock_apart("k").owner(&Owner::new());
    let outer = mine.acquire().await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let other = locks.lock_apart("k");
            tokio::spawn(async move { other.acquire().await.unwrap().release().await })
        })
        .collect();
    let seen = locks.lock_apart("k");
    eventually("they wait", LIMIT, async || {
        seen.inspect().await.unwrap().waiters() == 3
    })
    .await;
    let inner = in_time("once more", mine.acquire()).await.unwrap();
    assert_eq!(inner.hold_count(), 2);
    drop((inner, outer));
    for waiter in waiting {
        in_time("a turn", waiter).await.unwrap().unwrap();
    }
}

async fn waiters_of_one_owner_enter_together(rig: &Rig) {
    let locks = rig.manager().await;
    let held = rig.manager().await.lock_apart("k");
    let held = held.acquire().await.unwrap();
    let me = Owner::new();
    let (entered, mut guards) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..3 {
        // A stranger between them must not keep them out.
        for owner in [me.clone(), Owner::new()] {
            let lock = locks.lock_apart("k").owner(&owner);
            let (entered, mine) = (entered.clone(), owner == me);
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                if mine {
                    entered.send(guard).unwrap();
                }
            });
        }
    }
    let seen = locks.lock_apart("k");
    eventually("they wait", LIMIT, async || {
        seen.inspect().await.unwrap().waiters() == 6
    })
    .await;
    held.release().await.unwrap();
    let mut inside = Vec::new();
    for _ in 0..3 {
        inside.push(in_time("the owner's turn", guards.recv()).await.unwrap());
    }
    assert_eq!(seen.inspect().await.unwrap().holds(), 3);
    assert!(inside.iter().all(LockGuard::is_held));
}

async fn a_waiter_takes_the_lock_for_its_own_owner_after_any_other(rig: &Rig) {
    let locks = rig.manager().await;
    let holder = rig.manager().await.lock_apart("k");
    let me = Owner::new();
    for before in [None, Some(Owner::new())] {
        let held = holder.acquire().await.unwrap();
        let lock = locks.lock_apart("k");
        let first = before.map_or(lock.clone(), |owner| lock.clone().owner(&owner));
        let first = tokio::spawn(async move { first.acquire().await.map(drop) });
        let until_waiting = async |waiters| {
            eventually("it waits", LIMIT, async || {
                lock.inspect().await.unwrap().waiters() == waiters
            })
            .await;
        };
        until_waiting(1).await;
        let mine = lock.clone().owner(&me);
        let second = tokio::spawn({
            let mine = mine.clone();
            async move { mine.acquire().await }
        });
        until_waiting(2).await;
        first.abort();
        let _ = first.await;
        held.release().await.unwrap();
        let outer = in_time("the lock", second).await.unwrap().unwrap();
        assert_eq!(
            lock.inspect().await.unwrap().owner(),
            Some(&*me.to_string())
        );
        let inner = in_time("once more", mine.acquire()).await.unwrap();
        assert_eq!(inner.hold_count(), 2);
        inner.release().await.unwrap();
        outer.release().await.unwrap();
    }
}

async fn waiters_of_a_process_are_served_in_their_order(rig: &Rig) {
    let locks = rig.manager().await;
    let guard = locks.lock_apart("k").acquire().await.unwrap();
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..6u64 {
        let (lock, served) = (locks.lock_apart("k"), served.clone());
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            served.send(number).unwrap();
            guard.release().await.unwrap();
        });
        let lock = locks.lock_apart("k");
        eventually("it waits", LIMIT, async || {
            lock.inspect().await.unwrap().waiters() == number + 1
        })
        .await;
    }
    guard.release().await.unwrap();
    for number in 0..6 {
        let next = in_time("the next", order.recv()).await;
        assert_eq!(next, Some(number));
    }
}

async fn a_hold_that_is_dropped_is_given_back(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k").owner(&Owner::new());
    let outer = lock.acquire().await.unwrap();
    drop(lock.acquire().await.unwrap());
    eventually("one hold is left", LIMIT, async || {
        lock.inspect().await.unwrap().holds() == 1
    })
    .await;
    assert!(outer.is_held());
    drop(outer);
    eventually("it is free", LIMIT, async || {
        !lock.inspect().await.unwrap().is_held()
    })
    .await;
}
