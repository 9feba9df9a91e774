//! Scripts of the user under a permit.

use std::time::Duration;

use lock_core::{GuardedScript, LockError, LockGuard, LockManager, LossReason};
use lock_tests::kit::command;

use super::rig::on_servers;
use crate::rig::LONG;

async fn count(guard: &LockGuard) -> Result<i64, LockError> {
    let add = GuardedScript::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    guard.guarded(&add).key("{a}:n").arg(1).run().await
}

/// Proves P3.
#[tokio::test]
async fn holders_of_both_kinds_write_and_a_lost_one_does_not() {
    on_servers(async |rig| {
        let locks: LockManager = rig.manager().await;
        let permit = locks.semaphore("{a}:s", 2).acquire().await.unwrap();
        let writer = locks.rw_lock("{a}:rw").write().await.unwrap();
        assert_eq!(count(&permit).await.unwrap(), 1);
        assert_eq!(count(&writer).await.unwrap(), 2);
        command::<()>(rig.the_server(), "DEL lock:{a}:s").await;
        assert!(matches!(
            count(&permit).await,
            Err(LockError::Lost {
                reason: LossReason::Gone,
                ..
            })
        ));
        assert_eq!(count(&writer).await.unwrap(), 3);
    })
    .await;
}

/// The key outlives its members, so the deadline decides. Proves P3.
#[tokio::test]
async fn a_member_past_its_deadline_writes_nothing() {
    on_servers(async |rig| {
        let locks = rig.manager().await;
        let semaphore = locks.semaphore("{a}:s", 2);
        let permit = semaphore.acquire().await.unwrap();
        // As after a pause: the client believes in its lease, and the deadline on the server has passed.
        let fields: Vec<String> = command(rig.the_server(), "HGETALL lock:{a}:s").await;
        let member = fields.chunks(2).find(|pair| pair[0].len() > 36).unwrap();
        let (_, rest) = member[1].split_once(' ').unwrap();
        let mut connection = rig.the_server().connection().await;
        let mut set = redis::cmd("HSET");
        set.arg("lock:{a}:s")
            .arg(&member[0])
            .arg(format!("1790000000000 {rest}"));
        let _: i64 = set.query_async(&mut connection).await.unwrap();
        assert!(permit.is_held() && permit.remaining() > LONG / 2);
        assert!(matches!(count(&permit).await, Err(LockError::Lost { .. })));
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, permit.lost()).await.unwrap();
    })
    .await;
}
