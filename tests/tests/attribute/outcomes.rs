//! What the caller gets when the lock is busy, cannot be had, or is lost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{LockError, LockManager, distributed_lock};
use lock_tests::Capture;
use tracing::Level;

use crate::memory;

/// An application's error, with a way in for the lock's.
#[derive(Debug)]
enum AppError {
    Lock(LockError),
    Busy,
}

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

type AppResult<T> = Result<T, AppError>;

/// A `Result` by another name.
type Outcome<T> = Result<T, LockError>;

/// Not a `Result`, though it has an error of its own.
#[derive(Debug, PartialEq)]
enum Verdict {
    Done,
    Refused(u32),
}

/// A name that no lock can have.
const NO_KEY: &str = "";

#[tokio::test]
async fn a_busy_lock_is_an_error_of_the_function_s_own_type() {
    #[distributed_lock(key = "outcomes:error", wait = "0s", client = locks)]
    async fn absent(locks: &LockManager) -> AppResult<()> {
        unreachable!("the body never runs without the lock")
    }
    #[distributed_lock(key = "outcomes:error", wait = "0s", on_busy = error, client = locks)]
    async fn written(locks: &LockManager) -> Result<(), Box<dyn std::error::Error>> {
        unreachable!("the body never runs without the lock")
    }
    let locks = memory().await;
    let _held = locks.lock("outcomes:error").acquire().await.unwrap();
    assert!(matches!(
        absent(&locks).await,
        Err(AppError::Lock(LockError::Busy { .. }))
    ));
    assert!(written(&locks).await.unwrap_err().is::<LockError>());
}

#[tokio::test]
async fn a_busy_lock_skips_the_work() {
    #[distributed_lock(key = "outcomes:skip", wait = "0s", on_busy = skip, client = locks)]
    async fn unit(locks: &LockManager, ran: &AtomicU32) {
        ran.fetch_add(1, Ordering::Relaxed);
    }
    #[distributed_lock(key = "outcomes:skip", wait = "10ms", on_busy = skip, client = locks)]
    async fn option(locks: &LockManager) -> Option<u32> {
        Some(7)
    }
    #[distributed_lock(key = "outcomes:skip", wait = "0s", on_busy = skip, client = locks)]
    async fn result(locks: &LockManager) -> AppResult<u32> {
        Ok(7)
    }
    let locks = memory().await;
    let ran = AtomicU32::new(0);
    let held = locks.lock("outcomes:skip").acquire().await.unwrap();
    unit(&locks, &ran).await;
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    assert_eq!(option(&locks).await, None);
    assert_eq!(result(&locks).await.unwrap(), 0);
    held.release().await.unwrap();
    unit(&locks, &ran).await;
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert_eq!(option(&locks).await, Some(7));
    assert_eq!(result(&locks).await.unwrap(), 7);
}

#[tokio::test]
async fn a_skipped_call_is_one_line_with_label_key_and_holder() {
    #[distributed_lock(key = "outcomes:said", wait = "0s", on_busy = skip, name = "one", client = locks)]
    async fn unit(locks: &LockManager) {}
    #[distributed_lock(key = "outcomes:said", wait = "0s", on_busy = skip, name = "two", label = "said", client = locks)]
    async fn result(locks: &LockManager) -> AppResult<u32> {
        Ok(7)
    }
    #[distributed_lock(key = "outcomes:said", wait = "5ms", on_busy = return = Ok(3), name = "three", client = locks)]
    async fn value(locks: &LockManager) -> AppResult<u32> {
        Ok(7)
    }
    let builder = LockManager::builder().client_name("orders-7");
    let locks = builder.connect("memory://").await.unwrap();
    let held = locks.lock("outcomes:said").acquire().await.unwrap();
    let capture = Capture::start();
    unit(&locks).await;
    assert_eq!(result(&locks).await.unwrap(), 0);
    assert_eq!(value(&locks).await.unwrap(), 3);
    held.release().await.unwrap();
    unit(&locks).await;
    let mut said = capture.events();
    said.retain(|event| event.message().contains("was skipped"));
    let functions: Vec<_> = said.iter().map(|event| event.field("function")).collect();
    assert_eq!(functions, [Some("one"), Some("two"), Some("three")]);
    let labels: Vec<_> = said.iter().map(|event| event.field("label")).collect();
    let template = Some("outcomes:said");
    assert_eq!(labels, [template, Some("said"), template]);
    for event in said {
        assert_eq!((event.level, event.target), (Level::INFO, "lock_core"));
        let fields = (event.field("key"), event.field("holder"));
        assert_eq!(fields, (Some("outcomes:said"), Some("orders-7")));
    }
}

