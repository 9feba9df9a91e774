//! Makes a manager, or a new quorum, from settings: URLs and connections.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::base::error::LockError;
use crate::base::quorum_node::QuorumNode;
use crate::base::time::{Clock, SystemClock};
use crate::engine::{Engine, run_alone};
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
    /// Behind Sentinel, and behind a plain URL while its server lives, the client connects to a new master within milliseconds
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

    fn start(mut self, url: &str) -> Result<Arc<Engine>, LockError> {
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
            return self.start_quorum(&texts(nodes));
        }
        self.redis.prefix = self.config.prefix().whole().into();
        let store = AnyStore::Redis(RedisStore::open(url, &self.config, &self.redis)?);
        Engine::start(self.config, store, clock)
    }

    /// Connects to a quorum: 3, 5, 7 or 9 independent masters, which do not replicate each other. A client holds a lock if a
    /// majority of them has granted it, so the lock survives the loss of a minority. This is Redlock, with
    /// [fencing tokens](crate::FencingToken).
    ///
    /// Each URL may have its own user, password, port and database. [`connect`](Self::connect) takes the same nodes as one URL:
    /// `redis+quorum://user:password@a:6379/0,b,c`, with `%2C` for a comma in a password. All programs name the same nodes, each
    /// by the same host and port: the nodes store this list, and a program with another list does not use them. A program that
    /// reaches a node by another name appends the common name to its URL: `redis://localhost:7001?node=10.0.0.1:6379`.
    ///
    /// A ttl is at most half of the [wait](Self::quorum_wait) of the quorum: 30 s, unless you lengthen it in all programs.
    ///
    /// Every operation sends its request to all nodes at once and is done when a majority has decided. A node that does not answer
    /// costs only its vote. [Begin](Self::begin_quorum) a new quorum once, before its first lock. Waiters of different processes get
    /// the lock in approximate, not strict, FIFO order. [Reentrant locks](crate::ReentrantLock) do not work over a quorum: acquiring
    /// one is [`InvalidConfig`](LockError::InvalidConfig).
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for another number of nodes, for a node that is named twice, or as for
    /// [`connect`](Self::connect); [`Unavailable`](LockError::Unavailable), with the error of each node, if no majority answers.
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
        ready(self.start_quorum(&texts(nodes))?).await
    }

    /// Begins a new quorum. Call it once, before the first lock: from then on the nodes vote.
    ///
    /// A server without data may have lost votes for locks that are still held. So a node that belongs to no quorum yet votes only
    /// after the [wait](Self::quorum_wait) of the quorum, also in a new quorum. With this call the operator asserts that none of the
    /// servers was a node before, and skips the wait. **Do not call it whenever a program starts**: if all nodes have lost their data,
    /// a call ends their waits, and two clients may hold one lock. Several programs may call it at once, and a call that was
    /// interrupted may be repeated.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable) unless all nodes answer; [`InvalidConfig`](LockError::InvalidConfig) if some nodes have
    /// lost their data or have restarted since the quorum began, if one belongs to another quorum, without a tokio runtime (unless
    /// the builder has [`own_thread`](Self::own_thread)), or as for [`connect_quorum`](Self::connect_quorum).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the nodes may have begun. Call it again; otherwise the other nodes wait.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// lock_core::LockManager::builder().begin_quorum(nodes).await?;
    /// # Ok(()) }
    /// ```
    pub fn begin_quorum<U: AsRef<str>>(self, nodes: impl IntoIterator<Item = U>) -> BeginQuorum {
        BeginQuorum {
            builder: self,
            nodes: texts(nodes),
            anew: false,
        }
    }

    /// The state of each node of a quorum, in the order of their names: for operators. Writes nothing, and needs no majority.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for a URL or a setting that cannot work, or without a tokio runtime (unless the
    /// builder has [`own_thread`](Self::own_thread)). The error of a node is in [`QuorumNode::vote`].
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// for node in lock_core::LockManager::builder().quorum_status(nodes).await? {
    ///     println!("{}: {:?}", node.address(), node.vote());
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn quorum_status<U: AsRef<str>>(
        self,
        nodes: impl IntoIterator<Item = U>,
    ) -> Result<Vec<QuorumNode>, LockError> {
        let own_thread = self.config.own_thread;
        let store = checked_quorum(self, &texts(nodes))?;
        run_alone(own_thread, async move { store.status().await }).await
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

    fn start_quorum(mut self, nodes: &[String]) -> Result<Arc<Engine>, LockError> {
        self.config.longest = Some(self.quorum.longest());
        self.check()?;
        let store = AnyStore::Quorum(self.quorum_store(nodes)?);
        Engine::start(self.config, store, Arc::new(SystemClock))
    }

    fn quorum_store(&self, nodes: &[String]) -> Result<QuorumStore, LockError> {
        let limit = self.config.command_deadline;
        let mut redis = self.redis.clone();
        redis.prefix = self.config.prefix().whole().into();
        QuorumStore::open(nodes, &self.quorum, &redis, limit)
    }
}

/// Begins a quorum when it is awaited. Made by [`LockManagerBuilder::begin_quorum`](crate::LockManagerBuilder::begin_quorum).
#[must_use = "a quorum begins when this is awaited"]
pub struct BeginQuorum {
    builder: LockManagerBuilder,
    nodes: Vec<String>,
    anew: bool,
}

// The URLs may have passwords.
impl fmt::Debug for BeginQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeginQuorum")
            .field("nodes", &self.nodes.len())
            .field("anew", &self.anew)
            .finish_non_exhaustive()
    }
}

impl BeginQuorum {
    /// Begins the quorum whatever its nodes have stored: ends their waits, and replaces their list and their
    /// [wait](crate::LockManagerBuilder::quorum_wait).
    ///
    /// With this call the operator asserts that **no program uses these nodes, and that no lock is held**: otherwise two clients may
    /// hold one lock. Use it to add nodes, to change the wait, or to repair a quorum after a node has lost its data for good.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// lock_core::LockManager::builder().begin_quorum(nodes).anew().await?;
    /// # Ok(()) }
    /// ```
    pub fn anew(mut self) -> Self {
        self.anew = true;
        self
    }

    async fn run(self) -> Result<(), LockError> {
        let own_thread = self.builder.config.own_thread;
        let store = checked_quorum(self.builder, &self.nodes)?;
        let beginning = async move {
            if self.anew {
                store.begin_anew().await
            } else {
                store.begin().await
            }
        };
        let done = run_alone(own_thread, beginning).await?;
        done.map_err(StoreError::into_lock_error)
    }
}

impl IntoFuture for BeginQuorum {
    type Output = Result<(), LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Makes the first connection, so that a wrong address, password or server shows at start-up.
async fn ready(engine: Arc<Engine>) -> Result<LockManager, LockError> {
    let ready = engine.shared.store.ready().await;
    ready.map_err(StoreError::into_lock_error)?;
    Ok(LockManager::new(engine))
}

/// Makes a store without an engine, to ask the nodes of a quorum directly.
fn checked_quorum(
    mut builder: LockManagerBuilder,
    nodes: &[String],
) -> Result<QuorumStore, LockError> {
    builder.config.longest = Some(builder.quorum.longest());
    builder.check()?;
    builder.quorum_store(nodes)
}

fn texts<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Vec<String> {
    let urls: Vec<_> = urls.into_iter().collect();
    // One URL may name all nodes of the quorum.
    if let [url] = &urls[..]
        && let Some(nodes) = node_urls(url.as_ref())
    {
        return nodes;
    }
    urls.iter().map(|url| url.as_ref().to_owned()).collect()
}
