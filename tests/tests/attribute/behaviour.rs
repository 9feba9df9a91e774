//! `when`, `at_least`, `map_err`, `call` and `name`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{LockError, LockManager, distributed_lock};

use crate::memory;

/// An application's error that knows nothing of locks.
#[derive(Debug, PartialEq)]
enum AppError {
    Busy(String),
    Other(String),
}

impl AppError {
    fn of_lock(error: LockError) -> Self {
        match error {
            LockError::Busy { key, .. } | LockError::TimedOut { key, .. } => Self::Busy(key),
            other => Self::Other(other.to_string()),
        }
    }
}

type AppResult<T> = Result<T, AppError>;

#[tokio::test]
async fn work_that_is_not_due_asks_for_no_lock() {
    // A key that would be refused, and a manager that is not there.
    #[distributed_lock(key = String::new(), when = due, on_busy = skip, client = lock_core::default_manager().unwrap())]
    async fn unit_is_never_reached(due: bool) {
        unreachable!("it is not due")
    }
    unit_is_never_reached(false).await;
}

#[tokio::test]
async fn work_that_is_not_due_returns_as_skipped_work_does() {
    #[distributed_lock(key = "behaviour:when", when = *due, on_busy = skip, client = locks)]
    async fn unit(locks: &LockManager, due: &bool, ran: &AtomicU32) {
        ran.fetch_add(1, Ordering::Relaxed);
    }
    #[distributed_lock(key = "behaviour:when", when = items.len() > 1, on_busy = skip, client = locks)]
    async fn option(locks: &LockManager, items: Vec<u32>) -> Option<u32> {
        items.into_iter().next()
    }
    #[distributed_lock(key = "behaviour:when", when = amount > 0, client = locks)]
    async fn result(locks: &LockManager, amount: u32) -> Result<u32, LockError> {
        Ok(amount)
    }
    #[distributed_lock(key = "behaviour:when", when = amount > 0, on_busy = return = Ok(99), client = locks)]
    async fn value(locks: &LockManager, amount: u32) -> Result<u32, LockError> {
        Ok(amount)
    }
    let locks = memory().await;
    let ran = AtomicU32::new(0);
    unit(&locks, &false, &ran).await;
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    unit(&locks, &true, &ran).await;
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert_eq!(option(&locks, vec![1]).await, None);
    assert_eq!(option(&locks, vec![1, 2]).await, Some(1));
    assert_eq!(result(&locks, 0).await.unwrap(), 0);
    assert_eq!(result(&locks, 5).await.unwrap(), 5);
    assert_eq!(value(&locks, 0).await.unwrap(), 99);
    assert_eq!(value(&locks, 5).await.unwrap(), 5);
}

#[tokio::test]
async fn at_least_keeps_the_lock_after_the_work() {
    #[distributed_lock(key = "behaviour:slot:{id}", at_least = "1h", client = locks)]
    async fn literal(locks: &LockManager, id: u32) -> Result<u32, LockError> {
        Ok(id)
    }
    #[distributed_lock(key = "behaviour:slot:{id}", at_least = Duration::from_millis(u64::from(millis)), client = locks)]
    async fn expression(locks: &LockManager, id: u32, millis: u32) -> Result<u32, LockError> {
        Ok(id)
    }
    let locks = memory().await;
    assert_eq!(literal(&locks, 1).await.unwrap(), 1);
    let slot = locks.lock("behaviour:slot:1");
    assert!(
        slot.try_acquire().await.unwrap().is_none(),
        "kept for the hour"
    );
    expression(&locks, 2, 50).await.unwrap();
    let slot = locks.lock("behaviour:slot:2");
    let taken = tokio::time::timeout(Duration::from_secs(30), slot.acquire())
        .await
        .expect("free after the 50 ms")
        .unwrap();
    taken.release().await.unwrap();
}

#[tokio::test]
async fn map_err_makes_the_application_s_own_error() {
    #[distributed_lock(key = key, wait = "0s", map_err = AppError::of_lock, client = locks)]
    async fn path(locks: &LockManager, key: &str) -> AppResult<u32> {
        Ok(7)
    }
    #[distributed_lock(key = key, wait = "0s", map_err = |error| AppError::Other(error.is_contention().to_string()), client = locks)]
    async fn closure(locks: &LockManager, key: &str) -> Result<u32, AppError> {
        Ok(7)
    }
    #[distributed_lock(key = key, max_hold = "20ms", map_err = AppError::of_lock, client = locks)]
    async fn stuck(locks: &LockManager, key: &str) -> AppResult<u32> {
        std::future::pending().await
    }
    let locks = memory().await;
    assert_eq!(path(&locks, "behaviour:map").await, Ok(7));
    let _held = locks.lock("behaviour:map").acquire().await.unwrap();
    assert_eq!(
        path(&locks, "behaviour:map").await,
        Err(AppError::Busy("behaviour:map".into()))
    );
    assert_eq!(
        closure(&locks, "behaviour:map").await,
        Err(AppError::Other("true".into()))
    );
    assert!(matches!(path(&locks, "").await, Err(AppError::Other(_))));
    assert!(matches!(
        stuck(&locks, "behaviour:map:lost").await,
        Err(AppError::Other(text)) if text.contains("lost")
    ));
}

