//! A distributed lock for async Rust services, on Redis or Valkey.
//!
//! A lock has a name, and one holder at a time among all processes that use the same server. While it is held, its lease is renewed.
//! Waiters get it in the order in which they asked, apart from short runs inside one process. If the server hangs or cannot be reached,
//! a holder is notified of the loss *before* the server can grant the lock to another process.
//!
//! # Which type should I use?
//!
//! | I want | Use |
//! |---|---|
//! | a function that runs in one place at a time | [`#[distributed_lock]`](macro@distributed_lock) |
//! | to lock a scope inside a function | [`Lock::acquire`], which returns a [`LockGuard`] |
//! | a scope that is cancelled when the lock is lost | [`Lock::with`] |
//! | to skip work that is running elsewhere | [`Lock::try_acquire`] |
//! | functions that take one lock and call each other | [`ReentrantLock`], or the argument `reentrant` of the attribute |
//! | several locks at once, all or none | [`LockManager::all`], or the argument `keys` of the attribute |
//! | at most `n` holders at a time, over all processes: calls to a provider, licences | [`LockManager::semaphore`], or the arguments `max` and `permits` of the attribute |
//! | many readers at a time, or one writer | [`LockManager::rw_lock`], or the argument `mode` of the attribute |
//! | many holders at once, each with a part of limited stock | [`LockManager::segmented_lock`] |
//! | one copy of a service that does a job for as long as it lives, while the others know where it is | [`LockManager::election`] |
//! | to wait until several parts of a work are done, in any process | [`LockManager::latch`] |
//! | a resource that refuses writes of an earlier holder | [`LockGuard::fencing_token`](LockView::fencing_token) |
//! | a lock that survives the loss of a minority of servers (Redlock) | [`LockManager::connect_quorum`], begun once with [`LockManagerBuilder::begin_quorum`] |
//!
//! A [`SegmentedLock`] and a [`Semaphore`] both have up to `n` holders. A segment has a number, so each holder knows its part of the
//! stock. Each segment is a lock of its own, and a cluster spreads them over its masters. The permits of a semaphore are all equal: they
//! are one lock on one master, a holder may have several, and [`resize`](Semaphore::resize) changes their number.
//!
//! Start with a [`LockManager`]: create one for each program and server; it is cheap to clone. A [`Lock`] is a cheap handle. A
//! [`LockGuard`] is the proof that the lock is held.
//!
//! The [`guide`] has the longer texts: [which backend to use](guide::which_lock), [recipes](guide::recipes),
//! [errors to HTTP](guide::errors_to_http), [testing your service](guide::testing), [operating a server](guide::operating), and
//! [what is promised](guide::promises).
//!
//! # Examples
//!
//! `memory://` keeps the locks in this process, for tests and for a first try. In production the URL is `redis://host:6379`; nothing
//! else changes.
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
//! // The last line of `main`: sends the releases of dropped guards that are still queued.
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
//!     // No other task or process ships this order now.
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
//! # Lease and loss
//!
//! ![The life of a hold: acquired, renewed after each third of the ttl, and lost before the server frees the lock](https://raw.githubusercontent.com/lock-core/lock-core/main/docs/life-of-a-hold.svg)
//!
//! The server keeps a lock for its ttl. That is how long a crashed holder blocks the others. A live holder may hold the lock for
//! longer: the watchdog renews the lease each time when a third of it has passed.
//!
//! The guard computes the end of its lease itself. It counts from *before* the request was sent, and subtracts ttl/100 + 2 ms, the
//! drift: clocks may run at different speeds. Only a confirmed renewal moves that end. When it has passed,
//! [`is_held`](LockView::is_held) is false and [`lost`](LockView::lost) resolves. This also holds if the server hangs, the network loses
//! replies, or (on Linux) the machine was suspended.
//!
//! ```text
//! acquire ──► Held ──► released         by `release`, or in the background after a drop
//!               └────► Lost(reason)     no renewal in time, deleted, force-released, max_hold, shut down
//! ```
//!
//! After a loss, stop using the resource that the lock protects. `with` and the attribute cancel the body at its next await.
//!
//! # Waiting
//!
//! Waiters stand in a queue on the server. The script that releases a lock grants it to the first live waiter, and sends one message, to
//! that waiter. So a hand-over has the same cost for any number of waiters, and a newcomer does not overtake. A cancelled waiter leaves
//! the queue at once; a crashed waiter is skipped.
//!
//! ![Hand-over between two processes](https://raw.githubusercontent.com/lock-core/lock-core/main/docs/hand-over.svg)
//!
//! Inside a process the lock passes from one waiter to the next without the server, within [limits](LockManagerBuilder::handover_limit).
//!
//! A waiter repeats its request every few seconds (at least three times in a ttl), and when the lease of the holder should have ended. So
//! a lost message delays a waiter only for a short time, not for a ttl. If the server cannot push messages to the client
//! ([`from_connection`](LockManager::from_connection), RESP2), waiters poll every
//! [`poll_interval`](LockManagerBuilder::poll_interval).
//!
//! # Reentrancy
//!
//! A [`Lock`] is not reentrant. Inside an annotated function or a [`with`](Lock::with) body that holds it, a second acquisition fails with
//! [`LockError::Deadlock`]. With a plain guard, a second acquisition by the same task waits for ever; a warning is logged.
//!
//! An [`Owner`] can acquire its [`ReentrantLock`] again. The lock counts the holds and is free when the last one has ended. All holds
//! share one lease and one fencing token. An owner stands for a piece of work, not for a thread or task. Pass an [`Owner`], or use the
//! owner of the enclosing [`Owner::scope`], which `#[distributed_lock(.., reentrant)]` opens. Futures that are joined or selected
//! within the scope have that owner. Spawned tasks have it only if they receive it. An owner can be sent to other services as text.
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
//! On the server it is the `RLock` of Redisson with that key, without a prefix: Rust and Java services can share it. It is not the same
//! lock as the [`Lock`] of that key.
//!
//! # How it works on the server
//!
//! A lock is a string with a ttl. Its name is the key with its [`prefix`](LockManagerBuilder::prefix), its value a token that is new for
//! each acquisition. This is the common form of a Redis lock, so clients of other libraries can share it.
//!
//! Each operation is one atomic Lua script. A release compares the token first, so a late release never frees the lock of another
//! holder. The library's own keys begin with `lock-core:`. A lock with waiters has a list (the queue) and a hash (the waiters), which
//! are removed with the last waiter. One counter for fencing tokens stays. Each manager has one channel.
//! [All keys and messages](guide::wire).
//!
//! A manager has one connection to each server, and one background task. An acquisition and a release each take one round trip.
//!
//! # What no lock can promise
//!
//! A process may check its lock, be paused for longer than its lease, and then write. The guard reports the loss when the process wakes
//! up, but cannot stop a write that was already on its way. Only a resource that checks the [`FencingToken`] is safe. Also, a
//! single master with asynchronous replication can lose a lock in a failover, and so can a server that restarts without its data.
//! For efficiency (work should not be done twice), a lock is enough. For correctness, use it with fencing tokens.
//!
//! # Cancel safety
//!
//! Every future of this crate may be dropped at any await. An acquisition is registered before its request is sent. Whatever the request
//! leaves on the server (the lock, a place in the queue) is released in the background: immediately if the server is reachable,
//! otherwise within the ttl. The page of each method says what a drop means.
//!
//! A future that is alive but not polled blocks others only for a short time. If it was granted the lock, the lock passes to the next
//! waiter within a ttl. After a delay, waiters behind it in the same process are served first, and it joins the end of the line when it
//! is polled again (figures: P14 of the [promises](guide::promises)). If several futures are not polled, their delays add up. A release
//! whose future is not polled is completed in the background.
//!
//! # Runtime
//!
//! The crate needs tokio with timer and I/O enabled, in either flavor. The task of a manager runs on the runtime in which the manager was
//! created. After the end of that runtime, dropped guards no longer release their locks, which stay until the end of their ttl. So
//! call [`shutdown`](LockManager::shutdown) before the runtime ends.
//!
//! A current-thread runtime runs only inside its `block_on`. Outside of it, nothing is renewed, released or requested: guards are lost at
//! the end of their lease, as with an unreachable server; `acquire_within` and `try_acquire` on another runtime keep their limits;
//! `acquire` may wait until the runtime runs again. Another runtime cannot do this work, because a connection is bound to the runtime
//! that created it. So create the manager on a runtime that always runs.
//!
//! Tasks that compute or block for long without an await keep the workers of a multi-thread runtime busy, and so delay the renewals and
//! the connections: a lease of a second may be lost. Move such work to `spawn_blocking`, or give the manager a thread of its own
//! (`LockManagerBuilder::own_thread`). The manager then needs no tokio runtime at all.
//!
//! # Feature flags
//!
//! | Feature | Default | What |
//! |---|---|---|
//! | `macros` | yes | the attribute [`#[distributed_lock]`](macro@distributed_lock) |
//! | `quorum` | yes | `redis+quorum://` URLs, and [`connect_quorum`](LockManager::connect_quorum) with what belongs to it |
//! | `cluster` | yes | `redis+cluster://` URLs |
//! | `sentinel` | yes | `redis+sentinel://` URLs; without it a plain URL leads to its server, whatever sentinels announce there |
//! | `tls-rustls` | no | `rediss://` URLs and `LockManagerBuilder::tls`, with rustls. It uses the process-wide `CryptoProvider` if one is installed, otherwise *ring*, and trusts the root certificates of the system |
//! | `tls-webpki-roots` | no | also trusts the roots of Mozilla, which are compiled in: for systems without root certificates |
//! | `tls-insecure` | no | `Tls::insecure`, for tests |
//! | `tokio-util` | no | `LockGuard::cancellation`: a `CancellationToken` of the tokio-util crate |
//! | `blocking` | no | [`blocking`]: locks for programs without async code |
//! | `testing` | no | [`testing`]: a server in memory that a test controls |
//! | `metrics` | no | `observe::MetricsObserver`: metrics for a recorder of the crate `metrics`, such as Prometheus |
//! | `opentelemetry` | no | `observe::OpenTelemetryObserver`: metrics for OpenTelemetry |
//!
//! A service with one master needs only `default-features = false, features = ["macros"]`. A URL whose feature is missing is
//! [`InvalidConfig`](LockError::InvalidConfig), which names the feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(
        feature = "macros",
        feature = "quorum",
        feature = "cluster",
        feature = "sentinel",
        feature = "blocking",
        feature = "testing"
    )),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "the pages of the attribute, of a quorum, a cluster, sentinels and tests are there with their features only"
    )
)]

