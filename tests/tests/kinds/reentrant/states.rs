//! Cases of the suite in `owners`: force, states, names, leases, and ends.

use std::time::SystemTime;

use futures_util::FutureExt;
use lock_core::{LockError, LockManager, LossReason, Owner};
use lock_tests::{LIMIT, eventually};

use crate::reentrant::apart::Apart;
use crate::reentrant::owners::Rig;
use crate::reentrant::support::{LONG, in_time, ms};

pub(crate) async fn force_release_takes_all_holds(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k").owner(&Owner::new());
    // So that a holder which hears nothing finds out soon.
    let lock = lock.ttl(ms(2000));
    let guards = [lock.acquire().await.unwrap(), lock.acquire().await.unwrap()];
    let operator = rig.manager().await.lock_apart("k");
    let next = operator.clone();
    let waiting = tokio::spawn(async move { next.acquire().await });
    assert!(operator.force_release().await.unwrap());
    let next = in_time("the lock", waiting).await.unwrap().unwrap();
    for guard in guards {
        let reason = in_time("the loss", guard.lost()).await;
        // Over RESP2 there are no messages.
        assert!(
            matches!(reason, LossReason::ForceReleased)
                || rig.url.contains("resp2") && matches!(reason, LossReason::Gone),
            "{reason:?}"
        );
        assert!(!guard.is_held());
        let released = guard.release().await;
        assert!(matches!(released, Err(LockError::Lost { .. })));
    }
    assert!(next.is_held());
    next.release().await.unwrap();
    assert!(!operator.force_release().await.unwrap());
}

pub(crate) async fn a_list_has_each_held_lock_once_with_its_kind(rig: &Rig) {
    let (me, locks) = (Owner::new(), rig.manager().await);
    let mut guards = Vec::new();
    for key in ["account:7", "{a}", "x{a}y", "k with spaces"] {
        let lock = locks.reentrant_lock(key).owner(&me);
        guards.push(lock.acquire().await.unwrap());
        guards.push(lock.acquire().await.unwrap());
    }
    let _exclusive = locks.lock("account:7").acquire().await.unwrap();
    let released = locks.reentrant_lock("free").owner(&me).acquire();
    released.await.unwrap().release().await.unwrap();

    let others = rig.manager().await;
    let (mut list, mut listed) = (others.list(), Vec::new());
    while let Some(page) = list.next_page().await.unwrap() {
        for lock in page {
            let kind = lock.kind().to_owned();
            listed.push((lock.key().to_owned(), kind, lock.info().holds()));
        }
    }
    listed.sort();
    let expected = [
        ("account:7", "exclusive", 1),
        ("account:7", "reentrant", 2),
        ("k with spaces", "reentrant", 2),
        ("x{a}y", "reentrant", 2),
        ("{a}", "reentrant", 2),
    ];
    let expected = expected.map(|(key, kind, holds)| (key.to_owned(), kind.to_owned(), holds));
    assert_eq!(listed, expected);
}

pub(crate) async fn inspect_shows_each_state(rig: &Rig) {
    let me = Owner::new();
    let builder = LockManager::builder().default_ttl(LONG);
    let builder = builder.command_deadline(LIMIT).client_name("orders-1");
    let here = builder.connect(&rig.url).await.unwrap();
    let here = here.lock_apart("k").owner(&me);
    let there = rig.manager().await.lock_apart("k");
    for lock in [&here, &there] {
        let info = lock.inspect().await.unwrap();
        assert!(!info.is_held());
        assert_eq!(
            (info.holds(), info.owner(), info.remaining()),
            (0, None, None)
        );
    }
    let began = SystemTime::now() - ms(1);
    let outer = here.acquire().await.unwrap();
    // Another client enters: what is shown is the one that began the tenure.
    let inner = there.clone().owner(&me).acquire().await.unwrap();
    let owner = me.to_string();
    for lock in [&here, &there] {
        let info = lock.inspect().await.unwrap();
        assert!(info.is_held());
        assert_eq!((info.holds(), info.owner()), (2, Some(&*owner)));
        assert_eq!(info.holder(), Some("orders-1"));
        assert_eq!(info.fence(), Some(outer.fencing_token()));
        let since = info.held_since().unwrap();
        let now = SystemTime::now() + ms(2);
        assert!(began <= since && since <= now, "{since:?}");
        let left = info.remaining().unwrap();
        assert!(left <= LONG && left > LONG / 2, "{left:?}");
        let shown = format!("{info:?} {lock:?} {outer:?} {inner:?}");
        assert!(!shown.contains(&owner), "it is a secret");
    }
}

pub(crate) async fn the_prefix_of_the_manager_does_not_apply(rig: &Rig) {
    let builder = LockManager::builder().prefix("mine:");
    let mine = builder.connect(&rig.url).await.unwrap();
    let others = rig.manager().await;
    let guard = mine.lock_apart("k").acquire().await.unwrap();
    assert!(others.lock_apart("k").inspect().await.unwrap().is_held());
    guard.release().await.unwrap();
}

