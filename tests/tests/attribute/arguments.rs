//! One argument at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{LockError, LockGuard, LockManager, LossReason, distributed_lock};

use crate::memory;

/// Whether nobody else can take the lock now.
async fn is_taken(locks: &LockManager, key: &str) -> bool {
    locks.lock(key).try_acquire().await.unwrap().is_none()
}

#[tokio::test]
async fn a_literal_is_the_key() {
    #[distributed_lock(key = "arguments:literal", client = locks)]
    async fn taken_inside(locks: &LockManager) -> Result<bool, LockError> {
        Ok(is_taken(locks, "arguments:literal").await)
    }
    let locks = memory().await;
    assert!(taken_inside(&locks).await.unwrap());
    assert!(
        !is_taken(&locks, "arguments:literal").await,
        "the lock is free again after the call"
    );
}

#[tokio::test]
async fn a_format_string_captures_parameters() {
    #[distributed_lock(key = "arguments:{shop}:{order:04}", client = locks)]
    async fn taken_inside(locks: &LockManager, shop: &str, order: u64) -> Result<bool, LockError> {
        Ok(is_taken(locks, "arguments:a:0007").await)
    }
    let locks = memory().await;
    assert!(taken_inside(&locks, "a", 7).await.unwrap());
    assert!(
        !taken_inside(&locks, "b", 7).await.unwrap(),
        "another key is another lock"
    );
}

#[tokio::test]
async fn doubled_braces_are_a_hash_tag() {
    #[distributed_lock(key = "{{arguments}}:tag", client = locks)]
    async fn fixed(locks: &LockManager) -> Result<bool, LockError> {
        Ok(is_taken(locks, "{arguments}:tag").await)
    }
    #[distributed_lock(key = "{{{user}}}:cart", client = locks)]
    async fn captured(locks: &LockManager, user: &str) -> Result<bool, LockError> {
        Ok(is_taken(locks, "{ada}:cart").await)
    }
    let locks = memory().await;
    assert!(fixed(&locks).await.unwrap());
    assert!(captured(&locks, "ada").await.unwrap());
}

