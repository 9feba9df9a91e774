//! Testing your service: locks without a server, busy locks, lost locks, a server that is away, an hour in a moment.
//!
//! The feature `testing` has a [`MemoryServer`](crate::testing::MemoryServer): a server in memory that the test controls. Only the tests need
//! it:
//!
//! ```toml
//! [dev-dependencies]
//! lock-core = { version = "0.1", features = ["testing"] }
//! tokio = { version = "1", features = ["test-util"] }
//! ```
//!
//! # Parallel tests
//!
//! Each test makes a server of its own, so tests that run at the same time do not share locks. Pass a manager to the code under test and
//! name it with `client`, or call functions without `client` in its [`scope`](crate::LockManager::scope): a manager that was made the default
//! is shared by all tests of the process, and its task ends with the runtime of the test that made it.
//!
//! ```
//! use lock_core::testing::MemoryServer;
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! struct Shop { locks: LockManager }
//!
//! impl Shop {
//!     #[distributed_lock(key = "order:{id}", client = self.locks)]
//!     async fn charge(&self, id: u64) -> Result<u64, LockError> { Ok(id) }
//! }
//!
//! #[distributed_lock(key = "report")]
//! async fn report() -> Result<&'static str, LockError> { Ok("done") }
//!
//! # #[tokio::main(flavor = "current_thread")] // in your tests: #[tokio::test]
//! # async fn main() -> Result<(), LockError> {
//! let locks = MemoryServer::new().manager()?;
//! assert_eq!(locks.scope(report()).await?, "done");
//! assert_eq!(Shop { locks }.charge(7).await?, 7);
//! # Ok(()) }
//! ```
//!
//! # A busy lock
//!
//! Let another copy of the service hold it: another manager of the server. [`keys_of`](crate::testing::MemoryServer::keys_of) says which key a
//! function takes. [`until_waited_for`](crate::testing::MemoryServer::until_waited_for) waits until a call waits for it.
//!
//! ```
//! use lock_core::testing::MemoryServer;
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "order:{id}", wait = "5s")]
//! async fn charge(id: u64) -> Result<u64, LockError> { Ok(id) }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] // #[tokio::test(start_paused = true)]
//! # async fn main() -> Result<(), LockError> {
//! let server = MemoryServer::on_tokio_time();
//! let locks = server.manager()?;
//! let other = server.connect(LockManager::builder().client_name("orders-2"))?;
//! let keys = server.keys_of(charge(7)).await?;
//! let theirs = other.lock(&keys[0]).acquire().await?;
//! // These five seconds pass at once.
//! let error = locks.scope(charge(7)).await.unwrap_err();
//! assert!(matches!(error, LockError::TimedOut { holder: Some(name), .. } if &*name == "orders-2"));
//!
//! let (charged, ()) = tokio::join!(locks.scope(charge(7)), async {
//!     server.until_waited_for(&keys[0]).await;
//!     theirs.release().await.expect("in memory");
//! });
//! assert_eq!(charged?, 7);
//! # Ok(()) }
//! ```
//!
//! # A lock that is lost in the middle
//!
//! [`lose`](crate::testing::MemoryServer::lose) takes it from its holder for any [reason](crate::LossReason). The body of a function is cancelled
//! at its next await, and the caller gets [`LockError::Lost`](crate::LockError::Lost); code that has a guard is told by the guard. The record
//! says what was held, and how it ended.
//!
//! ```
//! use lock_core::testing::MemoryServer;
//! use lock_core::{LockError, LossReason, distributed_lock};
//!
//! #[distributed_lock(key = "import")]
//! async fn import() -> Result<(), LockError> {
//!     std::future::pending().await // work that takes long
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let server = MemoryServer::new();
//! let locks = server.manager()?;
//! let (outcome, ()) = tokio::join!(locks.scope(import()), async {
//!     server.until_held("import").await;
//!     server.lose("import", LossReason::Gone);
//! });
//! assert!(matches!(outcome, Err(LockError::Lost { reason: LossReason::Gone, .. })));
//! assert_eq!(server.record()[0].lost, Some(LossReason::Gone));
//! # Ok(()) }
//! ```
//!
//! # A server that is away
//!
//! Calls fail with [`Unavailable`](crate::LockError::Unavailable): a try at once, other calls when their limit ends, or after
//! [`unavailable_after`](crate::LockManagerBuilder::unavailable_after). After [`shutdown`](crate::LockManager::shutdown) every acquisition fails
//! with [`ShutDown`](crate::LockError::ShutDown). Both are the branch in which a service answers 503.
//!
//! ```
//! use lock_core::testing::MemoryServer;
//! use lock_core::{LockError, LossReason};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), LockError> {
//! let server = MemoryServer::on_tokio_time();
//! let locks = server.manager()?;
//! let guard = locks.lock("import").acquire().await?;
//! server.goes_away();
//! assert!(matches!(locks.lock("a").try_acquire().await, Err(LockError::Unavailable { .. })));
//! assert_eq!(guard.lost().await, LossReason::Expired); // a ttl later
//! server.comes_back();
//! assert!(locks.lock("a").try_acquire().await?.is_some());
//!
//! locks.shutdown(Duration::from_secs(1)).await;
//! assert!(matches!(locks.lock("a").try_acquire().await, Err(LockError::ShutDown)));
//! # Ok(()) }
//! ```
//!
//! [`cuts_off`](crate::testing::MemoryServer::cuts_off) does that to one manager, as the crash of its process does.
//!
//! # An hour in a moment
//!
//! Locks of `memory://`, and of `MemoryServer::new`, are measured with the clock of the system, which `start_paused` does not stop. A server
//! [on the time of tokio](crate::testing::MemoryServer::on_tokio_time) moves leases, renewals, waits, elections and latches together with
//! the timers of the service:
//!
//! ```
//! use lock_core::testing::MemoryServer;
//! use lock_core::LockError;
//! use std::time::Duration;
//! use tokio::time::sleep;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), LockError> {
//! let server = MemoryServer::on_tokio_time();
//! let (one, two) = (server.manager()?, server.manager()?);
//! let leader = one.election("scheduler").campaign("one").await?;
//! sleep(Duration::from_secs(3600)).await;
//! assert!(leader.is_held(), "it was renewed for an hour");
//! server.cuts_off(&one); // it crashes
//! let next = two.election("scheduler").campaign("two").await?;
//! assert!(next.term() > leader.term());
//! # Ok(()) }
//! ```
//!
//! While such a test waits for a thread of its own, time runs on as fast as the machine: use `spawn_blocking`, which stops it.
//!
//! Where a test decides when a lease is renewed and when it ends, it turns a [`ManualClock`](crate::testing::ManualClock) of its own.
//!
//! # A blocking program
//!
//! With the feature `blocking`: the server gives its managers to programs without async code as well, with a
//! [`scope`](crate::blocking::Blocking::scope) of their own. They have a thread of their own, and so
//! the time of the system, or that of a `ManualClock`.
//!
//! ```
//! # #[cfg(feature = "blocking")] fn main() -> Result<(), lock_core::LockError> {
//! use lock_core::blocking::Blocking;
//! use lock_core::testing::MemoryServer;
//! use lock_core::{LockError, LockManager, LossReason};
//!
//! fn import(locks: &Blocking<LockManager>, lines: &[&str]) -> Result<usize, LockError> {
//!     let guard = locks.lock("import").acquire()?;
//!     let done = lines.iter().take_while(|_| guard.is_held()).count();
//!     guard.release().map(|()| done)
//! }
//!
//! let server = MemoryServer::new();
//! let locks = Blocking::of(server.connect(LockManager::builder().own_thread())?)?;
//! assert_eq!(import(&locks, &["a", "b"])?, 2);
//!
//! let guard = locks.lock("import").acquire()?;
//! server.lose("import", LossReason::Gone);
//! assert_eq!(guard.losses().recv(), Ok(LossReason::Gone));
//! # Ok(()) }
//! # #[cfg(not(feature = "blocking"))] fn main() {}
//! ```
//!
//! # Errors
//!
//! The variants of [`LockError`](crate::LockError) have public fields, and [`Cause::new`](crate::Cause::new) makes the cause of an
//! `Unavailable`: code that only handles errors needs no server.
//!
//! ```
//! use lock_core::{Cause, LockError};
//!
//! fn status(error: &LockError) -> u16 {
//!     match error {
//!         LockError::Busy { .. } | LockError::TimedOut { .. } => 409,
//!         LockError::Unavailable { .. } | LockError::ShutDown => 503,
//!         _ => 500,
//!     }
//! }
//!
//! let busy = LockError::Busy { key: "order:7".to_owned(), retry_after: None, holder: None };
//! assert_eq!(status(&busy), 409);
//! assert_eq!(status(&LockError::Unavailable { cause: Cause::new("connection refused") }), 503);
//! ```
//!
//! # A real server
//!
//! A server that a test starts needs no port: give it a socket in a temporary folder.
//!
//! ```no_run
//! use lock_core::{LockError, LockManager};
//! use std::process::Command;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let socket = std::env::temp_dir().join(format!("locks-{}.sock", std::process::id()));
//! let mut server = Command::new("redis-server")
//!     .args(["--port", "0", "--save", "", "--unixsocket"])
//!     .arg(&socket)
//!     .spawn()?;
//! let url = format!("redis+unix://{}", socket.display());
//! let locks = loop {
//!     match LockManager::connect(&url).await {
//!         Err(LockError::Unavailable { .. }) => tokio::task::yield_now().await, // it starts
//!         connected => break connected?,
//!     }
//! };
//! let guard = locks.lock("order:7").acquire().await?;
//! server.kill()?; // from now on the lease cannot be renewed
//! guard.lost().await;
//! # Ok(()) }
//! ```
