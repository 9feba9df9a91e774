//! Names of the caller never meet names of ours.

use lock_core::LockManager;

use crate::memory;

/// A module whose own items have the names that generated code is tempted to use.
#[allow(
    dead_code,
    non_upper_case_globals,
    reason = "the names are the trap that this test sets"
)]
mod shadowed {
    use ::lock_core::{LockManager, distributed_lock};

    pub(super) struct Result;
    pub(super) struct Option;
    pub(super) struct String;
    pub(super) struct Duration;
    pub(super) struct LockError;
    pub(super) struct LockGuard;
    pub(super) struct Options;
    pub(super) struct Box;
    pub(super) trait FromLockError {}
    pub(super) trait Skip {}
    pub(super) trait Future {}
    #[allow(non_snake_case, reason = "the names are the trap that this test sets")]
    pub(super) fn Ok() {}
    #[allow(non_snake_case, reason = "the names are the trap that this test sets")]
    pub(super) fn Err() {}
    #[allow(non_snake_case, reason = "the names are the trap that this test sets")]
    pub(super) fn Some() {}
    pub(super) const None: () = ();
    #[allow(
        non_camel_case_types,
        reason = "the names are the trap that this test sets"
    )]
    pub(super) struct bool;
    pub(super) struct Vec;
    pub(super) struct Key;
    pub(super) struct Hold;
    pub(super) struct Owner;
    pub(super) mod lock_core {}
    pub(super) mod std {}
    pub(super) mod core {}
    #[allow(unused_macros, reason = "the names are the trap that this test sets")]
    macro_rules! format {
        ($($tokens:tt)*) => {
            compile_error!("the wrong format!")
        };
    }
    #[allow(unused_macros, reason = "the names are the trap that this test sets")]
    macro_rules! format_args {
        ($($tokens:tt)*) => {
            compile_error!("the wrong format_args!")
        };
    }
    #[allow(unused_macros, reason = "the names are the trap that this test sets")]
    macro_rules! vec {
        ($($tokens:tt)*) => {
            compile_error!("the wrong vec!")
        };
    }
    #[allow(unused_macros, reason = "the names are the trap that this test sets")]
    macro_rules! concat {
        ($($tokens:tt)*) => {
            compile_error!("the wrong concat!")
        };
    }

    #[distributed_lock(
        key = "hygiene:{id}",
        ttl = "1s",
        wait = "1s",
        max_hold = "1s",
        on_busy = return = ::core::result::Result::Ok(0),
        client = locks,
    )]
    pub(super) async fn call(
        locks: &LockManager,
        id: u32,
    ) -> ::core::result::Result<u32, ::lock_core::LockError> {
        ::core::result::Result::Ok(id)
    }

    #[distributed_lock(
        keys = ["hygiene:{id}", "hygiene:several"],
        at_least = "1ms",
        when = id > 0,
        on_lost = call = ::core::result::Result::Err,
        client = locks,
        guard = hold
    )]
    pub(super) async fn several(
        locks: &LockManager,
        id: u32,
    ) -> ::core::result::Result<usize, ::lock_core::LockError> {
        ::core::result::Result::Ok(hold.len())
    }

    #[distributed_lock(key = "hygiene:{id}", reentrant, owner = owner, client = locks)]
    pub(super) async fn reentrant(
        locks: &LockManager,
        id: u32,
        owner: ::core::option::Option<::lock_core::Owner>,
    ) -> ::core::result::Result<u32, ::lock_core::LockError> {
        assert!(::lock_core::Owner::current() == owner);
        ::core::result::Result::Ok(id)
    }

    #[distributed_lock(wait = "0s", on_busy = skip, client = locks, guard = held)]
    pub(super) async fn marked(
        locks: &LockManager,
        #[key] key: &str,
    ) -> ::core::option::Option<usize> {
        ::core::option::Option::Some(held.key().len())
    }

    #[distributed_lock(key = "hygiene:skip", wait = "0s", on_busy = skip, on_lost = continue, client = locks)]
    pub(super) async fn skip(locks: &LockManager) -> ::core::option::Option<u32> {
        ::core::option::Option::Some(1)
    }
}

#[tokio::test]
async fn items_with_the_names_of_the_standard_library() {
    let locks = memory().await;
    assert_eq!(shadowed::call(&locks, 7).await.unwrap(), 7);
    assert_eq!(shadowed::skip(&locks).await, Some(1));
    assert_eq!(shadowed::several(&locks, 7).await.unwrap(), 2);
    assert!(shadowed::marked(&locks, "a").await.is_some());
    let owner = lock_core::Owner::new();
    let reentrant = shadowed::reentrant(&locks, 7, Some(owner));
    assert_eq!(reentrant.await.unwrap(), 7);
}

#[tokio::test]
async fn parameters_with_the_names_of_our_locals() {
    #[allow(
        clippy::too_many_arguments,
        reason = "one for each name that we might use ourselves"
    )]
    #[lock_core::distributed_lock(key = "hygiene:{key}:{hold}:{options}", reentrant, client = client, guard = guard)]
    async fn sum(
        client: &LockManager,
        owner: u32,
        key: u32,
        hold: u32,
        options: u32,
        entered: u32,
        outcome: u32,
        output: u32,
        error: u32,
        duration: u32,
        keys: u32,
        body: u32,
        entering: u32,
        due: u32,
    ) -> Result<u32, lock_core::LockError> {
        assert!(guard.is_held());
        let ours = owner + keys + body + entering + due;
        Ok(key + hold + options + entered + outcome + output + error + duration + ours)
    }
    let locks = memory().await;
    assert_eq!(
        sum(&locks, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
            .await
            .unwrap(),
        78
    );
}

#[tokio::test]
async fn the_values_given_see_the_parameters_and_not_our_locals() {
    use std::time::Duration;
    #[lock_core::distributed_lock(
        key = key,
        ttl = options,
        wait = hold,
        on_busy = return = error,
        client = client,
    )]
    async fn given(
        client: &LockManager,
        key: &str,
        options: Duration,
        hold: Duration,
        error: u32,
    ) -> u32 {
        0
    }
    let locks = memory().await;
    let _held = locks.lock("hygiene:given").acquire().await.unwrap();
    assert_eq!(
        given(
            &locks,
            "hygiene:given",
            Duration::from_secs(1),
            Duration::ZERO,
            9
        )
        .await,
        9
    );
}

#[tokio::test]
async fn items_of_the_body_do_not_change_the_return_type() {
    #[lock_core::distributed_lock(key = "hygiene:items", client = locks)]
    async fn parsed(locks: &LockManager) -> Result<u32, lock_core::LockError> {
        use std::io::Result;
        fn seven() -> Result<u32> {
            "7".parse().map_err(std::io::Error::other)
        }
        Ok(seven().unwrap())
    }
    assert_eq!(parsed(&memory().await).await.unwrap(), 7);
}

#[tokio::test]
async fn a_function_made_by_a_macro() {
    macro_rules! locked {
        ($name:ident, $key:literal, $ttl:literal, $parameter:ident, $output:ty, $body:block) => {
            #[lock_core::distributed_lock(key = $key, ttl = $ttl, client = locks)]
            async fn $name(locks: &LockManager, $parameter: u32) -> $output $body
        };
    }
    locked!(made, "hygiene:{id}", "5s", id, Result<u32, lock_core::LockError>, { Ok(id) });
    assert_eq!(made(&memory().await, 3).await.unwrap(), 3);
}
