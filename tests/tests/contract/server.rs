//! What only a server can show: its keys, touched or looked at by somebody else.

use std::time::Duration;

use lock_core::{LockError, LossReason};
use lock_tests::kit::command;
use lock_tests::{LIMIT, eventually};

use super::rig::{LONG, Rig, queued};

pub(crate) async fn a_release_of_a_key_that_another_took_leaves_it_alone(rig: &Rig) {
    let first = rig.lock("a").await;
    let late = first.acquire().await.unwrap();
    // The key vanishes, and the first holder has no way to know before its next renewal.
    let deleted: u64 = command(rig.server(), &format!("DEL {}", rig.stored("a"))).await;
    assert_eq!(deleted, 1);
    let second = rig.lock("a").await;
    let new = second.try_acquire().await.unwrap().expect("free");
    let kept: Vec<u8> = command(rig.server(), &format!("DUMP {}", rig.stored("a"))).await;

    assert!(late.is_held(), "still in good faith");
    let answer = late.release().await;
    assert!(
        matches!(
            answer,
            Err(LockError::Lost {
                reason: LossReason::Gone,
                ..
            })
        ),
        "{answer:?}"
    );
    let left: Vec<u8> = command(rig.server(), &format!("DUMP {}", rig.stored("a"))).await;
    assert_eq!(left, kept);
    new.release().await.unwrap();
}

pub(crate) async fn a_key_deleted_by_hand_is_lost_at_the_next_renewal(rig: &Rig) {
    let guard = rig
        .lock("a")
        .await
        .ttl(Duration::from_secs(2))
        .acquire()
        .await
        .unwrap();
    let () = command(rig.server(), &format!("DEL {}", rig.stored("a"))).await;
    assert_eq!(guard.lost().await, LossReason::Gone);
}

pub(crate) async fn nothing_stays_on_the_server(rig: &Rig) {
    let (first, second) = (rig.lock("{tag}:a").await, rig.lock("{tag}:a").await);
    let guard = first.acquire().await.unwrap();
    let next = queued(&second, 1).await;
    let cancelled = queued(&second, 2).await;
    // Whatever is there while somebody waits ends by itself, should everybody die.
    for key in rig.server().keys().await {
        let ends = rig.server().pttl(&key).await > 0;
        assert_eq!(ends, !rig.lasting_keys().contains(&&*key), "{key}");
    }
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    // It may have been granted by now, and then the guard is in here.
    cancelled.abort();
    drop(cancelled.await);
    eventually("only what lasts is left", LIMIT, async || {
        rig.server().keys().await == rig.lasting_keys()
    })
    .await;
}

pub(crate) async fn a_lock_of_another_language_excludes_us_and_we_it(rig: &Rig) {
    let mut connection = rig.server().connection().await;
    let mut set = redis::cmd("SET");
    set.arg("job").arg("theirs").arg("NX").arg("PX");
    let lock = rig
        .manager_with(|builder| builder.prefix(""))
        .await
        .lock("job");

    let ours = lock.acquire().await.unwrap();
    let refused: Option<String> = set
        .clone()
        .arg(1000)
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(refused, None);
    ours.release().await.unwrap();

    let taken: Option<String> = set
        .arg(LONG.as_millis() as u64)
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(taken.is_some());
    assert!(lock.try_acquire().await.unwrap().is_none());
    let limit = Duration::from_millis(100);
    assert!(matches!(
        lock.acquire_within(limit).await,
        Err(LockError::TimedOut { .. })
    ));
    assert_eq!(rig.server().get("job").await.as_deref(), Some("theirs"));

    // It lets go without knowing of our queue; our next refresh finds out.
    let waiting = queued(&lock.clone().ttl(Duration::from_secs(6)), 1).await;
    let () = command(rig.server(), "DEL job").await;
    waiting.await.unwrap().release().await.unwrap();
}
