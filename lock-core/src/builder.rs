//! Settings for a manager.

use std::sync::Arc;
use std::time::Duration;

use crate::LockError;
use crate::config::{Config, ENDLESS};
use crate::engine::Engine;
use crate::manager::LockManager;
use crate::rt::Handle;
use crate::store::{
    AnyStore, MemoryStore, QuorumStore, RedisStore, StoreError, UserConnection, node_urls,
};
use crate::time::{Clock, SystemClock};

/// Sets up a [`LockManager`]. Made by [`LockManager::builder`].
///
/// Settings are checked when the manager is made, so each method takes any value.
///
/// # Examples
///
/// ```
/// use lock_core::LockManager;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = LockManager::builder()
///     .prefix("shop:")
///     .default_ttl(Duration::from_secs(10))
///     .max_hold(Duration::from_secs(600))
///     .connect("memory://")
///     .await?;
/// # let _ = locks; Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `connect` or `from_connection`"]
pub struct LockManagerBuilder {
    config: Config,
}

impl LockManagerBuilder {
    /// What stands before every key on the server. `lock:` by default.
    ///
    /// The empty prefix gives the bare key, so that any client that locks the same key with
    /// `SET key token NX PX ttl` excludes us, and we it. Two services with the same prefix share their locks.
    ///
    /// At most 1024 bytes, without braces, and not under `lock-core:`, which is kept for what belongs to locks.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .prefix("shop:")
    ///     .connect("memory://")
    ///     .await?;
    /// // On the server this lock is `shop:order:42`.
    /// let order = locks.lock("order:42");
    /// assert_eq!(order.key(), "order:42");
    /// # Ok(()) }
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.prefix = prefix.into();
        self
    }

    /// The name by which people know this manager, for example `orders-7`. The name of the machine and the number of the process by
    /// default.
    ///
    /// It is a part of every token on the server, so a caller that is refused or waits can learn the holder:
    /// [`LockError::Busy`], [`LockError::TimedOut`] and [`LockInfo`](crate::LockInfo) tell it. Connections bear it as well
    /// (`CLIENT SETNAME`). It need not be unique, and it is no secret.
    ///
    /// 1 to 40 printable ASCII characters without spaces and braces.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lock_core::LockError;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .client_name("orders-7")
    ///     .connect("memory://")
    ///     .await?;
    /// let lock = locks.lock("report");
    /// let _guard = lock.acquire().await?;
    /// let error = lock.acquire_within(std::time::Duration::ZERO).await.unwrap_err();
    /// assert!(matches!(error, LockError::Busy { holder: Some(name), .. } if &*name == "orders-7"));
    /// # Ok(()) }
    /// ```
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.config.client_name = Some(name.into());
        self
    }

    /// The lease of locks that do not name one: how long a crashed holder blocks others. 30 s by default.
    ///
    /// From 10 ms to 24 days, in whole milliseconds. The watchdog renews a lease when a third of it has passed, so a
    /// live holder may hold for longer.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .default_ttl(Duration::from_secs(10))
    ///     .connect("memory://")
    ///     .await?;
    /// let guard = locks.lock("a").acquire().await?;
    /// assert!(guard.remaining() <= Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    pub fn default_ttl(mut self, ttl: Duration) -> Self {
        self.config.default_ttl = ttl;
        self
    }

    /// How long the server may take to answer one command before that counts as an error. 1 s by default, not zero.
    ///
    /// It also bounds the making of a connection. A renewal gets at most a third of the ttl, whatever is set here.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .command_deadline(Duration::from_millis(250))
    ///     .connect("memory://")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn command_deadline(mut self, limit: Duration) -> Self {
        self.config.command_deadline = limit.min(ENDLESS);
        self
    }

    /// How much of a lease is not trusted, for clocks that run at different speeds. A hundredth of the ttl and
    /// 2 ms by default; at least 2 ms, and smaller than every ttl in use.
    ///
    /// A guard believes in its lease for the ttl less the drift.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .drift(Duration::from_millis(500))
    ///     .connect("memory://")
    ///     .await?;
    /// let guard = locks.lock("a").ttl(Duration::from_secs(10)).acquire().await?;
    /// assert!(guard.remaining() <= Duration::from_millis(9500));
    /// # Ok(()) }
    /// ```
    pub fn drift(mut self, drift: Duration) -> Self {
        self.config.drift = Some(drift);
        self
    }

    /// Ends every hold after this time, however well it is renewed: a stuck task does not keep a lock for ever.
    /// Without limit by default, not zero; a lock can set [its own](crate::Lock::max_hold).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .max_hold(Duration::from_millis(30))
    ///     .connect("memory://")
    ///     .await?;
    /// let guard = locks.lock("a").acquire().await?;
    /// assert_eq!(guard.lost().await, lock_core::LossReason::MaxHold);
    /// # Ok(()) }
    /// ```
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.config.max_hold = Some(most);
        self
    }

    /// Lengthens each lease by a random part of it, up to this fraction (0 to 1, 0 by default), so that many
    /// locks taken at once do not end at once.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .ttl_jitter(0.1)
    ///     .connect("memory://")
    ///     .await?;
    /// // The lease is between 10 and 11 seconds.
    /// let guard = locks.lock("a").ttl(Duration::from_secs(10)).acquire().await?;
    /// # drop(guard); Ok(()) }
    /// ```
    pub fn ttl_jitter(mut self, fraction: f64) -> Self {
        self.config.ttl_jitter = fraction;
        self
    }

    /// How often a waiter asks where the server cannot push messages to us: over
    /// [`from_connection`](Self::from_connection), or with RESP2. 100 ms by default, give or take a half; not zero, and at most 2 s.
    ///
    /// A shorter interval hands locks over sooner and costs the server a command for each waiter and interval. A waiter that has
    /// not asked for four intervals, and for 750 ms, counts as crashed: it loses its place, and queues anew when it asks again.
    /// All that have crashed cost the others no longer than that, together.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .poll_interval(Duration::from_millis(20))
    ///     .connect("memory://")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.config.poll_interval = interval;
        self
    }

    /// How many guards of this process in a row may have a lock before it goes to another process that waits for it.
    /// 64 by default; with 1 the processes take turns after each guard. From 1 to 1024.
    ///
    /// Inside a process a released lock goes to the next waiter without any call to the server. This limit and
    /// [`handover_time`](Self::handover_time) keep that fair: whichever is reached first ends the row. They count only
    /// while another process waits.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let strict = lock_core::LockManager::builder().handover_limit(1).connect("memory://").await?;
    /// # let _ = strict; Ok(()) }
    /// ```
    pub fn handover_limit(mut self, most: u32) -> Self {
        self.config.handover_limit = most;
        self
    }

    /// For how long guards of this process may hand a lock on among themselves while another process waits for it.
    /// 10 ms by default; at most 10 s. See [`handover_limit`](Self::handover_limit).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .handover_time(Duration::from_millis(2))
    ///     .connect("memory://")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn handover_time(mut self, most: Duration) -> Self {
        self.config.handover_time = most;
        self
    }

    /// Whether a node of a [quorum](Self::quorum) that has restarted, was flushed or replaced is kept from voting until every lock
    /// has ended that it may have forgotten. True by default.
    ///
    /// That takes the longest ttl in use, rounded up by an eighth at most, and at least two seconds. The nodes keep a note of the
    /// ttls; one that nobody uses any more counts for twice its time. Switch it off, in all programs, only where each node
    /// writes its data to disk before it answers (`appendonly yes`, `appendfsync always`).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .restart_quarantine(false)
    ///     .connect_quorum(["redis://a", "redis://b", "redis://c"])
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn restart_quarantine(mut self, on: bool) -> Self {
        self.config.restart_quarantine = on;
        self
    }

    /// How far the clock of a node of a [quorum](Self::quorum) may jump without harm. 500 ms by default, at least 20 ms.
    ///
    /// A server measures a ttl with its wall clock, so one that jumps forward forgets votes too early. The nodes keep each vote
    /// that much longer than its ttl, and a lock is taken only with a majority of nodes whose clocks agree to within half of it:
    /// a node that has jumped farther does not count until its clock is right again. So the clocks have to be synchronised
    /// (NTP), or the error says how far they are apart. A lock whose process has crashed is free that much later.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .clock_skew(Duration::from_secs(2))
    ///     .connect_quorum(["redis://a", "redis://b", "redis://c"])
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn clock_skew(mut self, most: Duration) -> Self {
        self.config.clock_skew = most;
        self
    }

    /// Whom to trust over TLS, and how to identify this client, for every server behind a `rediss://` URL, each node of a quorum
    /// included. See [`Tls`](crate::Tls). Without it, the roots of the system are trusted.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let tls = lock_core::Tls::new().ca_file("/etc/redis/ca.pem");
    /// let locks = lock_core::LockManager::builder()
    ///     .tls(tls)
    ///     .connect("rediss://redis.internal:6380")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    #[cfg(feature = "tls-rustls")]
    pub fn tls(mut self, tls: crate::Tls) -> Self {
        self.config.tls = Some(tls);
        self
    }

    /// Connects, and starts the task that keeps locks alive on the current tokio runtime.
    ///
    /// | URL | what |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | one Redis or Valkey master |
    /// | `rediss://..` | the same over TLS, with feature `tls-rustls` |
    /// | `redis+unix:///path/to/socket` | over a Unix socket |
    /// | `redis+quorum://a,b,c` | a [quorum](Self::quorum) of independent masters; `rediss+quorum://` over TLS |
    /// | `memory://` | locks in this process, for development and tests; `memory://name` is shared by all managers that name it |
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for a setting or URL that cannot work, and where there is no tokio runtime. It also
    /// looks at the server, and says what to write instead: a refused password or certificate, a port that speaks TLS or does not,
    /// an HTTP server, a Sentinel, a node of a cluster, a user without the rights that locks need.
    /// [`Unavailable`](LockError::Unavailable) where nobody answers, and for a replica.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a dropped future leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder().connect("memory://").await?;
    /// assert!(locks.lock("a").try_acquire().await?.is_some());
    ///
    /// let refused = lock_core::LockManager::builder().connect("localhost:6379").await;
    /// assert!(matches!(refused, Err(lock_core::LockError::InvalidConfig { .. })));
    /// # Ok(()) }
    /// ```
    pub async fn connect(self, url: &str) -> Result<LockManager, LockError> {
        self.config.check()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        if let Some(name) = url.strip_prefix("memory://") {
            tracing::warn!(
                "locks are kept in the memory of this process: other processes do not see them"
            );
            let store = AnyStore::Memory(MemoryStore::open(name, Arc::clone(&clock)));
            return Ok(LockManager::new(Engine::start(self.config, store, clock)?));
        }
        if let Some(nodes) = node_urls(url) {
            return self.connect_quorum(nodes).await;
        }
        let store = RedisStore::open(url, &self.config)?;
        let engine = Engine::start(self.config, AnyStore::Redis(store), clock)?;
        let ready = engine.shared.store.ready().await;
        ready.map_err(StoreError::into_lock_error)?;
        Ok(LockManager::new(engine))
    }

    /// Connects to a quorum: 3, 5, 7 or 9 masters that know nothing of each other. A lock is held by whoever has it on a
    /// majority of them, so it survives the loss of the minority; this is Redlock, with [fencing tokens](crate::FencingToken).
    ///
    /// Each URL may have its own user, password, port and database. The same as a URL for [`connect`](Self::connect):
    /// `redis+quorum://user:password@a:6379/0,b,c`, where a comma in a password is written `%2C`.
    ///
    /// Every operation asks all nodes at once and is done when a majority has decided. A node that does not answer costs
    /// nothing but its vote. Waiters of different processes get the lock about in the order in which they asked, not strictly.
    /// [Reentrant locks](crate::ReentrantLock) are not over a quorum: acquiring one is [`InvalidConfig`](LockError::InvalidConfig).
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for another number of nodes, one that is named twice, or as for
    /// [`connect`](Self::connect); [`Unavailable`](LockError::Unavailable), with what each node said, where no majority answers.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a dropped future leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// let locks = lock_core::LockManager::builder().connect_quorum(nodes).await?;
    /// let guard = locks.lock("report").acquire().await?;
    /// # drop(guard); Ok(()) }
    /// ```
    pub async fn connect_quorum<U: AsRef<str>>(
        self,
        nodes: impl IntoIterator<Item = U>,
    ) -> Result<LockManager, LockError> {
        self.config.check()?;
        let store = AnyStore::Quorum(QuorumStore::open(&texts(nodes), &self.config)?);
        let engine = Engine::start(self.config, store, Arc::new(SystemClock))?;
        let ready = engine.shared.store.ready().await;
        ready.map_err(StoreError::into_lock_error)?;
        Ok(LockManager::new(engine))
    }

    /// Begins a new quorum, once, before its first lock: from then on its nodes vote.
    ///
    /// A server without data may have lost it, with votes for locks that still last. So a node that no quorum knows does not vote
    /// before the longest ttl in use has passed. That is also how a quorum begins without this call, and how a node joins that
    /// replaces another. Here somebody who knows that none of the servers was a node before says so.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable) where a node does not answer: all of them have to;
    /// [`InvalidConfig`](LockError::InvalidConfig) where a node belongs to a quorum already, or as for [`connect_quorum`](Self::connect_quorum). Nothing
    /// has changed then, unless a node failed at the last moment: the others vote, and that one joins by itself.
    ///
    /// # Cancel safety
    ///
    /// A dropped future may have begun with some of the nodes; the others join by themselves.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// lock_core::LockManager::builder().begin_quorum(nodes).await?;
    /// # Ok(()) }
    /// ```
    pub async fn begin_quorum<U: AsRef<str>>(
        self,
        nodes: impl IntoIterator<Item = U>,
    ) -> Result<(), LockError> {
        self.config.check()?;
        Handle::try_current().map_err(|_| {
            LockError::config("there is no tokio runtime here: begin a quorum inside one")
        })?;
        let store = QuorumStore::open(&texts(nodes), &self.config)?;
        store.begin().await.map_err(StoreError::into_lock_error)
    }

    /// Uses a connection that the program already has: a `ConnectionManager`, a `MultiplexedConnection`, or
    /// anything else that speaks for one master.
    ///
    /// Such a connection cannot take messages for us, so waiting for a lock asks every
    /// [`poll_interval`](Self::poll_interval). That it has broken is heard with the next command, so a lock that was taken away
    /// meanwhile is known to be lost with its next renewal. A `MultiplexedConnection` does not reconnect: prefer the others.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for a setting that cannot work, or where there is no tokio runtime.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1")?;
    /// let connection = client.get_connection_manager().await?;
    /// let locks = lock_core::LockManager::builder().from_connection(connection)?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn from_connection<C>(self, connection: C) -> Result<LockManager, LockError>
    where
        C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.config.check()?;
        let connection = UserConnection::new(connection);
        let store = AnyStore::Redis(RedisStore::over(connection, &self.config));
        let engine = Engine::start(self.config, store, Arc::new(SystemClock))?;
        Ok(LockManager::new(engine))
    }
}

fn texts<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Vec<String> {
    let urls = urls.into_iter();
    urls.map(|url| url.as_ref().to_owned()).collect()
}
