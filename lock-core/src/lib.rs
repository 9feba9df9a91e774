//! A distributed lock for async Rust services, over one Redis or Valkey server, or over a majority of several.
//!
//! A lock has a name, and one holder at a time across all processes that use the same server. While it is held its
//! lease is renewed; waiters get it in the order in which they asked; and a holder that loses it is told *before* the
//! server may give it to another.
//!
//! # Which type to start with?
//!
//! | You want | Use |
//! |---|---|
//! | a function that runs in one place at a time | [`#[distributed_lock]`](macro@distributed_lock) |
//! | a scope in the middle of a function | [`Lock::acquire`], which gives a [`LockGuard`] |
//! | a scope that is cancelled when the lock is lost | [`Lock::with`] |
//! | functions that take one lock and call each other | [`ReentrantLock`], or the attribute's `reentrant` |
//! | to leave the work out where another does it | [`Lock::try_acquire`] |
//! | as many holders as a stock can be split into | [`LockManager::segmented_lock`] |
//! | a resource that refuses a holder from the past | [`LockGuard::fencing_token`] |
//! | a lock that outlives any one server (Redlock) | [`LockManager::connect_quorum`] |
//!
//! All begin with a [`LockManager`], one for each server and program. A [`Lock`] is a cheap handle; the [`LockGuard`]
//! is the proof that it is held.
//!
//! # Examples
//!
//! `memory://` keeps the locks in this process, for tests and for a first try. In production the URL is
//! `redis://host:6379`; nothing else changes.
//!
//! ```
//! use lock_core::{LockError, LockManager};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! let lock = locks.lock("order:42").ttl(Duration::from_secs(10));
//!
//! let guard = lock.acquire().await?;
//! assert!(lock.try_acquire().await?.is_none(), "one holder at a time");
//! guard.release().await?;
//!
//! // The last line of `main`: waits for the releases that dropped guards have queued.
//! locks.shutdown(Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```
//!
//! The same with the attribute:
//!
#![cfg_attr(feature = "macros", doc = "```")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "order:{order}", ttl = "10s", wait = "5s")]
//! async fn ship(order: u64) -> Result<(), LockError> {
//!     // Nobody else ships this order now.
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! LockManager::connect("memory://").await?.install_default();
//! ship(42).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Waiting
//!
//! Waiters stand in a queue on the server. A release gives the lock to the first of them that lives, in the same step,
//! and sends one message, to that waiter. So a hand-over costs the same however many wait, and a newcomer does not overtake.
//! A waiter that is cancelled leaves the queue at once; one that has crashed is skipped.
//!
//! Inside a process the lock goes from one waiter to the next without the server, within
//! [limits](LockManagerBuilder::handover_limit).
//!
//! Waiters ask again every few seconds (at least three times in a ttl), and when the holder's lease should have ended.
//! So a message that is lost costs a moment and not a ttl. Where the server cannot push messages to us
//! ([`from_connection`](LockManager::from_connection), RESP2), waiters ask every
//! [`poll_interval`](LockManagerBuilder::poll_interval).
//!
//! # Lease and loss
//!
//! The server keeps a lock for its ttl: that is how long a crashed holder blocks the others. While the guard lives, the
//! watchdog renews the lease when a third of it has passed, so a live holder may hold for longer.
//!
//! The guard knows the end of its lease by itself. It counts from *before* the request was sent, less a
//! [`drift`](LockManagerBuilder::drift), and only a confirmed renewal moves it. From that end on
//! [`is_held`](LockGuard::is_held) is false and [`lost`](LockGuard::lost) resolves, whether the server hangs, the
//! network swallows replies, or the machine was suspended (the last on Linux only).
//!
//! ```text
//! acquire ──► Held ──► released         by `release`, or by drop, in the background
//!               └────► Lost(reason)     no renewal in time, deleted, force-released, max_hold, shut down
//! ```
//!
//! A hold that is lost is lost for good: stop touching what the lock protects. `with` and the attribute stop the body
//! at its next await.
//!
//! # Reentrancy
//!
//! A [`Lock`] cannot be taken twice. Code that asks for it in the scope that holds it gets [`LockError::Deadlock`]; a task that holds
//! a guard and asks again waits for itself, with a warning. A [`ReentrantLock`] can be taken again, by its [`Owner`]: it counts the holds and is free when the last has ended, with one lease and one fencing token for all. An
//! owner is a piece of work, never a thread or a task: it is named, or is that of the enclosing [`Owner::scope`], which
//! `#[distributed_lock(.., reentrant)]` opens. Futures that are joined or selected within the scope share it; spawned tasks
//! do not, unless they are given it. As text it travels to other services.
//!
#![cfg_attr(feature = "macros", doc = "```")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! use lock_core::{LockError, LockGuard, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "account:{id}", reentrant)]
//! async fn transfer(id: u64) -> Result<u32, LockError> {
//!     withdraw(id).await
//! }
//!
//! #[distributed_lock(key = "account:{id}", reentrant)]
//! async fn withdraw(id: u64) -> Result<u32, LockError> {
//!     Ok(LockGuard::current().expect("a hold").hold_count())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! LockManager::connect("memory://").await?.install_default();
//! assert_eq!(transfer(7).await?, 2);
//! assert_eq!(withdraw(7).await?, 1);
//! # Ok(())
//! # }
//! ```
//!
//! On the server it is the `RLock` of Redisson, under the bare key: Rust and Java services share it. It is another lock
//! than the [`Lock`] of the same key.
//!
//! # How it works on the server
//!
//! A lock is a string: the key with its [`prefix`](LockManagerBuilder::prefix), its value a token that is new for each
//! acquisition, with a ttl. That is the common form of a Redis lock, so other clients can share it. Each operation is one
//! Lua script, and so atomic: acquire, release with hand-over (it compares the token first, so a late release never touches
//! another's lock), renewal of many locks at once. Besides there are, under `lock-core:`, for each lock that is waited for a
//! list (the queue) and a hash (its waiters), which vanish with the last waiter; one counter for
//! fencing tokens, which stays; and one channel for each manager.
//!
//! A manager has one connection and one background task. Acquire and release cost one round trip each.
//!
//! # What no lock can promise
//!
//! A process that is paused after its last check may act after its lease. The guard knows it when the process wakes up;
//! a write that was already under way does not. Only a resource that checks the [`FencingToken`] is safe. And a single
//! master with asynchronous replication can lose a lock at failover, as can a server that restarts without its data.
//! Use the lock for efficiency, so that work is not done twice; for correctness, use it with fencing tokens.
//!
//! # Cancel safety
//!
//! Every future of this crate may be dropped at any await. An acquisition is registered before its request is sent, so
//! whatever the request leaves on the server (the lock, a place in the queue) is released in the background, at
//! once where the server can be reached, else within the ttl. The page of each method says what a drop means.
//!
//! A future that is alive and not polled holds nothing for long. Where it was granted the lock, that goes on to the next one
//! within a ttl; where others of the process wait behind it, they come before it after a look or two (a third of the ttl each,
//! at most 3 s), or when its request has been under way for longer than the
//! [`command_deadline`](LockManagerBuilder::command_deadline). Each such future that stands before a caller costs as much. It
//! has lost its turn then, and not its claim: when it is polled again, it joins the line anew. A release whose future is not polled is taken over likewise.
//!
//! # Runtime
//!
//! The crate needs tokio with its timer and I/O enabled, in either flavor. The task of a manager runs on the runtime in which
//! the manager was made. When that runtime is gone, guards may still be dropped anywhere, but their locks stay for
//! their ttl: call [`shutdown`](LockManager::shutdown) before.
//!
//! A runtime of one thread runs only inside its `block_on`. While nobody is in there, nothing is renewed, released or asked: guards
//! are lost at the end of their lease, as they would be with a server that cannot be reached, `acquire_within` and `try_acquire`
//! on another runtime keep their limits, and `acquire` may wait until the runtime runs again. No other runtime does that work,
//! since the connections are bound to the one that made them. So make the manager where a runtime always runs.
//!
//! # Feature flags
//!
//! | Feature | Default | What |
//! |---|---|---|
//! | `macros` | yes | the attribute [`#[distributed_lock]`](macro@distributed_lock) |
//! | `tls-rustls` | no | `rediss://` URLs and `LockManagerBuilder::tls`, with rustls. Its cryptography is the one that the program has installed for the process (`CryptoProvider::install_default`), else *ring*. The roots of the system are trusted |
//! | `tls-webpki-roots` | no | trusts the roots of Mozilla as well, compiled in: for systems without root certificates |
//! | `tls-insecure` | no | `Tls::insecure`, for tests |
//! | `tokio-util` | no | `LockGuard::cancellation`: a `CancellationToken` of the tokio-util crate |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "macros"),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "the attribute's page is there with the feature only"
    )
)]

