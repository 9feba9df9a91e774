//! The `#[distributed_lock]` attribute of `lock-core`.
//!
//! Depend on `lock-core`, which exports the attribute, and not on this crate: the two are one library and match in
//! their exact versions.
//!
//! How the attribute is made: `parse` reads the arguments, `function` reads the item, `validate` turns both
//! into a plan or into errors, `expand` writes the code. What the code does at run time is in `lock-core`.

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
/// let _ = locks.clone().install_default();
/// assert_eq!(pay(7, 100).await?, 100);
/// # Ok(())
/// # }
/// ```
///
/// It goes on `async fn`s of every shape: free, generic, with any receiver, in an `impl` or in a trait with a body.
/// It also goes on what `#[async_trait]` makes of a method, which ends in `Box::pin(async move { .. })`. Put it above
/// an attribute that turns an `async fn` into another function, such as `#[tokio::main]`.
///
/// | Argument | Value | When it is absent |
/// |---|---|---|
/// | [`key`](#key) | a format string, or an expression of text | an error: there is no default |
/// | [`ttl`](#ttl) | a duration | the manager's own |
/// | [`wait`](#wait) | a duration | waits without limit |
/// | [`renew`](#renew) | `true`, `false` | `true` |
/// | [`max_hold`](#max_hold) | a duration | holds as long as the body runs |
/// | [`on_busy`](#on_busy) | `error`, `skip`, `return = value` | `error` |
/// | [`on_lost`](#on_lost) | `cancel`, `continue` | `cancel` |
/// | [`client`](#client) | an expression of `LockManager` | the default manager |
/// | [`guard`](#guard) | a name | the body has no guard |
/// | [`crate`](#crate) | the path of `lock-core` | `::lock_core` |
///
/// A duration is a literal or an expression of type [`Duration`](std::time::Duration). A literal is one or more whole
/// numbers with the units `h`, `m`, `s` and `ms`, from the longest to the shortest: `"30s"`, `"500ms"`, `"1m30s"`. It
/// is checked when the program is compiled, and is at most 24 days.
///
/// Expressions may use the parameters. They are evaluated once and in the order `client`, `key`, `ttl`, `wait`, `max_hold`,
/// before the lock is asked for and before the body takes the parameters away.
///
/// # `key`
///
/// The name of the lock. A string is a format string that captures parameters; with further arguments it stands in
/// parentheses; anything else is an expression of a type that implements `AsRef<str>`, which is only borrowed.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// struct Order { id: u64, lock_name: String }
///
/// #[distributed_lock(key = "report:{day}:{hour:02}")]
/// async fn report(day: &str, hour: u32) -> Result<(), LockError> { Ok(()) }
///
/// #[distributed_lock(key = ("order:{}", order.id))]
/// async fn ship(order: Order) -> Result<(), LockError> { Ok(()) }
///
/// #[distributed_lock(key = order.lock_name)]
/// async fn cancel(order: Order) -> Result<String, LockError> { Ok(order.lock_name) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// # report("monday", 3).await?;
/// # ship(Order { id: 1, lock_name: String::new() }).await?;
/// # cancel(Order { id: 1, lock_name: "order:1".into() }).await?;
/// # Ok(())
/// # }
/// ```
///
/// A key has 1 to 1024 bytes. In a cluster, keys with the same `{tag}` live on the same node; as braces capture
/// parameters, a tag is written in double braces: `"{{orders}}:{id}"`. What is wrong with a literal for every value of
/// the parameters is an error of compilation; the rest is `LockError::InvalidKey` when the function is called.
///
/// # `ttl`
///
/// How long the lock outlives a holder that has crashed: from 10 ms to 24 days. While the body runs, the lock is
/// renewed (see [`renew`](#renew)), so that a short ttl does not hurt a long body.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// use std::time::Duration;
///
/// #[distributed_lock(key = "literal", ttl = "1m30s")]
/// async fn literal() -> Result<(), LockError> { Ok(()) }
///
/// #[distributed_lock(key = "expression", ttl = Duration::from_secs(3) * factor)]
/// async fn expression(factor: u32) -> Result<(), LockError> { Ok(()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// # literal().await?;
/// # expression(2).await?;
/// # Ok(())
/// # }
/// ```
///
/// # `wait`
///
/// How long to wait for a lock that another holds. Zero is one try. Drop the future to stop waiting earlier.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "report:daily", wait = "0s")]
/// async fn report() -> Result<(), LockError> { Ok(()) }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let _ = locks.clone().install_default();
/// let _held = locks.lock("report:daily").acquire().await?;
/// assert!(matches!(report().await, Err(LockError::Busy { .. })));
/// # Ok(())
/// # }
/// ```
///
/// # `renew`
///
/// Whether the lock is renewed while the body runs. With `false` the lock is lost when its ttl has passed.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// # use std::time::Duration;
/// #[distributed_lock(key = "fixed", ttl = "100ms", renew = false)]
/// async fn too_slow() -> Result<(), LockError> {
///     tokio::time::sleep(Duration::from_secs(60)).await;
///     Ok(())
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// assert!(matches!(too_slow().await, Err(LockError::Lost { .. })));
/// # Ok(())
/// # }
/// ```
///
/// # `max_hold`
///
/// The longest time that the body may hold the lock, so that a body that is stuck does not renew it for ever. After it
/// the lock is lost, and [`on_lost`](#on_lost) says what becomes of the body.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "import", max_hold = "50ms")]
/// async fn stuck() -> Result<(), LockError> {
///     std::future::pending().await
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// assert!(matches!(stuck().await, Err(LockError::Lost { .. })));
/// # Ok(())
/// # }
/// ```
///
/// # `on_busy`
///
/// What the caller gets when another holds the lock, or still holds it when the [`wait`](#wait) is over.
///
/// - `error`: the error, by `From<LockError>` of the error type in the function's `Result`.
/// - `skip`: nothing, as if the work had been left out: `()`, `None`, or `Ok` of the default value.
/// - `return = value`: that value, an expression that may use the parameters.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "clean-up", wait = "0s", on_busy = skip)]
/// async fn clean_up() { /* once in the cluster is enough */ }
///
/// #[distributed_lock(key = "stock:{item}", wait = "0s", on_busy = return = Ok(guess))]
/// async fn count(item: &str, guess: u32) -> Result<u32, LockError> { Ok(7) }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let _ = locks.clone().install_default();
/// clean_up().await;
/// let _held = locks.lock("stock:bolts").acquire().await?;
/// assert_eq!(count("bolts", 5).await?, 5);
/// # Ok(())
/// # }
/// ```
///
/// Every other error (the server cannot be reached, the lock is lost, the key is refused) goes through
/// `From<LockError>` as well, with `skip` and `return` too. A function that returns no `Result` cannot say it: its
/// caller gets the value for a busy lock, and the error is traced. With `return`, a `Result` is told by the name of the
/// type: `io::Result<()>` and an alias `AppResult` are, an alias `Outcome` is not. As the value without a `Result` is
/// also that of a lost lock, it may not use a parameter by value that the body uses too, unless
/// `on_lost = continue`.
///
/// # `on_lost`
///
/// What becomes of the body when the lock is lost while it runs: the server could not be reached for a whole ttl, or
/// [`max_hold`](#max_hold) has passed.
///
/// - `cancel`: the body is dropped at its next `.await`, and the caller gets `LockError::Lost`.
/// - `continue`: the body runs on, *from then on without exclusion*, and a warning is traced. Ask the
///   [`guard`](#guard), or let the resource check the fencing token.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// # use std::time::Duration;
/// #[distributed_lock(key = "upload", max_hold = "50ms", on_lost = continue, guard = held)]
/// async fn upload() -> Result<bool, LockError> {
///     tokio::time::sleep(Duration::from_millis(200)).await;
///     Ok(held.is_held())
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// assert!(!upload().await?);
/// # Ok(())
/// # }
/// ```
///
/// # `client`
///
/// The manager to ask for the lock: an expression that gives a `LockManager`, a reference to one, or a smart pointer.
/// Without it, the manager that `install_default` has made the default is asked.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// struct Shop { locks: LockManager }
///
/// impl Shop {
///     #[distributed_lock(key = "order:{order_id}", client = self.locks)]
///     async fn pay(&self, order_id: u64) -> Result<u64, LockError> { Ok(order_id) }
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// let shop = Shop { locks: LockManager::connect("memory://").await? };
/// assert_eq!(shop.pay(7).await?, 7);
/// # Ok(())
/// # }
/// ```
///
/// # `guard`
///
/// A name for the guard in the body: a `&LockGuard`, for its fencing token and to ask whether it is still held.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "ledger", guard = held)]
/// async fn write() -> Result<u64, LockError> {
///     assert!(held.is_held());
///     Ok(held.fencing_token().get())
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// assert!(write().await? < write().await?);
/// # Ok(())
/// # }
/// ```
///
/// # `crate`
///
/// Where `lock-core` is, for a crate that has it under another name or through another crate.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// mod prelude {
///     pub use lock_core as locks;
/// }
///
/// #[distributed_lock(key = "report", crate = prelude::locks)]
/// async fn report() -> Result<(), LockError> { Ok(()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// # report().await
/// # }
/// ```
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
