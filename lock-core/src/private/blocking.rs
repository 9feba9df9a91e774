//! A function that is not async: it waits for its lock on the thread that calls it.

use std::future::{Future, IntoFuture};

use super::{BodyHold, Guards, Options, take};
use crate::base::error::LockError;
use crate::base::owner::Owner;
use crate::base::rt::Handle;
use crate::face::guard::LockGuard;
use crate::face::manager::LockManager;
use crate::face::scope::Scope;

/// As [`enter`](super::enter).
#[track_caller]
pub fn enter(
    client: Option<&LockManager>,
    options: &Options,
    owner: Option<Owner>,
    key: impl AsRef<str>,
) -> Result<Guards, LockError> {
    let manager = take::manager(client)?;
    let thread = driver(&manager)?;
    thread.block_on(take::enter(Some(&manager), options, owner, key))
}

/// As [`enter_all`](super::enter_all).
#[track_caller]
pub fn enter_all(
    client: Option<&LockManager>,
    options: &Options,
    owner: Option<Owner>,
    keys: Vec<String>,
) -> Result<Guards, LockError> {
    let manager = take::manager(client)?;
    let thread = driver(&manager)?;
    thread.block_on(take::enter_all(Some(&manager), options, owner, keys))
}

/// The runtime that drives what the caller waits for: on the thread of the manager, or the one around a `spawn_blocking`.
fn driver(manager: &LockManager) -> Result<Handle, LockError> {
    if let Some(thread) = manager.thread() {
        return Ok(thread.clone());
    }
    Handle::try_current().map_err(|_| {
        LockError::config(
            "a function that is not async needs a manager with a thread of its own here: make it with `Blocking::connect`, or with `own_thread`",
        )
    })
}

/// As [`run`](super::run). The body runs to its end, which is too late for a lock that was lost.
#[track_caller]
pub fn run<T>(hold: &BodyHold, body: impl FnOnce() -> T) -> Result<T, LockError> {
    let output = under(hold, body);
    let lost = hold.guards().iter().find(|guard| !guard.is_held());
    let error = lost.map(|lost| wait_for(hold, lost.lost_error()));
    wait_for(hold, hold.boxed_release());
    error.map_or(Ok(output), Err)
}

/// As [`run_to_end`](super::run_to_end).
#[track_caller]
pub fn run_to_end<T>(hold: &BodyHold, options: &Options, body: impl FnOnce() -> T) -> T {
    let output = under(hold, body);
    hold.notes_overlap(options);
    wait_for(hold, hold.boxed_release());
    output
}

fn under<T>(hold: &BodyHold, body: impl FnOnce() -> T) -> T {
    let views = hold.guards().iter().map(LockGuard::view);
    Scope::run_here(views, || hold.in_scope(body))
}

#[track_caller]
fn wait_for<F: Future>(hold: &BodyHold, future: F) -> F::Output {
    match hold.guard().runtime() {
        Some(thread) => thread.block_on(future),
        // As for the lock.
        None => Handle::current().block_on(future),
    }
}

/// A return type without a future: a future would do its work after the function has returned, without the lock.
///
/// ```compile_fail,E0283
/// use lock_core::{LockError, LockManager, distributed_lock};
///
/// #[distributed_lock(key = "a", client = locks)]
/// fn work(locks: &LockManager) -> Result<std::future::Ready<u32>, LockError> {
///     Ok(std::future::ready(7))
/// }
/// ```
pub trait NoFuture<A> {}

/// Of all types. Those with a future have a second one, and the compiler cannot choose.
#[derive(Debug)]
pub struct Any;

/// Of futures.
#[derive(Debug)]
pub struct IsFuture;

/// Of a `Result` or an `Option` of a future.
#[derive(Debug)]
pub struct HasFuture;

impl<T: ?Sized> NoFuture<Any> for T {}
impl<T: IntoFuture + ?Sized> NoFuture<IsFuture> for T {}
impl<T: IntoFuture, E> NoFuture<HasFuture> for Result<T, E> {}
impl<T: IntoFuture> NoFuture<HasFuture> for Option<T> {}

/// Refuses a future.
pub fn no_future<A, T: NoFuture<A>>(output: T) -> T {
    output
}