#[cfg(feature = "macros")]
pub mod attribute;
mod builder;
mod config;
mod connect;
mod engine;
mod error;
mod fencing;
mod global;
mod guard;
mod guarded;
mod handle;
mod inspect;
mod key;
mod list;
mod lock;
mod manager;
mod owner;
mod place;
#[cfg(feature = "macros")]
pub mod recipes;
mod reentrant;
mod rt;
mod scope;
mod segmented;
#[cfg(lock_sim)]
#[doc(hidden)]
pub mod sim;
mod slot;
mod store;
mod sync;
mod terms;
mod time;
#[cfg(feature = "tls-rustls")]
mod tls;
mod token;
mod view;

#[cfg(feature = "macros")]
#[doc(hidden)]
#[path = "private/mod.rs"]
pub mod __private;

pub use crate::builder::LockManagerBuilder;
pub use crate::error::{Cause, LockError, LossReason};
pub use crate::fencing::FencingToken;
pub use crate::global::default_manager;
pub use crate::guard::LockGuard;
pub use crate::guarded::{Guarded, GuardedScript};
pub use crate::inspect::{LockInfo, LockWaiter, NodeInfo};
pub use crate::list::{ListedLock, LockList};
pub use crate::lock::Lock;
pub use crate::manager::LockManager;
pub use crate::owner::Owner;
pub use crate::reentrant::ReentrantLock;
pub use crate::segmented::{SegmentGuard, SegmentedLock};
#[cfg(feature = "tls-rustls")]
pub use crate::tls::Tls;
pub use crate::view::LockView;
/// Runs an async function under a lock. See the [attribute's page](lock_macros::distributed_lock) for its arguments.
#[cfg(feature = "macros")]
pub use lock_macros::distributed_lock;
/// The version of the redis crate whose connections [`LockManager::from_connection`] takes.
pub use redis;

/// The examples of the README, as tests.
#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../../README.md")]
struct Readme;
