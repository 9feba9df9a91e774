//! Which locks are the same lock.

use super::kinds::Manager;
use super::rig::{Rig, free, queued};

async fn try_both(first: &Manager, second: &Manager, a: &str, b: &str) -> bool {
    let _held = first.lock(a).acquire().await.unwrap();
    second.lock(b).try_acquire().await.unwrap().is_some()
}

pub(crate) async fn prefixes_separate_managers(rig: &Rig) {
    let plain = rig.manager_with(|builder| builder.prefix("lock:")).await;
    let shop = rig.manager_with(|builder| builder.prefix("shop:")).await;
    let bare = rig.manager_with(|builder| builder.prefix("")).await;
    assert!(try_both(&plain, &shop, "a", "a").await);
    // What counts is the whole name.
    free(&plain.lock("a")).await;
    assert!(!try_both(&plain, &bare, "a", "lock:a").await);
    free(&plain.lock("a")).await;
    assert!(!try_both(&bare, &shop, "shop:a", "a").await);
}

pub(crate) async fn a_tag_is_part_of_the_name(rig: &Rig) {
    let (first, second) = (rig.manager().await, rig.manager().await);
    assert!(try_both(&first, &second, "{user1}:cart", "user1:cart").await);
    let (tagged, plain) = (first.lock("{a}"), first.lock("a"));
    let held = tagged.acquire().await.unwrap();
    let held_plain = plain.acquire().await.unwrap();
    let next = queued(&second.lock("{a}"), 1).await;
    assert_eq!(plain.waiters().await, 0, "queues are apart");
    held_plain.release().await.unwrap();
    assert!(!next.is_finished());
    held.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    free(&tagged).await;
}

pub(crate) async fn any_text_is_a_key(rig: &Rig) {
    let (first, second) = (rig.manager().await, rig.manager().await);
    let longest = "x".repeat(1024);
    for key in [
        "with spaces and  more",
        " ",
        "käse \u{1F512}",
        "line\r\nbreak",
        "nul\0",
        "granted revoked 1 2",
        "*",
        "%d",
        &longest,
    ] {
        let lock = first.lock(key);
        let guard = lock.acquire().await.unwrap();
        assert_eq!(guard.key(), key);
        let next = queued(&second.lock(key), 1).await;
        guard.release().await.unwrap();
        let next = next.await.unwrap();
        assert_eq!(next.key(), key);
        next.release().await.unwrap();
        free(&lock).await;
    }
}

pub(crate) async fn different_keys_do_not_wait_for_each_other(rig: &Rig) {
    let (first, second) = (rig.manager().await, rig.manager().await);
    let mut held = Vec::new();
    for n in 0..20 {
        for (locks, who) in [(&first, "first"), (&second, "second")] {
            let lock = locks.lock(format!("{who}:{n}"));
            held.push(lock.try_acquire().await.unwrap().expect("nobody else's"));
        }
    }
    assert!(held.iter().all(|guard| guard.is_held()));
}