#[tokio::test]
async fn map_err_is_for_what_on_busy_leaves() {
    #[distributed_lock(key = key, wait = "0s", on_busy = skip, map_err = AppError::of_lock, client = locks)]
    async fn skip(locks: &LockManager, key: &str) -> AppResult<u32> {
        Ok(7)
    }
    #[distributed_lock(key = key, wait = "0s", on_busy = return = Ok(1), map_err = AppError::of_lock, client = locks)]
    async fn value(locks: &LockManager, key: &str) -> AppResult<u32> {
        Ok(7)
    }
    #[distributed_lock(key = key, wait = "0s", on_busy = call = |_| Ok(2), map_err = AppError::of_lock, client = locks)]
    async fn call(locks: &LockManager, key: &str) -> AppResult<u32> {
        Ok(7)
    }
    let locks = memory().await;
    let key = "behaviour:map:busy";
    let _held = locks.lock(key).acquire().await.unwrap();
    assert_eq!(skip(&locks, key).await, Ok(0));
    assert_eq!(value(&locks, key).await, Ok(1));
    assert_eq!(call(&locks, key).await, Ok(2));
    assert!(matches!(skip(&locks, "").await, Err(AppError::Other(_))));
    assert!(matches!(value(&locks, "").await, Err(AppError::Other(_))));
    assert!(matches!(call(&locks, "").await, Err(AppError::Other(_))));
}

/// A return type that is no `Result`.
fn told(error: LockError) -> String {
    match error {
        LockError::Busy { key, .. } => format!("busy {key}"),
        LockError::Lost { key, .. } => format!("lost {key}"),
        _ => "other".into(),
    }
}

#[tokio::test]
async fn on_busy_call_gives_the_function_s_value() {
    #[distributed_lock(key = key, wait = "0s", on_busy = call = told, client = locks)]
    async fn plain(locks: &LockManager, key: &str) -> String {
        "done".into()
    }
    #[distributed_lock(key = key, wait = "0s", on_busy = call = |error| Ok(told(error)), client = locks)]
    async fn result(locks: &LockManager, key: &str) -> Result<String, LockError> {
        Ok("done".into())
    }
    #[distributed_lock(key = key, max_hold = "20ms", wait = "0s", on_busy = call = told, client = locks)]
    async fn stuck(locks: &LockManager, key: &str) -> String {
        std::future::pending().await
    }
    let locks = memory().await;
    let key = "behaviour:call";
    assert_eq!(plain(&locks, key).await, "done");
    let _held = locks.lock(key).acquire().await.unwrap();
    assert_eq!(plain(&locks, key).await, "busy behaviour:call");
    assert_eq!(result(&locks, key).await.unwrap(), "busy behaviour:call");
    // Without a `Result` it is the only one who can be told.
    assert_eq!(plain(&locks, "").await, "other");
    assert_eq!(
        stuck(&locks, "behaviour:call:lost").await,
        "lost behaviour:call:lost"
    );
    // With one, the error goes the way of errors.
    assert!(matches!(
        result(&locks, "").await,
        Err(LockError::InvalidKey { .. })
    ));
}

#[tokio::test]
async fn on_lost_call_gets_the_loss_after_the_body_is_gone() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct InBody;
    impl Drop for InBody {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    #[distributed_lock(
        key = "behaviour:lost",
        max_hold = "20ms",
        on_lost = call = |error| {
            assert_eq!(DROPPED.load(Ordering::SeqCst), 1, "the body is still there");
            Ok(told(error))
        },
        client = locks
    )]
    async fn stuck(locks: &LockManager, in_body: InBody) -> Result<String, LockError> {
        let _in_body = in_body;
        std::future::pending().await
    }
    let locks = memory().await;
    assert_eq!(stuck(&locks, InBody).await.unwrap(), "lost behaviour:lost");
}

#[tokio::test]
async fn a_cancelled_call_drops_its_body_while_it_holds_the_lock() {
    struct InBody(Arc<Mutex<Option<bool>>>, lock_core::LockView);
    impl Drop for InBody {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(self.1.is_held());
        }
    }
    #[distributed_lock(key = "behaviour:cancelled", client = locks, guard = guard)]
    async fn stuck(locks: &LockManager, held: Arc<Mutex<Option<bool>>>) -> Result<(), LockError> {
        let _in_body = InBody(held, guard.view());
        std::future::pending().await
    }
    let locks = memory().await;
    let held = Arc::new(Mutex::new(None));
    let call = stuck(&locks, Arc::clone(&held));
    assert!(
        tokio::time::timeout(Duration::from_millis(20), call)
            .await
            .is_err()
    );
    assert_eq!(*held.lock().unwrap(), Some(true));
}

/// Remembers the `function` field of the last event.
#[derive(Clone, Default)]
struct Functions(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Functions {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Field<'a>(&'a Functions);
        impl tracing::field::Visit for Field<'_> {
            fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
                if field.name() == "function" {
                    self.0.0.lock().unwrap().push(value.to_owned());
                }
            }
            fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
        }
        event.record(&mut Field(self));
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn traces_call_the_function_by_its_name() {
    #[distributed_lock(key = key, wait = "0s", on_busy = skip, client = locks)]
    async fn by_path(locks: &LockManager, key: &str) {}
    #[distributed_lock(key = key, wait = "0s", on_busy = skip, name = "nightly", client = locks)]
    async fn by_name(locks: &LockManager, key: &str) {}

    let functions = Functions::default();
    let _guard = tracing::subscriber::set_default(functions.clone());
    let locks = memory().await;
    by_path(&locks, "").await;
    by_name(&locks, "").await;
    assert_eq!(
        *functions.0.lock().unwrap(),
        ["attribute::behaviour::by_path", "nightly"]
    );
}
