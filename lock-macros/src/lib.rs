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
/// | [`wait`](#wait) | a duration | waits without limit |
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
/// # `key`
///
/// The name of the lock. A string is a format string whose placeholders take parameters, their fields and their methods,
/// with the flags that `format!` knows. With further arguments it stands in parentheses. Anything else is an expression
/// of a type that implements `AsRef<str>`: it is only borrowed, and is the key as it is.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// struct Order { id: u64, lines: (u32, u32), lock_name: String }
///
/// impl Order {
///     fn tenant(&self) -> &str { "acme" }
/// }
///
/// #[distributed_lock(key = "{order.tenant()}:{order.id:>08}:{order.lines.0}", guard = held)]
/// async fn ship(order: &Order) -> Result<String, LockError> { Ok(held.key().to_owned()) }
///
/// #[distributed_lock(key = ("order:{}:{kind}", order.id + 1, kind = "next"), guard = held)]
/// async fn next(order: &Order) -> Result<String, LockError> { Ok(held.key().to_owned()) }
///
/// #[distributed_lock(key = order.lock_name)]
/// async fn cancel(order: Order) -> Result<String, LockError> { Ok(order.lock_name) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// let order = Order { id: 7, lines: (3, 4), lock_name: "order:7".into() };
/// assert_eq!(ship(&order).await?, "acme:00000007:3");
/// assert_eq!(next(&order).await?, "order:8:next");
/// assert_eq!(cancel(order).await?, "order:7");
/// # Ok(())
/// # }
/// ```
///
/// A key has 1 to 1024 bytes. In a cluster, keys with the same `{tag}` live on the same node; as braces are
/// placeholders, a tag is written in double braces: `"{{orders}}:{id}"`. What is wrong with a literal for every value of
/// the parameters is an error of compilation; the rest is `LockError::InvalidKey` when the function is called. A key
/// without placeholders costs no allocation.
///
/// # `#[key]` on a parameter
///
/// Appends the parameter to the key, after a colon; several follow each other in the order of the parameters. Without a
/// `key` they follow the path of the function, `my_crate::module::function`. That path has no type in it: methods of the
/// same name in one module share it, and so need a `key` of their own.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "order", guard = held)]
/// async fn pay(#[key] shop: &str, amount: u64, #[key] id: u64) -> Result<String, LockError> {
///     Ok(held.key().to_owned())
/// }
///
/// #[distributed_lock(guard = held)]
/// async fn refund(#[key] id: u64) -> Result<String, LockError> { Ok(held.key().to_owned()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// assert_eq!(pay("acme", 100, 7).await?, "order:acme:7");
/// assert!(refund(7).await?.ends_with("::refund:7"));
/// # Ok(())
/// # }
/// ```
///
/// # `keys`
///
/// Several locks, each written like a [`key`](#key): all or none. Everybody takes them in the order of their names,
/// however they were written, so that no two callers can wait for each other; a key that comes twice is taken once. The
/// [`wait`](#wait) is for all of them together, and the loss of one is the loss of all. The [`guard`](#guard) is a
/// `&[LockGuard]` in the order in which the keys were written.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(keys = ["account:{from}", "account:{to}"], wait = "5s", guard = held)]
/// async fn transfer(from: u64, to: u64, amount: u64) -> Result<usize, LockError> {
///     Ok(held.len())
/// }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// let (there, back) = tokio::join!(transfer(1, 2, 10), transfer(2, 1, 5));
/// assert_eq!((there?, back?), (2, 2));
/// assert_eq!(transfer(1, 1, 10).await?, 1);
/// # Ok(())
/// # }
/// ```
///
/// # `escape`
///
/// On by default: in the values that placeholders and `#[key]` put into a key, `%`, `:`, `{` and `}` are written as
/// `%25`, `%3A`, `%7B` and `%7D`. So no value can look like another part of the key: whoever may choose a user name `a:b`
/// can not lock the orders of `a`, and different values always give different keys. The text of the literal stays as it
/// is, and so do constants in it (`"{PREFIX}:{id}"`, `"{Self::PREFIX}:{id}"`) and a key that is an expression.
///
/// The cost: a program in another language that shares the lock has to write such values in the same way. Where it does
/// not, and the values can do no harm, `escape = false` takes them as they are.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "order:{user}:{id}", guard = held)]
/// async fn escaped(user: &str, id: &str) -> Result<String, LockError> { Ok(held.key().to_owned()) }
///
/// #[distributed_lock(key = "order:{user}:{id}", escape = false, guard = held)]
/// async fn as_it_is(user: &str, id: &str) -> Result<String, LockError> { Ok(held.key().to_owned()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// assert_eq!(escaped("a:b", "c").await?, "order:a%3Ab:c");
/// assert_eq!(escaped("a", "b:c").await?, "order:a:b%3Ac");
/// assert_eq!(as_it_is("a:b", "c").await?, as_it_is("a", "b:c").await?);
/// # Ok(())
/// # }
/// ```
///
/// # `reentrant`
///
/// Takes a [`ReentrantLock`]: functions that call each other over one key enter again instead of waiting for
/// themselves. Each of them is one hold; the lock is free when the last has returned. While any of them runs, the lock
/// is renewed, once for all, and the fencing token stays the same.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "account:{id}", reentrant, guard = held)]
/// async fn transfer(id: u64) -> Result<(u32, u32), LockError> {
///     Ok((held.hold_count(), withdraw(id).await?))
/// }
///
/// #[distributed_lock(key = "account:{id}", reentrant, guard = held)]
/// async fn withdraw(id: u64) -> Result<u32, LockError> { Ok(held.hold_count()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// assert_eq!(transfer(7).await?, (1, 2));
/// assert_eq!(withdraw(7).await?, 1);
/// # Ok(())
/// # }
/// ```
///
/// The outermost function makes an [`Owner`], whose scope the body is; what the body awaits has the same owner, also what
/// it joins or selects: two calls that it joins are inside at the same time. Calls that are joined elsewhere have an
/// owner each, and take turns.
///
/// **A task that the body spawns does not inherit the owner**, since it may outlive the call: it waits for the lock, and
/// a body that awaits such a task waits for itself. A task that is a part of the work is given the owner by hand:
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// use lock_core::Owner;
///
/// #[distributed_lock(key = "account:7", reentrant)]
/// async fn transfer() -> Result<u32, LockError> {
///     let owner = Owner::current().expect("the attribute opens a scope");
///     let part = owner.scope(withdraw());
///     tokio::spawn(part).await.expect("no panic")
/// }
///
/// #[distributed_lock(key = "account:7", wait = "0s", reentrant, guard = held)]
/// async fn withdraw() -> Result<u32, LockError> { Ok(held.hold_count()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// assert_eq!(transfer().await?, 2);
/// # Ok(())
/// # }
/// ```
///
/// A reentrant lock is another lock than the exclusive one of the same key: annotate all functions of a key alike. On the
/// server it has the bare key, without the manager's prefix, and is Redisson's `RLock` of that name. It keeps no order
/// between processes, and it has no [`at_least`](#at_least).
///
/// [`ReentrantLock`]: ../lock_core/struct.ReentrantLock.html
/// [`Owner`]: ../lock_core/struct.Owner.html
///
/// # `owner`
///
/// For whom a [`reentrant`](#reentrant) lock is taken: an `Owner` or an `Option<Owner>`, each also by reference; it is
/// only borrowed. The body runs in the scope of that owner. It is for an owner that comes from elsewhere, such as the
/// header of a request from a service that holds the lock. `None` is as without `owner`.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// use lock_core::Owner;
///
/// #[distributed_lock(
///     key = "account:7",
///     wait = "0s",
///     reentrant,
///     owner = header.map(Owner::parse).transpose()?,
///     guard = held
/// )]
/// async fn book(header: Option<&str>) -> Result<u32, LockError> { Ok(held.hold_count()) }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let _ = locks.clone().install_default();
/// let owner = Owner::new();
/// let _held = locks.reentrant_lock("account:7").owner(&owner).acquire().await?;
/// assert_eq!(book(Some(&owner.to_string())).await?, 2);
/// assert!(book(None).await.is_err(), "a stranger");
/// assert!(book(Some("nonsense")).await.is_err());
/// # Ok(())
/// # }
/// ```
///
/// Whoever knows an owner can enter its locks: take it from services that you trust.
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
/// # `at_least`
///
/// Keeps the lock on the server for at least this long after it was taken, also when the body has ended sooner. For
/// scheduled jobs: a machine whose clock is late finds the slot taken, and does not run the job a second time. The caller
/// does not wait for it.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "nightly", wait = "0s", at_least = "1m", on_busy = skip)]
/// async fn nightly() -> Option<&'static str> { Some("done") }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// assert_eq!(nightly().await, Some("done"));
/// assert_eq!(nightly().await, None);
/// # Ok(())
/// # }
/// ```
///
/// # `when`
///
/// A condition, asked before anything else. Where it is false, there is nothing to do: no lock is asked for, **the body
/// does not run**, and the function returns as with `on_busy = skip` (`()`, `None`, or `Ok` of the default value), or the
/// value of `on_busy = return = value`. It is no way to run the body without the lock; for that, call another function.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "batch", when = !lines.is_empty())]
/// async fn import(lines: &[&str]) -> Result<usize, LockError> { Ok(lines.len()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// assert_eq!(import(&["a", "b"]).await?, 2);
/// assert_eq!(import(&[]).await?, 0);
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
/// - `call = path`: what the function at that path, or the closure, makes of the `LockError`. It is not awaited.
///
/// It speaks of a lock that is busy: without a [`wait`](#wait) the call waits for its turn and never finds it so.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "clean-up", wait = "0s", on_busy = skip)]
/// async fn clean_up() { /* once in the cluster is enough */ }
///
/// #[distributed_lock(key = "stock:{item}", wait = "0s", on_busy = return = Ok(guess))]
/// async fn count(item: &str, guess: u32) -> Result<u32, LockError> { Ok(7) }
///
/// fn explain(error: LockError) -> String { error.to_string() }
///
/// #[distributed_lock(key = "stock:{item}", wait = "0s", on_busy = call = explain)]
/// async fn describe(item: &str) -> String { "7 in stock".into() }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let _ = locks.clone().install_default();
/// clean_up().await;
/// let _held = locks.lock("stock:bolts").acquire().await?;
/// assert_eq!(count("bolts", 5).await?, 5);
/// assert!(describe("bolts").await.contains("held by another"));
/// # Ok(())
/// # }
/// ```
///
/// Every other error (the server cannot be reached, the lock is lost, the key is refused) goes through
/// `From<LockError>` or [`map_err`](#map_err) in every case. A function that returns no `Result` cannot say it: its
/// caller gets the value for a busy lock, and the error is traced, or given to the function of `call`. A `Result` is told
/// by the name of the type: `io::Result<()>` and an alias `AppResult` are, an alias `Outcome` is not. As the value without
/// a `Result` is also that of a lost lock, it may not use a parameter by value that the body uses too, unless
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
/// - `call = path`: as `cancel`, and the caller gets what the function at that path, or the closure, makes of the error.
///   It is called when the body is gone, and is not awaited.
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
/// # `map_err`
///
/// Makes the error of the function's `Result` out of the `LockError`: a path or a closure. Without it
/// `From<LockError>` does.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[derive(Debug, PartialEq)]
/// enum PayError { Busy, Broken }
///
/// impl PayError {
///     fn of_lock(error: LockError) -> Self {
///         if error.is_contention() { Self::Busy } else { Self::Broken }
///     }
/// }
///
/// #[distributed_lock(key = "order:{id}", wait = "0s", map_err = PayError::of_lock)]
/// async fn pay(id: u64) -> Result<(), PayError> { Ok(()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let _ = locks.clone().install_default();
/// let _held = locks.lock("order:7").acquire().await?;
/// assert_eq!(pay(7).await, Err(PayError::Busy));
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
/// A name for the guard in the body: a `&LockGuard` (with [`keys`](#keys) a `&[LockGuard]`), for its fencing token and to
/// ask whether it is still held.
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
/// # `name`
///
/// What traces call the function by. Without it, its path.
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "report", name = "daily report")]
/// async fn report() -> Result<(), LockError> { Ok(()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), LockError> {
/// # let _ = LockManager::connect("memory://").await?.install_default();
/// # report().await
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
///
/// # Coming from another library
///
/// | | lock4j | klock | ShedLock | Redisson | node-redlock | here |
/// |---|---|---|---|---|---|---|
/// | on a function | `@Lock4j` | `@Klock` | `@SchedulerLock` | `getLock(name)` | `using([key], ttl, ..)` | `#[distributed_lock(..)]` |
/// | the key | `keys = "#order.id"` | `keys`, `@KlockKey` | `name = "job-#{#id}"` | text | text | `key = "order:{order.id}"`, `#[key]` |
/// | the key's prefix | `name`, else class and method | `name`, else class and method | none | none | none | `key = ".."`, else the function's path |
/// | several locks | joined into one key | joined into one key | no | `getMultiLock(..)` | `acquire([a, b], ttl)` | `keys = ["..", ".."]` |
/// | how long a crash blocks | `expire` | `leaseTime` | `lockAtMostFor` | `lockWatchdogTimeout` | `ttl` | `ttl` |
/// | renewal while it runs | `expire = -1` | if `leaseTime` is -1 | `KeepAliveLockProvider` | without a `leaseTime` | in `using` | always, unless `renew = false` |
/// | a limit to the hold | `expire` | `leaseTime` | `lockAtMostFor` | `leaseTime` | `ttl` | `max_hold` |
/// | held at least | no | no | `lockAtLeastFor` | no | no | `at_least` |
/// | how long to wait | `acquireTimeout` | `waitTime` | never waits | `tryLock(waitTime, ..)` | `retryCount`, `retryDelay` | `wait` |
/// | the holder asks again | no | by thread | no | by thread | no | by owner: `reentrant` |
/// | it is busy: fail | default | `FAIL_FAST` | no | `tryLock` is false | default | default |
/// | it is busy: leave it out | a failure strategy that returns | no | default | by hand | by hand | `wait = "0s", on_busy = skip` |
/// | it is busy: something else | `failStrategy` | `customLockTimeoutStrategy` | no | by hand | by hand | `on_busy = call = path` |
/// | it is busy: run unlocked | no | **default** (`NO_OPERATION`) | no | by hand | by hand | never |
/// | a condition | `condition` | no | no | by hand | by hand | `when` |
/// | the lock was lost | unnoticed | a strategy at the release | unnoticed | an error at `unlock` | `signal.aborted` | `on_lost`: the body is cancelled |
/// | another server | `executor` | no | `LockProvider` | the client object | the client object | `client = expr` |
/// | a fencing token | no | no | no | `getFencedLock` | no | `guard = held`, `LockGuard::current()` |
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
