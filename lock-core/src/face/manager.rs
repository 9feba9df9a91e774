//! The entry point: a connection, its settings, and the engine behind all its locks.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::LockError;
use crate::base::finding::Finding;
use crate::engine::Engine;
use crate::face::all::distinct;
use crate::face::builder::LockManagerBuilder;
use crate::face::election::Election;
use crate::face::latch::Latch;
use crate::face::list::LockList;
use crate::face::lock::Lock;
use crate::face::multi_lock::MultiLock;
use crate::face::ping::{Pong, ping};
use crate::face::reentrant::ReentrantLock;
use crate::face::rw_lock::RwLock;
use crate::face::segmented::SegmentedLock;
use crate::face::semaphore::Semaphore;

/// Makes [`Lock`]s on one server, and renews the locks that are held.
///
/// Cheap to clone; clones share one connection and one background task. The task runs on the tokio runtime in which
/// the manager was made, so a manager should not outlive that runtime: give each `#[tokio::test]` its own.
///
/// # Examples
///
/// ```
/// use lock_core::LockManager;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let guard = locks.lock("report:daily").acquire().await?;
/// // .. runs alone ..
/// guard.release().await?;
/// locks.shutdown(Duration::from_secs(5)).await;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct LockManager {
    engine: Arc<Engine>,
}

impl LockManager {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// The id of its client.
    #[cfg(feature = "testing")]
    pub(crate) fn client(&self) -> &str {
        self.engine.shared.client.as_str()
    }

    /// The runtime of its own thread, if it has one.
    #[cfg(feature = "blocking")]
    pub(crate) fn thread(&self) -> Option<&crate::base::rt::Handle> {
        self.engine.shared.timers.runtime()
    }

