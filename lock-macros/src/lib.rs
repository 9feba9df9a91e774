//! The `#[distributed_lock]` attribute of `lock-core`.
//!
//! Depend on `lock-core`, which exports the attribute, and not on this crate: the two are one library and match in
//! their exact versions.
//!
//! How the attribute works: `parse` reads the arguments, `function` reads the item, `validate` turns both into a plan or into
//! errors, and `expand` writes the code. The run-time part of that code is in `lock-core`. The documentation of the arguments is in
//! the folder `docs`.

mod duration;
mod expand;
mod function;
mod key;
mod output;
mod parse;
mod plan;
mod site;
mod stream;
mod template;
mod validate;

use proc_macro::TokenStream;

/// Runs an async function under a distributed lock.
///
/// The function acquires the lock, runs its body and releases the lock, also if the body returns early, fails, panics or is
/// cancelled. **The body never begins without the lock**, whatever the arguments. If the lock is lost, the body is
/// cancelled at its next await, unless [`on_lost = continue`](#on_lost).
///
/// Three arguments are enough for most functions:
///
/// - [`key`](#key): the name of the lock, with values of the parameters;
/// - [`ttl`](#ttl): how long a crashed holder blocks the others. While the body runs, the lock is renewed;
/// - [`wait`](#wait): how long to wait for the lock. `"0s"` is one try.
///
/// ```
/// use lock_core::{LockError, LockManager, distributed_lock};
///
/// #[distributed_lock(key = "order:{order_id}", ttl = "30s", wait = "5s")]
/// async fn pay(order_id: u64, amount: u64) -> Result<u64, LockError> {
///     // No other task or process pays this order now.
///     Ok(amount)
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// locks.install_default();
/// assert_eq!(pay(7, 100).await?, 100);
/// # Ok(())
/// # }
/// ```
///
/// [`on_busy`](#on_busy) chooses the result when the lock is busy, and [`on_lost`](#on_lost) what happens to the body when the
/// lock is lost. Inside the function, and in all functions that it calls, [`LockGuard::current()`] gives the fencing token and says
/// whether the lock is still held.
///
/// The attribute accepts every `async fn` with a body: free, generic, with any receiver, in an `impl` or a trait, and handlers of
/// web frameworks. It works above and below `#[instrument]`, `#[async_trait]`, `#[tokio::test]` and `#[tokio::main]`, and above
/// `#[axum::debug_handler]`: from above, that copies the body to a place without the lock, so it cannot find the name of
/// [`guard`](#guard). It refuses a function that returns a stream, because the items would be produced without the lock.
///
/// # All arguments
///
/// [`LockGuard::current()`]: ../lock_core/struct.LockGuard.html#method.current
///
/// | Argument | Value | Default |
/// |---|---|---|
/// | [`key`](#key) | a format string, or an expression of text | none: required, unless a parameter has `#[key]` (then the path of the function) |
/// | [`#[key]`](#key-on-a-parameter) | on a parameter | no parameter is appended to the key |
/// | [`keys`](#keys) | a list of keys, or an expression of several keys | one key |
/// | [`escape`](#escape) | `true`, `false` | `true` |
/// | [`reentrant`](#reentrant) | no value, `true`, `false` | `false`: an exclusive lock |
/// | [`owner`](#owner) | an expression of `Owner` or `Option<Owner>` | the owner of the enclosing function or scope, or a new owner |
/// | [`mode`](#mode) | `"read"`, `"write"` | an exclusive lock |
/// | [`permits`](#permits-and-max) | a number, or an expression of `u32` | 1, of the semaphore that `max` names |
/// | [`max`](#permits-and-max) | a number, or an expression of `u32` | no semaphore |
/// | [`ttl`](#ttl) | a duration | the manager's `default_ttl` |
/// | [`wait`](#wait) | a duration | the manager's `default_wait`, or no limit |
/// | [`unavailable_after`](#unavailable_after) | a duration | the manager's `unavailable_after`, or as long as the wait |
/// | [`renew`](#renew) | `true`, `false` | `true` |
/// | [`max_hold`](#max_hold) | a duration | no limit |
/// | [`at_least`](#at_least) | a duration | the lock is free when the body has ended |
/// | [`when`](#when) | an expression of `bool` | `true` |
/// | [`on_busy`](#on_busy) | `error`, `skip`, `return = value`, `call = path` | `error` |
/// | [`on_lost`](#on_lost) | `cancel`, `continue`, `call = path` | `cancel` |
/// | [`map_err`](#map_err) | a path or a closure | `From<LockError>` |
/// | [`client`](#client) | an expression of `LockManager` | the default manager |
/// | [`guard`](#guard) | a name | the guard has no name in the body |
/// | [`name`](#name) | text | the path of the function |
/// | [`label`](#label) | text | the key as it is written, or the name of the function |
/// | [`crate`](#crate) | the path of `lock-core` | `::lock_core` |
///
/// A duration is a literal or an expression of type [`Duration`](https://doc.rust-lang.org/std/time/struct.Duration.html). A literal is one or more whole
/// numbers with the units `h`, `m`, `s` and `ms`, from the longest to the shortest: `"30s"`, `"500ms"`, `"1m30s"`. It
/// is checked at compile time, and is at most 24 days.
///
/// Expressions may use the parameters. They are evaluated once, before the acquisition and before the body moves the parameters, in
/// the order `when`, `client`, `owner`, `key`, `ttl`, `wait`, `unavailable_after`, `max_hold`, `at_least`, `permits`, `max`.
///
#[doc = include_str!("../docs/which_lock.md")]
#[doc = include_str!("../docs/how_long.md")]
#[doc = include_str!("../docs/outcome.md")]
#[doc = include_str!("../docs/other_libraries.md")]
#[proc_macro_attribute]
pub fn distributed_lock(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match expand::expand(arguments.into(), item.clone().into()) {
        Ok(expanded) => expanded.into(),
        Err(error) => {
            // Keep the function, so that its callers compile without further errors and editors keep working.
            let mut tokens = TokenStream::from(error.into_compile_error());
            tokens.extend(TokenStream::from(function::without_key_marks(item.into())));
            tokens
        }
    }
}
