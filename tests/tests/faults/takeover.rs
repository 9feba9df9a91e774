//! What an expired holder sends arrives after another one took over (P3).

use lock_core::{GuardedScript, LockError, LossReason, Owner};
use lock_tests::{LIMIT, Proxy, eventually};

use crate::support::{KEY, LONG, NAME, in_time, is_extend, ms, warm_server};
use crate::support::{behind, direct, script_calls, until_gone};

#[tokio::test]
async fn a_late_renewal_does_not_move_the_new_holders_lease() {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, ms(200)).await;
    let held = proxy.hold_next_request_matching(is_extend);
    let guard = locks.lock(NAME).ttl(ms(900)).acquire().await.unwrap();
    held.wait().await;
    // Nothing of this manager gets through any more, on other connections neither.
    proxy.cut_to_server(true);

    let other = direct(&server).await.lock(NAME).ttl(LONG).renew(false);
    let rival = in_time("the takeover", other.acquire()).await.unwrap();
    assert!(!guard.is_held(), "two believers");
    assert_eq!(in_time("the loss", guard.lost()).await, LossReason::Expired);

    let (value, pttl) = (server.get(KEY).await, server.pttl(KEY).await);
    let calls = script_calls(&server).await;
    proxy.cut_to_server(false);
    held.deliver();
    eventually("the late renewal is carried out", LIMIT, async || {
        script_calls(&server).await > calls
    })
    .await;
    assert_eq!(server.get(KEY).await, value);
    let after = server.pttl(KEY).await;
    assert!((pttl / 2..=pttl).contains(&after), "{after} after {pttl}");
    assert!(rival.is_held());
    assert!(!guard.is_held(), "a lease that was lost came back");
    drop(guard);
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    assert_eq!(server.get(KEY).await, value);
    rival.release().await.unwrap();
    until_gone(&server, KEY).await;
}

/// The holder looked and still had the lock; what it sent then was long on its way, as if it had been paused in between.
/// Proves P3.
#[tokio::test]
async fn a_late_guarded_write_is_refused_by_the_server() {
    let server = warm_server().await;
    let script = GuardedScript::new("return redis.call('SET', KEYS[1], ARGV[1])");
    let (name, data) = ("{k}:lock", "{k}:data");
    for reentrant in [false, true] {
        let proxy = Proxy::start(&server);
        let locks = behind(&proxy, LIMIT).await;
        let (late, rivals) = (locks.clone(), direct(&server).await);
        let guard = if reentrant {
            let lock = late.reentrant_lock(name).owner(&Owner::new());
            lock.ttl(ms(500)).acquire().await
        } else {
            late.lock(name).ttl(ms(500)).acquire().await
        };
        let guard = guard.unwrap();
        let held = proxy.hold_next_request_matching(|request| request.has("late"));
        let script_of_late = script.clone();
        let write = tokio::spawn(async move {
            let write = guard.guarded(&script_of_late).key(data).arg("late");
            (write.run::<String>().await, guard)
        });
        held.wait().await;
        // Else the lease would be renewed on a new connection.
        proxy.refuse(true);

        let rival = if reentrant {
            let lock = rivals.reentrant_lock(name).owner(&Owner::new()).ttl(LONG);
            in_time("the takeover", lock.acquire()).await
        } else {
            let lock = rivals.lock(name).ttl(LONG);
            in_time("the takeover", lock.acquire()).await
        };
        let rival = rival.unwrap();
        let ours = rival.guarded(&script).key(data).arg("in time");
        ours.run::<String>().await.unwrap();
        held.deliver();
        let (answer, guard) = in_time("the late write", write).await.unwrap();
        assert!(matches!(answer, Err(LockError::Lost { .. })), "{answer:?}");
        assert_eq!(server.get(data).await.as_deref(), Some("in time"));
        assert!(rival.is_held() && !guard.is_held());
        rival.release().await.unwrap();
    }
}
