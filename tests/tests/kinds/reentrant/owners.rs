//! What reentrant locks promise and no other lock: owners, nested holds and their counts, and the names of Redisson. One suite that
//! runs unchanged on `memory://` and on each server. What every lock promises: the program `contract`.

use std::sync::atomic::{AtomicU64, Ordering};

use lock_core::{LockGuard, LockManager, Owner};
use lock_tests::{LIMIT, TestServer, eventually, servers};
use tokio::time::timeout;

use crate::reentrant::apart::Apart;
use crate::reentrant::states::{
    a_list_has_each_held_lock_once_with_its_kind, an_owner_travels_between_managers,
    force_release_takes_all_holds, inspect_shows_each_state,
    max_hold_ends_one_hold_and_leaves_the_others, names_that_cannot_be_used_say_why,
    shutdown_gives_back_each_hold, the_longest_hold_makes_the_lease_and_no_other_shortens_it,
    the_other_kind_of_lock_under_the_same_name_is_foreign,
    the_prefix_of_the_manager_does_not_apply,
};
use crate::reentrant::support::{in_time, manager_at, ms, until_waiting};

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
    joined_futures_of_one_owner_share_a_lock,
    spawned_tasks_do_not_inherit_the_owner,
    a_waiter_gets_it_when_the_last_hold_goes,
    an_owner_does_not_wait_behind_those_who_wait_for_it,
    waiters_of_one_owner_enter_together,
    a_waiter_takes_the_lock_for_its_own_owner_after_any_other,
    a_hold_that_is_dropped_is_given_back,
    force_release_takes_all_holds,
    inspect_shows_each_state,
    a_list_has_each_held_lock_once_with_its_kind,
    the_prefix_of_the_manager_does_not_apply,
    the_other_kind_of_lock_under_the_same_name_is_foreign,
    names_that_cannot_be_used_say_why,
    the_longest_hold_makes_the_lease_and_no_other_shortens_it,
    max_hold_ends_one_hold_and_leaves_the_others,
    an_owner_travels_between_managers,
    shutdown_gives_back_each_hold,
}

async fn eight_nested_functions_count_up_to_8_and_back_to_0(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k").owner(&Owner::new());
    let mut guards: Vec<LockGuard> = Vec::new();
    let seen = async |guards: &[LockGuard]| {
        assert_eq!(lock.inspect().await.unwrap().holds(), guards.len() as u64);
        for guard in guards {
            assert_eq!(guard.hold_count() as usize, guards.len());
            assert_eq!(guard.fencing_token(), guards[0].fencing_token());
        }
    };
    for _ in 0..8 {
        guards.push(lock.acquire().await.unwrap());
        seen(&guards).await;
    }
    while !guards.is_empty() {
        // In any order: first the first one, then the last one.
        guards.swap_remove(0).release().await.unwrap();
        seen(&guards).await;
    }
}

async fn joined_futures_of_one_owner_share_a_lock(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k");
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
    until_waiting(&mine, 3).await;
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
    until_waiting(&seen, 6).await;
    held.release().await.unwrap();
    let mut inside = Vec::new();
    for _ in 0..3 {
        inside.push(in_time("the owner's turn", guards.recv()).await.unwrap());
    }
    assert_eq!(seen.inspect().await.unwrap().holds(), 3);
    assert!(inside.iter().all(|guard| guard.is_held()));
}

async fn a_waiter_takes_the_lock_for_its_own_owner_after_any_other(rig: &Rig) {
    let (locks, me) = (rig.manager().await, Owner::new());
    let held = rig.manager().await.lock_apart("k").acquire().await.unwrap();
    let lock = locks.lock_apart("k");
    let first = lock.clone();
    let first = tokio::spawn(async move { first.acquire().await.map(drop) });
    until_waiting(&lock, 1).await;
    let mine = lock.clone().owner(&me);
    let second = tokio::spawn({
        let mine = mine.clone();
        async move { mine.acquire().await }
    });
    until_waiting(&lock, 2).await;
    first.abort();
    let _ = first.await;
    held.release().await.unwrap();
    let outer = in_time("the lock", second).await.unwrap().unwrap();
    let info = lock.inspect().await.unwrap();
    assert_eq!(info.owner(), Some(&*me.to_string()));
    let inner = in_time("once more", mine.acquire()).await.unwrap();
    assert_eq!(inner.hold_count(), 2);
    inner.release().await.unwrap();
    outer.release().await.unwrap();
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