pub(crate) async fn the_other_kind_of_lock_under_the_same_name_is_foreign(rig: &Rig) {
    let builder = LockManager::builder().prefix("");
    let locks = builder.connect(&rig.url).await.unwrap();
    let (exclusive, reentrant) = (locks.lock("k"), locks.lock_apart("k"));
    let is_foreign = |result: Result<(), LockError>| {
        assert!(
            matches!(&result, Err(LockError::NotALock { key, .. }) if key == "k"),
            "{result:?}"
        );
    };
    let guard = exclusive.acquire().await.unwrap();
    is_foreign(reentrant.try_acquire().await.map(drop));
    is_foreign(reentrant.acquire().await.map(drop));
    is_foreign(reentrant.force_release().await.map(drop));
    assert!(reentrant.inspect().await.unwrap().foreign().is_some());
    assert!(guard.is_held());
    guard.release().await.unwrap();

    let guard = reentrant.acquire().await.unwrap();
    is_foreign(exclusive.try_acquire().await.map(drop));
    is_foreign(exclusive.force_release().await.map(drop));
    assert!(exclusive.inspect().await.unwrap().foreign().is_some());
    guard.release().await.unwrap();
    exclusive.acquire().await.unwrap().release().await.unwrap();
}

pub(crate) async fn names_that_cannot_be_used_say_why(rig: &Rig) {
    let locks = rig.manager().await;
    for (key, word) in [
        ("", "empty"),
        ("foo{bar", "braces"),
        ("a}b{", "braces"),
        ("{}", "braces"),
        ("lock-core:fence", "reserved"),
        (&*"k".repeat(1025), "1024"),
    ] {
        match locks.lock_apart(key).try_acquire().await {
            Err(LockError::InvalidKey { reason, .. }) => {
                assert!(reason.contains(word), "{key}: {reason}");
            }
            other => panic!("{key}: {other:?}"),
        }
    }
}

pub(crate) async fn max_hold_ends_one_hold_and_leaves_the_others(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k").owner(&Owner::new());
    let outer = lock.acquire().await.unwrap();
    let inner = lock.clone().max_hold(ms(100)).acquire().await.unwrap();
    let reason = in_time("the end", inner.lost()).await;
    assert_eq!(reason, LossReason::MaxHold);
    assert!(outer.lost().now_or_never().is_none());
    eventually("it is given back", LIMIT, async || {
        lock.inspect().await.unwrap().holds() == 1
    })
    .await;
    assert!(outer.is_held());
    outer.release().await.unwrap();
    assert!(matches!(inner.release().await, Err(LockError::Lost { .. })));
    assert!(!lock.inspect().await.unwrap().is_held());
}

pub(crate) async fn the_longest_hold_makes_the_lease_and_no_other_shortens_it(rig: &Rig) {
    let lock = rig.manager().await.lock_apart("k").owner(&Owner::new());
    let at_least = async |least| {
        let left = lock.inspect().await.unwrap().remaining().unwrap();
        assert!(left > least && left <= LONG * 3, "{left:?} of {least:?}");
    };
    let outer = lock.clone().renew(false).acquire().await.unwrap();
    at_least(LONG / 2).await;
    for (ttl, renew) in [(ms(200), true), (ms(200), false)] {
        let inner = lock.clone().ttl(ttl).renew(renew).acquire().await.unwrap();
        at_least(LONG / 2).await;
        assert!(inner.remaining() > ttl, "they share the lease");
        inner.release().await.unwrap();
        at_least(LONG / 2).await;
        assert!(outer.remaining() > ttl);
    }
    let inner = lock.clone().ttl(LONG * 3).renew(false).acquire().await;
    at_least(LONG * 2).await;
    inner.unwrap().release().await.unwrap();
    at_least(LONG * 2).await;
    outer.release().await.unwrap();
    assert_eq!(lock.inspect().await.unwrap().remaining(), None);
}

pub(crate) async fn an_owner_travels_between_managers(rig: &Rig) {
    let (here, there) = (rig.manager().await, rig.manager().await);
    let me = Owner::new();
    let outer = here.lock_apart("k").owner(&me).acquire().await.unwrap();
    let arrived = Owner::parse(&me.to_string()).unwrap();
    let there = there.lock_apart("k");
    let inner = arrived.scope(there.acquire()).await.unwrap();
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    assert_eq!(there.inspect().await.unwrap().holds(), 2);
    // The one that came first goes first; the lock stays.
    outer.release().await.unwrap();
    assert_eq!(there.inspect().await.unwrap().holds(), 1);
    assert!(inner.is_held());
    inner.release().await.unwrap();
    assert!(!there.inspect().await.unwrap().is_held());
}

pub(crate) async fn shutdown_gives_back_each_hold(rig: &Rig) {
    let locks = rig.manager().await;
    let lock = locks.lock_apart("k").owner(&Owner::new());
    let guards = [lock.acquire().await.unwrap(), lock.acquire().await.unwrap()];
    // What is held to the end is given back in the last quarter; a machine that stands still meanwhile does it later.
    eventually("nothing is left", LIMIT, async || {
        locks.shutdown(ms(500)).await == 0
    })
    .await;
    assert!(guards.iter().all(|guard| !guard.is_held()));
    let other = rig.manager().await.lock_apart("k");
    assert!(!other.inspect().await.unwrap().is_held());
}
