//! What a call costs in memory: the lock's own share is small, and the arguments are not stored once more than needed.

#![allow(
    clippy::large_types_passed_by_value,
    reason = "what such arguments cost is the question"
)]

use std::hint::black_box;

use lock_core::{LockError, LockManager, Owner, distributed_lock};

type Big = [u8; 1024];

async fn work(big: &Big) -> u8 {
    tokio::task::yield_now().await;
    big[0]
}

async fn plain(locks: &LockManager, big: Big) -> Result<u8, LockError> {
    black_box(locks);
    let first = work(&big).await;
    Ok(first + big[1])
}

async fn plain_with_id(locks: &LockManager, id: u64, big: Big) -> Result<u8, LockError> {
    black_box((locks, id));
    let first = work(&big).await;
    Ok(first + big[1])
}

#[distributed_lock(key = "size", client = locks)]
async fn literal(locks: &LockManager, big: Big) -> Result<u8, LockError> {
    black_box(locks);
    let first = work(&big).await;
    Ok(first + big[1])
}

#[distributed_lock(
    key = "size:{id}:{big.len()}",
    ttl = "30s",
    wait = "5s",
    max_hold = "1m",
    at_least = "10ms",
    when = id > 0,
    on_busy = skip,
    on_lost = call = Err,
    guard = held,
    client = locks
)]
async fn every_argument(locks: &LockManager, id: u64, big: Big) -> Result<u8, LockError> {
    black_box(locks);
    let first = work(&big).await + u8::from(held.is_held());
    Ok(first + big[1])
}

#[distributed_lock(keys = ["size:{id}", "size:other"], on_lost = continue, client = locks)]
async fn several_keys(locks: &LockManager, id: u64, big: Big) -> Result<u8, LockError> {
    black_box(locks);
    let first = work(&big).await;
    Ok(first + big[1])
}

#[distributed_lock(key = "size", reentrant, client = locks)]
async fn reentrant(locks: &LockManager, big: Big) -> Result<u8, LockError> {
    black_box(locks);
    let first = work(&big).await;
    Ok(first + big[1])
}

#[distributed_lock(
    keys = ["size:{id}", "size:other"],
    reentrant,
    owner = owner,
    on_lost = continue,
    client = locks
)]
async fn owner_by_value(
    locks: &LockManager,
    id: u64,
    owner: Owner,
    big: Big,
) -> Result<u8, LockError> {
    black_box((locks, &owner));
    let first = work(&big).await;
    Ok(first + big[1])
}

#[distributed_lock(key = "size", wait = "0s", on_busy = return = Ok(big[id]), client = locks)]
async fn value_of_a_parameter(locks: &LockManager, id: usize, big: Big) -> Result<u8, LockError> {
    black_box(locks);
    let first = work(&big).await;
    Ok(first + big[1])
}

#[tokio::test]
async fn an_argument_of_a_kibibyte_costs_little_more_than_without_the_lock() {
    let locks = crate::memory().await;
    let big = [1; 1024];
    let (least, with_id) = (
        size_of_val(&plain(&locks, big)),
        size_of_val(&plain_with_id(&locks, 1, big)),
    );
    for (name, size, least) in [
        ("literal", size_of_val(&literal(&locks, big)), least),
        (
            "every_argument",
            size_of_val(&every_argument(&locks, 1, big)),
            with_id,
        ),
        (
            "several_keys",
            size_of_val(&several_keys(&locks, 1, big)),
            with_id,
        ),
        ("reentrant", size_of_val(&reentrant(&locks, big)), least),
        (
            "owner_by_value",
            size_of_val(&owner_by_value(&locks, 1, Owner::new(), big)),
            with_id,
        ),
        (
            "value_of_a_parameter",
            size_of_val(&value_of_a_parameter(&locks, 1, big)),
            with_id,
        ),
    ] {
        println!("{name}: {size} bytes, without the lock {least}");
        assert!(
            size <= least + 1280,
            "the future of `{name}` has {size} bytes, without the lock {least}"
        );
    }
    assert_eq!(plain(&locks, big).await.unwrap(), 2);
    assert_eq!(literal(&locks, big).await.unwrap(), 2);
    assert_eq!(every_argument(&locks, 1, big).await.unwrap(), 3);
    assert_eq!(plain_with_id(&locks, 1, big).await.unwrap(), 2);
    assert_eq!(value_of_a_parameter(&locks, 1, big).await.unwrap(), 2);
    assert_eq!(several_keys(&locks, 1, big).await.unwrap(), 2);
    assert_eq!(reentrant(&locks, big).await.unwrap(), 2);
    let owner = Owner::new();
    assert_eq!(owner_by_value(&locks, 1, owner, big).await.unwrap(), 2);
}