#[tokio::test]
async fn a_busy_lock_returns_the_value_given() {
    #[distributed_lock(key = "outcomes:return", wait = "0s", on_busy = return = Err(AppError::Busy), client = locks)]
    async fn result(locks: &LockManager) -> AppResult<u32> {
        Ok(7)
    }
    #[distributed_lock(key = "outcomes:return", wait = "0s", on_busy = return = Verdict::Refused(code), client = locks)]
    async fn verdict(locks: &LockManager, code: u32) -> Verdict {
        Verdict::Done
    }
    #[distributed_lock(
        key = "outcomes:return",
        wait = "0s",
        on_busy = return = input,
        on_lost = continue,
        client = locks,
    )]
    async fn untouched(locks: &LockManager, input: String) -> String {
        input.to_uppercase()
    }
    let locks = memory().await;
    let held = locks.lock("outcomes:return").acquire().await.unwrap();
    assert!(matches!(result(&locks).await, Err(AppError::Busy)));
    assert_eq!(verdict(&locks, 3).await, Verdict::Refused(3));
    assert_eq!(untouched(&locks, "a".into()).await, "a");
    held.release().await.unwrap();
    assert_eq!(result(&locks).await.unwrap(), 7);
    assert_eq!(verdict(&locks, 3).await, Verdict::Done);
    assert_eq!(untouched(&locks, "a".into()).await, "A");
}

#[tokio::test]
async fn the_value_given_may_use_what_the_body_consumes() {
    #[distributed_lock(key = "outcomes:given", wait = "0s", on_busy = return = Ok(names), client = locks)]
    async fn sorted(locks: &LockManager, names: Vec<u32>) -> AppResult<Vec<u32>> {
        let mut sorted = names;
        sorted.sort_unstable();
        Ok(sorted)
    }
    let locks = memory().await;
    let held = locks.lock("outcomes:given").acquire().await.unwrap();
    assert_eq!(sorted(&locks, vec![2, 1]).await.unwrap(), [2, 1]);
    held.release().await.unwrap();
    assert_eq!(sorted(&locks, vec![2, 1]).await.unwrap(), [1, 2]);
}

#[tokio::test]
async fn an_alias_of_a_result_keeps_the_errors_that_are_no_contention() {
    #[distributed_lock(key = "outcomes:alias", wait = "0s", on_busy = return = Ok(1), client = locks)]
    async fn value(locks: &LockManager) -> Outcome<u32> {
        Ok(7)
    }
    #[distributed_lock(key = "outcomes:alias", wait = "0s", on_busy = call = |_| Ok(2), client = locks)]
    async fn call(locks: &LockManager) -> Outcome<u32> {
        Ok(7)
    }
    let locks = memory().await;
    let held = locks.lock("outcomes:alias").acquire().await.unwrap();
    assert_eq!(value(&locks).await.unwrap(), 1);
    assert_eq!(call(&locks).await.unwrap(), 2);
    held.release().await.unwrap();
    assert_eq!(value(&locks).await.unwrap(), 7);
    locks.shutdown(Duration::from_secs(5)).await;
    for outcome in [value(&locks).await, call(&locks).await] {
        assert!(matches!(outcome, Err(LockError::ShutDown)), "{outcome:?}");
    }
}

#[tokio::test]
async fn skipping_hides_no_other_error_of_a_result() {
    #[distributed_lock(key = NO_KEY, wait = "0s", on_busy = skip, client = locks)]
    async fn skip(locks: &LockManager) -> AppResult<()> {
        unreachable!("the body never runs without the lock")
    }
    #[distributed_lock(key = NO_KEY, wait = "0s", on_busy = return = Ok(1), client = locks)]
    async fn value(locks: &LockManager) -> AppResult<u32> {
        unreachable!("the body never runs without the lock")
    }
    let locks = memory().await;
    assert!(matches!(
        skip(&locks).await,
        Err(AppError::Lock(LockError::InvalidKey { .. }))
    ));
    assert!(matches!(
        value(&locks).await,
        Err(AppError::Lock(LockError::InvalidKey { .. }))
    ));
}

#[tokio::test]
async fn without_a_result_every_error_skips_the_work() {
    #[distributed_lock(key = NO_KEY, wait = "0s", on_busy = skip, client = locks)]
    async fn unit(locks: &LockManager) {
        unreachable!("the body never runs without the lock")
    }
    #[distributed_lock(key = NO_KEY, wait = "0s", on_busy = return = Verdict::Refused(1), client = locks)]
    async fn verdict(locks: &LockManager) -> Verdict {
        unreachable!("the body never runs without the lock")
    }
    let locks = memory().await;
    unit(&locks).await;
    assert_eq!(verdict(&locks).await, Verdict::Refused(1));
}

#[tokio::test]
async fn the_body_is_cancelled_when_the_lock_is_lost() {
    struct Dropped<'a>(&'a AtomicU32);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    #[distributed_lock(key = "outcomes:lost", max_hold = "50ms", client = locks)]
    async fn stuck(locks: &LockManager, dropped: &AtomicU32) -> AppResult<()> {
        let _dropped = Dropped(dropped);
        std::future::pending().await
    }
    let locks = memory().await;
    let dropped = AtomicU32::new(0);
    assert!(matches!(
        stuck(&locks, &dropped).await,
        Err(AppError::Lock(LockError::Lost { .. }))
    ));
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_lost_lock_gives_the_value_of_a_function_without_a_result() {
    #[distributed_lock(key = "outcomes:lost_value", max_hold = "50ms", wait = "0s", on_busy = skip, client = locks)]
    async fn skip(locks: &LockManager) -> Option<u32> {
        std::future::pending().await
    }
    #[distributed_lock(
        key = "outcomes:lost_value",
        max_hold = "50ms",
        wait = "0s", on_busy = return = Verdict::Refused(2),
        client = locks,
    )]
    async fn verdict(locks: &LockManager) -> Verdict {
        std::future::pending().await
    }
    let locks = memory().await;
    assert_eq!(skip(&locks).await, None);
    assert_eq!(verdict(&locks).await, Verdict::Refused(2));
}

