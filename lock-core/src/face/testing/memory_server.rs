//! A server in memory that a test controls.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::record::{ClientRecord, Record, TakenLock};
use crate::base::asked::asked_by;
use crate::base::clocks::{ManualClock, TokioClock};
use crate::base::error::{LockError, LossReason};
use crate::base::sync::lock;
use crate::base::time::{Clock, SystemClock};
use crate::engine::Engine;
use crate::face::builder::LockManagerBuilder;
use crate::face::manager::LockManager;
use crate::store::{AnyStore, InMemory, MemoryStore};

/// A server in memory, for tests: its managers share their locks as the copies of a service do.
///
/// It grants locks as a real server does. Its clock is fixed when it is made, and the leases, renewals and elections of its managers
/// follow it. Clones are one server. A test makes one for itself, so tests that run in parallel do not meet.
///
/// # Examples
///
/// ```
/// use lock_core::testing::MemoryServer;
/// use lock_core::{LockError, LockManager};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let server = MemoryServer::new();
/// let other = server.connect(LockManager::builder().client_name("orders-2"))?;
/// let _theirs = other.lock("report").acquire().await?;
///
/// let busy = server.manager()?.lock("report").acquire_within(Duration::ZERO).await;
/// assert!(matches!(busy, Err(LockError::Busy { holder: Some(name), .. }) if &*name == "orders-2"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryServer {
    server: Arc<InMemory>,
    clock: Arc<dyn Clock>,
    record: Arc<Record>,
    managers: Arc<Mutex<Vec<Weak<Engine>>>>,
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryServer").finish_non_exhaustive()
    }
}

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryServer {
    /// A server whose leases end by the clock of the system, as those of `memory://`.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Arc::new(SystemClock))
    }

    /// A server on the time of tokio: under `#[tokio::test(start_paused = true)]` leases, renewals, waits and elections move together, and
    /// an hour passes as fast as the test can follow it. Made in the runtime of the test.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::testing::MemoryServer;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), lock_core::LockError> {
    /// // in your tests: #[tokio::test(start_paused = true)]
    /// let server = MemoryServer::on_tokio_time();
    /// let guard = server.manager()?.lock("import").acquire().await?;
    /// tokio::time::sleep(Duration::from_secs(3600)).await;
    /// assert!(guard.is_held(), "it was renewed for an hour");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn on_tokio_time() -> Self {
        Self::on(Arc::new(TokioClock::new()))
    }

    /// A server whose leases end when the test turns this clock.
    #[must_use]
    pub fn with_clock(clock: &ManualClock) -> Self {
        Self::on(Arc::new(clock.clone()))
    }

    fn on(clock: Arc<dyn Clock>) -> Self {
        Self {
            server: InMemory::new(Arc::clone(&clock)),
            clock,
            record: Arc::default(),
            managers: Arc::default(),
        }
    }

    /// A manager with the default settings. Each is a client of its own, as another copy of the service would be: `copy-1`, `copy-2`, ..
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn manager(&self) -> Result<LockManager, LockError> {
        self.connect(LockManager::builder())
    }

    /// A manager with these settings.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for a setting that cannot work, without a tokio runtime, and for
    /// [`own_thread`](LockManagerBuilder::own_thread) with a server that is [on the time of tokio](Self::on_tokio_time): that thread has a
    /// time of its own.
    pub fn connect(&self, mut builder: LockManagerBuilder) -> Result<LockManager, LockError> {
        builder.check()?;
        let name = &mut builder.config.client_name;
        let next = || format!("copy-{}", lock(&self.managers).len() + 1);
        let by = name.get_or_insert_with(next).clone();
        let record = Arc::clone(&self.record);
        let builder = builder.observer(ClientRecord { record, by });
        let store = AnyStore::Memory(MemoryStore::over(Arc::clone(&self.server)));
        let engine = Engine::start(builder.config, store, Arc::clone(&self.clock))?;
        lock(&self.managers).push(Arc::downgrade(&engine));
        Ok(LockManager::new(engine))
    }

    /// The server goes away: from now on calls fail with [`Unavailable`](LockError::Unavailable) as they do without a connection, leases
    /// are not renewed, and no message arrives.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::testing::MemoryServer;
    /// use lock_core::LockError;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let server = MemoryServer::new();
    /// let lock = server.manager()?.lock("a");
    /// server.goes_away();
    /// assert!(matches!(lock.try_acquire().await, Err(LockError::Unavailable { .. })));
    /// server.comes_back();
    /// assert!(lock.try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn goes_away(&self) {
        self.server.faults.goes_away();
        self.server
            .tell(None, |client| client.interrupted(&|_| true));
    }

    /// Cuts this manager off from the server, as if its process had crashed or its network had failed: another copy gets its locks when
    /// their leases have ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::testing::MemoryServer;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), lock_core::LockError> {
    /// let server = MemoryServer::on_tokio_time();
    /// let (one, two) = (server.manager()?, server.manager()?);
    /// let guard = one.lock("report").acquire().await?;
    /// server.cuts_off(&one);
    /// let next = two.lock("report").acquire().await?;
    /// assert!(!guard.is_held() && next.is_held());
    /// # Ok(()) }
    /// ```
    pub fn cuts_off(&self, locks: &LockManager) {
        self.server.faults.cuts_off(locks.client());
        self.server
            .tell(Some(locks.client()), |client| client.interrupted(&|_| true));
    }

    /// The server can be reached again by all, with the locks that have not ended meanwhile. Who waits asks at once.
    pub fn comes_back(&self) {
        self.server.faults.comes_back();
        self.server
            .tell(None, |client| client.reconnected(&|_| true));
    }

    /// From now on the answer to each request for a lock takes this long; zero, the default, answers at once.
    pub fn answers_after(&self, delay: Duration) {
        self.server.faults.answers_after(delay);
    }

    /// All holds of the locks with this key are lost for this reason, and the locks are free for others. Returns the number of leases: the
    /// guards of one owner of a reentrant lock have one. To lose a certain hold, wait until it [is there](Self::until_held).
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::testing::MemoryServer;
    /// use lock_core::LossReason;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let server = MemoryServer::new();
    /// let guard = server.manager()?.lock("import").acquire().await?;
    /// assert_eq!(server.lose("import", LossReason::Gone), 1);
    /// assert_eq!(guard.lost().await, LossReason::Gone);
    /// # Ok(()) }
    /// ```
    pub fn lose(&self, key: impl AsRef<str>, reason: LossReason) -> usize {
        let managers = lock(&self.managers).clone();
        let engines = managers.iter().filter_map(Weak::upgrade);
        engines.map(|it| it.lose(key.as_ref(), reason)).sum()
    }

    /// Waits until a guard has the lock with this key.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it only watches.
    pub async fn until_held(&self, key: impl AsRef<str>) {
        let is_held = || self.record.is_held(key.as_ref());
        self.record.changed.until(is_held).await;
    }

    /// Waits until a call waits for the lock with this key.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it only watches.
    pub async fn until_waited_for(&self, key: impl AsRef<str>) {
        let is_waited_for = || self.record.is_waited_for(key.as_ref());
        self.record.changed.until(is_waited_for).await;
    }

    /// The keys that a call asks for first, such as those of an annotated function with these arguments. The function is called, gets no
    /// lock, and is dropped, so its body does not run. A function without `client` gets a manager of this server.
    ///
    /// # Errors
    ///
    /// As [`manager`](Self::manager).
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::testing::MemoryServer;
    /// use lock_core::{LockError, distributed_lock};
    ///
    /// #[distributed_lock(key = "order:{id}")]
    /// async fn charge(id: u64) -> Result<u64, LockError> { Ok(id) }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let server = MemoryServer::new();
    /// assert_eq!(server.keys_of(charge(7)).await?, ["order:7"]);
    /// # Ok(()) }
    /// ```
    pub async fn keys_of<F: Future>(&self, call: F) -> Result<Vec<String>, LockError> {
        Ok(asked_by(self.manager()?.scope(call)).await)
    }

    /// The holds that have ended, in the order of their ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::testing::MemoryServer;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), lock_core::LockError> {
    /// let server = MemoryServer::on_tokio_time();
    /// let guard = server.manager()?.lock("import").acquire().await?;
    /// tokio::time::sleep(Duration::from_secs(90)).await;
    /// guard.release().await?;
    /// let record = server.record();
    /// assert_eq!((&*record[0].key, record[0].lost), ("import", None));
    /// assert_eq!(record[0].held.as_secs(), 90);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn record(&self) -> Vec<TakenLock> {
        self.record.taken()
    }
}
