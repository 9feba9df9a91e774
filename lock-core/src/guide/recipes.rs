//! Recipes: how services use locks.
//!
//! - [A scheduled job on one of many servers](#a-scheduled-job-on-one-of-many-servers)
//! - [Submitting an order once](#submitting-an-order-once)
//! - [A cache that one caller rebuilds](#a-cache-that-one-caller-rebuilds)
//! - [A cache with many readers](#a-cache-with-many-readers)
//! - [At most eight calls to a provider](#at-most-eight-calls-to-a-provider)
//! - [A transfer between two accounts](#a-transfer-between-two-accounts)
//! - [A job of the one leader](#a-job-of-the-one-leader)
//! - [The lock outside the database transaction](#the-lock-outside-the-database-transaction)
//! - [The fencing token in SQL](#the-fencing-token-in-sql)
//!
//! # A scheduled job on one of many servers
//!
//! All servers have the same schedule, and the job should run once. Each server tries once (`wait = "0s"`) and skips the job if it is
//! running elsewhere (`on_busy = skip`). The clocks of the servers differ: a job of 50 ms is over before a server
//! whose clock is a second late starts it, so that server would run it again. `at_least` prevents that. It is longer than the difference of the clocks,
//! and shorter than the interval of the schedule. `ttl` is how long a crashed server blocks the job; the job may take longer.
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
//! After a time-out a client sends its order again, and both requests may run at the same time. The lock makes them run one after the
//! other, and *the record of the first result makes the second request do nothing*. The lock alone is not enough: when it is free
//! again, the second request would submit the order again. So acquire the lock of the idempotency key, look for the result, and only
//! then do the work. The record needs a unique index too, for the case that the lock is lost.
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
//!     tokio::task::yield_now().await; // the call of the payment provider
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
//! When an entry of a cache expires, all callers miss it at once. One should rebuild it, and the others should wait for the result.
//! The check before the lock avoids the lock in the common case. The check after it finds the result of the previous holder. To serve
//! the old value instead of waiting, write `wait = "0s", on_busy = return = old`.
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
//! # A cache with many readers
//!
//! A cache that all servers share, such as files on a shared disk, must not be read while it is rebuilt. With a read-write lock the readers run beside
//! each other, and the writer runs alone. A reader that finds the cache empty becomes the writer:
//!
//! - [`try_upgrade`](crate::ReadGuard::try_upgrade) makes it the writer at once, if it is the only reader and there are no waiters. It never waits,
//!   since two readers that wait for each other's end would wait for ever. An error gives the reader back.
//! - Otherwise it has to release its read *before* it calls `write`: a write inside one's own read waits for itself.
//! - Another client may have been the writer in between. So look again before the work.
//! - [`downgrade`](crate::WriteGuard::downgrade) makes the writer a reader: the waiting readers, up to the next writer, read at once, and no writer
//!   comes before this caller has read its result.
//!
//! ```
//! use std::sync::Mutex;
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use lock_core::{LockError, LockManager};
//!
//! /// Stands for files on a shared disk.
//! #[derive(Default)]
//! struct Cache { value: Mutex<Option<String>>, rebuilt: AtomicU32 }
//!
//! impl Cache {
//!     fn look(&self) -> Option<String> { self.value.lock().unwrap().clone() }
//!
//!     async fn rebuild(&self) {
//!         self.rebuilt.fetch_add(1, Ordering::Relaxed);
//!         tokio::task::yield_now().await; // the expensive query
//!         *self.value.lock().unwrap() = Some("prices".into());
//!     }
//!
//!     async fn get(&self, locks: &LockManager) -> Result<Option<String>, LockError> {
//!         let lock = locks.rw_lock("cache:prices");
//!         let read = lock.read().await?;
//!         if let Some(value) = self.look() {
//!             return Ok(Some(value));
//!         }
//!         let write = match read.try_upgrade().await {
//!             Ok(write) => write,
//!             Err((read, _)) => {
//!                 read.release().await?;
//!                 lock.write().await?
//!             }
//!         };
//!         if self.look().is_none() {
//!             self.rebuild().await;
//!         }
//!         let _read = write.downgrade().await?;
//!         Ok(self.look())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let (locks, cache) = (LockManager::connect("memory://").await?, Cache::default());
//! let (one, two, three) = tokio::join!(cache.get(&locks), cache.get(&locks), cache.get(&locks));
//! for value in [one?, two?, three?] {
//!     assert_eq!(value.as_deref(), Some("prices"));
//! }
//! assert_eq!(cache.rebuilt.load(Ordering::Relaxed), 1);
//!
//! // A reader that is alone becomes the writer without a release.
//! cache.value.lock().unwrap().take();
//! assert!(cache.get(&locks).await?.is_some());
//! assert_eq!(cache.rebuilt.load(Ordering::Relaxed), 2);
//! # Ok(()) }
//! ```
//!
//! # At most eight calls to a provider
//!
//! A provider allows eight calls at a time, for all copies of the service together. A semaphore with eight permits counts them on the server. Each
//! place that uses it must name the same `max`. `wait` bounds the wait: after it, the call fails with [`TimedOut`](crate::LockError::TimedOut).
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! /// Stands for the provider: the calls that run now, and the most that ever did.
//! #[derive(Default)]
//! struct Provider { now: AtomicU32, most: AtomicU32 }
//!
//! impl Provider {
//!     async fn call(&self) {
//!         let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
//!         self.most.fetch_max(now, Ordering::SeqCst);
//!         tokio::task::yield_now().await;
//!         self.now.fetch_sub(1, Ordering::SeqCst);
//!     }
//! }
//!
//! #[distributed_lock(key = "provider", max = 8, wait = "10s", client = locks)]
//! async fn call(locks: &LockManager, provider: &Provider) -> Result<(), LockError> {
//!     provider.call().await;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let (locks, provider) = (LockManager::connect("memory://").await?, Provider::default());
//! let calls: Vec<_> = (0..20).map(|_| call(&locks, &provider)).collect();
//! for called in futures_util::future::join_all(calls).await {
//!     called?;
//! }
//! assert_eq!(provider.most.load(Ordering::SeqCst), 8);
//!
//! // Without the attribute. A batch that makes three calls at a time takes three permits at once.
//! let permits = locks.semaphore("provider", 8).permits(3).acquire().await?;
//! tokio::join!(provider.call(), provider.call(), provider.call());
//! permits.release().await?;
//! # Ok(()) }
//! ```
//!
//! A semaphore limits how many calls run at a time, not how many there are in a second. After a crash, the permits of the process come back after
//! its ttl. So choose a ttl that is not much longer than a call: the lease is renewed while the call runs.
//!
//! # A transfer between two accounts
//!
//! Both accounts are locked, or none. All programs wait for the locks in the order of their names, so two transfers in opposite directions
//! never wait for each other, whatever the order of the arguments. With the attribute: `keys = ["account:{from}", "account:{to}"]`.
//! [`with`](crate::MultiLock::with) drops the body if either lock is lost. Each account has a fencing token of its own.
//!
//! ```
//! use lock_core::{LockError, LockManager};
//!
//! async fn transfer(locks: &LockManager, from: u32, to: u32, amount: u64) -> Result<u64, LockError> {
//!     let accounts = locks.all([from, to].map(|id| format!("account:{id}")));
//!     accounts
//!         .with(async |guard| {
//!             let fence = guard.fencing_token(&format!("account:{from}")).expect("one of the keys");
//!             // UPDATE accounts SET balance = balance - $amount, fence = $fence WHERE id = $from AND fence <= $fence ..
//!             let _ = fence;
//!             amount
//!         })
//!         .await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! let (there, back) = tokio::join!(transfer(&locks, 1, 2, 10), transfer(&locks, 2, 1, 5));
//! assert_eq!((there?, back?), (10, 5));
//! # Ok(()) }
//! ```
//!
//! # A job of the one leader
//!
//! A scheduler runs in each copy of the service, and one of them, the leader, starts the jobs. [`run`](crate::Election::run) campaigns until this copy
//! leads, runs the loop of the leader, and drops it as soon as the leadership is lost. Then it campaigns again. Each job gets the term: what it
//! writes names the term, so that a leader that was paused cannot undo the work of the next one (see
//! [the fencing token in SQL](#the-fencing-token-in-sql)). Others ask [`observe`](crate::Election::observe) where the leader is.
//!
//! ```
//! use lock_core::{LockError, LockManager};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! # async fn start_due_jobs(_term: u64) -> bool { true }
//! # async fn database_is_gone() -> bool { false }
//! let election = locks
//!     .election("scheduler")
//!     .ttl(Duration::from_secs(10))
//!     .step_down_if(|| async { database_is_gone().await });
//! election
//!     .run("http://10.0.0.7:8080", async move |leadership| {
//!         let mut minute = tokio::time::interval(Duration::from_secs(60));
//!         loop {
//!             minute.tick().await;
//!             let stop = start_due_jobs(leadership.term().get()).await;
//!             if stop {
//!                 break;
//!             }
//!         }
//!     })
//!     .await?;
//! # Ok(()) }
//! ```
//!
//! # The lock outside the database transaction
//!
//! Hold the lock around the whole transaction, from before `BEGIN` to after `COMMIT`. Two mistakes are common:
//!
//! - *Acquired inside the transaction*: under repeatable read, the transaction sees the data of its beginning, which may be older than
//!   the commit of the previous holder. It also occupies a connection of the pool while it waits.
//! - *Released before the commit*: the next holder reads the old rows. This happens if a guard is dropped before `commit()`, or if
//!   an annotated function receives a transaction that its caller commits.
//!
//! The attribute is right if the annotated function opens and commits the transaction itself. A function that works in the transaction
//! of its caller returns its guard to the caller, which releases it after the commit. The example `after_commit` does that on a real
//! database, and shows how many updates are lost otherwise.
//!
//! ```
//! use std::sync::Mutex;
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! /// Stands for a database whose transactions see the data of their beginning.
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
//! A process may be paused during its work, and go on after its lease has ended and another process holds the lock. No lock can
//! prevent that, but the resource can: it stores the largest [`FencingToken`](crate::FencingToken) that it has seen, and refuses
//! smaller ones. In SQL that is a column, and a condition on every write:
//!
//! ```sql
//! UPDATE documents SET body = $2, fence = $1 WHERE id = $3 AND fence <= $1
//! ```
//!
//! The condition is `<=`, because one holder may write more than once. If no row was updated, the hold is over: stop.
//! [`LockGuard::current`](crate::LockGuard::current) gives the token at the place of the write, so it need not be passed as a parameter.
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
//! // A holder that is paused before its write, and loses its lock.
//! let paused = locks.lock("document:1").acquire().await?;
//! locks.lock("document:1").force_release().await?;
//!
//! assert_eq!(edit(&locks, &document, "new").await?, 1);
//! assert_eq!(document.update(paused.fencing_token().get(), "old"), 0, "refused");
//! assert_eq!(document.row.lock().unwrap().1, "new");
//! # Ok(()) }
//! ```
