//! Something else under one of our keys harms its own lock and no other.

use lock_core::{LossReason, Owner};
use lock_tests::{LIMIT, TestServer};
use tokio::time::timeout;

use crate::reentrant::apart::Apart;
use crate::reentrant::support::{command, in_time, manager, ms, until_clean};

#[tokio::test]
async fn one_bad_key_costs_no_other_lease_its_renewal() {
    let server = TestServer::start().await;
    let locks = manager(&server).await;
    let ttl = ms(1500);
    let mut good = Vec::new();
    for n in 0..5 {
        let lock = locks.lock_apart(format!("order:{n}")).ttl(ttl);
        good.push(lock.acquire().await.unwrap());
    }
    let bad = locks.lock_apart("order:bad").ttl(ttl).acquire().await;
    let bad = bad.unwrap();
    let exclusive = locks.lock("good").ttl(ttl).acquire().await.unwrap();
    let list = locks.lock("list").ttl(ttl).acquire().await.unwrap();
    command::<()>(&server, "SET lock-core:holds:{order:bad} x PX 60000").await;
    command::<()>(&server, "DEL lock:list").await;
    command::<()>(&server, "RPUSH lock:list x").await;
    for guard in [&bad, &list] {
        assert_eq!(in_time("the loss", guard.lost()).await, LossReason::Gone);
    }
    let loss = timeout(ttl * 2, good[0].lost()).await;
    assert!(loss.is_err(), "{loss:?}");
    assert!(good.iter().all(|guard| guard.is_held()) && exclusive.is_held());
    drop((good, bad, exclusive, list));
    command::<()>(&server, "DEL lock:list").await;
    assert_eq!(locks.shutdown(LIMIT).await, 0);
}

#[tokio::test]
async fn an_owner_enters_and_leaves_though_its_holds_are_something_else() {
    let server = TestServer::start().await;
    let lock = manager(&server).await.lock_apart("order");
    let lock = lock.owner(&Owner::new());
    let outer = lock.acquire().await.unwrap();
    command::<()>(&server, "SET lock-core:holds:{order} x PX 60000").await;
    let inner = lock.acquire().await.unwrap();
    assert!(inner.fencing_token() > outer.fencing_token());
    inner.release().await.unwrap();
    command::<()>(&server, "SET lock-core:holds:{order} x PX 60000").await;
    outer.release().await.unwrap_err();
    assert!(lock.force_release().await.unwrap());
    until_clean(&server).await;
}
