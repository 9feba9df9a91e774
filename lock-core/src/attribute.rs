//! The traits of `#[distributed_lock]`: for return types of annotated functions, and for the values of keys.
//!
//! A program rarely names them; the compiler does, if a return type or a value does not fit. Most return types and values
//! implement them. Implement [`FromLockError`] for a return type of your own. The response type of a web framework is not your own:
//! return a `Result` with your own error instead, see [Errors to HTTP](crate::guide::errors_to_http).
//!
//! # Examples
//!
//! ```
//! use lock_core::attribute::FromLockError;
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! /// A return type of our own, which is not a `Result`.
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
