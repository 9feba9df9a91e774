//! Makes a manager from settings: URLs and connections.

use std::sync::Arc;

use crate::base::error::LockError;
use crate::base::time::{Clock, SystemClock};
use crate::engine::Engine;
use crate::face::builder::LockManagerBuilder;
use crate::face::manager::LockManager;
use crate::store::{
    AnyStore, MemoryStore, QuorumStore, RedisStore, StoreError, UserConnection, node_urls,
};

impl LockManagerBuilder {
    /// Connects, and starts the task that renews locks on the current tokio runtime.
    ///
    /// | URL | what |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | one Redis or Valkey master |
    /// | `rediss://..` | the same over TLS, with feature `tls-rustls` |
    /// | `redis+unix:///path/to/socket` | over a Unix socket |
    /// | `redis+sentinel://[user:password@]s1:26379,s2:26379/name[/db]` | the master that the sentinels name, also after a failover; user and password are for the servers; `rediss+sentinel://` over TLS |
    /// | `redis+cluster://[user:password@]h1:6379,h2:6379` | the masters of a cluster, found through these nodes: each lock is on the master of its slot; `rediss+cluster://` over TLS |
    /// | `redis+quorum://a,b,c` | a [quorum](Self::connect_quorum) of independent masters; `rediss+quorum://` over TLS |
    /// | `memory://` | locks in this process, for development and tests; `memory://name` is shared by all managers that name it |
    ///
    /// The URLs of sentinels, of a cluster and of a quorum need the features `sentinel`, `cluster` and `quorum`, which are on by default.
    ///
    /// `?protocol=resp2` at the end of a URL of servers asks for RESP2: for a proxy that accepts RESP3 but does not carry it. Then no
    /// messages arrive, so a waiter polls every [`poll_interval`](Self::poll_interval). If the server refuses HELLO or SUBSCRIBE, or
    /// stays with RESP2 after HELLO, the client polls without the option.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable) if no server or no sentinel answers, or if the server is a replica. If the server may
    /// speak TLS and the URL does not, or the reverse, it says so: neither side tells the other.
    /// [`InvalidConfig`](LockError::InvalidConfig) without a tokio runtime, for a setting or URL that cannot work, and for a server
    /// that cannot serve. The error says what to change. `connect` finds:
    ///
    /// - a refused password or certificate; a user without the rights that locks need
    /// - an HTTP server; a Sentinel, or a node of a cluster, behind a URL of another kind; a name that the sentinels do not know
    /// - a server older than Redis 6.2; programs that use another format of the locks
    ///
    /// # Failover
    ///
    /// With the feature `sentinel`: behind Sentinel, and behind a plain URL while its server lives, the client connects to a new master within milliseconds
    /// after the sentinels name it. Each hold is confirmed there: it continues, or it is lost and its guard is notified. Replication
    /// is asynchronous, so locks that were granted just before may be lost: mostly those of the last milliseconds if the master
    /// dies, and those of about the last second at a `SENTINEL FAILOVER`.
    ///
    /// In a cluster, the client follows a slot that moves, and a replica that takes over. Each hold is confirmed at the new master of
    /// its slot. A slot that moves costs no lock; a failover may cost locks of the failed master, as above.
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
        ready(self.start(url)?).await
    }

    /// As [`connect`](Self::connect), but the first call that needs the server makes the connection. For a program that starts before
    /// its server.
    ///
    /// While the server is away, a call waits and fails as after a lost connection: [`acquire_within`](crate::Lock::acquire_within)
    /// and `wait` of the attribute wait for the server within their limit, [`acquire`](crate::Lock::acquire) for one ttl, and
    /// [`try_acquire`](crate::Lock::try_acquire) fails at once. If `connect` would refuse the server (a wrong password, a wrong kind
    /// of server, missing rights), the first call fails with the same text.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for a setting or URL that cannot work, and without a tokio runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// use lock_core::{LockError, LockManager};
    ///
    /// // No server is there yet.
    /// let locks = LockManager::builder().connect_lazily("redis://127.0.0.1:1")?;
    /// let refused = locks.lock("a").try_acquire().await;
    /// assert!(matches!(refused, Err(LockError::Unavailable { .. })));
    /// # Ok(()) }
    /// ```
    pub fn connect_lazily(self, url: &str) -> Result<LockManager, LockError> {
        self.start(url).map(LockManager::new)
    }

    pub(super) fn start(mut self, url: &str) -> Result<Arc<Engine>, LockError> {
        self.check()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        if let Some(name) = url.strip_prefix("memory://") {
            tracing::warn!(
                "locks are kept in the memory of this process: other processes do not see them"
            );
            let store = AnyStore::Memory(MemoryStore::open(name, Arc::clone(&clock)));
            return Engine::start(self.config, store, clock);
        }
        if let Some(nodes) = node_urls(url) {
            return self.start_quorum(&nodes);
        }
        self.redis.prefix = self.config.prefix().whole().into();
        let store = AnyStore::Redis(RedisStore::open(url, &self.config, &self.redis)?);
        Engine::start(self.config, store, clock)
    }

    /// Uses a connection that the program already has: a `ConnectionManager`, a `MultiplexedConnection`, or any other connection to
    /// one master.
    ///
    /// Such a connection receives no messages for locks, so a waiter polls every [`poll_interval`](Self::poll_interval). The manager
    /// notices a broken connection at the next command, so a lock that was taken away meanwhile is lost at its next renewal. A
    /// `MultiplexedConnection` does not reconnect: prefer the others. The server is not examined.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for a setting that cannot work, or without a tokio runtime.
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
        self.check()?;
        let connection = UserConnection::new(connection);
        let store = AnyStore::Redis(RedisStore::over(connection, &self.config));
        let engine = Engine::start(self.config, store, Arc::new(SystemClock))?;
        Ok(LockManager::new(engine))
    }

    pub(super) fn start_quorum(mut self, nodes: &[String]) -> Result<Arc<Engine>, LockError> {
        self.config.longest = Some(self.quorum.longest());
        self.check()?;
        let store = AnyStore::Quorum(self.quorum_store(nodes)?);
        Engine::start(self.config, store, Arc::new(SystemClock))
    }

    pub(super) fn quorum_store(&self, nodes: &[String]) -> Result<QuorumStore, LockError> {
        let limit = self.config.command_deadline;
        let mut redis = self.redis.clone();
        redis.prefix = self.config.prefix().whole().into();
        QuorumStore::open(nodes, &self.quorum, &redis, limit)
    }
}

/// Makes the first connection, so that a wrong address, password or server shows at start-up.
pub(super) async fn ready(engine: Arc<Engine>) -> Result<LockManager, LockError> {
    let ready = engine.shared.store.ready().await;
    ready.map_err(StoreError::into_lock_error)?;
    Ok(LockManager::new(engine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_whose_feature_is_not_in_the_build_names_the_feature() {
        for (feature, is_built, lacks) in [
            ("quorum", cfg!(feature = "quorum"), "has no quorum"),
            ("cluster", cfg!(feature = "cluster"), "has no cluster"),
            (
                "sentinel",
                cfg!(feature = "sentinel"),
                "cannot ask sentinels",
            ),
        ] {
            let refusal = format!(
                "lock configuration: this build {lacks}: enable the feature `{feature}` of lock-core for `redis+{feature}://`"
            );
            for scheme in ["redis", "rediss"] {
                let url = format!("{scheme}+{feature}://a,b,c/0");
                // There is no runtime here, so each URL is refused.
                let refused = LockManagerBuilder::default().connect_lazily(&url);
                let refused = refused.err().unwrap().to_string();
                assert_eq!(refused == refusal, !is_built, "{url}: {refused}");
            }
        }
    }
}
