//! Settings for a manager.

use std::sync::Arc;
use std::time::Duration;

use crate::base::config::{Config, ENDLESS};
use crate::base::credentials::{Credentials, Provider};
use crate::base::error::LockError;
use crate::base::observe::Observer;
use crate::base::quorum_config::QuorumConfig;
use crate::store::RedisConfig;

/// Sets up a [`LockManager`](crate::LockManager). Made by [`LockManager::builder`](crate::LockManager::builder).
///
/// Settings are checked when the manager is made, so each method accepts any value.
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
    pub(crate) config: Config,
    pub(crate) redis: RedisConfig,
    pub(crate) quorum: QuorumConfig,
}

impl LockManagerBuilder {
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.config.check()?;
        self.quorum.check()
    }

    /// Adds an observer, which is told what happens to the locks of the manager: for metrics. See [`observe`](crate::observe).
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::observe::{Event, Observer};
    ///
    /// struct Print;
    ///
    /// impl Observer for Print {
    ///     fn observe(&self, event: &Event<'_>) {
    ///         println!("{event:?}");
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder().observer(Print).connect("memory://").await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.config.observed = self.config.observed.and(observer);
        self
    }

    /// The prefix of every key on the server. Default: `lock:`.
    ///
    /// Two services with the same prefix share their locks. With the empty prefix a key is used as it is: lock-core and any client
    /// that locks the same key with `SET key token NX PX ttl` then exclude each other.
    ///
    /// At most 255 bytes together with the [namespace](Self::namespace), without braces. `lock-core:` at its start is reserved.
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

    /// The beginning of every key and every channel of the library on the server, for tenants that share a server. Default: empty.
    ///
    /// It stands before the [prefix](Self::prefix), before the keys and channels of [reentrant locks](crate::ReentrantLock), and
    /// before the library's own keys (`lock-core:`). Two tenants have no key in common unless one namespace is the beginning of the
    /// other. So a user of the server needs only one pattern for keys and one for channels, `~team-a:* &team-a:*`, and cannot touch
    /// the locks of another tenant. All programs that share locks name the same namespace. A reentrant lock in a namespace is not
    /// shared with Redisson.
    ///
    /// Printable ASCII characters without spaces, quotes and braces, at most 255 together with the prefix.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .namespace("team-a:")
    ///     .connect("memory://")
    ///     .await?;
    /// // On the server this lock is `team-a:lock:order:42`, and its queue `team-a:lock-core:queue:..`.
    /// let order = locks.lock("order:42");
    /// assert_eq!(order.key(), "order:42");
    /// # Ok(()) }
    /// ```
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        let namespace: Arc<str> = namespace.into().into();
        self.redis.namespace = Arc::clone(&namespace);
        self.config.namespace = namespace;
        self
    }

    /// The name of this manager for people, for example `orders-7`. Default: host name and process id.
    ///
    /// It is part of every token on the server, so a refused caller or a waiter can learn the holder:
    /// [`LockError::Busy`](crate::LockError::Busy), [`LockError::TimedOut`](crate::LockError::TimedOut) and
    /// [`LockInfo`](crate::LockInfo) show it. Connections have it too (`CLIENT SETNAME`). It need not be unique, and is not a
    /// secret.
    ///
    /// 1 to 40 printable ASCII characters, without spaces and braces.
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

    /// The ttl of locks that do not set their own: how long a crashed holder blocks others. Default: 30 s.
    ///
    /// From 10 ms to 24 days; fractions of a millisecond are cut off. The watchdog renews a lease when a third of it has passed, so a
    /// live holder may hold the lock for longer.
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

    /// How long `acquire`, `with` and functions under `#[distributed_lock]` without `wait` wait at most, for every kind of lock.
    /// Default: no limit. Not zero.
    ///
    /// Does not limit [`Election::campaign`](crate::Election::campaign), [`Election::run`](crate::Election::run) and
    /// [`Latch::wait`](crate::Latch::wait): a candidate waits while another one leads, and a waiter until all parts are done.
    ///
    /// With a limit, a lock that is never released leads to [`TimedOut`](crate::LockError::TimedOut) with the holder's name, not to
    /// requests that hang. For one call without limit, use `acquire_within(Duration::MAX)`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .default_wait(Duration::from_millis(20))
    ///     .connect("memory://")
    ///     .await?;
    /// let _held = locks.lock("a").acquire().await?;
    /// let late = locks.lock("a").acquire().await;
    /// assert!(matches!(late, Err(lock_core::LockError::TimedOut { .. })));
    /// # Ok(()) }
    /// ```
    pub fn default_wait(mut self, limit: Duration) -> Self {
        self.config.default_wait = Some(limit);
        self
    }

    /// How long a call waits for a server that does not answer, for every kind of lock. Then it fails with
    /// [`Unavailable`](crate::LockError::Unavailable). Not zero. Default: the limit of the call, or one ttl for a call without a limit.
    ///
    /// So a request handler can wait 10 s for a lock that is held, but does not wait 10 s for a server that is away. The time counts from
    /// the first request without an answer; all waiters of a lock share it. A queued waiter asks every 2 s, so it may notice an outage up
    /// to 2 s and one [`command_deadline`](Self::command_deadline) later. While this process holds the lock itself, or its release is not
    /// confirmed (at most one command deadline), its waiters wait for that, whatever the server does. Does not apply
    /// to [`campaign`](crate::Election::campaign) and [`Latch::wait`](crate::Latch::wait), which wait through outages.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .default_wait(Duration::from_secs(10))
    ///     .unavailable_after(Duration::from_millis(50))
    ///     .connect_lazily("redis://127.0.0.1:1")?; // nothing listens there
    /// let answer = locks.lock("a").acquire().await; // after 50 ms
    /// assert!(matches!(answer, Err(lock_core::LockError::Unavailable { .. })));
    /// # Ok(()) }
    /// ```
    pub fn unavailable_after(mut self, after: Duration) -> Self {
        self.config.unavailable_after = Some(after);
        self
    }

    /// The maximum time for the server's answer to one command. After that time the command has failed. Default: 1 s. Not zero.
    ///
    /// It also limits the time to connect. Connecting to a quorum takes at most three times as long, because each node is also asked
    /// whether it votes. A renewal gets at most a third of the ttl, whatever this setting is.
    pub fn command_deadline(mut self, limit: Duration) -> Self {
        self.config.command_deadline = limit.min(ENDLESS);
        self
    }

    /// Ends every hold after this time, even if its lease is renewed: a stuck task does not keep a lock forever. Default: no limit.
    /// Not zero. A lock can set [its own limit](crate::Lock::max_hold).
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

    /// Lengthens each lease by a random part of it, up to this fraction (0 to 1), so that locks acquired at the same time do not
    /// expire at the same time. Default: 0.
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

    /// How often a waiter polls if the server cannot push messages to this client: over [`from_connection`](Self::from_connection),
    /// or with RESP2. Default: 100 ms, plus or minus up to a half. Not zero, at most 2 s.
    ///
    /// With a shorter interval, hand-overs are faster and the server gets more commands: one for each waiter and interval. A waiter
    /// that has not polled for four intervals (at least 750 ms) counts as crashed: it loses its place, and queues again at its next
    /// poll. All crashed waiters together delay the others by at most that time and one poll.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.config.poll_interval = interval;
        self
    }

    /// The maximum number of guards of this process in a row, while another process waits for the lock. Default: 64; with 1 the
    /// processes alternate after each guard. From 1 to 1024.
    ///
    /// Inside a process, a released lock goes to the next waiter without a call to the server. This limit keeps that fair, and so does a
    /// limit of 10 ms: the one that is reached first ends the turn. Both count only while another process waits.
    pub fn handover_limit(mut self, most: u32) -> Self {
        self.config.handover_limit = most;
        self
    }

    /// The trusted certificates and the identity of this client, for every server behind a `rediss://` URL, including each node of
    /// a quorum. See [`Tls`](crate::Tls). Default: the root certificates of the system.
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
        self.redis.tls = Some(tls);
        self
    }

    /// Calls `provider` for user and password: for passwords that change, and for tokens of a cloud or a vault. The URL then has
    /// neither. All connections use the last answer until a server refuses it, or until four fifths of the time that it
    /// [lasts](crate::Credentials::lasts) are over. Serves the nodes of a cluster and of a quorum as well; sentinels have a
    /// [provider of their own](Self::sentinel_credentials).
    ///
    /// The provider runs in the runtime of the manager, between its renewals: move blocking calls into `spawn_blocking`. It must
    /// answer within the [`command_deadline`](Self::command_deadline). If it fails, panics or is late, or if the server refuses its
    /// answer, the attempt to connect fails and is repeated, as if the server had not answered: callers get
    /// [`Unavailable`](crate::LockError::Unavailable) with the text of the error, and the provider is called about once a second.
    /// A live connection stays. Before credentials with a limited time end, their connection authenticates again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use lock_core::{Credentials, LockManager};
    ///
    /// # async fn token_of_the_cloud() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = LockManager::builder()
    ///     .credentials(|| async {
    ///         let token = token_of_the_cloud().await?;
    ///         Ok::<_, std::io::Error>(Credentials::new("orders", token).lasts(Duration::from_secs(900)))
    ///     })
    ///     .connect("rediss://redis.internal:6379")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn credentials<F, E>(mut self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.redis.credentials = Some(Provider::new(provider));
        self
    }

    /// Gives the manager a thread of its own: its task, its timers and its connections live there, on a small runtime. Default: they
    /// live in the runtime in which the manager is made.
    ///
    /// For programs whose tasks compute or block for long without an await. Such tasks keep the workers of a shared runtime busy:
    /// leases are then renewed late or lost, and dropped guards are released late. With a thread of its own, a manager also works
    /// without a tokio runtime: guards and futures can be used from any executor, and from a plain thread.
    ///
    /// It costs a thread for each manager, and two changes of threads for each request to the server. If the server is on the same
    /// machine, acquire and release of a free lock take a third more time, and a hot key changes hands a third less often; at a
    /// network latency of 0.5 ms the cost is 6 %. Therefore it is not the default.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::LockManager;
    ///
    /// // No runtime here: any executor will do.
    /// # fn main() -> Result<(), lock_core::LockError> {
    /// # fn block_on<F: Future>(future: F) -> F::Output { tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future) }
    /// block_on(async {
    ///     let locks = LockManager::builder().own_thread().connect("memory://").await?;
    ///     let guard = locks.lock("a").acquire().await?;
    ///     guard.release().await
    /// })
    /// # }
    /// ```
    #[cfg(not(lock_sim))]
    pub fn own_thread(mut self) -> Self {
        self.config.own_thread = true;
        self
    }

    /// Accepts a server whatever version it reports. Default: a server that reports a version before 6.2 is
    /// [`InvalidConfig`](crate::LockError::InvalidConfig).
    ///
    /// For a compatible server that reports the version of another product. A promise does not hold if it needs a command or an
    /// option that the server lacks. For example, without `SET .. GET` (from Redis 6.2 on) two grants within a millisecond may have
    /// the same [fencing token](crate::FencingToken). The other checks of [`connect`](Self::connect) stay. See
    /// [managed servers](crate::guide::managed_servers).
    pub fn any_version(mut self) -> Self {
        self.redis.any_version = true;
        self
    }
}
