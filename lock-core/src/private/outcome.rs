//! Return values of an annotated function whose body did not run, or was cancelled.

use std::marker::PhantomData;

use super::Options;
use crate::base::error::LockError;

/// The return value of a function that did not get the lock.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell the caller that the lock was not obtained",
    label = "this type must have room for a `LockError`",
    note = "return a `Result` whose error type implements `From<LockError>`",
    note = "or, where it is a `Result`, make an error of your own: `map_err = path`",
    note = "or give a value instead, with a limit: `wait = \"5s\", on_busy = return = value`, or `skip`, or `call = path`"
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

/// The return value of a function that skips its work if the lock is busy.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no value that says that the work was skipped",
    label = "`on_busy = skip` needs `()`, an `Option`, or a `Result` with a value that implements `Default` and an error that implements `From<LockError>` (or `map_err`)",
    note = "give a value of your own: `on_busy = return = value`"
)]
pub trait Skip: Sized {
    /// The return value for `error`.
    fn skip(error: LockError, options: &Options) -> Self;
}

impl Skip for () {
    fn skip(error: LockError, options: &Options) -> Self {
        trace_swallowed(&error, options);
    }
}

impl<T> Skip for Option<T> {
    fn skip(error: LockError, options: &Options) -> Self {
        trace_swallowed(&error, options);
        None
    }
}

#[diagnostic::do_not_recommend]
impl<T: Default, E: From<LockError>> Skip for Result<T, E> {
    fn skip(error: LockError, options: &Options) -> Self {
        if is_skipped(&error, options) {
            Ok(T::default())
        } else {
            Err(E::from(error))
        }
    }
}

/// The return value of a function that skips its work without an error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no value that says that the work was left out",
    label = "`when` and `on_busy = skip` need `()`, an `Option`, or a `Result` with a value that implements `Default`",
    note = "give a value of your own: `on_busy = return = value`"
)]
pub trait NotDue: Sized {
    /// The return value.
    fn not_due() -> Self;
}

impl NotDue for () {
    fn not_due() -> Self {}
}

impl<T> NotDue for Option<T> {
    fn not_due() -> Self {
        None
    }
}

#[diagnostic::do_not_recommend]
impl<T: Default, E> NotDue for Result<T, E> {
    fn not_due() -> Self {
        Ok(T::default())
    }
}

/// A return type with an error type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no `Result`",
    label = "`map_err` makes the error of a `Result`"
)]
pub trait Fallible: Sized {
    /// `E` of `Result<T, E>`.
    type Error;
    /// The return value for an error.
    fn fail(error: Self::Error) -> Self;
}

impl<T, E> Fallible for Result<T, E> {
    type Error = E;
    fn fail(error: E) -> Self {
        Err(error)
    }
}

/// Finds out whether a return type is a `Result` by another name: the type's own method takes precedence over the method of a trait.
#[derive(Debug)]
pub struct Room<R>(pub PhantomData<R>);

impl<R: Fallible + FromLockError> Room<R> {
    /// The function's return value for an error to which `on_busy` does not apply; `Err` for any other error.
    pub fn failed(&self, error: LockError) -> Result<R, LockError> {
        if is_busy(&error) {
            Err(error)
        } else {
            Ok(R::from_lock_error(error))
        }
    }
}

/// A return type without room for an error.
pub trait NoRoom<R> {
    /// Returns the error.
    fn failed(&self, error: LockError) -> Result<R, LockError> {
        Err(error)
    }
}

impl<R> NoRoom<R> for Room<R> {}

/// `map_err = map`
pub fn mapped<R: Fallible>(error: LockError, map: impl FnOnce(LockError) -> R::Error) -> R {
    R::fail(map(error))
}

/// `on_busy = call = function` and `on_lost = call = function`
pub fn called<T>(error: LockError, function: impl FnOnce(LockError) -> T) -> T {
    function(error)
}

/// Whether `on_busy` applies to this error.
#[must_use]
pub fn is_busy(error: &LockError) -> bool {
    error.is_contention()
}

/// As [`is_busy`], and logs that the function was skipped.
#[must_use]
pub fn is_skipped(error: &LockError, options: &Options) -> bool {
    let is_busy = is_busy(error);
    if is_busy {
        trace_swallowed(error, options);
    }
    is_busy
}

/// Logs why the function did not run, if its return value does not say so.
pub fn trace_swallowed(error: &LockError, options: &Options) {
    let Options {
        function, label, ..
    } = *options;
    match error {
        LockError::Busy { key, holder, .. } | LockError::TimedOut { key, holder, .. } => {
            let (key, holder) = (key.as_str(), holder.as_deref());
            tracing::info!(target: "lock_core", function, label, key, holder, "the function was skipped: the lock is held by another client");
        }
        error => {
            tracing::error!(target: "lock_core", function, %error, "the function did not run, and its lock error is only logged, because it returns no `Result`");
        }
    }
}
