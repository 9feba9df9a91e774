//! The body never runs without the lock: every combination of `on_busy` and `on_lost`, with every kind of return type.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{Lock, LockError, LockManager, Owner, ReentrantLock, distributed_lock};

use crate::memory;

/// What the body gives and what the callbacks give, for a return type.
trait Sample {
    fn ran() -> Self;
    fn busy(error: LockError) -> Self;
}

impl Sample for () {
    fn ran() {}
    fn busy(_: LockError) {}
}

impl Sample for Option<u32> {
    fn ran() -> Self {
        Some(7)
    }
    fn busy(_: LockError) -> Self {
        None
    }
}

impl Sample for Result<u32, LockError> {
    fn ran() -> Self {
        Ok(7)
    }
    fn busy(error: LockError) -> Self {
        Err(error)
    }
}

/// One function, called while another holds the lock, when the key is refused, and with the lock free.
fn lock(locks: &LockManager, key: &str) -> Lock {
    locks.lock(key)
}

/// For a new owner.
fn reentrant_lock(locks: &LockManager, key: &str) -> ReentrantLock {
    locks.reentrant_lock(key).owner(&Owner::new())
}

macro_rules! one {
    ($name:ident, $output:ty, $busy:tt, $lost:tt) => {
        one!($name, $output, $busy, $lost, lock, false);
    };
    ($name:ident, $output:ty, [$($busy:tt)*], [$($lost:tt)*], $lock:ident, $reentrant:tt) => {
        #[tokio::test]
        async fn $name() {
            #[distributed_lock(key = key, reentrant = $reentrant, wait = wait, on_busy = $($busy)*, on_lost = $($lost)*, client = locks, guard = held)]
            async fn work(locks: &LockManager, key: &str, wait: Duration, ran: &AtomicU32) -> $output {
                assert!(held.is_held(), "the body runs without the lock");
                // In a task of its own: another owner.
                let another = $lock(locks, held.key());
                let another = tokio::spawn(async move { another.try_acquire().await });
                assert!(another.await.unwrap().unwrap().is_none(), "another could take the lock");
                ran.fetch_add(1, Ordering::SeqCst);
                Sample::ran()
            }
            let locks = memory().await;
            let key = concat!("never:", stringify!($name));
            let ran = AtomicU32::new(0);

            let other = $lock(&locks, key).acquire().await.unwrap();
            for wait in [Duration::ZERO, Duration::from_millis(5)] {
                let _ = work(&locks, key, wait, &ran).await;
            }
            assert_eq!(ran.load(Ordering::SeqCst), 0, "it ran while another held the lock");

            let _ = work(&locks, "", Duration::ZERO, &ran).await;
            assert_eq!(ran.load(Ordering::SeqCst), 0, "it ran without any key");

            other.release().await.unwrap();
            let _ = work(&locks, key, Duration::ZERO, &ran).await;
            assert_eq!(ran.load(Ordering::SeqCst), 1, "it did not run, and the lock was free");
            assert!($lock(&locks, key).try_acquire().await.unwrap().is_some(), "it kept the lock");

            locks.shutdown(Duration::from_secs(1)).await;
            let _ = work(&locks, key, Duration::ZERO, &ran).await;
            assert_eq!(ran.load(Ordering::SeqCst), 1, "it ran after the manager was shut down");
        }
    };
}

/// All of `on_lost` for one of `on_busy`.
macro_rules! each_loss {
    ($cancel:ident, $go_on:ident, $call:ident, $output:ty, $busy:tt) => {
        one!($cancel, $output, $busy, [cancel]);
        one!($go_on, $output, $busy, [continue]);
        one!($call, $output, $busy, [call = Sample::busy]);
    };
}

mod result {
    use super::*;
    type Output = Result<u32, LockError>;
    each_loss!(error_cancel, error_continue, error_call, Output, [error]);
    // Proves P13.
    each_loss!(skip_cancel, skip_continue, skip_call, Output, [skip]);
    each_loss!(
        return_cancel,
        return_continue,
        return_call,
        Output,
        [return = Ok(1)]
    );
    each_loss!(
        call_cancel,
        call_continue,
        call_call,
        Output,
        [call = Sample::busy]
    );
}

/// As `result`, by the name of the type: the attribute tells a `Result` by it.
mod named_result {
    use super::*;
    each_loss!(error_cancel, error_continue, error_call, Result<u32, LockError>, [error]);
    each_loss!(skip_cancel, skip_continue, skip_call, Result<u32, LockError>, [skip]);
    each_loss!(return_cancel, return_continue, return_call, Result<u32, LockError>, [return = Ok(1)]);
    each_loss!(call_cancel, call_continue, call_call, Result<u32, LockError>, [call = Sample::busy]);
}

mod option {
    use super::*;
    each_loss!(skip_cancel, skip_continue, skip_call, Option<u32>, [skip]);
    each_loss!(
        return_cancel,
        return_continue,
        return_call,
        Option<u32>,
        [return = None]
    );
    each_loss!(
        call_cancel,
        call_continue,
        call_call,
        Option<u32>,
        [call = Sample::busy]
    );
}

mod unit {
    use super::*;
    each_loss!(skip_cancel, skip_continue, skip_call, (), [skip]);
    each_loss!(
        return_cancel,
        return_continue,
        return_call,
        (),
        [return = ()]
    );
    each_loss!(
        call_cancel,
        call_continue,
        call_call,
        (),
        [call = Sample::busy]
    );
}

/// The reentrant kind.
mod reentrant {
    use super::*;
    one!(cancel, Result<u32, LockError>, [error], [cancel], reentrant_lock, true);
    one!(go_on, Result<u32, LockError>, [skip], [continue], reentrant_lock, true);
    one!(
        call,
        Option<u32>,
        [return = None],
        [call = Sample::busy],
        reentrant_lock,
        true
    );
    one!(
        unit,
        (),
        [call = Sample::busy],
        [continue],
        reentrant_lock,
        true
    );
}
