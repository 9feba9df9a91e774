//! Testing your service: locks without a server, busy locks, lost locks, and a real server.
//!
//! # Without a server
//!
//! `memory://` keeps the locks in the process. Each `connect("memory://")` makes a separate memory, so tests that run at the same time do not
//! share locks. Pass the manager to the code under test and name it with `client`: a manager that was made the default is shared by all
//! tests of the process, and its task ends with the runtime of the test that made it. Functions without `client` are called in the
//! [`scope`](crate::LockManager::scope) of the manager of the test.
//!
//! ```
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! struct Shop { locks: LockManager }
//!
//! impl Shop {
//!     #[distributed_lock(key = "order:{id}", wait = "20ms", client = self.locks)]
//!     async fn charge(&self, id: u64) -> Result<u64, LockError> { Ok(id) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] // in your tests: #[tokio::test]
//! # async fn main() -> Result<(), LockError> {
//! let shop = Shop { locks: LockManager::connect("memory://").await? };
//! assert_eq!(shop.charge(7).await?, 7);
//! # Ok(()) }
//! ```
//!
//! ```
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "order:{id}", wait = "20ms")]
//! async fn charge(id: u64) -> Result<u64, LockError> { Ok(id) }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! assert_eq!(locks.scope(charge(7)).await?, 7);
//! # Ok(()) }
//! ```
//!
//! # Two copies of the service
//!
//! Managers that connect to the same name, `memory://name`, share their locks. Each is a client of its own, like a second process.
//!
//! ```
//! use lock_core::{LockError, LockManager};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let one = LockManager::connect("memory://two-copies").await?;
//! let two = LockManager::connect("memory://two-copies").await?;
//! let _held = one.lock("report").acquire().await?;
//! assert!(two.lock("report").try_acquire().await?.is_none());
//! # Ok(()) }
//! ```
//!
//! # A busy lock
//!
//! Hold it in the test, and call the function. Give functions under test a short `wait`, for example from a setting:
//! `wait = self.patience`.
//!
//! ```
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "report", wait = "0s", on_busy = skip, client = locks)]
//! async fn report(locks: &LockManager) -> Option<&'static str> { Some("done") }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! let held = locks.lock("report").acquire().await?;
//! assert_eq!(report(&locks).await, None);
//! held.release().await?;
//! assert_eq!(report(&locks).await, Some("done"));
//! # Ok(()) }
//! ```
//!
//! Or let another copy hold it: a second manager with the same name of the memory. The errors name that copy.
//!
//! ```
//! use lock_core::{LockError, LockManager};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let copy = LockManager::builder().client_name("orders-2").connect("memory://busy").await?;
//! let _theirs = copy.lock("report").acquire().await?;
//!
//! let locks = LockManager::connect("memory://busy").await?;
//! let report = locks.lock("report");
//! let error = report.acquire_within(Duration::ZERO).await.unwrap_err();
//! assert!(matches!(error, LockError::Busy { holder: Some(name), .. } if &*name == "orders-2"));
//! let error = report.acquire_within(Duration::from_millis(20)).await.unwrap_err();
//! assert!(matches!(error, LockError::TimedOut { holder: Some(name), .. } if &*name == "orders-2"));
//! # Ok(()) }
//! ```
//!
//! # A lost lock
//!
//! [`Lock::force_release`](crate::Lock::force_release) takes a lock away from its holder. The body is cancelled at its next await, and
//! the caller gets [`LockError::Lost`](crate::LockError::Lost).
//!
//! ```
//! use lock_core::{LockError, LockManager, distributed_lock};
//! use tokio::sync::oneshot;
//!
//! #[distributed_lock(key = "import", client = locks)]
//! async fn import(locks: &LockManager, begun: oneshot::Sender<()>) -> Result<(), LockError> {
//!     let _ = begun.send(());
//!     std::future::pending().await // work that takes long
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! let (begun, has_begun) = oneshot::channel();
//! let (outcome, ()) = tokio::join!(import(&locks, begun), async {
//!     has_begun.await.expect("the body has begun");
//!     locks.lock("import").force_release().await.expect("in memory");
//! });
//! assert!(matches!(outcome, Err(LockError::Lost { .. })));
//! # Ok(()) }
//! ```
//!
//! Code that has a guard is told by the guard. Without renewal ([`renew(false)`](crate::Lock::renew)) a lease of 10 ms is lost by itself, as
//! after an outage.
//!
//! ```
//! use lock_core::{LockError, LockManager, LossReason};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! let import = locks.lock("import");
//! let guard = import.acquire().await?;
//! import.force_release().await?;
//! assert_eq!(guard.lost().await, LossReason::ForceReleased);
//! assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
//!
//! let guard = import.ttl(Duration::from_millis(10)).renew(false).acquire().await?;
//! assert_eq!(guard.lost().await, LossReason::Expired);
//! # Ok(()) }
//! ```
//!
//! # A server that is away
//!
//! [`connect_lazily`](crate::LockManagerBuilder::connect_lazily) to a port on which nothing listens gives a manager whose calls fail with
//! [`Unavailable`](crate::LockError::Unavailable): a try at once, other calls when their limit ends, or after
//! [`unavailable_after`](crate::LockManagerBuilder::unavailable_after). After [`shutdown`](crate::LockManager::shutdown) every acquisition fails
//! with [`ShutDown`](crate::LockError::ShutDown). Both are the branch in which a service answers 503.
//!
//! ```
//! use lock_core::{LockError, LockManager, distributed_lock};
//! use std::time::Duration;
//!
//! #[distributed_lock(key = "order:{id}", client = locks)]
//! async fn charge(locks: &LockManager, id: u64) -> Result<u64, LockError> { Ok(id) }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let away = LockManager::builder().unavailable_after(Duration::from_millis(50)).connect_lazily("redis://127.0.0.1:1")?;
//! assert!(matches!(charge(&away, 7).await, Err(LockError::Unavailable { .. })));
//! assert!(matches!(away.lock("order:7").try_acquire().await, Err(LockError::Unavailable { .. })));
//!
//! let ended = LockManager::connect("memory://").await?;
//! ended.shutdown(Duration::from_secs(1)).await;
//! assert!(matches!(charge(&ended, 7).await, Err(LockError::ShutDown)));
//! # Ok(()) }
//! ```
//!
//! # Time
//!
//! Leases are measured with the clock of the system, and not with that of tokio: `#[tokio::test(start_paused = true)]` makes tokio's
//! timers run ahead of the leases, so a `wait` can end at once. Use short times instead: a `ttl` is at least 10 ms.
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