    /// Connects with the default settings. See [`LockManagerBuilder::connect`] for URLs and errors.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a dropped future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        Self::builder().connect(url).await
    }

    /// A builder, for settings other than the defaults.
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::default()
    }

    /// Uses a connection that the program already has. See [`LockManagerBuilder::from_connection`].
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::from_connection`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1")?;
    /// let connection = client.get_connection_manager().await?;
    /// let locks = lock_core::LockManager::from_connection(connection)?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn from_connection<C>(connection: C) -> Result<Self, LockError>
    where
        C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::builder().from_connection(connection)
    }

    /// A handle to the lock named `key`. No I/O; the first acquisition reports a key that cannot be used.
    ///
    /// A key is 1 to 1024 bytes, with braces only as one `{tag}`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let order = locks.lock(format!("order:{}", 42));
    /// assert_eq!(order.key(), "order:42");
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, key: impl AsRef<str>) -> Lock {
        Lock::new(Arc::clone(&self.engine), key.as_ref())
    }

    /// A handle to the locks of these keys, which one guard holds: all or none. They are the same locks as those of [`lock`](Self::lock).
    /// A key that is named twice is taken once. No I/O; the first acquisition reports an empty list, or a key that cannot be used.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let accounts = [7, 9, 12];
    /// let guard = locks.all(accounts.map(|id| format!("account:{id}"))).acquire().await?;
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn all(&self, keys: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        let keys = distinct(keys).into_iter();
        MultiLock::new(keys.map(|key| self.lock(key).handle).collect())
    }

    /// A handle to the reentrant lock named `key`, which is compatible with Redisson's `RLock`. No I/O; the first acquisition reports
    /// a key that cannot be used.
    ///
    /// The key on the server has no prefix: the manager's prefix does not apply.
    pub fn reentrant_lock(&self, key: impl AsRef<str>) -> ReentrantLock {
        ReentrantLock::new(Arc::clone(&self.engine), key.as_ref())
    }

    /// A handle to the semaphore named `key`, with `max` permits for all processes together. No I/O; the first acquisition reports a
    /// key or a number that cannot be used.
    pub fn semaphore(&self, key: impl AsRef<str>, max: u32) -> Semaphore {
        Semaphore::new(Arc::clone(&self.engine), key.as_ref(), max)
    }

    /// A handle to the read-write lock named `key`. No I/O; the first acquisition reports a key that cannot be used.
    pub fn rw_lock(&self, key: impl AsRef<str>) -> RwLock {
        RwLock::new(Arc::clone(&self.engine), key.as_ref())
    }

    /// A handle to the election named `key`. No I/O; the first call reports a key that cannot be used.
    pub fn election(&self, key: impl AsRef<str>) -> Election {
        Election::new(Arc::clone(&self.engine), key.as_ref())
    }

    /// A handle to the latch named `key`, which opens when `count` different ids were counted. No I/O; the first call reports a key or
    /// a number that cannot be used.
    pub fn latch(&self, key: impl AsRef<str>, count: u32) -> Latch {
        Latch::new(Arc::clone(&self.engine), key.as_ref(), count)
    }

    /// A handle to a lock with `segments` segments, 1 to 1024, each for one holder at a time. No I/O.
    pub fn segmented_lock(&self, key: impl AsRef<str>, segments: usize) -> SegmentedLock {
        SegmentedLock::new(|key| self.lock(key).handle, key.as_ref(), segments)
    }

    /// An iteration over all held locks of every kind, of all holders: for operators and dashboards. It lists the locks, semaphores,
    /// read-write locks and elections with this manager's prefix, and all [reentrant locks](ReentrantLock), because they have no prefix.
    /// A [`Latch`] is not held, so it is not listed.
    ///
    /// It reads one page at a time (`SCAN`), so it never blocks the server for long, and it is weakly consistent: a lock that is
    /// held during the whole iteration appears once; a lock that is acquired or released meanwhile may or may not appear. Over a
    /// quorum it covers all nodes. With the empty prefix any string with a ttl counts as a lock. A reentrant lock that only Redisson
    /// uses does not appear.
    ///
    /// The user of the server needs the right to `scan`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder().client_name("orders-7").connect("memory://").await?;
    /// let _guard = locks.lock("report").acquire().await?;
    /// let mut list = locks.list();
    /// while let Some(page) = list.next_page().await? {
    ///     for lock in page {
    ///         println!("{}: {:?}", lock.key(), lock.info());
    ///         assert_eq!((lock.key(), lock.info().holder()), ("report", Some("orders-7")));
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list(&self) -> LockList {
        LockList::new(Arc::clone(&self.engine))
    }

    /// Examines the servers: for operators, and for a check before a deployment. Checks each server's version, eviction, memory,
    /// persistence, replicas and clock, lists the strings under the prefix that have no ttl, and names the nodes of a quorum that do not
    /// vote. A defect that `connect` refuses leaves no manager to examine. Empty for `memory://` and over a connection of the user.
    ///
    /// The user of the server needs the rights to `info` and `scan`; without them it finds less.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(locks: lock_core::LockManager) {
    /// for finding in locks.examine().await {
    ///     if let Some(advice) = finding.advice() {
    ///         println!("{}: {}: {advice}", finding.server(), finding.what());
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn examine(&self) -> Vec<Finding> {
        self.engine.examine().await
    }

    /// Whether locks can be granted now: takes a lock of its own, and releases it. For the readiness probe of a service.
    ///
    /// In a cluster it takes one lock at each master, and each slot needs a master; in a quorum a majority has to vote. The name is
    /// `lock-core-ping` behind the prefix, in a cluster with a tag: the user of the server needs the right to these keys. Metrics
    /// do not count it as a call or a hold.
    ///
    /// A readiness probe that fails keeps requests away, so use it only for a service that can do nothing without locks. Never use it
    /// for liveness: a restart does not bring the server back.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable) after [`unavailable_after`](LockManagerBuilder::unavailable_after), or after at most three
    /// [command deadlines](LockManagerBuilder::command_deadline); [`InvalidConfig`](LockError::InvalidConfig);
    /// [`NotALock`](LockError::NotALock); [`ShutDown`](LockError::ShutDown) once [`shutdown`](Self::shutdown) was called.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a lock that a dropped future has taken is released in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// /// For `GET /ready`: in axum, `(StatusCode, String)` is a response. Example `production_service` has it.
    /// async fn ready(locks: &lock_core::LockManager) -> (u16, String) {
    ///     match locks.ping().await {
    ///         Ok(pong) => (200, format!("locks answer in {:?}", pong.round_trip())),
    ///         Err(error) => (503, error.to_string()),
    ///     }
    /// }
    ///
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// assert_eq!(ready(&locks).await.0, 200);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn ping(&self) -> impl Future<Output = Result<Pong, LockError>> + use<> {
        let (engine, at) = (Arc::clone(&self.engine), Location::caller());
        async move { ping(&engine, at).await }
    }

    /// Ends the service of this manager and all its clones. Call it in the last line of `main`.
    ///
    /// From now on acquisitions fail with [`ShutDown`](LockError::ShutDown), also those that already wait. A caller whose request
    /// is under way gets the error with the answer, or after the command deadline. Then `shutdown` waits until guards in use are
    /// released and the queued releases of dropped guards are confirmed. Guards that are still alive shortly before `limit` are
    /// lost ([`LossReason::ShutDown`](crate::LossReason::ShutDown)) and their locks are released. A lock with
    /// [`at_least`](crate::Lock::at_least) keeps a ttl for the rest of that time. Calls that change something without a guard, such as
    /// `force_release`, `resize` and `count_down`, fail with `ShutDown` as well. Calls that only look, such as `inspect`, still work.
    ///
    /// Returns the number of acquisitions and releases that were not finished: 0 if nothing is left on the server. The locks of the
    /// others may stay for their ttl. Lost guards are not counted. But if the runtime of the manager has ended, nothing is released, and
    /// the locks of its guards count until their ttl ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait; acquisitions stay refused. A second call continues the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// drop(locks.lock("a").acquire().await?);
    /// assert_eq!(locks.shutdown(Duration::from_secs(5)).await, 0);
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self, limit: Duration) -> usize {
        self.engine.shutdown(limit).await
    }
}
