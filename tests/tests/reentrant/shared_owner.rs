//! One owner in Redisson and here: what the other side does with the lock is never taken for ours.

use lock_core::{GuardedScript, LockError, LossReason, Owner};
use lock_tests::TestServer;

use crate::redisson_client::{Redisson, Unlocked};
use crate::support::{LONG, in_time, manager, ms, until_clean};

#[tokio::test]
async fn a_release_leaves_a_lock_that_redisson_took_anew() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let us = Owner::parse(&java.owner).unwrap();
    let lock = manager(&server).await.reentrant_lock("order").owner(&us);
    let guard = lock.acquire().await.unwrap();
    assert!(java.force_unlock("order").await);
    assert_eq!(java.try_lock("order", LONG).await, None);
    let released = guard.release().await;
    assert!(
        matches!(released, Err(LockError::Lost { .. })),
        "{released:?}"
    );
    assert_eq!(java.hold_count("order").await, 1);
    assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
    until_clean(&server).await;
}

#[tokio::test]
async fn a_guard_is_lost_though_redisson_has_the_lock_for_its_owner() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let us = Owner::parse(&java.owner).unwrap();
    let lock = manager(&server).await.reentrant_lock("order").owner(&us);
    let lock = lock.ttl(ms(3000));
    // The script finds it out, or the renewal.
    for scripted in [true, false] {
        let guard = lock.acquire().await.unwrap();
        assert!(java.force_unlock("order").await);
        assert_eq!(java.try_lock("order", LONG).await, None);
        if scripted {
            let script = GuardedScript::new("return 1");
            let run = guard.guarded(&script).run::<i64>().await;
            assert!(matches!(run, Err(LockError::Lost { .. })), "{run:?}");
        }
        assert_eq!(in_time("the loss", guard.lost()).await, LossReason::Taken);
        drop(guard);
        assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
        until_clean(&server).await;
    }
}

#[tokio::test]
async fn a_fencing_token_does_not_come_again_after_redisson_let_go() {
    let server = TestServer::start().await;
    let java = Redisson::new(&server).await;
    let other = Redisson::new(&server).await;
    let us = Owner::parse(&java.owner).unwrap();
    let lock = manager(&server).await.reentrant_lock("order").owner(&us);
    let guard = lock.acquire().await.unwrap();
    let first = guard.fencing_token();
    // Still the same tenure.
    assert_eq!(java.try_lock("order", LONG).await, None);
    guard.release().await.unwrap();
    let again = lock.acquire().await.unwrap();
    assert_eq!(again.fencing_token(), first);
    again.release().await.unwrap();
    assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);

    assert_eq!(other.try_lock("order", LONG).await, None);
    assert_eq!(other.unlock("order", LONG).await, Unlocked::Free);
    assert_eq!(java.try_lock("order", LONG).await, None);
    let guard = lock.acquire().await.unwrap();
    assert!(guard.fencing_token() > first);
    guard.release().await.unwrap();
    assert_eq!(java.unlock("order", LONG).await, Unlocked::Free);
}