/// Proves P13.
#[tokio::test]
async fn a_body_that_is_ready_when_the_lock_is_lost_does_not_run_on() {
    #[distributed_lock(key = "outcomes:ready", max_hold = "50ms", client = locks)]
    async fn slow(locks: &LockManager, started: tokio::sync::oneshot::Sender<()>) -> AppResult<()> {
        let _ = started.send(());
        tokio::time::sleep(Duration::from_millis(10)).await;
        unreachable!("the lock is lost by now");
    }
    let locks = memory().await;
    let (started, begun) = tokio::sync::oneshot::channel();
    // The thread stands still, as in a process that was paused: the body's timer and the loss are both due after it.
    let pause = async {
        begun.await.unwrap();
        std::thread::sleep(Duration::from_millis(200));
    };
    let (outcome, ()) = tokio::join!(slow(&locks, started), pause);
    assert!(matches!(
        outcome,
        Err(AppError::Lock(LockError::Lost { .. }))
    ));
}

#[tokio::test]
async fn the_body_runs_on_when_it_is_told_to() {
    #[distributed_lock(key = "outcomes:continue", max_hold = "50ms", on_lost = continue, guard = held, client = locks)]
    async fn slow(locks: &LockManager) -> AppResult<bool> {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(held.is_held())
    }
    #[distributed_lock(key = "outcomes:cancel", on_lost = cancel, guard = held, client = locks)]
    async fn quick(locks: &LockManager) -> AppResult<bool> {
        Ok(held.is_held())
    }
    let locks = memory().await;
    assert!(!slow(&locks).await.unwrap());
    assert!(quick(&locks).await.unwrap());
}

#[tokio::test]
async fn a_question_mark_converts_and_frees_the_lock() {
    #[distributed_lock(key = "outcomes:question", client = locks)]
    async fn parse(
        locks: &LockManager,
        text: &str,
    ) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
        Ok(text.parse::<u32>()?)
    }
    let locks = memory().await;
    assert_eq!(parse(&locks, "7").await.unwrap(), 7);
    assert!(
        parse(&locks, "seven")
            .await
            .unwrap_err()
            .is::<std::num::ParseIntError>()
    );
    assert!(
        locks
            .lock("outcomes:question")
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn an_early_return_leaves_the_body_and_frees_the_lock() {
    #[distributed_lock(key = "outcomes:early", client = locks)]
    async fn first_even(locks: &LockManager, numbers: &[u32]) -> AppResult<Option<u32>> {
        for number in numbers {
            if number % 2 == 0 {
                return Ok(Some(*number));
            }
        }
        Ok(None)
    }
    let locks = memory().await;
    assert_eq!(first_even(&locks, &[1, 4, 5]).await.unwrap(), Some(4));
    assert_eq!(first_even(&locks, &[1]).await.unwrap(), None);
    assert!(
        locks
            .lock("outcomes:early")
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_cancelled_call_frees_the_lock() {
    #[distributed_lock(key = "outcomes:cancelled", client = locks)]
    async fn stuck(locks: &LockManager) -> AppResult<()> {
        std::future::pending().await
    }
    let locks = memory().await;
    assert!(
        tokio::time::timeout(Duration::from_millis(50), stuck(&locks))
            .await
            .is_err()
    );
    let _again = locks
        .lock("outcomes:cancelled")
        .acquire_within(Duration::from_secs(5))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_panic_in_the_body_frees_the_lock() {
    #[distributed_lock(key = "outcomes:panic", client = locks)]
    async fn panics(locks: LockManager) -> AppResult<()> {
        panic!("on purpose")
    }
    let locks = memory().await;
    assert!(
        tokio::spawn(panics(locks.clone()))
            .await
            .unwrap_err()
            .is_panic()
    );
    let _again = locks
        .lock("outcomes:panic")
        .acquire_within(Duration::from_secs(5))
        .await
        .unwrap();
}

/// Proves P13.
#[tokio::test]
async fn bodies_of_one_key_never_run_together() {
    #[distributed_lock(key = "outcomes:alone", client = locks)]
    async fn alone(locks: LockManager, inside: &'static AtomicU32) -> AppResult<()> {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
        tokio::time::sleep(Duration::from_millis(1)).await;
        inside.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    let locks = memory().await;
    let calls: Vec<_> = (0..20)
        .map(|_| tokio::spawn(alone(locks.clone(), &INSIDE)))
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
}
