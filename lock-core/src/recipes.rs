//! Recipes: locks at the places where services need them. Nothing here but text and examples that run.
//!
//! - [A scheduled job on one of many servers](#a-scheduled-job-on-one-of-many-servers)
//! - [Submitting an order once](#submitting-an-order-once)
//! - [A cache that one caller rebuilds](#a-cache-that-one-caller-rebuilds)
//! - [A web handler](#a-web-handler)
//! - [The lock outside the database transaction](#the-lock-outside-the-database-transaction)
//! - [The fencing token in SQL](#the-fencing-token-in-sql)
//!
//! # A scheduled job on one of many servers
//!
//! Every server runs the same schedule; the job shall run once. One try without waiting (`wait = "0s"`), and who comes
//! second leaves it out (`on_busy = skip`). The clocks of servers differ: without `at_least` a job of 50 ms is over, and
//! its lock free, when a server whose clock is a second late starts it again. `at_least` is longer than the clocks
//! differ and shorter than the schedule's interval; `ttl` is how long a server that dies blocks the job, not how long the
//! job may take.
//!
//! ```
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(
//!     key = "job:report:{day}",
//!     wait = "0s",
//!     on_busy = skip,
//!     at_least = "5m",
//!     ttl = "30s",
//!     max_hold = "30m",
//!     client = locks
//! )]
//! async fn report(locks: &LockManager, day: &str) -> Result<bool, LockError> {
//!     // .. make the report ..
//!     Ok(true)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! let (one, other) = tokio::join!(report(&locks, "monday"), report(&locks, "monday"));
//! assert!(one? ^ other?, "exactly one of them made it");
//! assert!(!report(&locks, "monday").await?, "the slot is still taken");
//! assert!(report(&locks, "tuesday").await?);
//! # Ok(()) }
//! ```
//!
//! # Submitting an order once
//!
//! A client that saw a time-out sends its order again, and both requests may be under way at the same time. The lock makes
//! them come one after the other; *the record of what was done makes the second one do nothing*. A lock alone cannot:
//! when it is free again, the second request would submit again. So: take the lock on the idempotency key, look for the
//! result, and only then work. The record needs a unique index all the same: it is what stands when the lock is lost.
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Mutex;
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! /// Stands for the table `orders`, with a unique index on the idempotency key.
//! #[derive(Default)]
//! struct Orders { by_key: Mutex<HashMap<String, u64>>, charged: Mutex<u64> }
//!
//! #[distributed_lock(key = "submit:{idempotency_key}", wait = "5s", client = locks)]
//! async fn submit(
//!     locks: &LockManager,
//!     orders: &Orders,
//!     idempotency_key: &str,
//!     amount: u64,
//! ) -> Result<u64, LockError> {
//!     if let Some(order) = orders.by_key.lock().unwrap().get(idempotency_key) {
//!         return Ok(*order);
//!     }
//!     tokio::task::yield_now().await; // the payment provider takes its time
//!     *orders.charged.lock().unwrap() += amount;
//!     orders.by_key.lock().unwrap().insert(idempotency_key.to_owned(), 1);
//!     Ok(1)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let (locks, orders) = (LockManager::connect("memory://").await?, Orders::default());
//! let (first, again) = tokio::join!(
//!     submit(&locks, &orders, "3f2a", 100),
//!     submit(&locks, &orders, "3f2a", 100),
//! );
//! assert_eq!(first?, again?);
//! assert_eq!(*orders.charged.lock().unwrap(), 100, "charged once");
//! # Ok(()) }
//! ```
//!
//! # A cache that one caller rebuilds
//!
//! When an entry of a cache runs out, every caller misses it at once. One shall rebuild it and the others wait for the
//! result. The look before the lock keeps the common case free of it; the look behind it finds what the one before us
//! has built. A caller that would rather serve the old value than wait says `wait = "0s", on_busy = return = old`.
//!
//! ```
//! use std::sync::Mutex;
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! #[derive(Default)]
//! struct Cache { value: Mutex<Option<String>>, rebuilt: AtomicU32 }
//!
//! impl Cache {
//!     fn look(&self) -> Option<String> { self.value.lock().unwrap().clone() }
//!
//!     async fn get(&self, locks: &LockManager) -> Result<String, LockError> {
//!         match self.look() {
//!             Some(value) => Ok(value),
//!             None => self.rebuild(locks).await,
//!         }
//!     }
//!
//!     #[distributed_lock(key = "cache:prices", wait = "10s", client = locks)]
//!     async fn rebuild(&self, locks: &LockManager) -> Result<String, LockError> {
//!         if let Some(value) = self.look() {
//!             return Ok(value);
//!         }
//!         self.rebuilt.fetch_add(1, Ordering::Relaxed);
//!         tokio::task::yield_now().await; // the expensive query
//!         Ok(self.value.lock().unwrap().insert("prices".into()).clone())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let (locks, cache) = (LockManager::connect("memory://").await?, Cache::default());
//! let _ = tokio::join!(cache.get(&locks), cache.get(&locks), cache.get(&locks));
//! assert_eq!(cache.rebuilt.load(Ordering::Relaxed), 1);
//! # Ok(()) }
//! ```
//!
//! # A web handler
//!
//! The annotated function returns a `Result` whose error is of the service. `From<LockError>` brings the lock's error there, and what
//! the framework asks of an error (`IntoResponse` of axum, `ResponseError` of actix) makes the answer of it. It may be the handler
//! itself: patterns such as `State(app): State<App>` and `Path(id): Path<u64>` bind names for `key` and `client`.
//!
//! | [`LockError`](crate::LockError) | answer | why |
//! |---|---|---|
//! | `Busy`, `TimedOut` | 409, `Retry-After` | another request works on it |
//! | `Unavailable`, `ShutDown` | 503, `Retry-After` | the lock server is out of reach, or this copy ends |
//! | `Lost` | 500 | the work was cut off: look before it is repeated |
//! | others | 500 | a mistake in program or set-up |
//!
//! A handler always has a limit: `wait`, or [`default_wait`](crate::LockManagerBuilder::default_wait). The example
//! `annotated_service` is such a service with axum.
//!
//! ```
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! /// The error of the service: a status, and whether the client may come back.
//! #[derive(Debug, PartialEq)]
//! struct Refused { status: u16, retry_after: Option<u32> }
//!
//! impl From<LockError> for Refused {
//!     fn from(error: LockError) -> Self {
//!         let (status, retry_after) = match error {
//!             error if error.is_contention() => (409, Some(1)),
//!             LockError::Unavailable { .. } | LockError::ShutDown => (503, Some(1)),
//!             _ => (500, None),
//!         };
//!         Self { status, retry_after }
//!     }
//! }
//!
//! #[distributed_lock(key = "order:{id}", wait = "20ms", client = locks)]
//! async fn charge(locks: &LockManager, id: u64) -> Result<&'static str, Refused> {
//!     Ok("charged")
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! assert_eq!(charge(&locks, 7).await, Ok("charged"));
//! let _other = locks.lock("order:7").acquire().await?;
//! let refused = charge(&locks, 7).await.unwrap_err();
//! assert_eq!(refused, Refused { status: 409, retry_after: Some(1) });
//! # Ok(()) }
//! ```
//!
//! # The lock outside the database transaction
//!
//! The lock goes around the whole transaction, from before `BEGIN` to after `COMMIT`. Two mistakes are common:
//!
//! - *Taken inside the transaction*: under repeatable read the transaction sees the data of its beginning, and that may
//!   have been before the other one's commit. The lock then guards work on old rows. It also keeps a connection of the
//!   pool while it waits.
//! - *Released before the commit*: the next holder reads the rows as they were before. With a guard, this is a guard that
//!   is dropped before `commit()`; with the attribute, a transaction that was opened outside and is passed in.
//!
//! The attribute has it right where the annotated function opens and commits the transaction itself. Where a function works in the
//! transaction of its caller, it gives its guard to the caller, who releases it after the commit: the example `after_commit` does
//! that on a real database, and shows how many updates are lost otherwise.
//!
//! ```
//! use std::sync::Mutex;
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! /// Stands for a database whose transactions read what was committed when they began.
//! #[derive(Default)]
//! struct Database { balance: Mutex<u64> }
//!
//! impl Database {
//!     async fn begin(&self) -> u64 { tokio::task::yield_now().await; *self.balance.lock().unwrap() }
//!     async fn commit(&self, balance: u64) {
//!         tokio::task::yield_now().await;
//!         *self.balance.lock().unwrap() = balance;
//!     }
//! }
//!
//! #[distributed_lock(key = "account:{account}", client = locks)]
//! async fn deposit(locks: &LockManager, database: &Database, account: u64, amount: u64) -> Result<(), LockError> {
//!     let balance = database.begin().await;
//!     database.commit(balance + amount).await;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let (locks, database) = (LockManager::connect("memory://").await?, Database::default());
//! let _ = tokio::join!(deposit(&locks, &database, 1, 10), deposit(&locks, &database, 1, 5));
//! assert_eq!(*database.balance.lock().unwrap(), 15);
//! # Ok(()) }
//! ```
//!
//! # The fencing token in SQL
//!
//! A process that is paused in the middle of its work goes on after its lease has ended and another has the lock; no lock
//! can prevent that. The resource can: it remembers the largest [`FencingToken`](crate::FencingToken) it has seen
//! and refuses smaller ones. In SQL that is a column, and a condition on every write:
//!
//! ```sql
//! UPDATE documents SET body = $2, fence = $1 WHERE id = $3 AND fence <= $1
//! ```
//!
//! `<=` and not `<`, because one holder may write more than once. No row updated means: stop, you are late.
//! [`LockGuard::current`](crate::LockGuard::current) gives the token wherever the write is, without passing it through.
//!
//! ```
//! use std::sync::Mutex;
//! use lock_core::{LockError, LockGuard, LockManager, distributed_lock};
//!
//! /// Stands for one row of the table `documents`.
//! #[derive(Default)]
//! struct Document { row: Mutex<(u64, String)> }
//!
//! impl Document {
//!     /// The `UPDATE` above. Returns the number of rows that it changed.
//!     fn update(&self, fence: u64, body: &str) -> usize {
//!         let mut row = self.row.lock().unwrap();
//!         if row.0 > fence {
//!             return 0;
//!         }
//!         *row = (fence, body.to_owned());
//!         1
//!     }
//! }
//!
//! #[distributed_lock(key = "document:1", client = locks)]
//! async fn edit(locks: &LockManager, document: &Document, body: &str) -> Result<usize, LockError> {
//!     let fence = LockGuard::current().expect("inside a locked function").fencing_token();
//!     Ok(document.update(fence.get(), body))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let (locks, document) = (LockManager::connect("memory://").await?, Document::default());
//! // A holder that fell asleep before it wrote, and has lost its lock meanwhile.
//! let asleep = locks.lock("document:1").acquire().await?;
//! locks.lock("document:1").force_release().await?;
//!
//! assert_eq!(edit(&locks, &document, "new").await?, 1);
//! assert_eq!(document.update(asleep.fencing_token().get(), "old"), 0, "refused");
//! assert_eq!(document.row.lock().unwrap().1, "new");
//! # Ok(()) }
//! ```
