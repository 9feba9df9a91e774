//! In the place of functions that are not async, without the feature `blocking`: the compiler says what to do.

use super::{BodyHold, Guards, Options};
use crate::base::error::LockError;
use crate::base::owner::Owner;
use crate::face::manager::LockManager;

/// Nothing has it.
#[diagnostic::on_unimplemented(
    message = "`#[distributed_lock]` on a `fn` without `async` needs the feature `blocking` of lock-core",
    label = "write `async fn`, or enable the feature"
)]
pub trait HasFeature {}

/// As the function with the feature.
pub fn enter<O: HasFeature>(
    _: Option<&LockManager>,
    _: &O,
    _: Option<Owner>,
    _: impl AsRef<str>,
) -> Result<Guards, LockError> {
    unreachable!("the feature is missing")
}

/// As the function with the feature.
pub fn enter_all<O: HasFeature>(
    _: Option<&LockManager>,
    _: &O,
    _: Option<Owner>,
    _: Vec<String>,
) -> Result<Guards, LockError> {
    unreachable!("the feature is missing")
}

/// As the function with the feature.
pub fn run<T>(_: &BodyHold, _: impl FnOnce() -> T) -> Result<T, LockError> {
    unreachable!("the feature is missing")
}

/// As the function with the feature.
#[must_use]
pub fn run_to_end<T>(_: &BodyHold, _: &Options, _: impl FnOnce() -> T) -> T {
    unreachable!("the feature is missing")
}

/// As the function with the feature.
pub fn no_future<T>(output: T) -> T {
    output
}
