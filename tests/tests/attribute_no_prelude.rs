//! `#[distributed_lock]` in a crate that has no prelude.

#![no_implicit_prelude]
#![deny(warnings)]

use ::lock_core::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "no_prelude:{id}", ttl = "1s", wait = "1s", max_hold = "1m", client = locks, guard = held)]
async fn error(locks: &LockManager, id: u32) -> ::std::result::Result<u32, LockError> {
    ::std::assert!(held.is_held());
    ::std::result::Result::Ok(id)
}

#[distributed_lock(key = "no_prelude", on_busy = skip, on_lost = continue, client = locks)]
async fn skip(locks: &LockManager) {}

#[distributed_lock(key = "no_prelude", on_busy = return = 2, client = locks)]
async fn value(locks: &LockManager) -> u32 {
    3
}

#[test]
fn generated_code_needs_no_prelude() {
    let runtime = ::tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = LockManager::connect("memory://").await.unwrap();
        ::std::assert_eq!(error(&locks, 1).await.unwrap(), 1);
        skip(&locks).await;
        ::std::assert_eq!(value(&locks).await, 3);
    });
}