#[tokio::test]
async fn a_format_string_takes_arguments_in_parentheses() {
    struct Order {
        id: u64,
    }
    #[distributed_lock(key = ("arguments:{}:{kind}", order.id, kind = "paid"), client = locks)]
    async fn taken_inside(locks: &LockManager, order: Order) -> Result<bool, LockError> {
        assert_eq!(order.id, 9);
        Ok(is_taken(locks, "arguments:9:paid").await)
    }
    assert!(
        taken_inside(&memory().await, Order { id: 9 })
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn an_expression_of_text_is_the_key() {
    struct Job {
        name: String,
    }
    #[distributed_lock(key = job.name, client = locks)]
    async fn field(locks: &LockManager, job: Job) -> Result<bool, LockError> {
        // The key was borrowed, so that the field is still there to be moved.
        let name: String = job.name;
        Ok(is_taken(locks, &name).await)
    }
    #[distributed_lock(key = name, client = locks)]
    async fn borrowed(locks: &LockManager, name: &str) -> Result<bool, LockError> {
        Ok(is_taken(locks, name).await)
    }
    #[distributed_lock(key = ["arguments", name].join(":"), client = locks)]
    async fn temporary(locks: &LockManager, name: &str) -> Result<bool, LockError> {
        Ok(is_taken(locks, &format!("arguments:{name}")).await)
    }
    let locks = memory().await;
    assert!(
        field(
            &locks,
            Job {
                name: "arguments:field".into()
            }
        )
        .await
        .unwrap()
    );
    assert!(borrowed(&locks, "arguments:borrowed").await.unwrap());
    assert!(temporary(&locks, "temporary").await.unwrap());
}

#[tokio::test]
async fn the_key_is_made_before_the_body_takes_the_parameters() {
    #[distributed_lock(key = "arguments:{name}", client = locks)]
    async fn consume(locks: LockManager, name: String) -> Result<usize, LockError> {
        let owned = name;
        drop(locks);
        Ok(owned.into_bytes().len())
    }
    assert_eq!(consume(memory().await, "moved".into()).await.unwrap(), 5);
}

#[tokio::test]
async fn durations_are_literals_or_expressions() {
    /// What the store says of the ttl, and the guard of its `max_hold`.
    type Times = (Option<Duration>, LossReason);
    const MOST: Duration = Duration::from_millis(30);
    async fn times(locks: &LockManager, held: &LockGuard) -> Result<Times, LockError> {
        let info = locks.lock(held.key()).inspect().await?;
        Ok((info.remaining(), held.lost().await))
    }
    #[distributed_lock(key = "arguments:literals", ttl = "1m30s", wait = "50ms", max_hold = "30ms", on_lost = continue, guard = held, client = locks)]
    async fn literals(locks: &LockManager) -> Result<Times, LockError> {
        times(locks, held).await
    }
    #[distributed_lock(
        key = "arguments:expressions",
        ttl = Duration::from_secs(90),
        wait = wait * 2,
        max_hold = MOST,
        on_lost = continue,
        guard = held,
        client = locks,
    )]
    async fn expressions(locks: &LockManager, wait: Duration) -> Result<Times, LockError> {
        times(locks, held).await
    }
    let locks = memory().await;
    let wait = Duration::from_millis(25);
    for (left, lost) in [
        literals(&locks).await.unwrap(),
        expressions(&locks, wait).await.unwrap(),
    ] {
        let ttl = Duration::from_secs(90);
        assert!(left <= Some(ttl) && left > Some(ttl / 2), "{left:?}");
        assert_eq!(lost, LossReason::MaxHold);
    }
    let _one = locks.lock("arguments:literals").acquire().await.unwrap();
    let _other = locks.lock("arguments:expressions").acquire().await.unwrap();
    for refused in [literals(&locks).await, expressions(&locks, wait).await] {
        let Err(LockError::TimedOut { waited, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(
            waited >= wait * 2 && waited < lock_tests::LIMIT,
            "{waited:?}"
        );
    }
}

#[tokio::test]
async fn a_wait_of_zero_is_one_try() {
    #[distributed_lock(key = "arguments:one_try", wait = "0s", client = locks)]
    async fn literal(locks: &LockManager) -> Result<(), LockError> {
        Ok(())
    }
    #[distributed_lock(key = "arguments:one_try", wait = Duration::ZERO, client = locks)]
    async fn expression(locks: &LockManager) -> Result<(), LockError> {
        Ok(())
    }
    let locks = memory().await;
    let held = locks.lock("arguments:one_try").acquire().await.unwrap();
    assert!(matches!(literal(&locks).await, Err(LockError::Busy { .. })));
    assert!(matches!(
        expression(&locks).await,
        Err(LockError::Busy { .. })
    ));
    held.release().await.unwrap();
    literal(&locks).await.unwrap();
}

#[tokio::test]
async fn a_wait_that_is_too_short_times_out() {
    #[distributed_lock(key = "arguments:short_wait", wait = "30ms", client = locks)]
    async fn hurried(locks: &LockManager) -> Result<(), LockError> {
        unreachable!("the body never runs without the lock")
    }
    let locks = memory().await;
    let _held = locks.lock("arguments:short_wait").acquire().await.unwrap();
    let start = Instant::now();
    assert!(matches!(
        hurried(&locks).await,
        Err(LockError::TimedOut { .. })
    ));
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[tokio::test]
async fn without_a_wait_the_call_waits_for_its_turn() {
    #[distributed_lock(key = "arguments:turn", client = locks)]
    async fn patient(locks: &LockManager) -> Result<(), LockError> {
        Ok(())
    }
    let locks = memory().await;
    let held = locks.lock("arguments:turn").acquire().await.unwrap();
    let waiting = patient(&locks);
    tokio::pin!(waiting);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut waiting)
            .await
            .is_err()
    );
    held.release().await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), waiting)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn without_renewal_the_hold_ends_with_its_ttl() {
    #[distributed_lock(key = "arguments:fixed", ttl = "100ms", renew = false, client = locks)]
    async fn slow(locks: &LockManager) -> Result<(), LockError> {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Ok(())
    }
    assert!(matches!(
        slow(&memory().await).await,
        Err(LockError::Lost { .. })
    ));
}

