//! The traits of `#[distributed_lock]`: what an annotated function may return, and what a key may be made of.
//!
//! A program rarely names them. The compiler does, where a return type or a value does not fit. They are implemented for what
//! most functions return and most keys hold; implement [`FromLockError`] for a return type of your own. For the response type of a web
//! framework, which is not your own, return a `Result` with an error of your own:
//! see [A web handler](crate::recipes#a-web-handler).
//!
//! # Examples
//!
//! ```
//! use lock_core::attribute::FromLockError;
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! /// An answer of our own: not a `Result`.
//! #[derive(Debug, PartialEq)]
//! struct Response(u16);
//!
//! impl FromLockError for Response {
//!     fn from_lock_error(error: LockError) -> Self {
//!         Self(if error.is_contention() { 409 } else { 503 })
//!     }
//! }
//!
//! #[distributed_lock(key = "report", wait = "0s", client = locks)]
//! async fn report(locks: &LockManager) -> Response {
//!     Response(200)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! assert_eq!(report(&locks).await, Response(200));
//! let _held = locks.lock("report").acquire().await?;
//! assert_eq!(report(&locks).await, Response(409));
//! # Ok(()) }
//! ```

pub use crate::__private::{Fallible, FromLockError, KeyPart, KeyText, NamesOwner, NotDue, Skip};
