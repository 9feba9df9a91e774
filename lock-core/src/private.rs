//! What `#[distributed_lock]` expands to calls of. Not for use by hand: it changes with the attribute.

use std::future::Future;

pub use std::option::Option;
pub use std::result::Result;
pub use std::time::Duration;
pub use std::{concat, format, module_path};

pub use crate::{LockError, LockGuard, LockManager};

/// The arguments of the attribute.
#[derive(Debug)]
pub struct Options {
    /// The path of the function, for traces.
    pub function: &'static str,
    /// `ttl`
    pub ttl: Option<Duration>,
    /// `wait`: absent without limit, zero for one try.
    pub wait: Option<Duration>,
    /// `renew`
    pub renew: bool,
    /// `max_hold`
    pub max_hold: Option<Duration>,
}

/// The lock around one call of the function.
#[derive(Debug)]
pub struct Hold(LockGuard);

impl Hold {
    /// What `guard = name` binds.
    pub fn guard(&self) -> &LockGuard {
        &self.0
    }
}

/// A key given as an expression.
pub fn key<K: AsRef<str> + ?Sized>(key: &K) -> String {
    key.as_ref().to_owned()
}

/// Stands in a branch that is never taken and tells the compiler a type.
#[must_use]
pub fn returned<T>() -> T {
    unreachable!("this stands in a branch that is never taken")
}

/// Takes the lock.
pub async fn enter(
    client: Option<&LockManager>,
    options: &Options,
    key: impl AsRef<str>,
) -> Result<Hold, LockError> {
    let mut lock = match client {
        Some(manager) => manager.lock(key),
        None => crate::default_manager()?.lock(key),
    };
    if let Some(ttl) = options.ttl {
        lock = lock.ttl(ttl);
    }
    if let Some(most) = options.max_hold {
        lock = lock.max_hold(most);
    }
    let lock = lock.renew(options.renew);
    let guard = match options.wait {
        None => lock.acquire().await,
        Some(limit) => lock.acquire_within(limit).await,
    };
    guard.map(Hold)
}

/// Runs the body, drops it if the lock is lost, and releases the lock.
pub async fn run<F: Future>(
    hold: &Hold,
    _options: &Options,
    body: F,
) -> Result<F::Output, LockError> {
    let outcome = hold.0.run_while_held(body).await;
    hold.0.release_quietly().await;
    outcome
}

/// Runs the body to its end, whatever happens to the lock, and releases the lock.
pub async fn run_to_end<F: Future>(hold: &Hold, options: &Options, body: F) -> F::Output {
    let output = body.await;
    if !hold.0.is_held() {
        tracing::warn!(
            function = options.function,
            key = hold.0.key(),
            "the lock was lost while the function ran on: its work may have overlapped with another's"
        );
    }
    hold.0.release_quietly().await;
    output
}

/// How a function without the lock returns.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell the caller that the lock was not obtained",
    label = "this type must have room for a `LockError`",
    note = "return a `Result` whose error type implements `From<LockError>`",
    note = "or leave the work out when the lock is busy: `on_busy = skip`",
    note = "or give a value of your own: `on_busy = return = value`"
)]
pub trait FromLockError: Sized {
    /// The return value for `error`.
    fn from_lock_error(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<LockError>> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(E::from(error))
    }
}

/// How a function returns that leaves its work out when the lock is busy.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no value that says that the work was skipped",
    label = "`on_busy = skip` needs `()`, an `Option`, or a `Result` with a value that implements `Default` and an error that implements `From<LockError>`",
    note = "give a value of your own: `on_busy = return = value`"
)]
pub trait Skip: Sized {
    /// The return value for `error`.
    fn skip(error: LockError, function: &'static str) -> Self;
}

impl Skip for () {
    fn skip(error: LockError, function: &'static str) -> Self {
        trace_swallowed(&error, function);
    }
}

impl<T> Skip for Option<T> {
    fn skip(error: LockError, function: &'static str) -> Self {
        trace_swallowed(&error, function);
        None
    }
}

#[diagnostic::do_not_recommend]
impl<T: Default, E: From<LockError>> Skip for Result<T, E> {
    fn skip(error: LockError, _function: &'static str) -> Self {
        if is_busy(&error) {
            Ok(T::default())
        } else {
            Err(E::from(error))
        }
    }
}

/// Whether `on_busy` speaks of this error.
#[must_use]
pub fn is_busy(error: &LockError) -> bool {
    error.is_contention()
}

/// Says what the function's return type has no room for.
pub fn trace_swallowed(error: &LockError, function: &'static str) {
    if !is_busy(error) {
        tracing::error!(function, %error, "the lock failed and the function can not say so");
    }
}
