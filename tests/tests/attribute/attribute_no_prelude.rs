//! `#[distributed_lock]` in a crate that has no prelude.

#![no_implicit_prelude]
#![deny(warnings)]

use ::lock_core::{LockError, LockManager, Owner, distributed_lock};

#[distributed_lock(key = "no_prelude:{id}", ttl = "1s", wait = "1s", max_hold = "1m", client = locks, guard = held)]
async fn error(locks: &LockManager, id: u32) -> ::std::result::Result<u32, LockError> {
    ::std::assert!(held.is_held());
    ::std::result::Result::Ok(id)
}

#[distributed_lock(key = "no_prelude", wait = "0s", on_busy = skip, on_lost = continue, client = locks)]
async fn skip(locks: &LockManager) {}

#[distributed_lock(key = "no_prelude", wait = "0s", on_busy = return = 2, client = locks)]
async fn value(locks: &LockManager) -> u32 {
    3
}

#[distributed_lock(
    keys = ["no_prelude:{id}", ("no_prelude:{}", id.0), key(&id)],
    wait = ::std::time::Duration::from_secs(1),
    at_least = "1ms",
    when = id.0 > 0,
    on_busy = skip,
    map_err = failed,
    client = locks,
    guard = held
)]
async fn several(locks: &LockManager, id: Id) -> ::std::result::Result<usize, (LockError,)> {
    ::std::result::Result::Ok(held.len())
}

#[distributed_lock(key = "no_prelude:{id.0:>3}", wait = "0s", on_busy = call = none, on_lost = call = none, client = locks)]
async fn marked(locks: &LockManager, #[key] id: Id) -> ::std::option::Option<u32> {
    ::std::option::Option::Some(id.0)
}

#[distributed_lock(key = "no_prelude", reentrant, owner = owner, client = locks)]
async fn reentrant(locks: &LockManager, owner: &Owner) -> ::std::result::Result<u32, LockError> {
    #[distributed_lock(key = "no_prelude", reentrant, client = locks, guard = held)]
    async fn inner(locks: &LockManager) -> ::std::result::Result<u32, LockError> {
        ::std::result::Result::Ok(held.hold_count())
    }
    inner(locks).await
}

struct Id(u32);

impl ::std::fmt::Display for Id {
    fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
        ::std::write!(f, "{}", self.0)
    }
}

fn key(id: &Id) -> ::std::string::String {
    ::std::format!("no_prelude:made:{id}")
}

fn failed(error: LockError) -> (LockError,) {
    (error,)
}

fn none(_: LockError) -> ::std::option::Option<u32> {
    ::std::option::Option::None
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
        ::std::assert_eq!(several(&locks, Id(1)).await.unwrap(), 2);
        ::std::assert_eq!(reentrant(&locks, &Owner::new()).await.unwrap(), 2);
        ::std::assert_eq!(marked(&locks, Id(1)).await.unwrap(), 1);
    });
}
