//! Settings for a manager.

use std::time::Duration;

#[cfg(feature = "tls-rustls")]
use crate::config::SentinelTls;
use crate::config::{Config, ENDLESS};

/// Sets up a [`LockManager`](crate::LockManager). Made by [`LockManager::builder`](crate::LockManager::builder).
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
    pub(crate) config: Config,
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
    /// [`LockError::Busy`](crate::LockError::Busy), [`LockError::TimedOut`](crate::LockError::TimedOut) and [`LockInfo`](crate::LockInfo) tell it. Connections bear it as well
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

    /// How long [`Lock::acquire`](crate::Lock::acquire), [`with`](crate::Lock::with) and a function under `#[distributed_lock]` without
    /// `wait` wait at most, also of the other kinds of lock. No limit by default; not zero.
    ///
    /// With it a lock that is never released shows as
    /// [`TimedOut`](crate::LockError::TimedOut), with the holder's name, and not as requests that hang. A caller that is to wait without
    /// limit says `acquire_within(Duration::MAX)`.
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

    /// Whether a node of a [quorum](Self::connect_quorum) that has restarted, was flushed or replaced is kept from voting until every lock
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

    /// How far the clock of a node of a [quorum](Self::connect_quorum) may jump without harm. 500 ms by default, at least 20 ms.
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

    /// The password of the sentinels behind a `redis+sentinel://` URL, whose own password is that of the servers. None by default.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .sentinel_password("their secret")
    ///     .connect("redis+sentinel://:secret@s1,s2,s3/mymaster")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.config.sentinel.password = Some(password.into());
        self
    }

    /// The user of the sentinels, where they have users (`ACL`). The default user by default.
    ///
    /// It needs `+sentinel|get-master-addr-by-name`, `+sentinel|master`, `+sentinel|sentinels`, `+subscribe`, and the channel
    /// `+switch-master`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .sentinel_user("locks")
    ///     .sentinel_password("their secret")
    ///     .connect("redis+sentinel://s1,s2,s3/mymaster")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn sentinel_user(mut self, user: impl Into<String>) -> Self {
        self.config.sentinel.user = Some(user.into());
        self
    }

    /// How to speak TLS to the sentinels, and `None` for sentinels without TLS. By default they are spoken to as the servers are:
    /// over TLS behind `rediss+sentinel://`, with the settings of [`tls`](Self::tls).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .tls(lock_core::Tls::new().ca_file("/etc/redis/ca.pem"))
    ///     .sentinel_tls(None)
    ///     .connect("rediss+sentinel://s1,s2,s3/mymaster")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    #[cfg(feature = "tls-rustls")]
    pub fn sentinel_tls(mut self, tls: impl Into<Option<crate::Tls>>) -> Self {
        self.config.sentinel.tls = tls.into().map_or(SentinelTls::Without, SentinelTls::With);
        self
    }
}