#[cfg(feature = "macros")]
pub mod attribute;
mod base;
mod engine;
mod face;
pub mod guide;

mod store;

#[cfg(feature = "macros")]
#[doc(hidden)]
#[path = "private/mod.rs"]
pub mod __private;

pub use crate::base::credentials::Credentials;
pub use crate::base::error::{Cause, LockError, LossReason};
pub use crate::base::fencing::FencingToken;
pub use crate::base::finding::{Finding, Severity};
pub use crate::base::owner::Owner;
#[cfg(feature = "quorum")]
pub use crate::base::quorum_node::{NodeVote, QuorumNode};
#[cfg(lock_sim)]
#[doc(hidden)]
pub use crate::base::sim;
#[cfg(feature = "tls-rustls")]
pub use crate::base::tls::Tls;
#[cfg(feature = "blocking")]
pub use crate::face::blocking;
pub use crate::face::builder::LockManagerBuilder;
pub use crate::face::election::{Election, Leader, Leaders, Leadership};
pub use crate::face::global::default_manager;
pub use crate::face::guard::LockGuard;
pub use crate::face::guarded::{Guarded, GuardedScript};
pub use crate::face::inspect::{LockHolder, LockInfo, LockWaiter, NodeInfo};
pub use crate::face::latch::Latch;
pub use crate::face::list::{ListedLock, LockList};
pub use crate::face::lock::Lock;
pub use crate::face::manager::LockManager;
pub use crate::face::multi_lock::{MultiGuard, MultiLock};
pub use crate::face::observe;
pub use crate::face::ping::Pong;
#[cfg(feature = "quorum")]
pub use crate::face::quorum::BeginQuorum;
pub use crate::face::reentrant::ReentrantLock;
pub use crate::face::rw_lock::{ReadGuard, RwLock, WriteGuard};
pub use crate::face::segmented::{SegmentGuard, SegmentedLock};
pub use crate::face::semaphore::Semaphore;
#[cfg(feature = "testing")]
pub use crate::face::testing;
pub use crate::face::view::LockView;
#[cfg(feature = "macros")]
pub use lock_macros::distributed_lock;
/// The version of the redis crate whose connections [`LockManager::from_connection`] takes.
pub use redis;

/// The examples of the README, as tests.
#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../README.md")]
struct Readme;
