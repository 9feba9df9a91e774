//! The `#[distributed_lock]` attribute of `lock-core`.
//!
//! Depend on `lock-core`, which exports the attribute, and not on this crate: the two are one library and match in
//! their exact versions.
//!
//! How the attribute is made: `parse` reads the arguments, `function` reads the item, `validate` turns both
//! into a plan or into errors, `expand` writes the code. What the code does at run time is in `lock-core`. What users read
//! about the arguments is in `docs`, a file for each question that they answer.

mod duration;
mod expand;
mod function;
mod key;
mod output;
mod parse;
mod template;
mod validate;

use proc_macro::TokenStream;

/// Runs an async function under a distributed lock.
///
/// The function asks for the lock, waits for its turn, runs its body and gives the lock back: also when the body
/// returns early, fails, panics or is cancelled. **The body never runs without the lock**, whatever the arguments.
///
/// ```
/// use lock_core::{LockError, LockManager, distributed_lock};
///
/// #[distributed_lock(key = "order:{order_id}", ttl = "30s", wait = "5s")]
/// async fn pay(order_id: u64, amount: u64) -> Result<u64, LockError> {
///     // Nobody else in the cluster pays this order now.
///     Ok(amount)
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let _ = locks.install_default();
/// assert_eq!(pay(7, 100).await?, 100);
/// # Ok(())
/// # }
/// ```
///
/// It goes on `async fn`s of every shape: free, generic, with any receiver, in an `impl` or in a trait with a body,
/// handlers of web frameworks among them. It works above and beneath `#[instrument]`, `#[async_trait]`, `#[tokio::test]`
/// and `#[tokio::main]`. A function that returns a stream is refused: the items would be made without the lock.
///
/// Inside the function, and in all that it calls, [`LockGuard::current()`] tells the fencing token and whether the lock
/// is still held.
///
/// [`LockGuard::current()`]: ../lock_core/struct.LockGuard.html#method.current
///
/// | Argument | Value | When it is absent |
/// |---|---|---|
/// | [`key`](#key) | a format string, or an expression of text | the path of the function, where parameters are marked |
/// | [`#[key]`](#key-on-a-parameter) | on a parameter | no parameter is appended to the key |
/// | [`keys`](#keys) | a list of keys | one lock |
/// | [`escape`](#escape) | `true`, `false` | `true` |
/// | [`reentrant`](#reentrant) | nothing, `true`, `false` | `false`: the exclusive lock |
/// | [`owner`](#owner) | an expression of `Owner` or `Option<Owner>` | the owner of the enclosing function or scope, else a new one |
/// | [`ttl`](#ttl) | a duration | the manager's own |
/// | [`wait`](#wait) | a duration | the manager's `default_wait`, else waits without limit |
/// | [`renew`](#renew) | `true`, `false` | `true` |
/// | [`max_hold`](#max_hold) | a duration | holds as long as the body runs |
/// | [`at_least`](#at_least) | a duration | free as soon as the body has ended |
/// | [`when`](#when) | an expression of `bool` | the work is always due |
/// | [`on_busy`](#on_busy) | `error`, `skip`, `return = value`, `call = path` | `error` |
/// | [`on_lost`](#on_lost) | `cancel`, `continue`, `call = path` | `cancel` |
/// | [`map_err`](#map_err) | a path or a closure | `From<LockError>` |
/// | [`client`](#client) | an expression of `LockManager` | the default manager |
/// | [`guard`](#guard) | a name | the body has no guard |
/// | [`name`](#name) | text | the path of the function |
/// | [`crate`](#crate) | the path of `lock-core` | `::lock_core` |
///
/// A duration is a literal or an expression of type [`Duration`](std::time::Duration). A literal is one or more whole
/// numbers with the units `h`, `m`, `s` and `ms`, from the longest to the shortest: `"30s"`, `"500ms"`, `"1m30s"`. It
/// is checked when the program is compiled, and is at most 24 days.
///
/// Expressions may use the parameters. They are evaluated once and in the order `when`, `client`, `owner`, `key`, `ttl`,
/// `wait`, `max_hold`, `at_least`, before the lock is asked for and before the body takes the parameters away.
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
            // The function stays, so that its callers get no errors of their own and editors keep working.
            let mut tokens = TokenStream::from(error.into_compile_error());
            tokens.extend(TokenStream::from(function::without_key_marks(item.into())));
            tokens
        }
    }
}