#[tokio::test]
async fn with_renewal_the_hold_outlives_its_ttl() {
    #[distributed_lock(key = "arguments:renewed", ttl = "1s", renew = true, guard = held, client = locks)]
    async fn slow(locks: &LockManager) -> Result<bool, LockError> {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        Ok(held.is_held())
    }
    assert!(slow(&memory().await).await.unwrap());
}

#[tokio::test]
async fn a_manager_comes_by_value_by_reference_or_shared() {
    struct State {
        locks: LockManager,
    }
    impl State {
        fn locks(&self) -> &LockManager {
            &self.locks
        }
    }
    macro_rules! function {
        ($name:ident, $client:expr, $parameter:ident: $type:ty) => {
            #[distributed_lock(key = "arguments:client", client = $client)]
            async fn $name($parameter: $type) -> Result<bool, LockError> {
                Ok(true)
            }
        };
    }
    function!(value, locks, locks: LockManager);
    function!(reference, locks, locks: &LockManager);
    function!(double_reference, &locks, locks: &LockManager);
    function!(shared, locks, locks: Arc<LockManager>);
    function!(field, state.locks, state: &State);
    function!(field_reference, &state.locks, state: &State);
    function!(accessor, state.locks(), state: &State);
    function!(temporary, state.locks.clone(), state: Arc<State>);
    function!(closure, make(), make: impl Fn() -> LockManager);

    let locks = memory().await;
    let state = State {
        locks: locks.clone(),
    };
    assert!(value(locks.clone()).await.unwrap());
    assert!(reference(&locks).await.unwrap());
    assert!(double_reference(&locks).await.unwrap());
    assert!(shared(Arc::new(locks.clone())).await.unwrap());
    assert!(field(&state).await.unwrap());
    assert!(field_reference(&state).await.unwrap());
    assert!(accessor(&state).await.unwrap());
    assert!(temporary(Arc::new(state)).await.unwrap());
    assert!(closure(|| locks.clone()).await.unwrap());
}

#[tokio::test]
async fn without_a_client_the_default_manager_is_used() {
    #[distributed_lock(key = "arguments:default", guard = held)]
    async fn token() -> Result<u64, LockError> {
        Ok(held.fencing_token().get())
    }
    // One test, because the default manager is one for the process.
    assert!(matches!(token().await, Err(LockError::NoDefaultManager)));
    let _ = memory().await.install_default();
    assert!(token().await.unwrap() < token().await.unwrap());
}

#[tokio::test]
async fn the_guard_is_a_reference_in_the_body() {
    #[distributed_lock(key = "arguments:guard", guard = held, client = locks)]
    async fn token(locks: &LockManager) -> Result<u64, LockError> {
        let guard: &LockGuard = held;
        assert!(guard.is_held());
        Ok(guard.fencing_token().get())
    }
    let locks = memory().await;
    assert!(token(&locks).await.unwrap() < token(&locks).await.unwrap());
}

#[tokio::test]
async fn the_crate_is_found_where_it_is_said_to_be() {
    mod reexport {
        pub(super) use lock_core;
    }
    #[distributed_lock(key = "arguments:crate", crate = reexport::lock_core, client = locks)]
    async fn path(locks: &LockManager) -> Result<(), LockError> {
        Ok(())
    }
    #[distributed_lock(key = "arguments:crate", crate = "reexport::lock_core", client = locks)]
    async fn text(locks: &LockManager) -> Result<(), LockError> {
        Ok(())
    }
    let locks = memory().await;
    path(&locks).await.unwrap();
    text(&locks).await.unwrap();
}
